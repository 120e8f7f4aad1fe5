/** The last 24 hours: a chart for each figure, with its scale, and all of them as a table. */
import { make } from './dom.js';
import { get } from './table.js';
import { money, seconds } from './words.js';

const HOUR = 3_600_000; // ms
const HOURS = 24;
const TALL = 48; // of the drawing, as high as the scale
const time = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });
const tick = new Intl.DateTimeFormat(undefined, { hour: 'numeric' });
const number = (/** @type {number} */ n) => n.toLocaleString();

/** @typedef {{id: string, name: string, of: string, words: (n: number) => string, scale?: (n: number) => string}} Figure `of`: its field in the hours of /ended */
/** @type {Figure[]} */
const FIGURES = [
  { id: 'conversations', name: 'Conversations', of: 'begun', words: number },
  { id: 'failures', name: 'Failed', of: 'failed', words: number },
  { id: 'latency', name: 'Latency', of: 'latencyMs', words: (n) => seconds(n || undefined) },
  { id: 'cost', name: 'Cost', of: 'dollars', words: money, scale: (n) => `$${n.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 6 })}` },
];

/** @param {number} n @returns {number} the next round number */
function roundUp(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return power * ([1, 1.5, 2, 2.5, 3, 4, 5, 6, 8].find((step) => step * power >= n * 0.999) ?? 10);
}

/** The value at the top of a chart. One or two hours far above all others go beyond it, or these could not be told apart. @param {number[]} values */
export function scaleOf(values) {
  const [first = 0, second = 0, third = 0, ...rest] = values.filter((n) => n > 0).sort((a, b) => b - a);
  if (!first) return 0;
  if (rest.length < 3) return roundUp(first);
  return roundUp(second > 3 * third ? third : first > 3 * second ? second : first);
}

/** @param {number} at @param {number} from @param {number} to parts of the height @param {string} [kind] */
function bar(at, from, to, kind = '') {
  const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  for (const [name, n] of Object.entries({ x: at * 10 + 1, y: TALL * (1 - to), width: 8, height: TALL * (to - from), class: kind })) rect.setAttribute(name, String(n));
  return rect;
}

/** Adds a chart to the page. @param {Figure} figure @returns {(values: number[], now: number) => void} draws the values of the hours, the newest last; now is its hour */
function newChart({ id, name, words, scale = words }) {
  const [figure, caption, told, plot, most, beyond, axis] = [make('figure'), make('figcaption', '', name), make('b'), make('div', 'plot'), make('span', 'most'), make('p', 'beyond'), make('p', 'scale')];
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  for (const [key, value] of Object.entries({ viewBox: `0 0 240 ${TALL}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' })) svg.setAttribute(key, value);
  Object.assign(plot, { tabIndex: 0, role: 'slider', ariaLabel: `${name}: hour`, ariaValueMin: '0', ariaValueMax: String(HOURS - 1) });
  axis.ariaHidden = 'true';
  figure.id = id;
  caption.append(told);
  plot.append(most, svg);
  figure.append(caption, plot, axis, beyond);
  get('charts').insertBefore(figure, get('hours'));
  /** @type {number[]} */
  let values = [];
  let now = 0;
  const hour = (/** @type {number} */ at) => time.format((now - HOURS + 1 + at) * HOUR);
  /** Shows the value of an hour, or of the newest that has one. */
  const tell = (/** @type {number} */ wanted = -1) => {
    const at = wanted < 0 ? values.findLastIndex((n) => n > 0) : wanted;
    told.textContent = at < 0 ? 'none' : `${words(values[at] ?? 0)} ${at === HOURS - 1 ? 'this hour' : `at ${hour(at)}`}`;
    Object.assign(plot, { ariaValueNow: String(Math.max(at, 0)), ariaValueText: told.textContent });
    svg.querySelector('.mark')?.remove();
    if (wanted >= 0) svg.prepend(bar(at, 0, 1, 'mark'));
  };
  plot.onpointermove = ({ clientX }) => {
    const { left, width } = plot.getBoundingClientRect();
    tell(Math.min(HOURS - 1, Math.max(0, Math.floor(((clientX - left) / width) * HOURS))));
  };
  plot.onpointerleave = plot.onblur = () => tell();
  plot.onfocus = () => plot.matches(':focus-visible') && tell(Number(plot.ariaValueNow));
  plot.onkeydown = (e) => {
    const to = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -HOURS, End: HOURS }[e.key];
    if (!to) return;
    e.preventDefault();
    tell(Math.min(HOURS - 1, Math.max(0, Number(plot.ariaValueNow) + to)));
  };
  return (all, newest) => {
    [values, now] = [all, newest];
    const top = scaleOf(values);
    const over = values.flatMap((n, at) => (n > top ? [`${words(n)} at ${hour(at)}`] : []));
    beyond.textContent = over.length ? `Above the scale: ${over.join(', ')}` : '';
    most.textContent = top ? scale(top) : '';
    figure.classList.toggle('none', !top);
    svg.replaceChildren(...values.flatMap((n, at) => (n > top ? [bar(at, 0, 0.7), bar(at, 0.78, 1)] : n > 0 ? [bar(at, 0, Math.max(n / top, 0.05))] : [bar(at, 0, 0.03, 'hollow')])));
    axis.replaceChildren(...[0, 6, 12, 18].map((at) => make('span', '', tick.format((now - HOURS + 1 + at) * HOUR))), make('span', '', 'now'));
    tell();
  };
}

const charts = FIGURES.map(newChart);
let shown = '';

/** @param {any[]} hours of /ended, oldest first; those in which nothing happened are left out */
export function showCharts(hours) {
  const now = Math.floor(Date.now() / HOUR);
  const state = JSON.stringify([now, hours]); // each hour moves the bars
  if (state === shown) return;
  shown = state;
  const ago = new Map(hours.map((h) => [now - Math.floor(Date.parse(h.at) / HOUR), h]));
  charts.forEach((draw, i) => draw(Array.from({ length: HOURS }, (_, at) => Number(ago.get(HOURS - 1 - at)?.[FIGURES[i]?.of ?? ''] ?? 0)), now));
  const row = (/** @type {string[]} */ [first = '', ...rest], cell = 'td') => {
    const tr = make('tr');
    tr.append(Object.assign(document.createElement('th'), { textContent: first, scope: cell === 'td' ? 'row' : 'col' }), ...rest.map((text) => Object.assign(make(cell, 'number', text), cell === 'th' && { scope: 'col' })));
    return tr;
  };
  get('hours').querySelector('table').replaceChildren(row(['Hour', 'Begun', ...FIGURES.slice(1).map((f) => f.name.split(' ')[0] ?? '')], 'th'),
    ...hours.toReversed().map((h) => row([time.format(Date.parse(h.at)), ...FIGURES.map((f) => f.words(Number(h[f.of] ?? 0)))])));
  get('charts').hidden = !hours.length;
}
