// The queries of a panel, run as Grafana runs them, and what its field options make of the answers.
import {
  FieldType, fieldReducers, getDisplayProcessor, getFieldDisplayName, standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame,
} from '@grafana/data';

const { convertFieldTypeTransformer, mergeTransformer, organizeFieldsTransformer, sortByTransformer } = standardTransformers;
standardTransformersRegistry.setInit(() => [convertFieldTypeTransformer, mergeTransformer, organizeFieldsTransformer, sortByTransformer]
  .map((t) => ({ id: t.id, name: t.name, transformation: () => t })));

const STEP = 1; // seconds; Prometheus scrapes each second here

// fill puts variables and windows into an expression. Of the query variables only the job is one value; the others choose everything.
function fill(expr, variables, { from, to, job }) {
  const values = {
    __rate_interval: '8s', __interval_ms: `${STEP * 1000}`, __interval: `${STEP}s`, __range_s: `${to - from}`, __range: `${to - from}s`, job,
  };
  for (const v of variables) values[v.name] ??= v.type === 'textbox' ? v.query : '.*';
  return expr.replace(/\$(?:(\w+)|\{(\w+)\})/g, (all, a, b) => values[a ?? b] ?? all);
}

async function ask(target, variables, run) {
  const query = fill(target.expr, variables, run);
  const over = target.instant ? { time: run.to } : { start: run.from, end: run.to, step: STEP };
  const answer = await (await fetch(`/api/v1/query${target.instant ? '' : '_range'}?${new URLSearchParams({ query, ...over })}`)).json();
  if (answer.status !== 'success') throw new Error(`${query}: ${answer.error}`);
  return answer.data.result;
}

const numbers = (name, values, config = {}) => ({ name, type: FieldType.number, values: values.map(Number), config });
const times = (values) => ({ name: 'Time', type: FieldType.time, values: values.map((t) => t * 1000), config: {} });

// series makes a frame of one series, on every step of the range, so that a gap is seen as one.
function series(target, { metric, values, value }, { from, to }) {
  const name = target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
  const at = new Map((values ?? [value]).map(([t, v]) => [t, v]));
  const steps = value ? [value[0]] : Array.from({ length: Math.floor((to - from) / STEP) + 1 }, (_, i) => from + i * STEP);
  const all = numbers(name, steps.map((t) => at.get(t) ?? NaN), { displayNameFromDS: name });
  all.values = all.values.map((v) => (Number.isFinite(v) ? v : null));
  return toDataFrame({ refId: target.refId, fields: [times(steps), all] });
}

// rows makes the frame of a table: a line a series, a column a label.
function rows(target, result) {
  const labels = [...new Set(result.flatMap((r) => Object.keys(r.metric)))];
  return toDataFrame({
    refId: target.refId,
    fields: [
      times(result.map((r) => r.value[0])),
      ...labels.map((l) => ({ name: l, type: FieldType.string, values: result.map((r) => r.metric[l] ?? ''), config: {} })),
      numbers(`Value #${target.refId}`, result.map((r) => r.value[1])),
    ],
  });
}

// buckets makes one frame of a histogram: counts of each bucket alone, the lowest first.
function buckets(target, result, run) {
  const bound = (r) => (r.metric.le === '+Inf' ? Infinity : Number(r.metric.le));
  const sorted = result.toSorted((a, b) => bound(a) - bound(b));
  const below = sorted.map((r) => series(target, r, run));
  const fields = below.map((f, i) => ({
    ...f.fields[1], values: f.fields[1].values.map((v, k) => v === null ? null : v - (i ? below[i - 1].fields[1].values[k] ?? 0 : 0)),
  }));
  return toDataFrame({ refId: target.refId, fields: [below[0].fields[0], ...fields] });
}

// set writes a property whose name is a path, such as custom.axisPlacement.
function set(config, path, value) {
  const [first, ...rest] = path.split('.');
  return { ...config, [first]: rest.length ? set(config[first] ?? {}, rest.join('.'), value) : value };
}

function matches({ id, options }, name) {
  if (id === 'byName') return name === options;
  if (id === 'byRegexp') return new RegExp(options.replace(/^\/|\/$/g, '')).test(name);
  throw new Error(`no matcher ${id} here`);
}

// configure gives fields what the panel says of all of them and of some, and what Grafana would say otherwise.
function configure(panel, frames, theme) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const color = { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' };
  let index = 0;
  for (const frame of frames) {
    for (const field of frame.fields) {
      if (field.type !== FieldType.time) {
        field.config = { color, ...defaults, ...field.config };
        field.state = { seriesIndex: index++ };
        const name = getFieldDisplayName(field, frame);
        for (const o of overrides.filter((one) => matches(one.matcher, name))) {
          for (const p of o.properties) field.config = set(field.config, p.id, p.value);
        }
      }
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
  }
  return frames;
}

const transformed = (panel, frames) => new Promise((done, fail) => {
  for (const t of panel.transformations ?? []) {
    if (!standardTransformersRegistry.getIfExists(t.id)) throw new Error(`no transformation ${t.id} here`);
  }
  transformDataFrame(panel.transformations ?? [], frames, { interpolate: (s) => s }).subscribe({ next: done, error: fail });
});

// load answers with the frames of a panel, ready to be drawn.
export async function load(panel, variables, run, theme) {
  const frames = [];
  for (const target of panel.targets) {
    const result = await ask(target, variables, run);
    if (!result.length) continue;
    if (target.format === 'table') frames.push(rows(target, result));
    else if (target.format === 'heatmap') frames.push(buckets(target, result, run));
    else frames.push(...result.map((r) => series(target, r, run)));
  }
  return configure(panel, await transformed(panel, frames), theme);
}

// last is what a stat panel shows of a field.
export function last(panel, field) {
  const calc = panel.options.reduceOptions.calcs[0];
  return fieldReducers.get(calc).reduce?.(field, true, true)[calc] ?? field.values.findLast((v) => v !== null);
}

// empty tells whether there is nothing to see in frames.
export const empty = (frames) => !frames.some((f) => f.fields.some((field) => field.type === FieldType.number && field.values.some(Number.isFinite)));
