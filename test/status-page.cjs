// What test/status-page.sh looks at. Each check prints one line; the last line counts them.
'use strict';
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { execFileSync } = require('node:child_process');
const { chromium } = require('playwright-core');

const base = process.argv[2];
const CROWD = 10000;
const MARK = 'MARK-7f3a'; // in prompts, headers and wrong values: it must come out nowhere
const { hostname, port } = new URL(base);
let passed = 0;
let failed = 0;

function check(what, ok, detail) {
  if (ok) passed++; else failed++;
  console.log(`${ok ? 'ok  ' : 'FAIL'}  ${what}${!ok && detail !== undefined ? `: ${JSON.stringify(detail)}` : ''}`);
}

async function until(what, f, ms = 10000) {
  const end = Date.now() + ms;
  for (;;) {
    const v = await f();
    if (v) return v;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

const queue = async () => (await fetch(`${base}/queue`)).json();

function request(tokens, extra = {}) {
  const body = JSON.stringify({ model: 'glm5', max_tokens: tokens, ignore_eos: true, messages: [{ role: 'user', content: `${MARK} tell me of queues` }], ...extra });
  return `POST /v1/chat/completions HTTP/1.1\r\nHost: ${hostname}\r\nContent-Type: application/json\r\nX-Request-ID: ${MARK}\r\n`
    + `X-Correlation-ID: ${MARK}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

// ask opens a connection of its own and leaves it open.
function ask(text) {
  return new Promise((done) => {
    const s = net.connect(Number(port), hostname, () => { s.write(text); done(s); });
    s.on('error', () => done(s));
    s.resume();
  });
}

async function crowd() {
  const all = [];
  while (all.length < CROWD) {
    const lot = [];
    for (let i = 0; i < 250; i++) lot.push(ask(request(300 + ((all.length + i) % 5) * 90)));
    all.push(...await Promise.all(lot));
  }
  await until('the crowd waits', async () => (await queue()).line.waiting > CROWD - 200);
  return all;
}

// feed reads the event stream for some seconds and tells what a watcher costs.
async function feed(seconds) {
  const stop = new AbortController();
  const r = await fetch(`${base}/status/feed`, { signal: stop.signal });
  let text = '';
  const decoder = new TextDecoder();
  const end = Date.now() + seconds * 1000;
  try {
    for await (const part of r.body) {
      text += decoder.decode(part, { stream: true });
      if (Date.now() > end) break;
    }
  } catch { /* ended by stop */ }
  stop.abort();
  const events = text.split('\n\n').filter(Boolean);
  const updates = events.filter((e) => e.startsWith('event: update'));
  return { type: r.headers.get('content-type'), whole: events[0].length, updates: updates.length, bytes: updates.reduce((n, e) => n + e.length + 2, 0), text };
}

async function look(browser, options, seen) {
  const page = await (await browser.newContext(options)).newPage();
  page.on('console', (m) => { if (m.type() === 'error') seen.errors.push(m.text()); });
  page.on('pageerror', (e) => seen.errors.push(String(e)));
  page.on('request', (r) => { if (!r.url().startsWith(base) && !r.url().startsWith('data:')) seen.elsewhere.push(r.url()); });
  await page.goto(base);
  await page.waitForFunction(() => document.querySelectorAll('#waiters tr').length === 50);
  return page;
}

const wide = (page) => page.evaluate(() => {
  const width = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll, .skip, .cards thead') && e.getBoundingClientRect().right > width + 0.5);
  return { over: document.documentElement.scrollWidth - width, out: out.slice(0, 3).map((e) => e.outerHTML.slice(0, 80)) };
});

const sees = (page) => page.evaluate(() => {
  const rgb = (s) => s.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = (c) => (0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]) / 255;
  const g = document.querySelector('canvas');
  const pixels = g.getContext('2d').getImageData(0, 0, g.width, g.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3]) colours.add(pixels.slice(i, i + 3).join());
  const s = getComputedStyle(document.body);
  return { back: light(rgb(s.backgroundColor)), text: light(rgb(s.color)), drawn: colours.size };
});

async function picture(page, name) {
  const file = path.join(process.env.PICTURES, `status-${name}.png`);
  await page.screenshot({ path: file, fullPage: false });
  const size = fs.statSync(file).size;
  check(`picture ${name} is under 300 KB`, size < 300e3, size);
}

async function contents(page) {
  const text = await page.innerText('body');
  const now = await queue();
  const shown = Number((await page.innerText('#t-waiting')).replace(/\D/g, ''));
  check('the page shows the length of the line', Math.abs(shown - now.line.waiting) < 200, [shown, now.line.waiting]);
  check('the first waiters have a position, a wait, a size and an estimate', await page.evaluate(() => {
    const cells = [...document.querySelectorAll('#waiters tr')].map((r) => [...r.cells].map((c) => c.textContent));
    return cells.every((c, i) => c[0] === String(i + 1) && /\d/.test(c[1]) && /\d (s|ms|min)/.test(c[2]) && /B$/.test(c[3]) && /\d (ms|s|min|h)/.test(c[4]));
  }), await page.innerText('#waiters tr:first-child'));
  check('each node has its card, the one that is down too', await page.locator('#slots > li').count() === 3 && /does not answer/.test(text));
  check('prefill is there', /Prefill .*: up/.test(text));
  check('a running slot tells its phase, its rid and its tokens', await page.evaluate(() => [...document.querySelectorAll('.facts')].some((f) => /rid [0-9a-f]{32}/.test(f.textContent) && /tokens\/s/.test(f.textContent))));
  check('requests that ended are listed with their phases', await page.evaluate(() => [...document.querySelectorAll('#requests tr')].some((r) => /ok 200/.test(r.textContent) && /decode/.test(r.textContent))));
  check('an error tells its type and field, not its text', /invalid 400[\s\S]*invalid_parameter: field temperature/.test(text), text.match(/invalid 400.*/));
  await page.click('summary');
  check('the settings in force are listed', /--queue-max\s+20000\s+set/.test(await page.innerText('#settings')) && /--queue-timeout\s+1800\s+default/.test(await page.innerText('#settings')));
  await page.click('summary');
  check('the version is shown', (await page.innerText('h1')).includes(now.version));
  const html = await page.content();
  const all = html + JSON.stringify(now);
  check('nothing that a client sent is shown', !all.includes(MARK) && !all.includes('tell me of queues'));
}

// staged shows the page what a staged router would send: the snapshot of this one with an arena.
async function staged(browser, seen) {
  const page = await (await browser.newContext({ viewport: { width: 360, height: 780 } })).newPage();
  page.on('pageerror', (e) => seen.errors.push(String(e)));
  const arena = { slots: { free: 1, reserved: 0, receiving: 0, held: 2, sending: 0, quarantined: 1 }, bytes: 50 * 2 ** 30, kv_ready: 2 };
  const whole = JSON.stringify({ ...await queue(), arena });
  await page.route('**/status/feed', (r) => r.fulfill({ contentType: 'text/event-stream', body: `event: snapshot\ndata: ${whole}\n\n` }));
  await page.goto(base);
  await page.waitForSelector('#arena:not([hidden])');
  check('the arena of a staged router is shown', await page.innerText('#arena') === 'Arena of 50.0 GiB: 1 free · 0 reserved · 0 receiving · '
    + '2 held · 0 sending · 1 quarantined. 2 of those who wait have their KV ready.', await page.innerText('#arena'));
  const w = await wide(page);
  check('and fits a narrow screen', w.over <= 0 && w.out.length === 0, w);
  await page.context().close();
}

async function keyboard(page) {
  const focus = () => page.evaluate(() => {
    const e = document.activeElement;
    const s = getComputedStyle(e);
    return { name: e === document.body ? 'BODY' : e.id || e.className || e.textContent.trim(), ring: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 };
  });
  await page.reload(); // the first stop is the first of the page
  await page.waitForFunction(() => document.querySelectorAll('#waiters tr').length === 50);
  await page.keyboard.press('Tab');
  check('the first stop skips to the content', (await focus()).name === 'skip');
  await page.keyboard.press('Enter');
  check('and does so', (await focus()).name === 'main');
  await page.evaluate(() => document.activeElement.blur());
  const stops = [];
  for (let i = 0; i < 16; i++) {
    await page.keyboard.press('Tab');
    stops.push(await focus());
  }
  const names = stops.map((s) => s.name);
  check('all that can be used is reached by the keyboard', ['pause', 'Now', 'scroll', 'failures', 'All flags in force', 'queue'].every((n) => names.includes(n)), names);
  check('and shows that it is', stops.filter((s) => s.name !== 'BODY').every((s) => s.ring), stops.filter((s) => !s.ring));
  await page.focus('#pause');
  await page.keyboard.press('Space');
  const still = await page.innerText('#about');
  await page.waitForTimeout(1500);
  check('Space pauses', await page.innerText('#about') === still && await page.getAttribute('#pause', 'aria-pressed') === 'true');
  await page.keyboard.press('Space');
  await page.waitForFunction((was) => document.getElementById('about').textContent !== was, still);
  check('and goes on', true);
  await page.check('#failures');
  check('only failures can be listed', await page.evaluate(() => [...document.querySelectorAll('#requests tr')].filter((r) => r.offsetParent).every((r) => r.classList.contains('failed'))));
  await page.uncheck('#failures');
}

async function rules(page, name) {
  await page.evaluate(fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
  const result = await page.evaluate(() => window.axe.run());
  check(`no accessibility rule is broken (${name}, ${result.passes.length} hold)`, result.violations.length === 0 && result.passes.length > 15,
    result.violations.map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 120), v.nodes[0].failureSummary.slice(0, 200)]));
}

async function main() {
  const seen = { errors: [], elsewhere: [] };
  const [browser] = await Promise.all([
    chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: ['--no-sandbox', '--disable-gpu'] }),
    crowd(),
  ]);
  await ask(request(10, { temperature: MARK }));
  await ask(`POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"${MARK.slice(0, 5)}`);
  (await ask(request(10))).destroy(); // leaves the line
  await until('some requests end', async () => (await queue()).recent.filter((r) => r.outcome === 'ok').length > 5, 20000);

  const pages = [
    look(browser, { viewport: { width: 1280, height: 1250 }, colorScheme: 'light' }, seen),
    look(browser, { viewport: { width: 1280, height: 1250 }, colorScheme: 'dark' }, seen),
    look(browser, { viewport: { width: 360, height: 780 }, colorScheme: 'light', isMobile: true, hasTouch: true, deviceScaleFactor: 2 }, seen),
  ];
  const cost = await feed(5);
  const rate = Math.round(cost.bytes / cost.updates);
  console.log(`      feed with ${(await queue()).line.waiting} waiting: ${cost.whole} bytes at first, then ${rate} bytes/s (${cost.updates} updates in 5 s)`);
  check('the feed sends about one update a second', cost.updates >= 3 && cost.updates <= 7, cost.updates);
  check('an update is small', rate < 12000, rate);
  check('the feed is an event stream', cost.type.startsWith('text/event-stream'));
  check('nothing that a client sent is in the feed', !cost.text.includes(MARK.slice(0, 5)));

  const [light, dark, phone] = await Promise.all(pages);
  await contents(light);
  let s = await sees(light);
  check('light is light, and the timeline is drawn', s.back > 0.9 && s.text < 0.3 && s.drawn >= 2, s);
  s = await sees(dark);
  check('dark is dark, and the timeline is drawn', s.back < 0.15 && s.text > 0.8 && s.drawn >= 2, s);
  for (const [name, page] of Object.entries({ light, dark, phone })) {
    const w = await wide(page);
    check(`nothing is wider than the screen (${name})`, w.over <= 0 && w.out.length === 0, w);
    await rules(page, name);
  }
  check('with direct handoff there is no arena', await light.isHidden('#arena') && !('arena' in await queue()));
  await staged(browser, seen);
  await keyboard(light);
  await light.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
  await picture(light, 'light');
  await picture(dark, 'dark');
  await picture(phone, 'phone');
  await phone.evaluate(() => document.getElementById('recent').scrollIntoView());
  await picture(phone, 'phone-requests');

  const top = execFileSync(process.env.TOP, ['top', '--url', base], { encoding: 'utf8' });
  check('top prints the same without a terminal', /waiting of 20000/.test(top) && /decode 2 of 3 up/.test(top) && !top.includes('\x1b') && !top.includes(MARK), top.slice(0, 400));

  await dark.context().close();
  await phone.context().close();
  await light.evaluate(() => { // the page notes the time itself: this program is about to get 10,000 refusals
    window.told = new Promise((done) => {
      const notice = document.getElementById('notice');
      new MutationObserver(() => done({ text: notice.textContent, at: Date.now() })).observe(notice, { childList: true, characterData: true, subtree: true });
    });
  });
  const asked = Date.now();
  process.kill(Number(process.env.ROUTER_PID), 'SIGTERM');
  const told = await light.evaluate(() => window.told);
  const bye = told.at - asked;
  check('a drain ends the feed at once, and the page says so', bye < 2000 && told.text.includes('shutting down'), [bye, told.text]);
  console.log(`      the page knew ${bye} ms after SIGTERM`);
  const errors = seen.errors.filter((e) => !/ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/.test(e)); // after the drain
  check('the browser has nothing to complain about', errors.length === 0, errors);
  check('nothing is loaded from elsewhere', seen.elsewhere.length === 0, seen.elsewhere);
  await browser.close();
  console.log(`status page: ${passed} passed, ${failed} failed`);
  process.exit(failed || !passed ? 1 : 0);
}

main().catch((e) => { console.error(e); process.exit(1); });
