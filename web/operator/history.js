/** What is over: the last conversations, to be searched. */
import { isPlaying, nameOf, play } from './recordings.js';
import { make } from './dom.js';
import { WHO, get, newChoice, newList, put } from './table.js';
import { lengthOf, money, outcomeOf, seconds, when, where, who } from './words.js';

/** @type {any[]} */
let ended = [];
/** @type {(all: any[]) => void} */
let draw;

/** Prepares the list. @param {(c: any) => void} open shows a conversation */
export function startHistory(open) {
  const columns = [WHO, { text: (/** @type {any} */ c) => c.agent ?? '–', by: (/** @type {any} */ c) => c.agent }, { text: (/** @type {any} */ c) => (c.failed && c.reason ? 'Failed' : outcomeOf(c).replace(/\.(\s.*|$)/, '')) }, { text: (/** @type {any} */ c) => when(c.endedAt), by: (/** @type {any} */ c) => Date.parse(c.endedAt) },
    { text: lengthOf, by: (/** @type {any} */ c) => Date.parse(c.endedAt) - Date.parse(c.startedAt) }, { text: (/** @type {any} */ c) => c.turns.toLocaleString(), by: (/** @type {any} */ c) => c.turns },
    { text: (/** @type {any} */ c) => money(c.dollars), by: (/** @type {any} */ c) => c.dollars }, { text: (/** @type {any} */ c) => seconds(c.latencyMs), by: (/** @type {any} */ c) => c.latencyMs }];
  draw = newList(get('past'), get('rest'), columns, {
    open, less: (c) => c.agent, least: lengthOf, silent: 'Nothing was said.',
    decorate(row, c) {
      row.cells[2]?.setAttribute('title', outcomeOf(c));
      row.cells[2]?.classList.toggle('wrong', Boolean(c.failed));
      if (!c.recordings || !(c.words || c.turns) || row.lastElementChild?.firstChild) return;
      const button = make('button', 'play', isPlaying(c, 0) ? '❚❚' : '▶');
      button.dataset['of'] = nameOf(c, 0);
      button.ariaLabel = `Recording: ${who(c)}, ${when(c.endedAt)}`;
      button.onclick = (e) => {
        e.stopPropagation();
        open(c);
        void play(c, 0);
      };
      row.lastElementChild?.append(button);
    },
  });
  get('find').oninput = showEnded;
  newChoice(get('only'), showEnded);
}

/** @param {any[]} conversations */
export function showHistory(conversations) {
  ended = conversations;
  showEnded();
}

const KINDS = { '': () => true, failed: (/** @type {any} */ c) => c.failed, steered: (/** @type {any} */ c) => c.steered, recorded: (/** @type {any} */ c) => c.recordings };

/** The rows that fit what is searched and chosen. */
function showEnded() {
  const words = get('find').value.toLowerCase().split(/\s+/);
  const kind = KINDS[/** @type {keyof typeof KINDS} */ (get('only').dataset.value ?? '')];
  const fits = ended.filter((c) => {
    const text = [who(c), where(c), c.agent, c.model, outcomeOf(c), c.id].join(' ').toLowerCase();
    return words.every((/** @type {string} */ w) => text.includes(w)) && kind(c);
  });
  get('filters').hidden = !ended.length;
  get('nothing').hidden = fits.length > 0;
  put(get('nothing'), ended.length ? 'No ended conversation fits.' : 'No conversation has ended yet. The last 100 stand here: who, what became of it, and what was said.');
  draw(fits);
}
