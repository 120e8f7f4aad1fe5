/**
 * A whole conversation in one element: who answers, the transcript, a field, the orb, Mute and End.
 *
 *   <voxgate-conversation url="wss://your.gateway/ws" who="Nora" picture="nora.jpg" greeting="How can I help?"></voxgate-conversation>
 *
 * It fills its box, 22 by 34 rem if nothing says so. Attributes: `url`, `token`, `agent`, `voice`, `prompt`, `lang`; `who` is the name of who answers,
 * `picture` and `greeting` are theirs; `closable` adds buttons that minimise and close. Properties: `token` (a function, too), `strings`, `options` as for `open`;
 * `source`, an app's own conversations. Events: `state`, `turn`, `error`, `minimise`, `close`. Its colours are the custom properties `--voxgate-…`.
 */
import { errors, states, talk as words } from './en.js';
import { isOpen } from './look.js';
import { looks } from './looks.js';
import { nodes } from './markdown.js';
import './orb.js';
import { absenceOf, cutOf, isMendable, muteOf, OFFERS, situationOf, splitStatus, statusOf } from './status.js';
import { callAgent, callIt, fill, speak } from './strings.js';
import { markUnheard } from './unheard.js';
import { open } from './voxgate.js';

/**
 * @import { VoxgateOrb } from './orb.js'
 * @import { Options, Session, Turn, VoxgateError } from './types.d.ts'
 * @import { Status } from './status.js'
 */

/** What begins and ends conversations, if it is not the element itself. @typedef {{start(options?: Partial<Options>): Session, goOn?(): Session, end(): void}} Source */

