/** What is over: the last conversations. */
import { ask, sentence } from './ask.js';
import { showCharts } from './charts.js';
import { make } from './dom.js';
import { nodes } from './markdown.js';
import { limited, placeOf, saidRow, sortable } from './table.js';
import { money, newestOf, orderOf, outcomeOf, seconds, where, who } from './words.js';

const get = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const date = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'short' });
const hour = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });

export const EXACTLY = 'Say exactly this, and nothing else: ';
const LOADING = 60_000; // ms that a recording may take

/** @type {any[]} */
let ended = [];
let shown = '';
/** @type {Map<string, {json: string, rows: HTMLElement[]}>} the row of each, and below it the one of its details */
const rows = new Map();

/** A time of today needs no date. @param {string} at */
const when = (at) => (new Date(at).toDateString() === new Date().toDateString() ? hour : date).format(Date.parse(at));

/** Orders, in words for people. @param {any[]} list */
export const orderLines = (list) => list.map(({ at, by, what, text }) => `${hour.format(Date.parse(at))} ${by || 'Somebody at this machine'} ${orderOf(what)}${text ? `: ${text}` : ''}`.replace(`instructed: ${EXACTLY}`, 'had it say: '));

/** @param {{conversations: any[], hours: any[]}} told */
export function showHistory({ conversations, hours }) {
  ended = conversations;
  showEnded();
  showCharts(hours);
}

/** The rows that fit what is searched and chosen. */
function showEnded() {
  const words = get('find').value.toLowerCase().split(/\s+/);
  const only = get('only').value;
  const fits = ended.filter((c) => {
    const text = [who(c), where(c), c.agent, c.model, outcomeOf(c), c.id].join(' ').toLowerCase();
    return words.every((/** @type {string} */ w) => text.includes(w)) && (!only || (only === 'failed' ? c.failed : only === 'steered' ? c.steered : c.recordings));
  });
  const listed = few(sort(fits));
  const state = JSON.stringify([listed, ended.length]);
  if (state === shown) return;
  shown = state;
  get('past').hidden = !fits.length;
  get('over').querySelector('.filters').hidden = !ended.length;
  get('nothing').hidden = fits.length > 0;
  get('nothing').textContent = ended.length ? 'No ended conversation fits.' : 'No conversation has ended yet. The last 100 stand here: who, what became of it, and what was said.';
  get('past').tBodies[0].replaceChildren(...listed.flatMap(rowsOf));
  for (const id of rows.keys()) if (!ended.some((c) => c.id === id)) rows.delete(id);
}

const tookOf = (/** @type {any} */ c) => Date.parse(c.endedAt) - Date.parse(c.startedAt);
const sort = sortable(get('past'), [(c) => Date.parse(c.endedAt), who, (c) => c.agent, outcomeOf, tookOf, (c) => c.turns, (c) => c.latencyMs, (c) => c.dollars, (c) => c.recordings?.length], showEnded);

const few = limited(get('rest'), showEnded);

/** Rows that are the same stay: what was opened stays open. @param {any} c */
function rowsOf(c) {
  const json = JSON.stringify(c);
  const known = rows.get(c.id);
  if (known?.json === json) return known.rows;
  const made = { json, rows: makeRows(c) };
  rows.set(c.id, made);
  return made.rows;
}

