// Draws dashboards from a Prometheus: node draw.cjs PROMETHEUS_URL FROM TO FOLDER DASHBOARD.json...     times in Unix seconds
// writes FOLDER/dash-NAME.png of each. A panel without data is a failure, and so is an error in the page.
// NODE_PATH has the packages, CHROMIUM is the browser.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const esbuild = require('esbuild');
const { chromium } = require('playwright-core');
const UPNG = require('upng-js');

const [prometheus, from, to, folder, ...dashboards] = process.argv.slice(2);
const packages = process.env.NODE_PATH;
const run = { from: Number(from), to: Number(to), job: 'pd-router' };
const grid = { width: 1480, gap: 8, row: 34, top: 44 }; // pixels; Grafana's rows are 38 high

// The library's modules would get an object from this package instead of the component.
const scrollbars = {
  name: 'scrollbars',
  setup: (build) => build.onLoad({ filter: /react-custom-scrollbars-2.lib.index\.js$/ }, () => (
    { contents: 'module.exports = require("./Scrollbars").default' }
  )),
};

async function bundle() {
  const { outputFiles } = await esbuild.build({
    entryPoints: [path.join(__dirname, 'page.jsx')], nodePaths: [packages], plugins: [scrollbars], outdir: '/', write: false, bundle: true,
    jsx: 'automatic', logLevel: 'error', define: { 'process.env.NODE_ENV': '"production"' },
    loader: { '.svg': 'dataurl', '.png': 'dataurl', '.ttf': 'dataurl' },
  });
  return Object.fromEntries(outputFiles.map((f) => [`/draw/page${path.extname(f.path)}`, f.contents]));
}

const html = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css">'
  + '<body><div id="dashboard"></div><script src="page.js"></script>';
const types = { '': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };

// content is what the page loads: itself, and where the library looks for Grafana's icons and fonts, those of the packages.
function content(pathname, built) {
  if (pathname === '/draw/') return html;
  const [, icon] = pathname.match(/\/build\/(img\/icons\/.*)/) ?? [];
  if (icon) return fs.readFileSync(path.join(packages, '@grafana/ui/dist/public', icon));
  const [, style] = pathname.match(/\/Inter-(Regular|Medium)\.woff2/) ?? [];
  if (style) return fs.readFileSync(path.join(packages, `@fontsource/inter/files/inter-latin-${style === 'Medium' ? 500 : 400}-normal.woff2`));
  return built[pathname];
}

// The page is of the Prometheus' own origin, so that it may ask it.
async function serve(context) {
  const built = await bundle();
  await context.route(`${prometheus}/draw/**`, (route) => {
    const { pathname } = new URL(route.request().url());
    const body = content(pathname, built);
    if (body === undefined) return route.abort();
    return route.fulfill({ contentType: types[path.extname(pathname)], body: Buffer.from(body) });
  });
}

// small is the same picture with a palette: of these few colours none is missed, and half of the bytes go.
function small(png) {
  const { width, height, ...image } = UPNG.decode(png);
  return Buffer.from(UPNG.encode(UPNG.toRGBA8({ width, height, ...image }), width, height, 256));
}

async function draw(context, file) {
  const dashboard = JSON.parse(fs.readFileSync(file, 'utf8'));
  const picture = path.join(folder, `dash-${path.basename(file, '.json')}.png`);
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (e) => wrong.push(String(e)));
  const rows = Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
  await page.setViewportSize({ width: grid.width, height: grid.top + rows * grid.row });
  await page.addInitScript((what) => { window.draw = what; }, { dashboard, run, grid });
  await page.goto(`${prometheus}/draw/`);
  const empty = await page.evaluate(() => window.drawn);
  fs.writeFileSync(picture, small(await page.screenshot()));
  await page.close();
  wrong.push(...empty.map((title) => `no data in ${title}`));
  const size = Math.round(fs.statSync(picture).size / 1000);
  console.log(`${wrong.length ? 'FAIL' : 'ok  '} ${picture}, ${size} kB${wrong.map((w) => `\n     ${w}`).join('')}`);
  return !wrong.length;
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext();
  await serve(context);
  let ok = true;
  for (const file of dashboards) ok = await draw(context, file) && ok;
  await browser.close();
  process.exitCode = ok ? 0 : 1;
}

main().catch((e) => { console.error(e); process.exit(1); });