const style = `
:host { --small: min(max(60px, 4rem), 24cqi); display: flex; flex-direction: column; width: max(22rem, 340px); max-width: 100%; height: max(34rem, 500px); max-height: 100%; overflow: hidden auto; container-type: inline-size;
  border: 1px solid var(--line); border-radius: var(--round); background: var(--card); text-align: start; }
.head { display: flex; align-items: center; gap: .75em; min-height: 4em; padding: .25em .5em .25em 1em; border-bottom: 1px solid var(--line); }
.head img[hidden] + b::before { content: ''; display: inline-block; width: 1.75em; height: 1.75em; margin-inline-end: .6em; vertical-align: -.5em; border-radius: 50%; background: var(--sphere); }
.head img { flex: none; width: 2.5em; height: 2.5em; border-radius: 50%; object-fit: cover; }
.head b { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: var(--text-large); font-weight: 650; }
.head .icon { flex: none; }
.log { flex: 1; min-height: 0; overflow-y: auto; overscroll-behavior: contain; scrollbar-width: thin; display: flex; flex-direction: column; gap: 1em; padding: 1em; container-type: inline-size; }
.log:focus-visible { outline-offset: -3px; }
.log:not(:focus-visible) { mask-image: linear-gradient(#0000, #000 1em, #000 calc(100% - .5em), #0000); }
.log .turn { max-width: 100%; font-size: inherit; }
.log .turn.user { max-width: 85%; }
/* A shadow at each side where a table goes on. At its ends what scrolls with it covers the shadow. */
.turn table { --cover: var(--card) 1em, #0000; --shade: color-mix(in oklch, var(--ink) 24%, transparent), #0000;
  background: linear-gradient(to right, var(--cover)) left / 2.5em 100% local, linear-gradient(to left, var(--cover)) right / 2.5em 100% local,
    linear-gradient(to right, var(--shade)) left / .75em 100% scroll, linear-gradient(to left, var(--shade)) right / .75em 100% scroll; background-repeat: no-repeat; }
.log > .empty[hidden] + * { margin-top: auto; } /* the words grow upwards from the status */
.empty { flex: 1; display: grid; place-content: center; justify-items: center; gap: .75em; text-align: center; text-wrap: balance;
  font-size: clamp(var(--text-large), 6cqi, var(--text-title)); font-weight: 600; line-height: 1.25; letter-spacing: -.01em; }
.status, .absence { padding: 0 1em; text-align: center; }
.denied { padding-top: 8px; }
.status { flex: none; display: grid; align-content: center; min-height: 3em; padding-block: .25em; line-height: 1.35; }
.dock { flex: none; flex-wrap: wrap; justify-content: center; gap: .5em min(1.25em, 5cqi); padding: .25em min(1em, 4cqi) .75em; min-height: 5.25em; }
:is(.dock, .type) .icon { min-width: 44px; width: min(var(--finger), 14cqi); min-height: 44px; height: min(var(--finger), 14cqi); }
:is(.dock, .type) .icon svg { width: min(1.375rem, 8cqi); height: min(1.375rem, 8cqi); }
/* What follows the end is one row, with large letters, too. */
.dock > button:not(.icon, .orb) { min-height: 44px; padding: .25em min(1em, 3.5cqi); font-size: min(1em, max(13px, 5cqi)); }
:host([data-over]) .dock { gap: .5em; }
.dock .orb { width: var(--small); }
/* It ended before there were words, and there is no orb: why, and what can be done, stand in the place of the greeting. */
:host([data-fresh][data-ended]) .log { display: none; }
:host([data-fresh][data-ended]) .status { margin-top: auto; font-size: var(--text-large); }
:host([data-fresh][data-ended]) .dock { margin-bottom: auto; }
:host([data-live]) .orb > * { transition: transform var(--motion); }
/* Until there are words the greeting, the orb among Mute and End, and the status are one group in the middle. They glide from and to it, and move nothing else. */
:host([data-fresh]:not([data-low])) .dock { --up: calc(-1.5 * var(--small) - var(--status-height, 3em) - .75em - var(--lift, 0px)); }
:host([data-fresh]:not([data-low])) .empty { place-content: end center; padding-bottom: calc(2 * var(--small) + 1rem); }
:host([data-fresh]:not([data-low])) .orb > * { --ring: .09375rem; transform: translateY(var(--up)) scale(2); }
:host([data-fresh]:not([data-low])) :is(.empty span, .status, .absence) { translate: 0 calc(-1 * var(--lift, 0px)); }
:host([data-live]) :is(.empty span, .status) { transition: translate var(--motion); }
:host([data-fresh]:not([data-low])) .orb:focus-visible { outline: none; }
:host([data-fresh]:not([data-low])) .orb:focus-visible > * { outline: 3px solid var(--accent); outline-offset: 5px; }
.dock > .mute[data-useless] { visibility: hidden; } /* its place stays, and the orb in the middle */
.dock > .icon { transition: translate var(--motion); }
:host([data-fresh]:not([data-low])) .dock > :is(.mute:not(:dir(rtl)), .end:dir(rtl)) { translate: calc(var(--small) / -2) var(--up); }
:host([data-fresh]:not([data-low])) .dock > :is(.end:not(:dir(rtl)), .mute:dir(rtl)) { translate: calc(var(--small) / 2) var(--up); }
.type { flex: none; align-items: center; padding: 0 min(.75em, 4cqi) .75em; }
.type input { padding-inline: min(1em, 4cqi); text-overflow: ellipsis; }
`;

const ICONS = {
  mute: ['M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3ZM6 11a6 6 0 0 0 12 0M12 17v4', 'M4 4l16 16'],
  end: ['M6 6l12 12M18 6 6 18'],
  minimise: ['M5 9l7 7 7-7'],
  send: ['M12 19V5M6 11l6-6 6 6'],
};

const MOST = 200; // lines that are kept
const HISTORY = 100; // turns that a conversation goes on with
const SECOND = 1_000; // ms
const AWAY = 48; // pixels from the end: a person who scrolled further up reads there

/**
 * @param {string} tag
 * @param {Record<string, any>} [set] properties
 * @param {(Node|string)[]} children
 */
function make(tag, set = {}, ...children) {
  const e = Object.assign(document.createElement(tag), set);
  e.append(...children);
  return /** @type {any} */ (e);
}

/** Makes a button with a picture, for the parts of the talk button. @internal @param {keyof typeof ICONS} name @param {() => void} [onclick] @param {string} [type] */
export function iconButton(name, onclick, type = 'button') {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  for (const [i, d] of ICONS[name].entries()) {
    const path = document.createElementNS(svg.namespaceURI, 'path');
    path.setAttribute('d', d);
    if (i) path.setAttribute('class', 'slash');
    svg.append(path);
  }
  return /** @type {HTMLButtonElement} */ (make('button', { type, className: `icon ${name}`, ...(onclick && { onclick }) }, svg));
}

