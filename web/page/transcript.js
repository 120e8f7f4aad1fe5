/** What was said and done, as the page shows it: turns, tool calls, notes, and a line between two conversations. */
import { make } from './dom.js';
import { states } from './en.js';
import { nodes } from './markdown.js';
import { page as words } from './page.en.js';
import { cutOf, sourcesOf } from './status.js';
import { fill, language } from './strings.js';
import { suggestionsFrame } from './suggestions.js';
import { markUnheard } from './unheard.js';

/** @import { ToolCall, Turn } from './types.d.ts' */

/** @typedef {Pick<ToolCall, 'name'|'args'|'response'|'status'>} Shown what a card is drawn from */

/**
 * One line of a downloaded transcript. `card` is of a tool: the beginning of `text` that stands on its card, and whether the rest is for screen readers only.
 * `call`: what a canvas has shown or asked there, so that the card is whole after a reload. `grounding`: what was searched and found, for a note with links.
 * @typedef {{at: string, role: 'user'|'model'|'tool'|'note', text: string, interrupted?: true, cutBy?: Turn['cutBy'], card?: {title: string, status: string, quiet: boolean, kind?: string}, call?: Shown, grounding?: {webSearchQueries?: string[], groundingChunks: {web: {title: string, uri?: string}}[]}, isRule?: true, isKnown?: true}} Line
 */

const KEY = 'voxgate.transcript';
const PAUSE = 5 * 60_000; // ms without a turn, after which the time of day is shown
const COPIED = 1_500; // ms that a copy is confirmed
const LARGEST = 250_000; // characters of a call that is kept with its card: a canvas without pictures has less
const REASON = 160; // characters of an error on a card
/** @type {Record<string, string>} the picture on the card of a tool */
const KINDS = { get_current_time: 'clock', take_photo: 'photo', find_contact: 'contact', send_message: 'message' };

export class Transcript {
  #log;
  #growing;
  #begun = 0; // turns, calls and notes
  /** @type {Map<string, HTMLElement>} of the present conversation */ #shown = new Map();
  /** @type {Map<Element, Line>} */ #lines = new Map();
  /** Something is shown, for the first time or again. */ onShown = () => {};
  /** @type {Map<string, (whole: boolean) => void>} fills the cards of what the panel shows, by calls */ #folded = new Map();
  /** Whether the panel shows what a call has shown: then its card is one line. @type {(id: string) => boolean} */ isInPanel = () => false;
  /** The panel stands beside the conversation, and not over its end. */ isBeside = () => true;
  /** What a canvas has shown or asked, or a photo, once the script for that is loaded. @type {((call: Shown & {doneTitle?: string}) => import('./cards.js').Description)|undefined} */ describeCall;
  /** The arguments of a call as if it had shown a later call's content, too. @type {typeof import('./cards.js').joinCanvases|undefined} */ joinCanvases;
  /** @type {ToolCall|undefined} what the canvas shows */ #canvas;
  #copy;
  /** @type {WeakMap<Element, string>} what elements show: the same words may come with another position of the voice */ #texts = new WeakMap();
  #spoke = 0; // ms since 1970, the last turn
  #keptAt = 0; // ms since 1970, of the kept line that is being shown; 0 if none is
  /** @type {HTMLElement|undefined} */ #answer; // the newest of the present conversation
  /** @type {HTMLElement|undefined} */ #sources; // came before the answer that they belong to

  /**
   * @param {HTMLElement} log what is finished comes here, and is announced there
   * @param {HTMLElement} growing what is not
   * @param {(text: string) => void} copy to the clipboard
   */
  constructor(log, growing, copy) {
    this.#log = log;
    this.#copy = copy;
    this.#growing = growing;
  }

  get empty() {
    return !this.#log.childElementCount && !this.#growing.childElementCount;
  }

  /** What was said and done, in the order in which it stands on the page. @returns {Line[]} */
  get lines() {
    return this.#elements.flatMap((e) => this.#lines.get(e) ?? []);
  }

