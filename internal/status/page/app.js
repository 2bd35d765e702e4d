'use strict';
(() => {
  const WINDOW = 300; // seconds of the past that are drawn
  const KEPT = 64; // requests that are listed
  const PHASES = ['prefill', 'kv_wait', 'decode', 'settle', 'down'];
  const NAMES = { prefill: 'prefill', kv_wait: 'KV wait', decode: 'decode', settle: 'settle', down: 'down', free: 'free', queue: 'line', read_body: 'upload' };
  const ROOMS = ['free', 'reserved', 'receiving', 'held', 'sending', 'quarantined']; // states of a slot in a staged router's arena
  const $ = (id) => document.getElementById(id);
  const count = new Intl.NumberFormat();

  let last = null; // newest message
  let past = new Map(); // node -> Map of unix second -> digits by phase
  let lines = new Map(); // seq -> row of a request
  let cards = new Map(); // node -> parts of its card
  let paused = false;

  function el(tag, text, className) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  }

  // set leaves what is the same alone, so that a selection and a screen reader's place stay.
  function set(e, text) {
    if (e.textContent !== text) e.textContent = text;
  }

  function duration(s) {
    if (s < 0.0995) return `${Math.round(s * 1000)} ms`;
    if (s < 9.95) return `${s.toFixed(1)} s`;
    if (s < 59.5) return `${Math.round(s)} s`;
    const minutes = Math.floor(Math.round(s) / 60);
    if (minutes < 60) return `${minutes} min ${Math.round(s) % 60} s`;
    if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
    return `${Math.floor(minutes / 1440)} d ${Math.floor(minutes / 60) % 24} h`;
  }

  function size(n) {
    for (const unit of ['B', 'KiB', 'MiB']) {
      if (n < 1024) return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
      n /= 1024;
    }
    return `${n.toFixed(1)} GiB`;
  }

  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

  // ---- what came

  function take(message, whole) {
    if (whole) {
      past = new Map();
      lines.forEach((row) => row.remove());
      lines = new Map();
      showSettings(message);
    }
    last = message;
    message.slots.forEach(remember);
    for (const r of message.recent) {
      if (!lines.has(r.seq)) lines.set(r.seq, requestRow(r));
    }
    for (const seq of [...lines.keys()].sort((a, b) => a - b).slice(0, Math.max(0, lines.size - KEPT))) {
      lines.get(seq).remove();
      lines.delete(seq);
    }
    if (!paused) show();
  }

  function remember(slot) {
    if (!past.has(slot.node)) past.set(slot.node, new Map());
    const seconds = past.get(slot.node);
    const t = slot.timeline;
    for (let i = 0; i < t.seconds; i++) {
      seconds.set(t.from + i, PHASES.map((p) => (t[p] ? t[p].charCodeAt(i) - 48 : 0)));
    }
    const oldest = t.from + t.seconds - WINDOW;
    for (const at of seconds.keys()) if (at < oldest) seconds.delete(at);
  }

  // ---- what is shown

  function show() {
    const s = last;
    showState(s.state === 'ok' && s.missing ? 'impaired' : s.state);
    set($('about'), `up ${duration(s.uptime_s)}, ${clock(Date.parse(s.time))}`);
    showMissing(s.missing || []);
    const up = s.slots.filter((x) => x.up).length;
    const busy = s.slots.filter((x) => x.phase !== 'free' && x.phase !== 'down').length;
    set($('t-waiting'), count.format(s.line.waiting));
    set($('t-oldest'), s.line.waiting ? duration(s.line.oldest_s) : '–');
    set($('t-busy'), `${busy} of ${up}`);
    set($('t-requests'), count.format(s.rates.requests_per_min));
    set($('t-tokens'), count.format(s.rates.tokens_per_s));
    set($('t-refused'), count.format(s.rates.refused_429_per_min));
    $('t-refused').className = s.rates.refused_429_per_min ? 'hot' : '';
    document.title = s.line.waiting ? `${count.format(s.line.waiting)} waiting – pd-router` : 'pd-router';
    set($('prefill'), `Prefill ${s.prefill.addr}: ${s.prefill.up ? 'up' : `down, ${s.arena ? 'no KV comes' : 'nothing is given out'}`}${s.prefill.trouble ? ` (${s.prefill.trouble})` : ''}. `
      + `Decode: ${up} of ${s.slots.length} up.`);
    showArena(s.arena);
    s.slots.forEach(showSlot);
    showLine(s.line, Date.parse(s.time));
    for (const [, row] of [...lines].sort((a, b) => a[0] - b[0])) if (!row.isConnected) $('requests').prepend(row);
    $('none').hidden = lines.size > 0;
  }

  function showState(state) {
    set($('state'), state);
    $('state').dataset.state = { ok: 'ok', starting: 'wait', draining: 'wait' }[state] || 'bad';
  }

  function showMissing(missing) {
    $('missing').hidden = missing.length === 0;
    if (JSON.stringify([...$('missing').children].map((e) => e.textContent)) !== JSON.stringify(missing)) {
      $('missing').replaceChildren(...missing.map((m) => el('li', m)));
    }
  }

  function showArena(arena) {
    $('arena').hidden = !arena;
    if (!arena) return;
    set($('arena'), `Arena of ${size(arena.bytes)}: ${ROOMS.map((r) => `${arena.slots[r]} ${r}`).join(' · ')}. `
      + `${count.format(arena.kv_ready)} of those who wait have their KV ready.`);
  }

  function card(node) {
    const c = { box: el('li'), facts: el('span', '', 'facts'), canvas: el('canvas'), shares: el('span', '') };
    c.canvas.setAttribute('role', 'img');
    const axis = el('p', undefined, 'axis');
    axis.append(el('span', '5 min ago'), c.shares, el('span', 'now'));
    c.box.append(el('h3', node, 'mono'), c.facts, c.canvas, axis);
    $('slots').append(c.box);
    return c;
  }

  function showSlot(slot) {
    if (!cards.has(slot.node)) cards.set(slot.node, card(slot.node));
    const c = cards.get(slot.node);
    const facts = [`${NAMES[slot.phase]} for ${duration(slot.since_s)}`];
    if (!slot.up) facts.unshift('does not answer');
    if (slot.rid) facts.push(`rid ${slot.rid}`);
    if (slot.tokens) facts.push(`${count.format(slot.tokens)} tokens`);
    if (slot.tokens_per_s) facts.push(`${count.format(slot.tokens_per_s)} tokens/s`);
    if (slot.kv_usage >= 0.01) facts.push(`KV ${Math.round(slot.kv_usage * 100)} %`);
    set(c.facts, facts.join(' · '));
    const shares = [...PHASES, 'free'].filter((p) => slot.shares[p]).map((p) => `${NAMES[p]} ${(slot.shares[p] * 100).toFixed(slot.shares[p] < 0.1 ? 1 : 0)} %`).join(', ');
    set(c.shares, shares);
    c.canvas.setAttribute('aria-label', `Last five minutes of ${slot.node}: ${shares || 'nothing known yet'}`);
    draw(c.canvas, past.get(slot.node), slot.timeline.from + slot.timeline.seconds);
  }

  // draw makes one column a second, filled from below in the shares of the phases.
  function draw(canvas, seconds, end) {
    const scale = window.devicePixelRatio || 1;
    const w = Math.round(canvas.clientWidth * scale);
    const h = Math.round(canvas.clientHeight * scale);
    if (!w || !h) return;
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const g = canvas.getContext('2d');
    g.clearRect(0, 0, w, h);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = PHASES.map(colour);
    const free = colour('free');
    for (let i = 0; i < WINDOW; i++) {
      const digits = seconds.get(end - WINDOW + i);
      if (!digits) continue; // before the router began
      const left = Math.floor(i * w / WINDOW);
      const width = Math.max(1, Math.floor((i + 1) * w / WINDOW) - left);
      const sum = Math.max(9, digits.reduce((a, b) => a + b, 0));
      g.fillStyle = free;
      g.fillRect(left, 0, width, h);
      let from = h;
      digits.forEach((d, p) => {
        if (!d) return;
        const height = Math.max(1, Math.round(d * h / sum));
        g.fillStyle = colours[p];
        if (PHASES[p] === 'down') { // hatched: told from the others without its colour
          for (let y = from - height; y < from; y += 4 * scale) g.fillRect(left, y + ((i * 2) % 4) * scale, width, 2 * scale);
        } else {
          g.fillRect(left, from - height, width, height);
        }
        from -= height;
      });
    }
  }

  function showLine(line, now) {
    const shown = line.first.length;
    let caption = 'Nobody waits.';
    if (line.waiting) {
      caption = `${count.format(line.waiting)} of at most ${count.format(line.max)} wait, with ${size(line.bytes)} of at most ${size(line.max_bytes)}`
        + (shown < line.waiting ? `; the first ${shown}:` : ':');
    }
    if (line.paused) caption += ' No slot is given out while the prefill node is down.';
    set($('line-caption'), caption);
    const body = $('waiters');
    while (body.rows.length > shown) body.deleteRow(-1);
    while (body.rows.length < shown) {
      const row = body.insertRow();
      for (let i = 0; i < 5; i++) row.insertCell();
    }
    line.first.forEach((w, i) => {
      const cells = body.rows[i].cells;
      set(cells[0], count.format(w.position));
      set(cells[1], clock(now - w.waited_s * 1000));
      set(cells[2], duration(w.waited_s));
      set(cells[3], size(w.bytes));
      set(cells[4], w.starts_in_s === null ? 'unknown' : duration(w.starts_in_s));
    });
  }

  function requestRow(r) {
    const row = el('tr');
    row.setAttribute('role', 'row');
    const bad = r.outcome !== 'ok';
    if (bad) row.className = 'failed';
    const cell = (label, text, small, className) => {
      const td = el('td', text, className);
      td.setAttribute('role', 'cell');
      td.dataset.label = label;
      if (small) td.append(el('small', small));
      row.append(td);
      return td;
    };
    cell('ended', clock(Date.parse(r.ended)));
    const why = [r.error_type && r.error_type !== r.outcome ? r.error_type : '', r.param ? `field ${r.param}` : '', r.error || ''].filter(Boolean).join(': ');
    cell('outcome', `${r.outcome.replaceAll('_', ' ')} ${r.status}`, why, bad ? 'bad' : 'good');
    cell('request', r.endpoint, `${r.stream ? 'stream' : 'whole'}, ${size(r.body_bytes)}${r.attempts > 1 ? `, ${r.attempts} attempts` : ''}`);
    phases(cell('phases'), r);
    cell('total', duration(r.total_s));
    cell('tokens', r.prompt_tokens ? `${count.format(r.prompt_tokens)} in` : '–', r.completion_tokens ? `${count.format(r.completion_tokens)} out` : '');
    cell('node, rid', r.node || '–', r.rid);
    return row;
  }

  function phases(td, r) {
    const parts = ['read_body', 'queue', 'prefill', 'kv_wait', 'decode'].filter((p) => r.phases_s[p]);
    if (!parts.length) { td.textContent = '–'; return; }
    const bar = el('div', undefined, 'bar');
    bar.setAttribute('aria-hidden', 'true'); // the text says the same
    for (const p of parts) {
      const b = el('b', undefined, p);
      b.style.flexGrow = r.phases_s[p];
      bar.append(b);
    }
    td.append(bar, el('small', parts.filter((p) => p !== 'read_body' || r.phases_s[p] > 0.1).map((p) => `${NAMES[p]} ${duration(r.phases_s[p])}`).join(' · ')));
  }

  function showSettings(s) {
    set($('version'), s.version);
    $('settings').replaceChildren(...(s.config || []).map((c) => {
      const row = el('tr');
      const flag = el('th', c.flag, 'mono');
      flag.scope = 'row';
      row.append(flag, el('td', c.value === '' ? '(unset)' : c.value, 'mono'), el('td', c.default ? 'default' : 'set'));
      return row;
    }));
  }

  // ---- the feed

  let source = null;
  let again = 0;

  function connect() {
    clearTimeout(again);
    if (source) source.close();
    source = new EventSource('status/feed');
    source.addEventListener('snapshot', (e) => { set($('notice'), ''); take(JSON.parse(e.data), true); });
    source.addEventListener('update', (e) => take(JSON.parse(e.data), false));
    source.addEventListener('bye', () => lost('The router is shutting down. What is shown is what was true last.', 'draining'));
    source.onerror = () => lost('No connection to the router, or as many pages are watched as may be; trying again. What is shown is what was true last.', 'no connection');
  }

  // lost shows that nothing comes, and tries again: the browser would not after an answer that was an error.
  function lost(text, state) {
    set($('notice'), text);
    showState(state);
    source.close();
    clearTimeout(again);
    again = setTimeout(connect, 2000 + Math.random() * 1000);
  }

  // A page that nobody sees gives its place to others.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      clearTimeout(again);
      if (source) source.close();
    } else {
      connect();
    }
  });

  $('pause').addEventListener('click', () => {
    paused = !paused;
    $('pause').setAttribute('aria-pressed', String(paused));
    set($('notice'), paused ? 'Paused: the numbers stand still.' : '');
    if (!paused && last) show();
  });
  $('failures').addEventListener('change', (e) => $('requests').classList.toggle('failures', e.target.checked));
  const redraw = () => { if (last) last.slots.forEach(showSlot); };
  window.addEventListener('resize', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  if (!document.hidden) connect();
})();
