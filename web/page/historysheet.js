/** The sheet with earlier conversations: to read, to go on with, and to delete. */
import { describeCall } from './cards.js';
import { make } from './dom.js';
import { list as all, write } from './history.js';
import { nodes } from './markdown.js';
import { settings as words } from './settings.en.js';
import { translated } from './settings.js';
import { fill, formatDuration, language } from './strings.js';
import { Transcript } from './transcript.js';
import { twice } from './twice.js';

/**
 * @import { Kept } from './history.js'
 * @import { Line } from './transcript.js'
 * @import { Turn } from './types.d.ts'
 */

const FOUND = 90; // characters around what was searched for

/** The words of a line without its Markdown. @param {Line|undefined} line */
function wordsOf(line) {
  const box = make('p');
  for (const part of nodes(line?.text ?? '')) box.append(part, ' ');
  for (const part of box.querySelectorAll('li, td, th')) part.append(' ');
  return box.textContent?.replace(/\s+/g, ' ').trim() ?? '';
}

/** @param {Kept} conversation */
const titleOf = ({ lines }) => wordsOf(lines.find((l) => l.role === 'user') ?? lines.find((l) => l.role === 'model'));

/** @param {number} at */
const timeOf = (at) => new Date(at).toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' });

/** @param {number} at @returns {number} midnights since then */
function daysSince(at) {
  const midnight = (/** @type {number} */ time) => new Date(time).setHours(0, 0, 0, 0);
  return Math.round((midnight(Date.now()) - midnight(at)) / 86_400_000);
}

/** The day, in words where it was lately. @param {number} at */
function dayOf(at) {
  const days = daysSince(at);
  if (days < 2) {
    const word = new Intl.RelativeTimeFormat(language(), { numeric: 'auto' }).format(-days, 'day');
    return word.charAt(0).toLocaleUpperCase(language()) + word.slice(1);
  }
  const isThisYear = new Date(at).getFullYear() === new Date().getFullYear();
  return new Date(at).toLocaleDateString(language(), { weekday: 'short', month: 'short', day: 'numeric', ...(!isThisYear && { year: 'numeric' }) });
}

/** The heading under which a conversation stands. @param {number} at */
const periodOf = (at) => (daysSince(at) < 2 ? dayOf(at) : words[daysSince(at) <= 7 ? 'last week' : 'before that'] ?? '');

/**
 * What was said around the words that are searched for, these in bold, or nothing if they are in the title.
 * @param {Kept} one @param {string} wanted in lower case @returns {(Node|string)[]}
 */
function excerptOf(one, wanted) {
  const text = one.lines.map(wordsOf).find((said) => said.toLowerCase().includes(wanted)) ?? '';
  if (!wanted || text === titleOf(one)) return [];
  const at = text.toLowerCase().indexOf(wanted);
  const from = Math.max(0, at - FOUND / 3);
  const to = from + FOUND;
  return [`${from ? '…' : ''}${text.slice(from, at).trimStart()}`, make('b', '', text.slice(at, at + wanted.length)), `${text.slice(at + wanted.length, to)}${text.length > to ? '…' : ''}`];
}

/** The buttons that open conversations, under headings of days. @param {Kept[]} all @param {string} wanted @param {(one: Kept) => void} open */
function listDays(all, wanted, open) {
  /** @type {HTMLElement[]} */
  const parts = [];
  let period = '';
  for (const one of all) {
    if (periodOf(one.at) !== period) parts.push(make('h3', '', period = periodOf(one.at)), make('ul', 'entries'));
    const entry = make('button', 'entry');
    entry.dataset['id'] = one.id;
    const excerpt = make('span');
    excerpt.append(...excerptOf(one, wanted));
    const day = daysSince(one.at) < 2 ? '' : `${dayOf(one.at)}, `;
    entry.append(make('b', '', titleOf(one)), ...(excerpt.firstChild ? [excerpt] : []), make('small', '', `${day}${timeOf(one.at)} · ${formatDuration(one.ms, 'short')}`));
    entry.addEventListener('click', () => open(one));
    parts.at(-1)?.appendChild(make('li')).append(entry);
  }
  return parts;
}

/** What was said in one, to read. @param {Kept} one @returns {{lines: HTMLElement, turns: Turn[]}} */
function readConversation(one) {
  const lines = make('div', 'lines');
  const transcript = new Transcript(lines, make('div'), (text) => void navigator.clipboard?.writeText(text));
  transcript.describeCall = (call) => describeCall(call, new URL('ws', document.baseURI));
  for (const line of one.lines) transcript.line(line);
  return { lines, turns: transcript.turns };
}

/**
 * The sheet with all of them: a list by days with a search, and beside it, or on a phone in its place, the one that is read.
 * @param {(turns: Turn[], lines: Line[]) => void} goOn with what was said in one
 */
export async function openHistory(goOn) {
  await translated();
  const isWide = matchMedia('(min-width: 60rem) and (min-height: 481px)'); // as in style.css
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet panes history'));
  const title = make('h2', '', words['history']);
  title.id = 'history-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const back = make('button', 'back', words['back']);
  const close = make('button', '', words['done']);
  const head = make('header');
  head.append(back, title, close);
  const list = make('nav');
  list.ariaLabel = words['history'] ?? '';
  const search = Object.assign(document.createElement('input'), { type: 'search', placeholder: words['search history'], ariaLabel: words['search history'] });
  const days = make('div', 'days');
  const foot = make('div', 'foot');
  const pane = make('div', 'pane');
  sheet.append(head, list, pane);
  /** @param {Kept|undefined} one nothing: the list is seen on a phone */
  const open = (one) => {
    sheet.classList.toggle('reading', Boolean(one));
    title.textContent = one && !isWide.matches ? `${dayOf(one.at)}, ${timeOf(one.at)}` : words['history'] ?? '';
    pane.replaceChildren();
    for (const entry of days.querySelectorAll('.entry')) entry.ariaCurrent = /** @type {HTMLElement} */ (entry).dataset['id'] === one?.id ? 'true' : null;
    if (!one) return;
    const { lines, turns } = readConversation(one);
    const actions = make('div', 'foot');
    const go = make('button', 'primary', words['go on']);
    go.addEventListener('click', () => {
      sheet.close();
      goOn(turns, one.lines);
    });
    actions.append(go, twice(words['delete'], () => (write(all().filter((c) => c.id !== one.id)), refill())));
    pane.append(make('h3', '', `${dayOf(one.at)}, ${timeOf(one.at)} · ${formatDuration(one.ms, 'short')}`), lines, actions);
    pane.scrollTop = 0;
  };
  const refill = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = all().filter((one) => one.lines.some((l) => wordsOf(l).toLowerCase().includes(wanted)));
    const parts = listDays(found, wanted, (one) => {
      open(one);
      if (!isWide.matches) back.focus();
    });
    days.replaceChildren(...(found.length ? parts : [make('p', 'note', fill(words[wanted ? 'not found' : 'no history'], { wanted: search.value.trim() }))]));
    foot.replaceChildren(make('p', 'note', words['history about']), twice(words['delete all'], () => (write([]), (search.value = ''), refill())));
    foot.hidden = search.hidden = !all().length;
    if (found.length || !all().length) open(isWide.matches ? found[0] : undefined); // else what is read stays
  };
  list.append(search, days, foot);
  search.addEventListener('input', refill);
  back.addEventListener('click', () => open(undefined));
  close.addEventListener('click', () => sheet.close());
  sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close());
  sheet.addEventListener('close', () => sheet.remove());
  refill();
  document.body.append(sheet);
  sheet.showModal();
}