  /** What was said, as the turns that another conversation can go on with. @returns {Turn[]} */
  get turns() {
    return this.lines.flatMap(({ role, text }, i) => (role === 'user' || role === 'model' ? { id: `kept-${i}`, role, text, final: true, interrupted: false } : []));
  }

  /** @returns {Element[]} in the order of the page; sources follow the answer that they stand in */
  get #elements() {
    return [...this.#log.children, ...this.#growing.children].flatMap((e) => [e, ...e.querySelectorAll('.sources')]);
  }

  /** Keeps it for this tab, until it is closed. */
  store() {
    try {
      const ids = new Map([...this.#shown].map(([id, e]) => [e, id]));
      const lines = this.#elements.flatMap((e) => {
        const line = this.#lines.get(e);
        return line ? { ...line, id: ids.get(/** @type {HTMLElement} */ (e)) } : [];
      });
      keepLines(lines);
    } catch {
      // the browser keeps nothing for this page
    }
  }

  /** Shows what `store` has kept. */
  restore() {
    /** @type {(Line & {id?: string})[]} `id`: of a turn of the present conversation */
    let lines = [];
    try {
      lines = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    } catch {
      // storage is blocked for this page, or holds foreign data
    }
    if (!Array.isArray(lines)) return;
    for (const line of lines) this.line(line);
  }

  /** Shows a line that was kept. @param {Line & {id?: string}} line */
  line({ id, ...line }) {
    const { role, text, interrupted, cutBy } = line;
    if (line.grounding && this.#answer) return this.grounding(line.grounding);
    this.#keptAt = Date.parse(line.at) || 0;
    if (role === 'tool') this.#add(this.#restoreCard(make('div', 'card'), line));
    else if (role === 'note') line.isRule ? this.#rule(text, line.isKnown) : this.note(text);
    else this.turn({ id: id ?? `kept ${this.#begun}`, role, text, final: true, interrupted: Boolean(interrupted), ...(cutBy && { cutBy }) });
    this.#keptAt = 0;
    const last = this.#log.lastElementChild;
    if (last) this.#lines.set(last, line);
  }

  /** @param {HTMLElement} e @param {Line} line */
  #restoreCard(e, line) {
    const { text = '', content = [] } = (line.call && this.describeCall?.(line.call)) ?? {};
    fillCard(e, content.length && text ? { ...line, text: line.text.slice(0, -` (${text})`.length) } : line);
    e.append(...content);
    return e;
  }

  /** Completes the cards that were restored before `describeCall` was there. */
  describeKept() {
    for (const [e, line] of this.#lines) if (line.call && e.isConnected && !e.querySelector('dl, .pressed, .shown')) this.#restoreCard(/** @type {HTMLElement} */ (e), line);
  }

  /**
   * What the panel shows no longer gets its whole card.
   * @param {boolean} pinned the end of the conversation is in sight: there a card that grows moves nothing that is read
   */
  unfold(pinned) {
    for (const [id, show] of this.#folded) {
      if (this.isInPanel(id)) continue;
      show(pinned);
      if (pinned) this.#folded.delete(id);
    }
  }

  clear() {
    this.#folded.clear();
    this.#log.replaceChildren();
    this.#growing.replaceChildren();
    this.#shown = new Map();
  }

  /** @param {string} text @param {boolean} [known] what stands above it is still known to the model */
  #rule(text, known = false) {
    this.#add(make('p', known ? 'rule known' : 'rule', text), { role: 'note', text, isRule: true, ...(known && { isKnown: true }) });
  }

  /** Another conversation begins. @param {boolean} [known] it goes on with what was said */
  begin(known = false) {
    this.#shown = new Map();
    this.#answer = this.#sources = this.#canvas = undefined;
    this.#spoke = 0;
    this.separate(known);
  }

  /** Draws a line under what stands there. @param {boolean} known it goes on with that */
  separate(known) {
    const last = this.#log.lastElementChild;
    if (!last) return;
    if (last.matches('.rule')) last.remove(); // nothing came of that one
    this.#rule(fill(words[known ? 'continued' : 'new conversation'], { time: timeOf() }), known);
  }

