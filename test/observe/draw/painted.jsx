// The two panels whose drawing is in Grafana's server and not in its library: state timeline and heatmap. Both are rows of boxes over
// time, painted onto the library's plot with its axes and its legend.
import React from 'react';
import { AxisPlacement, LegendDisplayMode, UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend } from '@grafana/ui';
import { ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { interpolateSpectral } from 'd3-scale-chromatic';

// plot has so many rows, the first at the bottom; ticks are [height in rows, text]; boxes are {row, from, to, color}, times in ms.
function plot({ rows, ticks, boxes, share, gap, range, theme }) {
  const builder = new UPlotConfigBuilder('utc');
  builder.addScale({
    scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right,
    range: () => [range.from.valueOf(), range.to.valueOf()],
  });
  builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, rows] });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme, grid: { show: false } });
  builder.addAxis({
    scaleKey: 'y', placement: AxisPlacement.Left, theme, grid: { show: false }, ticks: { show: false },
    splits: () => ticks.map(([at]) => at), values: () => ticks.map(([, text]) => text),
  });
  builder.addSeries({ scaleKey: 'y', theme, show: true, lineWidth: 0, pathBuilder: () => null, showPoints: 'never' });
  builder.addHook('draw', (u) => {
    u.ctx.save(); // the plot remembers how it left its canvas
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    for (const { row, from, to, color } of boxes) {
      const left = Math.round(u.valToPos(from, 'x', true));
      const right = Math.round(u.valToPos(to, 'x', true));
      const top = u.valToPos(row + 0.5 + share / 2, 'y', true);
      u.ctx.fillStyle = color;
      u.ctx.fillRect(left, top, Math.max(1, right - left - gap), u.valToPos(row + 0.5 - share / 2, 'y', true) - top - gap);
    }
    u.ctx.restore();
  });
  return builder;
}

function Boxes({ width, height, range, legend, ...of }) {
  const items = legend?.map(({ text, color }) => ({ label: text, color, yAxis: 1 }));
  const config = React.useMemo(() => plot({ range, ...of }), []);
  const shown = items && (
    <VizLayout.Legend placement="bottom"><VizLegend placement="bottom" displayMode={LegendDisplayMode.List} items={items} /></VizLayout.Legend>
  );
  const data = [[range.from.valueOf(), range.to.valueOf()], [null, null]];
  return (
    <VizLayout width={width} height={height} legend={shown}>
      {(w, h) => <UPlotChart config={config} data={data} width={w} height={h} timeRange={range} />}
    </VizLayout>
  );
}

// StateTimeline has a row for each series, the first at the top, and a box for as long as its value says the same.
export function StateTimeline({ panel, frames, theme, ...size }) {
  const boxes = [];
  frames.forEach(({ fields: [time, field] }, i) => {
    const step = time.values[1] - time.values[0];
    time.values.forEach((t, k) => {
      if (field.values[k] === null) return;
      const { text, color } = field.display(field.values[k]);
      const box = boxes.at(-1);
      const row = frames.length - 1 - i;
      if (box?.row === row && box.text === text && box.to === t) box.to += step;
      else boxes.push({ row, from: t, to: t + step, text, color });
    });
  });
  const meanings = Object.values(panel.fieldConfig.defaults.mappings[0].options);
  const legend = meanings.map(({ text, color }) => ({ text, color: theme.visualization.getColorByName(color) }));
  const ticks = frames.map(({ fields: [, field] }, i) => [frames.length - 0.5 - i, field.config.displayNameFromDS]);
  return <Boxes {...size} theme={theme} rows={frames.length} ticks={ticks} boxes={boxes} share={panel.options.rowHeight} gap={0} legend={legend} />;
}

// Heatmap has a row for each bucket, without those that stay empty at both ends, and its upper bound beside its upper edge.
export function Heatmap({ panel, frames: [frame], theme, ...size }) {
  const [time, ...all] = frame.fields;
  const least = panel.options.filterValues.le;
  const used = all.map((f) => f.values.some((v) => v > least));
  const shown = all.slice(used.indexOf(true), used.lastIndexOf(true) + 1);
  const most = Math.max(...shown.flatMap((f) => f.values));
  const step = time.values[1] - time.values[0];
  const boxes = shown.flatMap((f, row) => time.values.flatMap((t, k) => (
    f.values[k] > least ? [{ row, from: t, to: t + step, color: interpolateSpectral(1 - f.values[k] / most) }] : []
  )));
  const bound = (f) => {
    const { text, suffix = '' } = f.display(Number(f.name));
    return f.name === '+Inf' ? f.name : text + suffix;
  };
  const ticks = shown.map((f, i) => [i + 1, bound(f)]);
  return <Boxes {...size} theme={theme} rows={shown.length} ticks={ticks} boxes={boxes} share={1} gap={panel.options.cellGap} />;
}
