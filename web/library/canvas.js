/**
 * The canvas: what Gemini shows on the screen, and asks there.
 *
 *   const canvas = new Canvas(document.getElementById('canvas'));
 *   const session = await connect({ url, canvas });
 *
 * It is marked as Gemini's, and always has a Hide button. The focus goes to what asks something, unless the person types, and back
 * after it. Esc leaves a field of it, then closes what is on top. Its looks are those of looks.css. Of the page it needs that it
 * leaves Esc alone when that is `defaultPrevented`.
 */
import { make } from './dom.js';
import { build } from './elements.js';
import { canvas as words } from './en.js';
import { fill, speak } from './strings.js';

/** @import { CanvasAnswer, CanvasCall } from './types.d.ts' */

const IDLE = 2 * 60_000; // ms without a touch until it goes by itself: a page of text is read by then
const PATIENCE = 5 * 60_000; // ms that Gemini waits for an answer: the gateway ends the call then
const NOTICE = 60_000; // ms before that in which the person is warned
const PAUSE = 1_000; // ms until a button that leaves the canvas open can be pressed again: the answer is a matter of seconds
let faults = 0; // sentences under fields so far, for their ids

speak({ canvas: words });

export class Canvas {
  #section = make('section', 'canvas');
  #questions = make('div');
  #sheet = make('div', 'canvas-sheet');
  #show = make('button', 'canvas-show');
  #title = make('strong');
  #mark = make('small', 'canvas-waits'); // an answer is waited for
  #hide = make('button');
  #live = make('p', 'canvas-live');
  /** @type {Map<HTMLElement, {id: string, resolve: (answer: CanvasAnswer) => void, timer: ReturnType<typeof setTimeout>}>} by what they wait for: a question, the sheet */
  #waiting = new Map();
  #away = false; // the person has hidden what waits for an answer
  #touched = false; // the person has done something here since the last question
  #stays = false; // what the sheet asks stays open, though the call is over
  #late = make('div', 'canvas-late'); // warns that Gemini waits no longer
  #keep = make('button');
  /** @type {CanvasCall['send']} */ #send = () => {};
  /** @type {ReturnType<typeof setTimeout>|undefined} */ #timer;
  /** @type {HTMLElement|undefined} */ #before; // had the focus
  /** @type {Map<string, Blob>} */ #kept = new Map();
  /** @type {string[]} */ #urls = []; // of the sheet, to be let go with it
  /** @type {Set<ReturnType<typeof setTimeout>>} */ #pauses = new Set();
  /** @type {string[]} the calls whose content is on the sheet */ #calls = [];
  /** @type {Map<string, 'replaced'|'late'>} by the ids of calls that got no answer, though the person declined nothing */ #unanswered = new Map();
  /** `showsCall` may have changed. */ onShown = () => {};
  /** `waiting` may have changed. */ onWaiting = () => {};
  /** What was shown is offered again; false if it stays in sight elsewhere, as in the page's conversation. */ offersAgain = true;

  /** @param {Element} container is there from the start, or nothing is announced; it is empty */
  constructor(container) {
    this.#section.role = 'dialog';
    this.#live.role = 'status';
    const head = make('div', 'canvas-head');
    this.#hide.addEventListener('click', () => this.#put());
    head.append(this.#title, this.#mark, this.#hide);
    this.#show.addEventListener('click', () => {
      this.#away = false;
      this.#sheet.hidden = !this.#sheet.childElementCount;
      this.#section.hidden = false;
      this.#hide.focus({ preventScroll: true }); // from the button that goes, and is where it comes back to
      this.#settle();
    });
    this.#sheet.tabIndex = -1;
    this.#keep.addEventListener('click', () => this.#keepOpen());
    this.#late.hidden = true;
    this.#section.append(head, this.#late, this.#questions, this.#sheet, make('div', 'canvas-more'));
    this.#section.hidden = this.#sheet.hidden = this.#show.hidden = true;
    container.append(this.#show, this.#section, this.#live);
    this.#listen();
  }