/**
 * The config of a conversation that goes on with what was said, for React, too. @internal
 * @param {Options['config']} config
 * @param {readonly Turn[]} turns
 * @returns {Options['config']}
 */
export function withHistory(config, turns) {
  const history = turns.filter((t) => t.final).map(({ role, text, heard }) => ({ role, content: heard ?? text })).slice(-HISTORY);
  return history.length ? { ...config, voxgate: { ...config?.['voxgate'], history } } : config;
}

const Base = /** @type {typeof HTMLElement} */ (globalThis.HTMLElement ?? class {}); // a server has none

export class VoxgateConversation extends Base {
  /** @type {Options['token']} */ token;
  /** @type {Partial<Options>} */ options = {};
  /** @type {Options['strings']} */ strings;
  /** @type {Source|undefined} */ source;
  /** @type {Session|undefined} */ #session;
  /** @type {readonly Turn[]} what the present conversation goes on with */ #known = [];
  /** @type {readonly Turn[]} of the last conversation, and what it went on with */ #before = [];
  /** @type {VoxgateError|undefined} why it ended */ #ended;
  /** @type {Status['press']} */ #pressed = 'start';
  /** @type {Map<string, HTMLElement>} of the present conversation */ #lines = new Map();
  /** @type {Map<HTMLElement, string>} texts that were not sent yet */ #unsent = new Map();
  /** @type {(() => void)[]} */ #off = [];
  /** @type {ReturnType<typeof setTimeout>|undefined} */ #counting;
  #ready = Promise.resolve(); // the words are loaded
  #atEnd = true; // of the transcript, which is then kept in sight
  #picture = make('img', { alt: '', hidden: true });
  #name = make('b');
  #minimise = iconButton('minimise', () => this.dispatchEvent(new CustomEvent('minimise')));
  #leave = iconButton('end', () => this.dispatchEvent(new CustomEvent('close')));
  #greeting = make('span');
  #empty = make('div', { className: 'empty' }, this.#greeting);
  #log = make('div', { className: 'log', role: 'log', tabIndex: 0 });
  #status = make('p', { className: 'status', role: 'status' });
  #since = make('span');
  #retry = make('button', { type: 'button', onclick: () => this.#session?.retry() });
  #absence = make('p', { className: 'absence', hidden: true }, this.#since, ' ', this.#retry);
  #retryMic = make('button', { type: 'button', onclick: () => this.#session?.mute(false) });
  #denied = make('p', { className: 'absence denied', hidden: true }, this.#retryMic);
  #text = /** @type {HTMLInputElement} */ (make('input', { autocomplete: 'off', enterKeyHint: 'send', maxLength: 20_000 }));
  #submit = iconButton('send', undefined, 'submit');
  #form = make('form', { className: 'type', onsubmit: (/** @type {Event} */ e) => this.#send(e) }, this.#text, this.#submit);
  #mute = iconButton('mute', () => this.#session?.mute());
  #orb = /** @type {VoxgateOrb} */ (make('voxgate-orb'));
  #press = make('button', { className: 'orb', type: 'button', onclick: () => this.#pressOrb() }, this.#orb);
  #end = iconButton('end', () => this.stop());
  #goOn = make('button', { type: 'button', onclick: () => this.start(undefined, this.#before) });
  #again = make('button', { type: 'button', onclick: () => this.start() });
  #close = make('button', { type: 'button', onclick: () => this.dispatchEvent(new CustomEvent('close')) });