/** @param {any} c */
function makeRows(c) {
  const tr = /** @type {HTMLTableRowElement} */ (make('tr'));
  const took = Math.max(0, Math.round(tookOf(c) / 1000)) || 0;
  const texts = [when(c.endedAt), '', c.agent ?? '–', '', `${Math.floor(took / 60)}:${String(took % 60).padStart(2, '0')}`, c.turns.toLocaleString(),
    seconds(c.latencyMs), money(c.dollars), ''];
  [...get('past').tHead.rows[0].cells].forEach((head, i) => tr.append(make('td', head.className, texts[i])));
  const [, person, , outcome] = tr.children;
  person?.append(make('b', '', who(c)), ' ', placeOf(where(c), c.agent ? `\u00a0· ${c.agent}` : ''));
  const isKnown = c.steered || c.words;
  const what = /** @type {HTMLElement} */ (make(isKnown ? 'button' : 'span', isKnown ? 'details' : '', outcomeOf(c)));
  what.classList.toggle('wrong', Boolean(c.failed));
  outcome?.append(make('span', 'less', `${texts[0]} · `), what);
  c.recordings?.forEach((/** @type {string} */ file, /** @type {number} */ i) => {
    const button = make('button', 'play', c.recordings.length > 1 ? `▶ ${i + 1}` : '▶');
    button.ariaLabel = `Play recording${c.recordings.length > 1 ? ` ${i + 1}` : ''}: ${who(c)}, ${texts[0]}`;
    button.title = file;
    button.onclick = () => play(c, i, `${who(c)}, ${texts[0]}`);
    tr.lastElementChild?.append(button);
  });
  const said = saidRow(1, tr.cells.length - 1, newestOf(c.newest) || 'Nothing was said.');
  if (!isKnown) return [tr, said];
  const below = make('tr', 'below');
  const details = Object.assign(document.createElement('td'), { colSpan: tr.cells.length - 1 });
  below.append(make('td', 'time'), details);
  below.hidden = true;
  what.title = 'Details';
  what.ariaExpanded = 'false';
  what.ariaLabel = `${what.textContent}. Details: ${who(c)}, ${texts[0]}`;
  what.onclick = () => {
    below.hidden = !below.hidden;
    what.ariaExpanded = String(!below.hidden);
    if (!details.hasChildNodes()) showDetails(details, c);
  };
  return [tr, said, below];
}

/** Who has steered a conversation, and what was said in it, which is asked for now. @param {HTMLElement} box @param {any} c */
async function showDetails(box, c) {
  const list = (/** @type {string} */ name, /** @type {HTMLElement[]} */ items) => {
    const ul = make('ul');
    ul.append(...items);
    box.append(make('h3', '', name), ul);
  };
  if (c.steered) list('What operators did', orderLines(c.steered).map((line) => make('li', '', line)));
  if (!c.words) return;
  const answer = await ask(`ended/${encodeURIComponent(c.id)}/words`).catch(() => null);
  if (!answer?.ok) return list('Words', [make('li', 'wrong', answer ? await sentence(answer) : 'The gateway does not answer.')]);
  const { transcript } = await answer.json();
  list('Words', transcript.map((/** @type {any} */ t) => {
    const li = make('li');
    const said = make('div');
    said.append(...(t.role === 'user' ? [t.text] : nodes(t.text)), t.cut ? ' …' : '');
    li.append(make('b', '', t.role === 'user' ? 'Person' : 'Agent'), ' ', said);
    return li;
  }));
}

/** Plays a recording. An <audio> can show no key, so all of it is loaded. @param {any} c @param {number} i @param {string} title */
async function play(c, i, title) {
  const [box, told, tape] = [get('player'), get('played'), get('tape')];
  box.hidden = false;
  tape.hidden = true;
  told.textContent = `${title}: loading…`;
  URL.revokeObjectURL(tape.src);
  tape.removeAttribute('src');
  const answer = await ask(`ended/${encodeURIComponent(c.id)}/recordings/${i}`, 'GET', LOADING).catch(() => null);
  if (!answer?.ok) {
    told.textContent = `${title}: ${answer ? await sentence(answer) : 'the gateway does not answer.'}`;
    return;
  }
  tape.src = URL.createObjectURL(await answer.blob());
  tape.hidden = false;
  told.textContent = title;
  tape.play().catch(() => {}); // the person presses play
}
get('tape').onerror = () => {
  if (get('tape').hasAttribute('src')) get('played').textContent += ': this browser cannot play it.';
};

for (const id of ['find', 'only']) get(id).addEventListener('input', showEnded);