  #listen() {
    const section = this.#section;
    section.addEventListener('click', ({ target }) => this.#clicked(/** @type {Element} */ (target)));
    section.addEventListener('keydown', (e) => {
      const target = /** @type {Element} */ (e.target);
      if (e.key !== 'Enter' || e.isComposing || target.tagName !== 'INPUT') return;
      e.preventDefault(); // or it also presses what then gets the focus back, as the page's Stop
      const [button] = [this.#scope(target), this.#root(target)].flatMap((e) => this.#own(e, '[data-action="submit"]'));
      this.#act(button ?? target, 'submit');
    });
    section.addEventListener('focusin', ({ relatedTarget: from }) => {
      if (from instanceof HTMLElement && !section.contains(from)) this.#before = from;
    });
    for (const touch of ['pointerdown', 'keydown', 'wheel', 'touchmove']) {
      section.addEventListener(touch, () => this.#touch(), { passive: true });
    }
    // Before the page's own, which may have another meaning for Esc: it looks at defaultPrevented.
    const escape = (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== 'Escape' || e.isComposing || !this.open || document.querySelector('dialog[open]')) return;
      const field = /** @type {HTMLElement} */ (e.target).closest('input, textarea');
      if (field && !section.contains(field)) return; // the page's own: Esc leaves it, and answers nothing
      e.preventDefault();
      if (field) return this.#root(field).focus({ preventScroll: true });
      this.#leave(/** @type {HTMLElement} */ (this.#questions.lastElementChild ?? this.#sheet));
    };
    document.addEventListener('keydown', escape, true);
  }

  /** The words of the frame around the content. */
  #name() {
    const asked = /** @type {NodeListOf<HTMLElement>} */ (this.#questions.querySelectorAll('.canvas-title'));
    for (const title of asked) title.hidden = asked.length === 1; // it stands in the head
    this.#section.ariaLabel = this.#title.textContent = (asked.length === 1 && this.title) || fill(words['from']);
    this.#hide.textContent = fill(words['hide']);
    this.#markWaiting();
  }

  /** Says whether an answer is waited for. */
  #markWaiting() {
    this.#mark.textContent = this.waiting ? fill(words['waits']) : '';
    this.#show.textContent = fill(words[this.waiting ? 'show asked' : 'show']);
  }

  /** What is asked on top, in a sentence. */
  get title() {
    return this.#questions.lastElementChild?.querySelector('.canvas-title')?.textContent ?? undefined;
  }

  get open() {
    return !this.#section.hidden;
  }

  /** Brings back what was hidden. A page may put it elsewhere, as into its conversation. */
  get showButton() {
    return this.#show;
  }

  /** Whether the person sees here what a call has shown. @param {string} id */
  showsCall(id) {
    return this.open && !this.#sheet.hidden && this.#calls.includes(id);
  }

  /** Why a call got no answer: another one took its place, or the person took too long. Undefined if they answered or declined. @param {string} id */
  whyUnanswered(id) {
    return this.#unanswered.get(id);
  }

