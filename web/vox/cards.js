/** The conversation of VOX on the page: turns, and cards with the results of tools. Everything is shown as text. */
import { make } from '../dom.js';
import { nodes } from '../markdown.js';
import { cutOf } from '../status.js';

/** @import { Line } from '../transcript.js' */
/** @import { App, Snapshot, ToolAction, TranscriptEntry } from './types.d.ts' */

/** The picture of what a tool does. @type {Record<string, string>} */
const KINDS = {
  search_tools: 'search', recommend_tools: 'offer', add_tool: 'add', generate_app: 'app', change_app: 'change', undo_change: 'undo', get_project_status: 'list',
};
const BLOCKS = 6; // of the outline of a page
const FEW = 5; // words of a first sentence that are not worth showing
const SILENT = ['navigate_ui', 'answer_question']; // their effect is to be seen elsewhere

/**
 * @typedef {object} Page
 * @property {HTMLElement} log
 * @property {HTMLElement} questions
 * @property {(name: string, values?: Record<string, unknown>) => string} word
 * @property {(name: string) => string} translated what is said of a tool, in the language of the page
 * @property {(said: string) => unknown} tell VOX something
 * @property {(id: string, yes: boolean, words: string) => void} answer
 * @property {(app: string) => void} open an app in the project
 * @property {() => void} done a question that had the focus is gone
 */

