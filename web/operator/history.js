/** What is over: the last conversations, and the last hours as two small charts. */
import { make } from './dom.js';
import { orderOf, outcomeOf, seconds, where, who } from './words.js';

const get = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const when = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'short' });
const hour = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

const HOUR = 3_600_000; // ms

/** @type {any[]} */
let ended = [];
let shown = '';

/** Orders, in words for people. @param {any[]} list */
export const orderLines = (list) => list.map(({ at, by, what, text }) => `${hour.format(Date.parse(at))} ${by || 'Somebody at this machine'} ${orderOf(what)}${text ? `: ${text}` : ''}`);

/** @param {{conversations: any[], hours: any[]}} told */
export function showHistory({ conversations, hours }) {
  ended = conversations;
  showEnded();
  const value = (/** @type {any} */ h, /** @type {string} */ of) => Number(h[of] ?? 0);
  chart('latency', hours, (h) => value(h, 'latencyMs'), seconds);
  chart('cost', hours, (h) => value(h, 'dollars'), (n) => `$${n.toFixed(n < 1 ? 4 : 2)}`);
  get('charts').hidden = !hours.length;
}

/** The rows that fit what is searched and chosen. */
function showEnded() {
  const words = get('find').value.toLowerCase().split(/\s+/);
  const only = get('only').value;
  const fits = ended.filter((c) => {
    const text = [who(c), where(c), c.agent, c.model, outcomeOf(c), c.id].join(' ').toLowerCase();
    return words.every((/** @type {string} */ w) => text.includes(w)) && (!only || (only === 'failed' ? c.failed : only === 'steered' ? c.steered : c.recordings));
  });
  const state = JSON.stringify([fits, ended.length]);
  if (state === shown) return;
  shown = state;
  get('past').hidden = !fits.length;
  get('nothing').hidden = fits.length > 0;
  get('nothing').textContent = ended.length ? 'None of the last conversations fits.' : 'No conversation has ended yet.';
  get('past').tBodies[0].replaceChildren(...fits.map(row));
}

/** @param {any} c */
function row(c) {
  const tr = make('tr');
  const took = Math.max(0, Math.round((Date.parse(c.endedAt) - Date.parse(c.startedAt)) / 1000)) || 0;
  const texts = [when.format(Date.parse(c.endedAt)), '', c.agent ?? '–', '', `${Math.floor(took / 60)}:${String(took % 60).padStart(2, '0')}`, c.turns.toLocaleString(),
    seconds(c.latencyMs), c.dollars === undefined ? '–' : `$${c.dollars.toFixed(c.dollars < 1 ? 4 : 2)}`, c.recordings ? '●' : ''];
  [...get('past').tHead.rows[0].cells].forEach((head, i) => tr.append(make('td', head.className, texts[i])));
  const [, person, , outcome] = tr.children;
  person?.append(make('b', '', who(c)), make('small', '', where(c)));
  outcome?.append(make('span', c.failed ? 'wrong' : '', outcomeOf(c)));
  if (c.steered) {
    const more = make('details');
    const list = make('ul');
    list.append(...orderLines(c.steered).map((line) => make('li', '', line)));
    more.append(make('summary', '', 'Steered'), list);
    outcome?.append(more);
  }
  const recording = tr.lastElementChild;
  if (c.recordings && recording instanceof HTMLElement) recording.title = c.recordings.join('\n');
  return tr;
}

/** Bars by the hour, the newest at the right. @param {string} id @param {any[]} hours @param {(h: any) => number} value @param {(n: number) => string} words */
function chart(id, hours, value, words) {
  const figure = get(id);
  const most = Math.max(...hours.map(value), 0);
  const now = Math.floor(Date.now() / HOUR);
  const state = JSON.stringify([now, ...hours.map(value)]); // each hour moves the bars
  if (figure.dataset.shown === state) return;
  figure.dataset.shown = state;
  const svg = figure.querySelector('svg');
  const rect = (/** @type {number} */ at, /** @type {number} */ height, kind = '') => {
    const bar = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    for (const [name, n] of Object.entries({ class: kind, x: at * 10 + 1, y: 44 - height, width: 8, height, rx: 1 })) bar.setAttribute(name, String(n));
    return bar;
  };
  svg.replaceChildren(...Array.from({ length: 24 }, (_, i) => rect(i, 44, 'track')), ...hours.map((h) => {
    const bar = rect(23 - (now - Math.floor(Date.parse(h.at) / HOUR)), most ? Math.max(value(h) ? 2 : 0, (value(h) / most) * 44) : 0);
    const title = document.createElementNS('http://www.w3.org/2000/svg', 'title');
    title.textContent = `${hour.format(Date.parse(h.at))}: ${words(value(h))}`;
    bar.append(title);
    return bar;
  }));
  const last = hours.at(-1);
  figure.querySelector('output').textContent = last ? words(value(last)) : '–';
  svg.setAttribute('aria-label', hours.map((h) => `${hour.format(Date.parse(h.at))} ${words(value(h))}`).join(', ') || 'nothing yet');
}

for (const id of ['find', 'only']) get(id).addEventListener('input', showEnded);