  /** Whether a call waits for what the person does here, by itself or by the tool that it runs. @param {string} id */
  waitsFor(id) {
    return [...this.#waiting.values()].some((w) => w.id === id || w.id.startsWith(`ask-${id}-`));
  }

  /** Somebody waits for what the person does here. */
  get waiting() {
    return this.#waiting.size > 0;
  }

  /** What the Hide button does: it answers nothing, and what was there can be shown again. */
  #put() {
    this.#away = this.#sheet.hidden = true;
    this.#settle();
    (this.#before?.isConnected && this.#before.getClientRects().length ? this.#before : this.#show).focus({ preventScroll: true });
  }

  /** Closes the canvas for good: its content stays, and pending questions are answered as dismissed. */
  dismiss() {
    const questions = /** @type {HTMLElement[]} */ ([...this.#questions.children]);
    for (const root of [...questions, this.#sheet]) this.#leave(root);
  }

  /**
   * Shows the content of a call of create_canvas_tool, show_canvas_tool or append_to_canvas_tool. A question (`ask-…`) is shown above
   * it and does not replace it.
   * @param {CanvasCall} call
   * @returns {Promise<CanvasAnswer>} resolves at once if the content has no inputs and no buttons
   */
  async show(call) {
    const question = call.id.startsWith('ask-');
    const append = call.name === 'append_to_canvas_tool';
    const root = question ? make('div', 'canvas-question') : this.#sheet;
    const urls = this.#urls.length;
    const nodes = build(call.args.schema, { gateway: call.gateway, kept: this.#kept, urls: this.#urls });
    if (question) {
      root.tabIndex = -1;
      if (!this.offersAgain && !this.#waiting.has(this.#sheet)) this.#sheet.hidden = true; // one thing at a time
      if (call.title) root.append(make('p', 'canvas-title', call.title));
      root.append(call.view ?? '');
      this.#questions.append(root);
    } else if (!append) {
      this.#drop(root, 'replaced');
      root.replaceChildren();
      this.#calls = [];
      for (const url of this.#urls.splice(0, urls)) URL.revokeObjectURL(url);
    }
    if (!question) {
      this.#send = call.send;
      this.#calls.push(call.id);
    }
    if (!question && !append) this.#stays = false;
    for (const node of nodes) {
      const { id } = node.dataset;
      const before = id && [...root.querySelectorAll('[data-id]')].find((o) => /** @type {HTMLElement} */ (o).dataset['id'] === id);
      if (before) before.replaceWith(node);
      else root.append(node);
    }
    this.#ensureButton(root);
    this.#gather(root);
    root.hidden = this.#section.hidden = this.#away = false;
    if (!append) this.#section.scrollTop = 0;
    else if (!this.#section.contains(document.activeElement)) nodes.at(-1)?.scrollIntoView({ block: 'nearest' });
    const waits = question || nodes.some((n) => n.querySelector('input, textarea, [data-action]'));
    this.#live.replaceChildren(make('span', '', (question && call.title) || fill(waits ? words['asks'] : words['shows'])));
    if (!waits) {
      this.#settle();
      return { shown: true };
    }
    this.#answer(root, { continued: true });
    if (!append && !document.activeElement?.matches('input, textarea')) root.focus({ preventScroll: true });
    return new Promise((resolve) => {
      this.#touched = false;
      this.#waiting.set(root, { id: call.id, resolve, timer: setTimeout(() => this.#warn(root), PATIENCE - NOTICE) });
      this.onWaiting();
      this.#settle();
    });
  }

  /**
   * Takes back what a call shows and waits for; without an id everything, for good: the conversation is over.
   * @param {string} [id]
   */
  hide(id) {
    for (const [root, waiting] of [...this.#waiting]) if (!id || waiting.id === id) this.#leave(root);
    if (id) return;
    this.dismiss();
    this.#sheet.replaceChildren();
    this.#settle();
    for (const pause of this.#pauses) clearTimeout(pause);
    this.#pauses.clear();
    for (const url of this.#urls.splice(0)) URL.revokeObjectURL(url);
    this.#kept.clear();
    this.#unanswered.clear();
  }

  /**
   * Keeps what a tool made until the conversation ends, so that a canvas or another tool can refer to it.
   * @param {string} ref as `photo:1`, `audio:1` or `video:1`
   * @param {Blob} blob
   */
  keep(ref, blob) {
    this.#kept.set(ref, blob);
  }

  /** @param {string} ref */
  kept(ref) {
    return this.#kept.get(ref);
  }

  /** What tools have made in this conversation, by references. */
  get photos() {
    return this.#kept;
  }

  // --- what the person does

  /** @param {Element} target */
  #clicked(target) {
    const button = /** @type {HTMLElement|null} */ (target.closest('[data-action]'));
    if (button) return this.#act(button, button.dataset['action'] ?? '');
    const free = !target.closest('a, button, label, audio, video') && getSelection()?.isCollapsed;
    const input = this.#section.querySelector('input, textarea');
    if (free && input) /** @type {HTMLElement} */ (input).focus({ preventScroll: true });
  }

  /** @param {Element} from a button, or the input in which Enter was pressed @param {string} action */
  #act(from, action) {
    const root = this.#root(from);
    if (action === 'dismiss') return this.#leave(root);
    if (from.ariaDisabled) return;
    const inputs = [.../** @type {NodeListOf<HTMLInputElement>} */ (this.#scope(from).querySelectorAll('input, textarea'))];
    if (action === 'submit' && !areValid(inputs)) return;
    const values = inputs.map((i) => [/** @type {HTMLElement} */ (i.closest('[data-id]')).dataset['id'], i.value]);
    const answer = { ...Object.fromEntries(values), action };
    if (!this.#answer(root, answer)) this.#send(answer);
    if (action === 'submit' || root !== this.#sheet) {
      if (root === this.#sheet) root.replaceChildren(); // nothing is answered twice
      return this.#leave(root);
    }
    this.#markChoice(from);
    from.ariaDisabled = 'true'; // `disabled` would take the focus from it
    const pause = setTimeout(() => {
      from.ariaDisabled = null;
      this.#pauses.delete(pause);
    }, PAUSE);
    this.#pauses.add(pause);
  }

  /** Marks the button that was pressed last, if others leave the canvas open as well. @param {Element} button */
  #markChoice(button) {
    const choices = this.#own(this.#scope(button), '[data-action]:not([data-action="dismiss"], [data-action="submit"])');
    if (choices.length > 1) for (const choice of choices) choice.ariaPressed = choice === button ? 'true' : null;
  }

  /**
   * Gives what has inputs that no button sends a Done button: there is no Enter on many a phone.
   * @param {HTMLElement} root
   */
  #ensureButton(root) {
    const { activeElement } = document;
    const done = /** @type {HTMLElement} */ (root.querySelector('.canvas-done') ?? make('div', 'canvas-done'));
    done.remove();
    const sends = (/** @type {Element} */ e) => this.#own(e, '[data-action]:not([data-action="dismiss"])').length > 0;
    const unsent = [root, ...root.querySelectorAll('fieldset')].filter((e) => this.#own(e, 'input, textarea').length && !sends(e));
    if (!unsent.length || sends(root)) return;
    done.dataset['element'] = 'button';
    if (!done.firstChild) done.appendChild(make('button', '', words['done'])).dataset['action'] = 'submit';
    (unsent.length === 1 ? unsent[0] : root)?.append(done); // the root's sends all
    if (done.contains(activeElement)) /** @type {HTMLElement} */ (activeElement).focus({ preventScroll: true });
  }

  /**
   * Puts the buttons at the end into a row of their own, which stays in sight while there is more above it than fits.
   * @param {HTMLElement} root
   */
  #gather(root) {
    const { activeElement } = document;
    const row = root.querySelector(':scope > .canvas-actions');
    row?.replaceWith(...row.children);
    const last = (/** @type {HTMLElement|null} */ e) => (e?.dataset['element'] === 'button' ? e : undefined);
    const buttons = [];
    for (let e = last(/** @type {any} */ (root.lastElementChild)); e; e = last(/** @type {any} */ (e.previousElementSibling))) buttons.unshift(e);
    if (!buttons.length) return;
    const box = make('div', 'canvas-actions');
    box.append(...buttons);
    root.append(box);
    if (box.contains(activeElement)) /** @type {HTMLElement} */ (activeElement).focus({ preventScroll: true });
  }

  /** @param {Element} e @returns {HTMLElement} */
  #root(e) {
    return e.closest('.canvas-question') ?? this.#sheet;
  }

  /** What belongs together. @param {Element} e */
  #scope(e) {
    return e.closest('fieldset') ?? this.#root(e);
  }

  /** What is in a scope and in none within it. @param {Element} scope @param {string} selector */
  #own(scope, selector) {
    return [...scope.querySelectorAll(selector)].filter((e) => this.#scope(e) === scope);
  }

  // --- pending questions

  /**
   * @param {HTMLElement} root
   * @param {CanvasAnswer} answer
   * @returns {boolean} whether a question was pending
   */
  #answer(root, answer) {
    const waiting = this.#waiting.get(root);
    if (!waiting) return false;
    clearTimeout(waiting.timer);
    this.#waiting.delete(root);
    this.#late.hidden = true;
    waiting.resolve(answer);
    this.#markWaiting();
    this.onWaiting();
    return true;
  }

  /** The call ends without an answer of the person. @param {HTMLElement} root @param {'replaced'|'late'} why */
  #drop(root, why) {
    const waiting = this.#waiting.get(root);
    if (waiting) this.#unanswered.set(waiting.id, why);
    this.#answer(root, { dismissed: true });
  }

  /** Gemini waits for another minute. What the sheet asks can stay open for longer: an answer then goes as a message. @param {HTMLElement} root */
  #warn(root) {
    const waiting = this.#waiting.get(root);
    if (!waiting) return;
    const sheet = root === this.#sheet;
    if (sheet && this.#touched) return this.#keepOpen();
    const sentence = fill(words['waits on']);
    this.#keep.textContent = words['keep open'] ?? '';
    this.#late.replaceChildren(make('p', '', sentence), ...(sheet ? [this.#keep] : []));
    this.#late.hidden = false;
    this.#live.replaceChildren(make('span', '', sentence));
    waiting.timer = setTimeout(() => {
      this.#drop(root, 'late');
      this.#leave(root);
    }, NOTICE);
  }

  /** The call is over, and the person may take all the time they need. */
  #keepOpen() {
    const { activeElement } = document;
    this.#stays = true;
    this.#answer(this.#sheet, { continued: true });
    if (activeElement === this.#keep) this.#sheet.focus({ preventScroll: true });
    this.#settle();
  }

  #touch() {
    this.#touched = true;
    if (!this.#late.hidden && this.#keep.isConnected && this.#waiting.has(this.#sheet)) this.#keepOpen();
    this.#rest();
  }

  /** @param {HTMLElement} root */
  #leave(root) {
    const { activeElement } = document;
    const inside = this.#section.contains(activeElement);
    this.#answer(root, { dismissed: true });
    if (root.parentElement === this.#questions) root.remove();
    else {
      root.hidden = true;
      this.#stays = false;
    }
    this.#settle();
    if (inside && !activeElement?.getClientRects().length) this.#before?.focus({ preventScroll: true });
  }

  #settle() {
    this.#name();
    const asks = this.#questions.childElementCount > 0;
    this.#section.hidden = this.#sheet.hidden && (this.#away || !asks);
    const shown = this.#sheet.childElementCount > 0 && (this.offersAgain || this.#waiting.has(this.#sheet));
    this.#show.hidden = !(this.#away && asks) && (!this.#sheet.hidden || !shown);
    if (this.#sheet.hidden) for (const m of this.#playing()) m.pause();
    this.#rest();
    this.onShown();
  }

  #playing() {
    return [.../** @type {NodeListOf<HTMLMediaElement>} */ (this.#sheet.querySelectorAll('audio, video'))].filter((m) => !m.paused);
  }

  #rest() {
    clearTimeout(this.#timer);
    if (!this.open || this.#waiting.size || this.#stays) return;
    this.#timer = setTimeout(() => (this.#playing().length ? this.#rest() : this.dismiss()), IDLE);
  }
}

/** Says under each field what is wrong with it, in the browser's words; the first of them gets the focus. @param {HTMLInputElement[]} inputs @returns {boolean} whether nothing is */
function areValid(inputs) {
  for (const input of inputs) {
    const below = input.closest('label')?.nextElementSibling;
    if (below?.matches('.canvas-wrong')) below.remove();
    input.ariaInvalid = input.validity.valid ? null : 'true';
    input.removeAttribute('aria-describedby');
    if (input.validity.valid) continue;
    const wrong = make('p', 'canvas-wrong', input.validationMessage);
    wrong.id = `canvas-wrong-${++faults}`;
    input.setAttribute('aria-describedby', wrong.id);
    input.closest('label')?.after(wrong);
    input.addEventListener('input', () => areValid([input]), { once: true });
  }
  const first = inputs.find((input) => !input.validity.valid);
  first?.focus();
  return !first;
}