export class Cards {
  #page;
  /** @type {Map<string, HTMLElement>} turns, cards and questions */ #entries = new Map();
  /** @type {{at: number, e: HTMLElement}[]} below how many turns they stand */ #notes = [];
  /** @type {Set<string>} names of the tools in the project */ #has = new Set();
  /** @type {Snapshot|undefined} */ #now;
  /** @type {string|undefined} the app that is in sight in the project */ #viewed;

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
  }

  clear() {
    this.#entries.clear();
    this.#notes = [];
    this.#page.log.replaceChildren();
  }

  /** @param {Snapshot} now @param {Snapshot|undefined} before */
  show(now, before) {
    this.#now = now;
    if (now.project !== before?.project) this.#has = new Set(now.project.tools.map((t) => t.id));
    if (now.transcript !== before?.transcript) this.#showTurns(now, before);
    const others = now.actions !== before?.actions || now.project !== before?.project || now.questions !== before?.questions;
    if (others) now.actions.forEach((a) => this.#showAction(a));
    if (others || now.transcript.length !== before?.transcript.length) this.#arrange();
    if (now.questions !== before?.questions) this.#showQuestions(now);
  }

  /** The cards of an app that is in sight do not offer to open it. @param {string} [app] */
  setViewed(app) {
    this.#viewed = app;
    for (const shot of /** @type {NodeListOf<HTMLElement>} */ (this.#page.log.querySelectorAll('.shot'))) shot.classList.toggle('viewed', shot.dataset['app'] === app);
  }

  /** @param {string} sentence */
  note(sentence) {
    this.#notes.push({ at: this.#now?.transcript.length ?? 0, e: make('p', 'note', sentence) });
    this.#arrange();
  }

  /** What was said and done, for a file. @param {Snapshot} now @returns {Line[]} */
  lines({ transcript, actions }) {
    const done = actions.filter((a) => !isSilent(a) && !this.#isAsking(a));
    const callsAt = (/** @type {number} */ i) => done.filter((a) => Math.min(a.at, transcript.length) === i).map((a) => ({ at: '', role: /** @type {const} */ ('tool'), text: this.#head(a) }));
    return [...transcript.flatMap((entry, i) => [...callsAt(i), ...(isMoot(entry) ? [] : [{
      at: '', role: entry.role === 'vox' ? /** @type {const} */ ('model') : entry.role, text: wordsOf(entry),
      ...(markOf(entry) && { interrupted: /** @type {const} */ (true), cutBy: markOf(entry) }),
    }])]), ...callsAt(transcript.length)];
  }

  /** @param {string} id @param {() => HTMLElement} create */
  #entry(id, create) {
    const e = this.#entries.get(id) ?? create();
    this.#entries.set(id, e);
    return e;
  }

  /** Puts everything where it belongs. What is there already is not moved: an app in a card would load again. */
  #arrange() {
    const { transcript = [], actions = [] } = this.#now ?? {};
    const cards = actions.flatMap((a) => this.#entries.get(`call ${a.id}`) ? [{ at: a.at, e: /** @type {HTMLElement} */ (this.#entries.get(`call ${a.id}`)) }] : []);
    const all = [...cards, ...this.#notes];
    for (let i = transcript.length; this.#entries.has(`turn ${i}`); i++) { // it was never sent
      this.#entries.get(`turn ${i}`)?.remove();
      this.#entries.delete(`turn ${i}`);
    }
    let next = this.#page.log.firstElementChild;
    const put = (/** @type {HTMLElement|undefined} */ e) => {
      if (!e) return;
      if (e === next) next = next.nextElementSibling;
      else this.#page.log.insertBefore(e, next);
    };
    for (let i = 0; i <= transcript.length; i++) {
      for (const { at, e } of all) if (Math.min(at, transcript.length) === i) put(e);
      put(this.#entries.get(`turn ${i}`));
    }
  }

  /** @param {Snapshot} now @param {Snapshot|undefined} before */
  #showTurns({ transcript }, before) {
    transcript.forEach((entry, i) => {
      if (before?.transcript[i] === entry) return;
      const { role, isUnsent } = entry;
      const e = this.#entry(`turn ${i}`, () => {
        const box = make('article', `turn ${role}`);
        box.dir = 'auto';
        box.ariaLabel = role === 'user' ? this.#page.word('you') : 'VOX';
        return box;
      });
      if (role === 'vox') e.replaceChildren(...nodes(wordsOf(entry)));
      else e.textContent = wordsOf(entry);
      e.hidden = isMoot(entry);
      e.classList.toggle('waiting', Boolean(isUnsent));
      if (isUnsent) e.append(make('small', '', this.#page.word(before?.away || this.#now?.away ? 'sent back' : 'sent later')));
      if (markOf(entry)) e.append(make('small', '', cutOf(markOf(entry))));
    });
  }

  /** @param {ToolAction} action */
  #showAction(action) {
    const key = `call ${action.id}`;
    if (isSilent(action) || this.#isAsking(action)) {
      this.#entries.get(key)?.remove();
      this.#entries.delete(key);
      return;
    }
    const card = this.#entry(key, () => make('div', 'card'));
    const app = this.#newest(action);
    const coming = action.status === 'running' ? this.#now?.project.apps.find((a) => a.name === action.data?.['app'] && !a.url) : undefined;
    const state = JSON.stringify([this.#head(action), app?.url, app && this.#usedBy(app), coming && partOf(coming, this.#page.word), this.#isBuilt(action), (action.data?.['tools'] ?? []).map((/** @type {any} */ t) => this.#has.has(t.id))]);
    if (card.dataset['shown'] === state) return;
    Object.assign(card.dataset, { shown: state, status: action.status, tool: action.name, kind: KINDS[action.name] ?? '' });
    card.replaceChildren(make('p', 'head', this.#head(action)), ...(app ?? coming ? [this.#appCard(/** @type {App} */ (app ?? coming))] : this.#body(action)));
  }

  /** Nothing is announced before it happens: until the person has agreed, there is the question alone. @param {ToolAction} action */
  #isAsking({ name, data, status }) {
    return name === 'generate_app' && status === 'running' && !data?.['app'];
  }

  /** The app that a call has written, in the version of that call, unless a later call has changed it. @param {ToolAction} action @returns {App|undefined} */
  #newest({ id, data }) {
    const name = data?.['app'];
    const { actions = [], project } = this.#now ?? {};
    if (actions.findLast((a) => a.status === 'done' && a.data?.['app'] === name && a.data?.['url'])?.id !== id) return undefined;
    const app = project?.apps.find((a) => a.name === name && a.url);
    const version = data?.['version'];
    return app && { ...app, ...(app.versions[version - 1] && { ...app.versions[version - 1], version }) };
  }

  /** What a call does or has done, in words. @param {ToolAction} action */
  #head({ name, title, args, data, status }) {
    const { word } = this.#page;
    const running = word(`doing ${name}`);
    const what = (running === '' ? title ?? name.replaceAll('_', ' ') : running).replace(/\s?…$/, '');
    if (data?.['error']) return word(`error ${data['error']}`, { name: args['tool_id'] }) || `${what}: ${data['error']}`;
    const app = data?.['title'] ?? data?.['app'];
    if (!data || (data['status'] && !data['url'])) return app ? word(name === 'change_app' ? 'being changed' : 'being written', { name: app }) : `${what}…`;
    const count = data['tools']?.length ?? 0;
    switch (name) {
      case 'search_tools':
        return word(count === 1 ? 'found one' : 'found some', { count, query: args['query'] });
      case 'recommend_tools':
        return word(count ? 'recommended' : 'no recommendation');
      case 'add_tool':
        return word('added', { name: data['added']?.name ?? args['tool_id'] });
      case 'generate_app':
        return word('wrote', { name: app });
      case 'change_app':
        return word('changed', { name: app, version: data['version'], wish: args['change'], count: (data['changes'] ?? []).length || 1 });
      case 'undo_change':
        return word('undone', { name: app, version: data['version'] });
      case 'get_project_status':
        return word('looked');
    }
    return status === 'done' ? word('done', { what }) : `${what}…`;
  }

  /** Whether an app was begun after a call. @param {ToolAction} action */
  #isBuilt({ id }) {
    const { actions = [] } = this.#now ?? {};
    return actions.slice(actions.findIndex((a) => a.id === id) + 1).some((a) => a.name === 'generate_app' && a.data?.['app']);
  }

  /** @param {ToolAction} action @returns {HTMLElement[]} */
  #body(action) {
    const { name, data } = action;
    if (!['search_tools', 'recommend_tools'].includes(name) || !data || data['error']) return [];
    /** @type {any[]} */
    const tools = data['tools'] ?? [];
    if (!tools.length) return [make('p', 'none', this.#page.word('nothing'))];
    const list = make('ul', 'cards');
    // Once an app is built of them, those that were not taken are behind a line.
    const others = this.#isBuilt(action) ? tools.filter((t) => !this.#has.has(t.id)) : [];
    list.append(...tools.filter((t) => !others.includes(t)).map((t) => this.#tool(t)));
    if (others.length) {
      const rest = make('details');
      const inside = make('ul');
      inside.append(...others.map((t) => this.#tool(t)));
      rest.append(make('summary', '', this.#page.word(others.length < tools.length ? 'more tools' : others.length === 1 ? 'one tool' : 'some tools', { count: others.length })), inside);
      const item = make('li', 'rest');
      item.append(rest);
      list.append(item);
    }
    return [list];
  }

  /** @param {any} entry */
  #tool(entry) {
    const { word, tell } = this.#page;
    const item = toolCard(entry, this.#page);
    const has = this.#has.has(entry.id);
    const add = /** @type {HTMLButtonElement} */ (make('button', '', has ? word('is added') : word('add')));
    add.disabled = has;
    add.ariaLabel = `${add.textContent}: ${entry.name}`;
    add.addEventListener('click', () => tell(word('add this', { name: entry.name })));
    item.append(add);
    return item;
  }

  /** What was written, as it looks, or its outline while it is being written; pressed, it opens beside the conversation. @param {App} app */
  #appCard(app) {
    const { word, open } = this.#page;
    const button = make('button', 'shot');
    const about = make('span', '');
    const used = app.url ? this.#usedBy(app) : partOf(app, word);
    button.dataset['app'] = app.name;
    button.classList.toggle('viewed', app.name === this.#viewed);
    about.append(make('b', '', app.title ?? app.name), ' ', make('span', '', word('open')), ...(used ? [make('small', '', used)] : []));
    const picture = app.url ? thumbnail(app.url) : outlineOf();
    picture.classList.add('thumb');
    button.append(picture, about);
    button.addEventListener('click', () => open(app.name));
    return button;
  }

  /** Which tools of the project an app uses, in words; '' if there are none, or if it is not known. @param {App} app */
  #usedBy({ version, versions }) {
    const { uses } = versions[version - 1] ?? {};
    if (!uses || !this.#has.size) return '';
    return uses.length ? this.#page.word('uses', { names: uses.join(', ') }) : this.#page.word('uses none');
  }

  /** @param {Snapshot} now */
  #showQuestions({ questions, actions, appModel }) {
    const { word, answer, done, questions: place } = this.#page;
    const had = document.activeElement?.closest('.question');
    place.replaceChildren(...questions.map(({ id, text }) => {
      const key = `question ${id}`;
      const known = this.#entries.get(key);
      if (known) return known;
      const asking = actions.findLast((a) => this.#isAsking(a) && text.includes(String(a.args['prompt']).slice(0, 100)));
      const wish = asking && String(asking.args['prompt']);
      const card = make('div', 'question');
      card.role = 'group';
      const words = make('p', '', wish ? '' : text);
      // VOX asks it aloud; here is what it is about, and what answers it.
      if (wish) words.append(make('small', '', word('new app')), make('b', '', wish), make('small', '', appModel ? word('costs', { model: appModel }) : word('free')));
      words.id = `q-${id}`;
      words.tabIndex = 0; // a long one scrolls
      card.setAttribute('aria-labelledby', words.id);
      card.append(words);
      for (const yes of [true, false]) {
        const name = word(wish ? (yes ? 'build' : 'not now') : yes ? 'yes' : 'no');
        const button = make('button', yes ? 'yes primary' : '', name);
        button.addEventListener('click', () => answer(id, yes, name));
        card.append(button);
      }
      this.#entries.set(key, card);
      return card;
    }));
    if (had && !had.isConnected) done(); // the button that was pressed is gone
  }
}

/** @param {ToolAction} action */
const isSilent = ({ name, status }) => SILENT.includes(name) && status !== 'failed';

/** Nothing of it is shown. @param {TranscriptEntry} entry */
const isMoot = (entry) => entry.cutBy === 'answer' && !wordsOf(entry);

/** The words of a turn. Of an answer that something typed or pressed has cut off, one or two words of a sentence say nothing, nor does a first sentence that had just begun. @param {TranscriptEntry} entry */
function wordsOf({ text, cutBy }) {
  if (cutBy !== 'answer') return text.trim();
  const [, whole = '', rest = ''] = /^([^]*[.!?…。！？।؟]["'”’»)\]]*)?([^]*)$/.exec(text.trim()) ?? [];
  return rest.trim().split(/\s+/).length < (whole ? 3 : FEW) ? whole : `${whole}${rest.replace(/[\s,;:–—]+$/, '')}…`;
}

/** The mark of a cut answer. It has none if the person typed or pressed something: they know that. @param {TranscriptEntry} entry */
const markOf = ({ cutBy }) => (cutBy === 'answer' ? undefined : cutBy);

/** An app as it looks, small. It is foreign code, as in the project's frame. @param {string} [url] */
export function thumbnail(url = '') {
  const box = make('span', 'thumb');
  box.inert = true;
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts');
  frame.loading = 'lazy';
  frame.tabIndex = -1;
  frame.title = '';
  frame.ariaHidden = 'true';
  frame.src = url;
  box.append(frame);
  new ResizeObserver(() => (frame.style.scale = String(box.clientWidth / frame.offsetWidth))).observe(box); // Chromium keeps 100cqw of a width in between
  return box;
}

/** The outline of a page, for an app that is being written. */
export function outlineOf() {
  const box = make('span', 'outline');
  const blocks = make('span', 'blocks');
  blocks.ariaHidden = 'true';
  blocks.append(...Array.from({ length: BLOCKS }, () => make('i')));
  box.append(blocks);
  return box;
}

/** What is being written of an app, in words. @param {App} app @param {Page['word']} word */
export const partOf = ({ part = 'page', bytes }, word) => word(bytes ? `part ${part}` : 'part begun');

/**
 * An entry of the registry: its name and a reason; where it comes from is behind a tap.
 * @param {any} entry
 * @param {Pick<Page, 'word'|'translated'>} page
 */
export function toolCard({ id, name, role, domain = '', description, homepage, add }, { word, translated }) {
  const item = make('li', 'tool');
  item.dataset['domain'] = domain;
  const mark = make('i', '', name.charAt(0));
  mark.ariaHidden = 'true';
  const about = make('p', 'about');
  about.append(make('b', '', name), make('span', '', translated(id) || description || translated(`role ${role}`) || role || ''));
  item.append(mark);
  if (add) item.append(moreOf({ role, description, homepage, add }, about, { word, translated }));
  else item.append(about);
  return item;
}

/**
 * What opens below the name and the reason of an entry: what it is for, its command, its home.
 * @param {any} entry
 * @param {HTMLElement} about
 * @param {Pick<Page, 'word'|'translated'>} page
 */
function moreOf({ role, description, homepage, add }, about, { word, translated }) {
  const more = make('details');
  const summary = make('summary');
  summary.title = word('more of it');
  summary.append(about);
  const details = translated(`role ${role}`) || description || role || ''; // the registry describes in English
  more.append(summary, make('small', '', details), make('code', '', add));
  const link = homeOf(homepage);
  if (link) more.append(link);
  return more;
}

/** A link to where a tool comes from. @param {string} homepage */
export function homeOf(homepage) {
  if (!URL.canParse(homepage) || new URL(homepage).protocol !== 'https:') return undefined;
  return Object.assign(/** @type {HTMLAnchorElement} */ (make('a', '', new URL(homepage).host)), { href: homepage, target: '_blank', rel: 'noopener noreferrer' });
}