  constructor() {
    super();
    const sheet = new CSSStyleSheet(); // a page's policy has no say in it
    sheet.replaceSync(looks + style);
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    root.append(make('div', { className: 'head' }, this.#picture, this.#name, this.#minimise, this.#leave), this.#log, this.#status, this.#absence, this.#denied,
      make('div', { className: 'dock' }, this.#mute, this.#press, this.#end, this.#goOn, this.#again, this.#close), this.#form);
    this.#log.append(this.#empty);
    new ResizeObserver(() => this.#fit()).observe(this.#log);
    this.#log.addEventListener('scroll', () => (this.#atEnd = this.#log.scrollHeight - this.#log.clientHeight - this.#log.scrollTop < AWAY), { passive: true });
    root.addEventListener('keydown', (e) => this.#escape(/** @type {KeyboardEvent} */ (e)));
    this.#text.addEventListener('input', () => this.#mark(''));
  }

  connectedCallback() {
    const read = { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) };
    const [who, agent] = [this.getAttribute('who'), this.getAttribute('agent')];
    if (who) callIt(who);
    else if (agent) callAgent(agent);
    this.#ready = speak({ talk: words, states, errors }, read).then(() => this.#render());
    this.#render();
  }

  disconnectedCallback() {
    clearTimeout(this.#counting);
    if (!this.source) this.#session?.close();
  }

  /** The conversation that it shows. An app that has its own sets it. */
  get session() {
    return this.#session;
  }

  set session(session) {
    if (session === this.#session) return;
    for (const off of this.#off.splice(0)) off();
    this.#session = session;
    this.#known = [];
    if (session) this.#follow(session);
    else this.#render();
  }

  /** @param {Session} session */
  #follow(session) {
    if (this.#lines.size || this.#log.querySelector('.user, .model')) this.#rule();
    this.#lines = new Map();
    this.#ended = undefined;
    this.#orb.session = session;
    const mine = () => this.#session === session;
    for (const turn of session.turns) this.#turn(turn);
    this.#off = [
      session.on('state', () => mine() && session.state !== 'closed' && this.#state()),
      session.on('turn', (turn) => mine() && this.#turn(turn)),
      session.on('error', (error) => mine() && this.dispatchEvent(new CustomEvent('error', { detail: error }))),
      session.on('closed', (why) => mine() && this.#over(session, why)),
    ];
    this.#state();
  }

  /**
   * Starts a conversation, as pressing the orb does. Call it in a user gesture.
   * @param {string} [said] a typed first message; the microphone is then not requested
   * @param {readonly Turn[]} [known] what was said before, which the conversation goes on with
   */
  async start(said, known = []) {
    if (this.#session && this.#session.state !== 'closed') return;
    const { config, ...rest } = this.#asked();
    const wished = { ...rest, config: withHistory(config, known), ...(said && { mic: false }) };
    const { source } = this;
    const apart = () => source?.start({ ...(wished.config !== config && { config: wished.config }), ...(said && { mic: false }) });
    const goesOn = !said && known.length > 0 && known === this.#before; // the app's own conversations have a config that is not known here
    const session = (goesOn && source?.goOn?.()) || apart() || open(wished);
    this.session = session;
    this.#known = known;
    if (said) session.send(said);
    await session.ready.catch(() => {}); // `closed` tells
  }

  /** Ends the conversation; what was said stays. */
  stop() {
    if (this.source) this.source.end();
    else this.#session?.close();
  }

  /** Empties the transcript. */
  clear() {
    this.#log.replaceChildren(this.#empty);
    this.#lines = new Map();
    this.#before = [];
    this.#ended = undefined;
    this.#render();
  }

  focus() {
    (this.#session ? this.#end : this.#press).focus();
  }

  /** @returns {Options} */
  #asked() {
    const of = (/** @type {string} */ name) => this.getAttribute(name) ?? undefined;
    const { config, ...rest } = this.options;
    const voice = of('voice') && { generationConfig: { ...config?.generationConfig, speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: of('voice') } } } } };
    const prompt = of('prompt') && { systemInstruction: { parts: [{ text: of('prompt') }] } };
    const read = { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) };
    return { url: of('url') ?? '', token: this.token ?? of('token'), agent: of('agent'), ...read, ...rest, config: { ...config, ...(voice || {}), ...(prompt || {}) } };
  }

  /** @param {string|undefined} name in the table */
  #word(name = '') {
    return fill(words[name] ?? states[name]);
  }

  #state() {
    const session = this.#session;
    if (!session) return;
    if (session.setup && session.state !== 'reconnecting') {
      for (const line of this.#unsent.keys()) line.querySelector('small')?.remove();
      this.#unsent.clear();
    }
    this.#render();
    this.dispatchEvent(new CustomEvent('state', { detail: { state: session.state, mic: session.mic } }));
  }

  #render() {
    const session = this.#session?.state === 'closed' ? undefined : this.#session;
    const offers = OFFERS.button.filter((offer) => offer !== 'orb' || !this.#ended); // what goes on then has names
    const current = statusOf(situationOf(session, { offers, ...(!session && !this.#ended && { state: 'idle' }) }, this.#ended));
    this.#pressed = current.press;
    this.#showStatus(current.text);
    const live = Boolean(session);
    const useless = !live && current.press === '';
    const name = (/** @type {HTMLElement} */ e, /** @type {string} */ text) => (e.ariaLabel = e.title = text);
    this.#name.textContent = this.getAttribute('who') ?? fill('{who}');
    this.#picture.hidden = !this.getAttribute('picture');
    if (this.getAttribute('picture')) this.#picture.src = this.getAttribute('picture');
    this.#greeting.textContent = this.getAttribute('greeting') ?? this.#word('with');
    this.#empty.hidden = this.#log.childElementCount > 1;
    this.toggleAttribute('data-fresh', !this.#empty.hidden); // the orb is large until there are words
    this.ariaLabel = this.#word('with');
    this.role = 'region';
    this.#log.ariaLabel = this.#word('conversation');
    this.#log.ariaLive = session?.mic === 'live' ? 'off' : 'polite'; // it would speak into the open microphone
    this.#text.ariaLabel = this.#text.placeholder = this.#word('type');
    name(this.#submit, this.#word('send'));
    name(this.#minimise, this.#word('minimise'));
    name(this.#end, this.#word('end'));
    name(this.#leave, this.#word('close'));
    name(this.#mute, session ? muteOf(session.mic) : this.#word('mute'));
    name(this.#press, this.#word(current.press || 'interrupt'));
    this.#press.ariaDisabled = current.press ? null : 'true';
    const twice = ['mute', 'unmute', 'use'].includes(current.press); // there is a button for it
    this.#press.tabIndex = twice ? -1 : 0;
    this.#press.ariaHidden = twice ? 'true' : null;
    const over = Boolean(this.#ended);
    const closable = this.hasAttribute('closable');
    this.#minimise.hidden = !closable || !live;
    this.#leave.hidden = !closable || live || useless; // then it is the one thing that can be done, and stands below
    this.#mute.hidden = this.#end.hidden = !live;
    this.#press.hidden = useless || over;
    this.#form.hidden = useless;
    this.#again.hidden = !over || useless;
    this.#goOn.hidden = !over || useless || !this.#before.length;
    this.#close.hidden = !closable || live || !useless;
    this.#again.textContent = this.#word(current.next === 'start' ? 'new' : 'try again');
    this.#goOn.textContent = this.#word('go on');
    this.#close.textContent = this.#word('close');
    this.#retry.textContent = this.#word('try now');
    this.#retryMic.textContent = this.#word('try again');
    this.#denied.hidden = !current.canRetryMic;
    this.#goOn.className = 'primary';
    this.#again.className = this.#goOn.hidden ? 'primary' : '';
    this.toggleAttribute('data-live', live);
    this.toggleAttribute('data-over', over && !useless);
    this.toggleAttribute('data-ended', over);
    this.#mute.toggleAttribute('data-useless', live && isMendable(session?.mic)); // "Try again" is what helps
    this.#mute.toggleAttribute('data-on', live && !isOpen(session?.mic) && session?.mic !== 'asking');
    this.#renderAway();
    this.#fit();
  }

  /** @param {string} status */
  #showStatus(status) {
    if (this.#status.textContent === status) return;
    const [first, rest] = splitStatus(status);
    this.#status.replaceChildren(make('span', {}, make('b', { textContent: first }), rest));
  }

  /** Without room for the large orb it stays in the dock; with more, the group is in the middle of what is free. */
  #fit() {
    if (!this.isConnected) return;
    if (this.#atEnd) this.#log.scrollTop = this.#log.scrollHeight; // what is below it may have grown
    const em = parseFloat(getComputedStyle(this).fontSize);
    const small = this.#press.offsetWidth;
    const height = this.#log.clientHeight;
    this.toggleAttribute('data-low', height < 2 * small + 6 * em || this.#log.clientWidth < 16 * em);
    const free = height - 2 * small - 3 * em - this.#greeting.offsetHeight;
    const dock = /** @type {HTMLElement} */ (this.#press.parentElement); // it is empty until then
    const lift = small ? `${(Math.max(0, free) - dock.offsetHeight) / 2}px` : '';
    for (const part of [this.#log, this.#status, this.#absence, this.#denied, dock]) part.style.setProperty('--lift', lift);
    dock.style.setProperty('--status-height', `${this.#status.offsetHeight + this.#absence.offsetHeight + this.#denied.offsetHeight}px`); // the orb stands above all of it
  }

  #renderAway() {
    const absence = absenceOf(this.#session?.away);
    this.#absence.hidden = !absence;
    this.#since.textContent = absence;
    clearTimeout(this.#counting);
    if (this.#session?.away) this.#counting = setTimeout(() => this.#renderAway(), SECOND);
  }

  /** @param {Turn} turn */
  #turn(turn) {
    const session = this.#session;
    let line = this.#lines.get(turn.id);
    const waits = turn.role === 'user' && !line && session && (!session.setup || session.state === 'reconnecting');
    if (!line) {
      line = /** @type {HTMLElement} */ (make('div', { className: `turn ${turn.role}`, dir: 'auto' }));
      this.#lines.set(turn.id, line);
      this.#add(line);
    }
    const said = turn.heard ?? turn.text;
    line.replaceChildren(...(turn.role === 'model' ? nodes(said) : [said]));
    if (turn.role === 'model') markUnheard(line, turn);
    const by = cutOf(turn.cutBy, said, turn.text);
    if (by) line.append(make('small', { textContent: by }));
    if (waits) {
      line.append(make('small', { textContent: this.#word(session?.setup ? 'sent back' : 'sent later') }));
      this.#unsent.set(line, turn.text);
    }
    if (this.#atEnd || turn.role === 'user') this.#log.scrollTop = this.#log.scrollHeight;
    this.dispatchEvent(new CustomEvent('turn', { detail: turn }));
  }

  /** @param {HTMLElement} line */
  #add(line) {
    this.#empty.hidden = true;
    this.toggleAttribute('data-fresh', false);
    this.#log.append(line);
    if (this.#log.childElementCount > MOST) this.#log.children[1]?.remove();
  }

  /** Another conversation begins. */
  #rule() {
    const time = new Date().toLocaleTimeString(this.lang || undefined, { hour: 'numeric', minute: '2-digit' });
    this.#add(make('p', { className: 'rule', textContent: time }));
  }

  /** Shows a note above the field, or none. @param {string} note */
  #mark(note) {
    this.shadowRoot?.querySelector('.mark')?.remove();
    if (note) this.#form.before(make('p', { className: 'absence mark', textContent: note }));
  }

  /** @param {Session} session @param {VoxgateError} why */
  #over(session, why) {
    this.#ended = why;
    this.#before = [...this.#known, ...session.turns].slice(-MOST);
    if (this.#unsent.size) {
      this.#text.value = [this.#text.value, ...this.#unsent.values()].filter(Boolean).join(' '); // nothing typed gets lost
      this.#mark(this.#word('not sent'));
      for (const line of this.#unsent.keys()) line.remove();
      this.#unsent.clear();
    }
    const { next } = statusOf(situationOf(undefined, {}, why));
    if (!next) console.warn(`voxgate: ${why.told ?? why.message}`); // for the author of the page
    this.#render();
    this.dispatchEvent(new CustomEvent('state', { detail: { state: 'closed', mic: 'off' } }));
  }

  #pressOrb() {
    if (this.#pressed === 'start') void this.start();
    else if (this.#pressed === 'interrupt') this.#session?.interrupt();
    else if (this.#pressed === 'unblock') this.#session?.unblock();
    else if (this.#pressed) this.#session?.mute(this.#pressed === 'mute');
  }

  /** Esc leaves the field, then interrupts an answer. @param {KeyboardEvent} e */
  #escape(e) {
    if (e.key !== 'Escape' || e.isComposing) return;
    e.stopPropagation(); // the page has an Esc of its own
    if (e.target === this.#text) this.#end.focus();
    else if (this.#session?.state === 'speaking') this.#session.interrupt();
  }

  /** @param {Event} e */
  #send(e) {
    e.preventDefault();
    const text = this.#text.value.trim();
    if (!text) return;
    this.#text.value = '';
    this.#mark('');
    if (this.#session && this.#session.state !== 'closed') this.#session.send(text);
    else void this.start(text);
  }

  /** Resolves when its words are loaded. */
  get ready() {
    return this.#ready;
  }
}

if (globalThis.customElements && !customElements.get('voxgate-conversation')) customElements.define('voxgate-conversation', VoxgateConversation);