  /** @param {Turn} turn */
  turn(turn) {
    const { id, role, text, final, interrupted, heard, cutBy } = turn;
    if (role === 'user' && !this.#shown.has(id)) this.#answer = undefined; // what is found now belongs to the next answer
    const e = this.#place(id, () => this.#article(role), final);
    if (role === 'model') this.#belong(e, final);
    const span = /** @type {HTMLElement} */ (e.querySelector('span'));
    const said = (heard ?? text).trim();
    if (role === 'model') {
      if (this.#texts.get(span) !== said) span.replaceChildren(...nodes(said));
      this.#texts.set(span, said);
      markUnheard(span, turn);
    } else span.textContent = said;
    e.classList.toggle('interrupted', interrupted);
    for (const mark of [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE || /** @type {Element} */ (n).matches('s, small'))) mark.remove(); // the gateway may know better than a page that lost it
    if (interrupted) {
      const rest = text.trimStart().slice(said.length).trimEnd();
      const unheard = rest.trimStart();
      const by = cutOf(cutBy ?? 'person', said, text);
      span.after(...(unheard ? [rest.slice(0, -unheard.length), make('s', '', unheard)] : []), ...(by ? [make('small', '', by)] : []));
    }
    if (final) this.#keep(e, { role, text: said, ...(interrupted && { interrupted }), ...(cutBy && { cutBy }) });
  }

  /**
   * What was typed and waits for the connection.
   * @param {string} text
   * @param {string} when it is sent
   */
  waiting(text, when) {
    const e = this.#article('user', text);
    e.classList.add('waiting');
    e.append(make('small', '', when));
    this.#growing.append(e);
    this.onShown();
  }

  /** It waits no longer: it is sent, or will not be. */
  waited() {
    for (const e of this.#growing.querySelectorAll('.waiting')) e.remove();
  }

  /**
   * What was done, in words for people; what a tool was asked and has answered is in the statistics.
   * @param {ToolCall} call
   * @param {'ended'|'replaced'|'late'} [unanswered] why the person has not answered, if they did not decline: the conversation has ended, another question
   *   took the place of this one, or it waited for too long
   */
  tool(call, unanswered) {
    const { id, name, status, response, where } = call;
    const kind = KINDS[name] ?? 'tool';
    const title = (status === 'done' && !call.declined && call.doneTitle) || (status !== 'running' && words[`no ${kind}`]) || call.title;
    const shows = name.endsWith('_canvas_tool');
    if (status === 'running' ? shows || where === 'client' : id.startsWith('ask-')) return; // the canvas says it, or the status
    const isShown = shows && status === 'done' && response?.shown === true;
    if (isShown && name === 'append_to_canvas_tool' && this.#canvas && this.joinCanvases) return void this.tool({ ...this.#canvas, args: this.joinCanvases(this.#canvas.args, call.args) });
    if (shows && name !== 'append_to_canvas_tool') this.#canvas = isShown ? call : undefined;
    const e = this.#place(`call ${id}`, () => make('div', 'card'), status !== 'running');
    const dropped = unanswered !== 'ended' && unanswered;
    const declined = response?.dismissed === true || call.declined === true;
    const described = this.describeCall?.(call);
    const what = described?.title || (shows ? fill(words['a canvas']) : title?.replace(/\s*…$/, '') ?? titleOf(name));
    const outcome = dropped && declined ? dropped : declined ? 'declined' : shows && status === 'done' ? (response?.shown || response?.continued ? 'shown' : 'answered')
      : unanswered && shows && status === 'cancelled' ? 'unanswered' : status;
    const content = status === 'done' ? described?.content ?? [] : [];
    const quiet = shows ? outcome === 'shown' && content.length > 0 : status === 'done' || status === 'running'; // the mark says it to who sees it
    const reason = outcome === 'failed' && !shows && title ? shorten(response?.error) : ''; // an unknown tool is an error of the model
    const isReadable = language().startsWith('en'); // the gateway's own errors of tools are English
    const text = `${what}: ${fill(words[outcome])}${reason && isReadable ? `: ${reason}` : ''}`;
    const card = { title: what, status: declined ? 'cancelled' : status, quiet, kind: shows ? (response?.shown || response?.continued ? 'canvas' : 'form') : kind };
    if (reason && !isReadable) e.title = reason;
    const isOpen = e.querySelector('.shown') !== null;
    fillCard(e, { text, card });
    if (response?.shown && content.length && !isOpen && this.isInPanel(id)) {
      fillCard(e, { text: `${what}: ${fill(words[this.isBeside() ? 'beside' : 'below'])}`, card: { ...card, quiet: false } });
      this.#folded.set(id, (whole) => {
        fillCard(e, { text, card });
        if (whole) e.append(...content);
      });
    } else e.append(...content);
    const details = described?.text ? ` (${described.text})` : '';
    const { args } = call;
    const kept = { name, args, response, status };
    const keeps = (shows || name === 'send_message') && content.length > 0 && JSON.stringify(kept).length <= LARGEST;
    if (status === 'running') return;
    const line = /** @type {const} */ ({ role: 'tool', text: text + details, card });
    this.#keep(e, { ...line, ...(keeps && { call: kept }) });
    described?.small?.then((photo) => {
      const call = { name, args: {}, response: { photo }, status };
      if (JSON.stringify(call).length <= LARGEST) this.#keep(e, { ...line, call });
    }).catch(() => {}); // without it the card has no picture after a reload
  }

  /** What Google Search was asked, and found, stands in the answer that it belongs to. @param {any} grounding */
  grounding({ webSearchQueries, groundingChunks, chips }) {
    const searched = webSearchQueries?.join(', ');
    const found = (groundingChunks ?? []).filter((/** @type {any} */ c) => c.web?.title);
    const e = make('div', 'sources');
    const said = [];
    if (searched) said.push(fill(words['searched'], { queries: searched }));
    e.append(...said.map((text) => make('p', 'note', text)));
    if (found.length) {
      const note = make('p', 'note');
      const sources = sourcesOf({ sources: found.map((/** @type {any} */ { web }) => web) }).flatMap(({ title, href }) =>
        [', ', href ? Object.assign(document.createElement('a'), { textContent: title, href, target: '_blank', rel: 'noopener noreferrer' }) : title]);
      note.append(`${states['found']} `, ...sources.slice(1));
      said.push(note.textContent ?? '');
      e.append(note);
    }
    if (chips) {
      const frame = suggestionsFrame(chips, () => this.onShown());
      frame.style.height = ''; // its room is kept, so that it moves little
      e.append(frame);
    }
    if (!e.childElementCount) return;
    this.#sources?.remove();
    this.#sources = e;
    if (said.length) this.#keep(e, { role: 'note', text: said.join('. '), grounding: { webSearchQueries, groundingChunks: found.map((/** @type {any} */ { web: { title, uri } }) => ({ web: { title, uri } })) } });
    if (this.#answer?.parentElement === this.#log) this.#belong(this.#answer, true);
  }

  /** The sources go to the end of their answer, the newest one, when it grows no more. @param {HTMLElement} answer @param {boolean} final */
  #belong(answer, final) {
    this.#answer = answer;
    if (!final || !this.#sources) return;
    answer.append(this.#sources);
    this.#sources = undefined;
    this.onShown();
  }

  /** @param {string} what */
  note(what) {
    const e = make('p', 'note', what);
    this.#add(e, { role: 'note', text: what });
    return e;
  }

  /**
   * The element of one turn. Its text direction follows its first letters, not the page.
   * @param {'user'|'model'} role
   * @param {string} [text]
   */
  #article(role, text = '') {
    const e = make('article', `turn ${role}`);
    const who = make('b', 'unseen', fill(role === 'user' ? states['you'] : '{who}'));
    e.dir = 'auto';
    who.dir = 'ltr'; // which leaves it out of that
    const said = make('span', '', text);
    const copy = make('button', 'copy');
    copy.title = copy.ariaLabel = words['copy'] ?? '';
    copy.addEventListener('click', () => {
      this.#copy(said.innerText);
      copy.classList.add('copied');
      setTimeout(() => copy.classList.remove('copied'), COPIED);
    });
    e.append(who, said, copy);
    const at = this.#keptAt || Date.now();
    if (at - this.#spoke > PAUSE) e.dataset['time'] = timeOf(at);
    this.#spoke = at;
    return e;
  }

  /** @param {HTMLElement} e @param {Omit<Line, 'at'>} [line] */
  #add(e, line) {
    e.dataset['begun'] = String(++this.#begun);
    this.#log.append(e);
    if (line) this.#keep(e, line);
    this.onShown();
  }

  /** @param {HTMLElement} e @param {Omit<Line, 'at'>} line */
  #keep(e, line) {
    const { at = new Date().toISOString() } = this.#lines.get(e) ?? {};
    this.#lines.set(e, { at, ...line });
  }

  /**
   * The element of a turn or a call: it grows outside of the log and moves into it when it is finished, and so is each answer before it.
   * @param {string} id
   * @param {() => HTMLElement} create
   * @param {boolean} final
   */
  #place(id, create, final) {
    const e = this.#shown.get(id) ?? create();
    this.#shown.set(id, e);
    e.dataset['begun'] ??= String(++this.#begun);
    const waits = [...this.#growing.children].some((o) => o !== e && o.matches('.turn') && isLater(e, o));
    if (final && !waits) {
      insert(this.#log, e);
      for (const o of [...this.#growing.children]) { // what has waited for this one
        if (!this.#lines.has(o)) break;
        insert(this.#log, o);
      }
    } else if (!e.isConnected) insert(this.#growing, e);
    this.onShown();
    return e;
  }
}

/** What was begun later. @param {Element} e @param {Element} than */
const isLater = (e, than) => Number(/** @type {HTMLElement} */ (e).dataset['begun']) > Number(/** @type {HTMLElement} */ (than).dataset['begun']);

/** What was begun first stands first, though what cut it off may have been finished before it. @param {Element} where @param {Element} e */
function insert(where, e) {
  if (e.parentElement !== where) where.insertBefore(e, [...where.children].find((o) => isLater(o, e)) ?? null);
}

/** What a tool has done, in a frame. @param {HTMLElement} e @param {Pick<Line, 'text'|'card'>} line */
function fillCard(e, { text, card: { title, status, quiet, kind = 'tool' } = { title: text, status: 'done', quiet: false } }) {
  Object.assign(e.dataset, { status, kind });
  const [, colon = '', outcome = ''] = /^(:? ?)(.*)$/s.exec(text.slice(title.length)) ?? [];
  e.replaceChildren(make('span', '', title), make('span', 'unseen', colon), make('span', quiet ? 'unseen' : 'outcome', outcome));
  return e;
}

/** What a tool without a title is called: its name as words. @param {string} name */
const titleOf = (name) => name.replace(/[_-]+/g, ' ').trim().replace(/^./, (first) => first.toUpperCase());

/** The first line of an error, for a card. @param {unknown} error */
function shorten(error) {
  const [line = ''] = typeof error === 'string' ? error.trim().split('\n') : [];
  return line.length > REASON ? `${line.slice(0, REASON - 1)}…` : line;
}

/** Keeps lines for this tab; without what canvases have shown if the browser has no room for that. @param {Line[]} lines */
function keepLines(lines) {
  const put = (/** @type {Partial<Line>[]} */ all) => sessionStorage.setItem(KEY, JSON.stringify(all));
  try {
    put(lines);
  } catch {
    put(lines.map(({ call: _, ...line }) => line));
  }
}

/** The time of day. @param {number} [at] ms since 1970 */
const timeOf = (at = Date.now()) => new Date(at).toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' });
