/** The sheet with earlier conversations: to read, to go on with, and to delete. */
import { describeCall } from './cards.js';
import { make } from './dom.js';
import { list, write } from './history.js';
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

/** @param {Kept} conversation */
const titleOf = ({ lines }) => (lines.find((l) => l.role === 'user') ?? lines.find((l) => l.role === 'model'))?.text ?? '';

/** Without the present year, so that it fits between two buttons. @param {number} at */
const dateOf = (at) => new Date(at).toLocaleString(language(), {
  ...(new Date(at).getFullYear() !== new Date().getFullYear() && { year: 'numeric' }), month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit',
});

/**
 * The sheet with all of them.
 * @param {(turns: Turn[], lines: Line[]) => void} goOn with what was said in one
 */
export async function openHistory(goOn) {
  await translated();
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet history'));
  const title = make('h2', '', words['history']);
  title.id = 'history-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const back = make('button', '', words['back']);
  const close = make('button', '', words['done']);
  const head = make('header');
  head.append(back, title, close);
  const body = make('div');
  sheet.append(head, body);
  const all = () => {
    back.hidden = true;
    title.textContent = fill(words['history']);
    const kept = list();
    if (!kept.length) return body.replaceChildren(make('p', 'note', words['no history']));
    const entries = make('ul', 'entries');
    for (const one of kept) {
      const open = make('button', 'entry');
      open.append(make('b', '', titleOf(one)), make('small', '', `${dateOf(one.at)} · ${formatDuration(one.ms, 'short')}`));
      open.addEventListener('click', () => show(one));
      entries.appendChild(make('li')).append(open);
    }
    const foot = make('div', 'foot');
    foot.append(twice(words['delete all'], words['sure'], () => (write([]), all())));
    body.replaceChildren(make('p', 'note', words['history about']), entries, foot);
  };
  const show = (/** @type {Kept} */ one) => {
    back.hidden = false;
    title.textContent = dateOf(one.at);
    const lines = make('div', 'lines');
    const transcript = new Transcript(lines, make('div'), () => {});
    transcript.describeCall = (call) => describeCall(call, new URL('ws', document.baseURI));
    for (const line of one.lines) transcript.line(line);
    const foot = make('div', 'foot');
    const go = make('button', 'first', words['go on']);
    go.addEventListener('click', () => {
      sheet.close();
      goOn(transcript.turns, one.lines);
    });
    foot.append(go, twice(words['delete'], words['sure'], () => (write(list().filter((c) => c.id !== one.id)), all())));
    body.replaceChildren(lines, foot);
    back.focus();
  };
  back.addEventListener('click', all);
  close.addEventListener('click', () => sheet.close());
  sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close());
  sheet.addEventListener('close', () => sheet.remove());
  all();
  document.body.append(sheet);
  sheet.showModal();
}
