/** The conversation of VOX on the page: turns, and cards with the results of tools. Everything is shown as text. */
import { make } from '../dom.js';
import { nodes } from '../markdown.js';

/** @import { Snapshot, ToolAction } from './types.d.ts' */

const CAUSED = 3_000; // ms: a call that came so shortly before the first of the person's words was caused by them
const SILENT = ['navigate_ui', 'answer_question']; // their effect is to be seen elsewhere

/**
 * @typedef {object} Page
 * @property {HTMLElement} log
 * @property {HTMLElement} questions
 * @property {(name: string, values?: Record<string, unknown>) => string} word
 * @property {(said: string) => unknown} tell VOX something
 * @property {(id: string, yes: boolean) => void} answer
 * @property {() => void} done a question that had the focus is gone
 */

export class Cards {
  #page;
  /** @type {Map<string, HTMLElement>} turns, cards and questions */ #entries = new Map();
  /** @type {Set<string>} names of the tools in the project */ #has = new Set();

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
  }

  clear() {
    this.#entries.clear();
    this.#page.log.replaceChildren();
  }

  /** @param {Snapshot} now @param {Snapshot|undefined} before */
  show(now, before) {
    if (now.transcript !== before?.transcript) this.#showTurns(now, before);
    if (now.project !== before?.project) this.#has = new Set(now.project.tools.map((t) => t.id));
    if (now.actions !== before?.actions || now.project !== before?.project) now.actions.forEach((a) => this.#showAction(a));
    if (now.questions !== before?.questions) this.#showQuestions(now);
  }

  /** @param {string} sentence */
  note(sentence) {
    this.#page.log.append(make('p', 'note', sentence));
  }

  /** @param {string} id @param {() => HTMLElement} create @param {boolean} [caused] it stands above the calls that it has led to */
  #entry(id, create, caused = false) {
    let e = this.#entries.get(id);
    if (e) return e;
    this.#entries.set(id, (e = create()));
    e.dataset['at'] = String(performance.now());
    const { log } = this.#page;
    let next = null;
    for (let last = log.lastElementChild; caused && last?.matches('.card') && performance.now() - Number(/** @type {HTMLElement} */ (last).dataset['at']) < CAUSED;
      last = last.previousElementSibling) next = last;
    log.insertBefore(e, next);
    return e;
  }

  /** @param {Snapshot} now @param {Snapshot|undefined} before */
  #showTurns({ transcript }, before) {
    transcript.forEach(({ role, text }, i) => {
      if (before?.transcript[i] === transcript[i]) return;
      const e = this.#entry(`turn ${i}`, () => {
        const box = make('article', `turn ${role}`);
        box.dir = 'auto';
        box.ariaLabel = role === 'user' ? this.#page.word('you') : 'VOX';
        return box;
      }, role === 'user');
      if (role === 'vox') e.replaceChildren(...nodes(text.trim()));
      else e.textContent = text.trim();
    });
  }

  /** @param {ToolAction} action */
  #showAction(action) {
    if (SILENT.includes(action.name) && action.status !== 'failed') return;
    const card = this.#entry(`call ${action.id}`, () => make('div', 'card'));
    const state = JSON.stringify([this.#head(action), (action.data?.['tools'] ?? []).map((/** @type {any} */ t) => this.#has.has(t.id))]);
    if (card.dataset['shown'] === state) return;
    Object.assign(card.dataset, { shown: state, status: action.status, tool: action.name });
    card.replaceChildren(make('p', 'head', this.#head(action)), ...this.#body(action));
  }

  /** What a call does or has done, in words. @param {ToolAction} action */
  #head({ name, title, args, data, status }) {
    const { word } = this.#page;
    const what = (title ?? name.replaceAll('_', ' ')).replace(/…$/, '');
    if (data?.['error']) return `${what}: ${data['error']}`;
    const app = data?.['app'];
    if (!data || (data['status'] && !data['url'])) return app ? word('being written', { name: app }) : name === 'generate_app' && data ? word('asks first') : `${what}…`;
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

  /** @param {ToolAction} action @returns {HTMLElement[]} */
  #body({ name, data }) {
    if (!['search_tools', 'recommend_tools'].includes(name) || !data || data['error']) return [];
    /** @type {any[]} */
    const tools = data['tools'] ?? [];
    if (!tools.length) return [make('p', 'none', this.#page.word('nothing'))];
    const list = make('ul', 'cards');
    list.append(...tools.map((t) => this.#tool(t)));
    return [list];
  }

  /** @param {any} entry */
  #tool(entry) {
    const { word, tell } = this.#page;
    const item = toolCard(entry);
    const has = this.#has.has(entry.id);
    const add = /** @type {HTMLButtonElement} */ (make('button', '', has ? word('is added') : word('add')));
    add.disabled = has;
    add.ariaLabel = `${add.textContent}: ${entry.name}`;
    add.addEventListener('click', () => tell(word('add this', { name: entry.name })));
    item.append(add);
    return item;
  }

  /** @param {Snapshot} now */
  #showQuestions({ questions }) {
    const { word, answer, done, questions: place } = this.#page;
    const had = document.activeElement?.closest('.question');
    place.replaceChildren(...questions.map(({ id, text }) => {
      const key = `question ${id}`;
      const known = this.#entries.get(key);
      if (known) return known;
      const card = make('div', 'question');
      card.role = 'group';
      const words = make('p', '', text);
      words.id = `q-${id}`;
      words.tabIndex = 0; // a long one scrolls
      card.setAttribute('aria-labelledby', words.id);
      card.append(words);
      for (const [name, yes] of /** @type {[string, boolean][]} */ ([[word('yes'), true], [word('no'), false]])) {
        const button = make('button', yes ? 'yes' : '', name);
        button.addEventListener('click', () => answer(id, yes));
        card.append(button);
      }
      this.#entries.set(key, card);
      return card;
    }));
    if (had && !had.isConnected) done(); // the button that was pressed is gone
  }
}

/** An entry of the registry. @param {any} entry */
export function toolCard({ name, role, domain, description, homepage, add }) {
  const item = make('li', 'tool');
  item.append(make('small', '', role ?? domain ?? ''), make('b', '', name));
  if (description) item.append(make('span', '', description));
  if (add) item.append(make('code', '', add));
  if (URL.canParse(homepage) && new URL(homepage).protocol === 'https:') {
    const a = /** @type {HTMLAnchorElement} */ (make('a', '', new URL(homepage).host));
    Object.assign(a, { href: homepage, target: '_blank', rel: 'noopener noreferrer' });
    item.append(a);
  }
  return item;
}
