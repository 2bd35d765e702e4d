// Draws a dashboard as Grafana does, with its own library. draw.cjs puts what to draw into window.draw.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, getFieldDisplayName, ThemeContext } from '@grafana/data';
import { BigValue, BigValueColorMode, BigValueGraphMode, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';
import { empty, last, load } from './query.js';
import { Heatmap, StateTimeline } from './painted.jsx';

const { dashboard, run, grid } = window.draw;
const theme = createTheme({ colors: { mode: 'light' } });
const ends = { from: dateTime(run.from * 1000), to: dateTime(run.to * 1000) };
const range = { ...ends, raw: ends };

function Stat({ panel, frames, width, height }) {
  const { textMode, justifyMode, wideLayout } = panel.options;
  return (
    <div style={{ display: 'flex' }}>
      {frames.map((frame, i) => {
        const field = frame.fields[1];
        const title = frames.length > 1 || textMode === 'name' ? getFieldDisplayName(field, frame) : undefined;
        const value = { ...field.display(last(panel, field)), title };
        return (
          <BigValue key={i} theme={theme} value={value} width={width / frames.length} height={height} count={frames.length} textMode={textMode}
            justifyMode={justifyMode} wideLayout={wideLayout} colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.None} />
        );
      })}
    </div>
  );
}

const kinds = {
  stat: Stat,
  timeseries: ({ panel, frames, width, height }) => (
    <TimeSeries frames={frames} structureRev={1} width={width} height={height} timeRange={range} timeZone="utc" legend={panel.options.legend} />
  ),
  table: ({ frames, width, height }) => <Table data={frames[0]} width={width} height={height} />,
  'state-timeline': (props) => <StateTimeline {...props} theme={theme} range={range} />,
  heatmap: (props) => <Heatmap {...props} theme={theme} range={range} />,
};

// place is where a panel stands, in Grafana's grid of 24 columns.
function place({ x, y, w, h }) {
  const column = (grid.width - grid.gap) / 24;
  return {
    position: 'absolute', left: grid.gap + x * column, top: grid.top + y * grid.row, width: w * column - grid.gap, height: h * grid.row - grid.gap,
  };
}

function Panel({ panel, frames }) {
  const at = place(panel.gridPos);
  const text = { ...theme.typography.h5, color: theme.colors.text.primary, paddingTop: 6 };
  if (panel.type === 'row') return <div style={{ ...at, ...text }}>{panel.title}</div>;
  const Kind = kinds[panel.type];
  return (
    <div style={at}>
      <PanelChrome title={panel.title} width={at.width} height={at.height}>
        {(width, height) => (empty(frames) ? 'No data' : <Kind panel={panel} frames={frames} width={width} height={height} />)}
      </PanelChrome>
    </div>
  );
}

function Dashboard({ frames }) {
  return (
    <>
      <div style={{ ...theme.typography.h4, color: theme.colors.text.primary, padding: '10px 8px 0' }}>{dashboard.title}</div>
      {dashboard.panels.map((p, i) => <Panel key={i} panel={p} frames={frames.get(p)} />)}
    </>
  );
}

// show is done when all of it is painted: plots paint in the frame after the one that lays them out, legends shift them once more.
async function show(root, what) {
  root.render(<ThemeContext.Provider value={theme}><GlobalStyles />{what}</ThemeContext.Provider>);
  for (let i = 0; i < 6; i++) await new Promise(requestAnimationFrame);
}

async function main() {
  const panels = dashboard.panels.filter((p) => p.type !== 'row');
  const strange = panels.find((p) => !kinds[p.type]);
  if (strange) throw new Error(`no panel of type ${strange.type} here: ${strange.title}`);
  const frames = new Map(await Promise.all(panels.map(async (p) => [p, await load(p, dashboard.templating.list, run, theme)])));
  document.body.style.background = theme.colors.background.canvas;
  const root = createRoot(document.getElementById('dashboard'));
  await show(root, null);
  await Promise.all(['400 12px Inter', '500 12px Inter'].map((f) => document.fonts.load(f))); // before plots measure their labels
  await show(root, <Dashboard frames={frames} />);
  return panels.filter((p) => empty(frames.get(p))).map((p) => p.title);
}

window.drawn = main();
