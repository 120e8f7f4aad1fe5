/**
 * A whole conversation in one element: who answers, the transcript, a field, the orb, Mute and End.
 *
 *   <voxgate-conversation url="wss://your.gateway/ws" who="Nora" picture="nora.jpg" greeting="How can I help?"></voxgate-conversation>
 *
 * It fills its box. In a box without a height it is 34 rem high. Attributes: `url`, `token`, `agent`, `voice`, `prompt`, `lang`, `resume`; `who` is the name of who
 * answers, `picture` and `greeting` are theirs; `closable` adds buttons that minimise and close. Properties: `token` (a function, too), `strings`, `options` as for `open`;
 * `source`, an app's own conversations. Events: `state`, `turn`, `error`, `minimise`, `close`. Its colours are the custom properties `--voxgate-…`.
 */
import { growField } from './dom.js';
import { keepEarlier, readEarlier, renameEarlier } from './earlier.js';
import { errors, states, talk as words } from './en.js';
import { isOpen } from './look.js';
import { looks } from './looks.js';
import { nodes } from './markdown.js';
import './orb.js';
import { absenceOf, cutOf, hasUser, muteOf, nameOfDefault, OFFERS, situationOf, sourcesOf, splitStatus, statusOf } from './status.js';
import { callAgent, callIt, fill, keepName, language, speak } from './strings.js';
import { suggestionsFrame } from './suggestions.js';
import { markUnheard } from './unheard.js';
import { open, resumable } from './voxgate.js';

/**
 * @import { VoxgateOrb } from './orb.js'
 * @import { Devices, Options, Session, ToolCall, Turn, VoxgateError } from './types.d.ts'
 * @import { Status } from './status.js'
 * @import { Earlier, UsedTool } from './earlier.js'
 */

/** What begins and ends conversations, if it is not the element itself. @typedef {{start(options?: Partial<Options>): Session, goOn?(): Session, end(): void, use?(devices: Devices): Promise<void>}} Source */

const style = `
:host { display: flex; flex-direction: column; width: 100%; max-width: 100%; height: 100%; max-height: 100dvh; overflow: hidden auto; border: 1px solid var(--line); border-radius: var(--round); background: var(--card); text-align: start; }
:host([hidden]) { display: none; }
/* A page may give the element another display. */
.whole { --small: min(max(56px, 3.5rem), 22cqi); flex: auto; display: flex; flex-direction: column; width: 100%; height: 100%; min-height: 0; max-height: 100dvh; container-type: inline-size; }
.head { display: flex; align-items: center; gap: .75em; min-height: min(4em, 20cqi); padding: .25em .5em .25em 1em; border-bottom: 1px solid var(--line); }
.head img[hidden] + b::before { content: ''; forced-color-adjust: none; display: inline-block; width: 1.75em; height: 1.75em; margin-inline-end: .6em; vertical-align: -.5em; border-radius: 50%; background: var(--sphere); }
.head img { flex: none; width: 2.5em; height: 2.5em; border-radius: 50%; object-fit: cover; }
.head b { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: var(--text-large); font-weight: 650; }
.head .icon { flex: none; }
.head .icon + .icon { margin-inline-start: -.75em; }
.more svg { stroke-width: 3; }
.menu { position: fixed; inset: auto; min-width: min(15rem, 100vw - 2rem); padding: .5rem; border: 1px solid var(--line); border-radius: 1rem; background: var(--card); color: var(--ink);
  box-shadow: 0 .5rem 2rem #0003; }
.menu button { width: 100%; padding: 0 .75rem; border-color: #0000; border-radius: .75rem; background: none; text-align: start; font-weight: 500; }
.menu label { display: block; padding-bottom: .25rem; font-size: var(--text-small); color: var(--quiet); }
.menu label span { display: block; padding: .25rem .75rem; }
@media (forced-colors: active) { .menu select { outline: 1px solid; outline-offset: -1px; } }
.menu select { display: block; width: 100%; padding-inline: calc(.75rem - 4px) 0; border: solid #0000; border-width: 0 .75rem 0 0; border-radius: .75rem; background: var(--soft); text-overflow: ellipsis; font-size: var(--text-body); }
.clock { display: flex; align-items: center; gap: .5em; font-size: var(--text-small); color: var(--quiet); }
.clock::before { content: ''; width: .6em; height: .6em; border-radius: 50%; forced-color-adjust: none; background: var(--quiet); }
:host([data-heard]) .clock::before { background: var(--person); }
@container (max-width: 17em) { .clock { display: none; } }
@container (max-width: 12em) { .head img, .head img[hidden] + b::before { display: none; } } /* large letters: the name needs the room */
.log { flex: 1 1 20rem; min-height: 0; overflow-y: auto; overscroll-behavior: contain; scrollbar-width: thin; display: flex; flex-direction: column; gap: 1em; padding: 1em; container-type: inline-size; }
@container (min-width: 12em) { :host(:is(:not([data-fresh]), [data-low])) .log:has(+ .way > .absence:not([hidden])) { padding-bottom: calc(var(--finger) + 1em); } } /* no words are covered */
.log:focus-visible { outline-offset: -3px; }
.log:not(:focus-visible) { mask-image: linear-gradient(#0000, #000 1em, #000 calc(100% - .5em), #0000); }
.log .turn { --behind: var(--card); max-width: 100%; font-size: inherit; }
.log .turn.user { max-width: 85%; }
.log .card > :first-child::before { box-shadow: 0 0 0 2px var(--card); }
.log > :has(~ .rule:not(.known)) { --mine: var(--soft); --person: var(--quiet); color: var(--quiet); } /* the model does not know it any more */
.log > .empty[hidden] + * { margin-top: auto; } /* the words grow upwards from the status */
.empty { flex: 1; display: grid; place-content: center; justify-items: center; gap: .75em; text-align: center; text-wrap: balance;
  font-size: clamp(var(--text-large), 7.5cqi, var(--text-title)); font-weight: 600; line-height: 1.25; letter-spacing: -.01em; }
.status, .absence { padding: 0 .5em; text-align: center; }
.absence { padding-block: .25em .75em; }
.status { flex: none; display: grid; align-content: start center; min-height: min(4em, 20cqi); padding-block: .5em .75em; line-height: 1.35; }
.dock { position: relative; flex: none; flex-wrap: wrap; justify-content: center; gap: .5em min(1.25em, 5cqi); padding: .5em min(1em, 4cqi) .25em; min-height: 4em; }
/* What comes for a while lies over the words, and moves nothing. */
.way { position: relative; z-index: 1; flex: none; display: flex; flex-wrap: wrap-reverse; align-content: flex-start; justify-content: center; gap: .5em; height: 0; }
@container (max-width: 12em) { .way:has(> .absence:not([hidden])) { height: auto; } } /* of large letters it would cover the head */
.way > * { margin-bottom: .5em; border: 1px solid var(--line); background: var(--card); box-shadow: 0 .25rem 1rem #0002; }
.way .absence { display: flex; flex-wrap: wrap; align-items: center; justify-content: center; gap: 0 .25em; max-width: calc(100% - 1em); padding: 0 0 0 1em; border-radius: var(--pill); }
.way .absence button { border-color: #0000; background: none; color: var(--accent); }
:is(.head, .way, .dock, .type) .icon { min-width: 44px; width: min(var(--finger), 14cqi); min-height: 44px; height: min(var(--finger), 14cqi); }
:is(.head, .dock, .type) .icon svg { width: min(1.375rem, 8cqi); height: min(1.375rem, 8cqi); }
/* What follows the end is one row, with large letters, too. */
.dock > button:not(.icon, .orb) { min-height: 44px; padding: .25em min(1.25em, 3.5cqi); font-size: min(1em, max(13px, 5cqi)); }
:host([data-over]) .dock { gap: .5em; }
.dock .orb { width: var(--small); }
/* The conversation ended before the first words: the reason and the buttons take the place of the greeting. */
:host([data-fresh][data-ended]) .log { display: none; }
:host([data-fresh][data-ended]) .status { margin-top: auto; font-size: var(--text-large); }
:host([data-fresh][data-ended]) .dock { margin-bottom: auto; }
:host([data-ended]) :is(.dock, .mark, .type) { order: 1; } /* why it ended, then what can be done */
:host([data-ended]) .dock { padding-bottom: 1em; }
:host([data-ended]) .status { min-height: 0; }
:host([data-live]) .orb > * { transition: transform var(--motion); }
/* Until there are words the greeting, the orb among Mute and End, and the status are one group in the middle. They glide from and to it, and move nothing else. */
:host([data-fresh]:not([data-low])) .dock { --more: calc(var(--enlarged, 2) - 1); --up: calc(-.5 * var(--more) * var(--small) - .25em * var(--more) - var(--lift, 0px)); }
/* While few words are above it, it stays large. */
:host([data-roomy]) .dock { --more: calc(var(--enlarged, 2) - 1); --up: calc(-.5 * var(--more) * var(--small)); padding-top: calc(.75em + var(--more) * var(--small)); }
:host([data-live]) .dock { transition: padding var(--motion); }
:host([data-fresh]:not([data-low])) .empty { place-content: end center; padding-bottom: calc((var(--enlarged, 2) - 1) * (var(--small) + .5rem) + .25rem); }
:host(:is([data-fresh]:not([data-low]), [data-roomy])) .orb > * { --ring: calc(.1875rem / var(--enlarged, 2)); --glow: -18%; transform: translateY(var(--up)) scale(var(--enlarged, 2)); }
:host([data-fresh]:not([data-low])) .dock { pointer-events: none; }
:host([data-fresh]:not([data-low])) .dock > * { pointer-events: auto; }
:host([data-fresh]:not([data-low])) :is(.empty span, .status, .denied) { translate: 0 calc(-1 * var(--lift, 0px)); }
:host([data-fresh]:not([data-low])) .way .absence { translate: 0 calc(100% + var(--under, 0px) - var(--lift, 0px)); } /* under the status */
:host([data-fresh]:not([data-low])) .status { pointer-events: none; } /* it may cover the button of the orb */
.status button { pointer-events: auto; }
:host([data-live]) :is(.empty span, .status) { transition: translate var(--motion); }
:host(:is([data-fresh]:not([data-low]), [data-roomy])) .orb:focus-visible { outline: none; }
:host(:is([data-fresh]:not([data-low]), [data-roomy])) .orb:focus-visible > * { outline: var(--ring) solid var(--accent); outline-offset: calc(5px / var(--enlarged, 2)); }
.dock > .icon { transition: translate var(--motion); }
:host(:is([data-fresh]:not([data-low]), [data-roomy])) .dock > :is(.mute:not(:dir(rtl)), .end:dir(rtl)) { translate: calc(var(--small) * (1 - var(--enlarged, 2)) / 2) var(--up); }
:host(:is([data-fresh]:not([data-low]), [data-roomy])) .dock > :is(.end:not(:dir(rtl)), .mute:dir(rtl)) { translate: calc(var(--small) * (var(--enlarged, 2) - 1) / 2) var(--up); }
.type { flex: none; padding: 0 min(.75em, 4cqi) .75em; }
.type textarea { padding-inline: min(1em, 4cqi); }
.mark { padding: .25em 1em .5em; }
/* A low box, as on a phone on its side: the orb and the status share a row. */
:host([data-live][data-flat]) .whole { --small: 44px; display: grid; grid-template: auto minmax(0, 1fr) / auto minmax(0, 1fr); }
:host([data-live][data-flat]) .whole > * { grid-column: 1 / -1; }
:host([data-flat]) .head { min-height: 3em; padding-block: 0; }
:host([data-live][data-flat]) .dock { grid-column: 1; flex-wrap: nowrap; gap: .5em; min-height: 0; padding: .25em .75em .5em max(.75em, (100cqi - 36rem) / 2); }
:host([data-live][data-flat]) .status { grid-column: 2; align-content: center; min-height: 0; padding: 0 .75em .25em 0; text-align: start; font-size: var(--text-small); }
/* In a wide box the words are as large as on the page, in lines that can be read. */
@container (min-width: 30rem) {
  .log { font-size: var(--text-large); padding-inline: max(1em, (100cqi - 36rem) / 2); }
  .type { width: min(37.5rem, 100%); margin-inline: auto; }
}
`;

const ICONS = {
  mute: ['M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3ZM6 11a6 6 0 0 0 12 0M12 17v4', 'M4 4l16 16'],
  end: ['M3.5 14.5c-.9-2 .1-3.7 1.7-4.7 4-2.4 9.6-2.4 13.6 0 1.6 1 2.6 2.7 1.7 4.7l-.6 1.2-4.1-1.4v-2.4c-2.5-.7-5.1-.7-7.6 0v2.4l-4.1 1.4Z'], // a receiver that is put down
  close: ['M6 6l12 12M18 6 6 18'],
  more: ['M5 12h.01M12 12h.01M19 12h.01'],
  minimise: ['M5 9l7 7 7-7'],
  send: ['M12 19V5M6 11l6-6 6 6'],
  down: ['M12 5v14M6 13l6 6 6-6'],
};

const MOST = 200; // lines that are kept
const HISTORY = 100; // turns that a conversation goes on with
const SECOND = 1_000; // ms
const SHARE = 0.36; // of the width or the height that the orb takes before there are words
const LARGE = 280; // pixels, at most
const ROOMY = 128; // pixels: the orb while all words fit above it
const [FLAT, BROAD] = [28, 20]; // em: a box lower than that, and at least as wide, has the orb and the status in one row
const LEAST = 1.4; // times the orb of the dock: below that it stays there
const NARROW = 480; // pixels
const EDGE = 8; // pixels from the menu to the side
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
  const said = turns.filter((t) => t.final).map(({ role, text, heard }) => ({ role, content: heard ?? text }));
  const history = said.filter(({ content }) => content).slice(-HISTORY); // of an answer that was interrupted at once nothing was heard
  return history.length ? { ...config, voxgate: { ...config?.['voxgate'], history } } : config;
}

/**
 * The card of a tool that has run, for React, too; undefined of a tool without a title, and of what a canvas shows itself. @internal
 * @param {ToolCall} call
 */
export function cardOf({ id, name, title, doneTitle, status, declined }) {
  if (!title || status === 'running' || name.endsWith('_canvas_tool') || id.startsWith('ask-')) return undefined;
  const isDone = status === 'done' && !declined;
  return { title: (isDone && doneTitle) || title.replace(/\s*…$/, ''), status: declined ? 'cancelled' : status, outcome: fill(words[declined ? 'declined' : status]), isQuiet: isDone };
}

const Base = /** @type {typeof HTMLElement} */ (globalThis.HTMLElement ?? class {}); // a server has none

export class VoxgateConversation extends Base {
  /** @type {Options['token']} */ token;
  /** @type {Partial<Options>} */ options = {};
  /** @type {Options['strings']} */ strings;
  /** @type {Source|undefined} */ source;
  /** @type {Session|undefined} */ #session;
  /** @type {readonly Turn[]} what the present conversation goes on with */ #known = [];
  /** @type {readonly UsedTool[]} whose cards are shown of the present conversation, and of what it goes on with */ #tools = [];
  #began = 0; // ms since 1970: the present conversation
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
  #clock = make('span', { className: 'clock', hidden: true }); // for how long it has been on
  #startedAt = 0; // ms since 1970
  #talked = 0; // ms, in the conversations that this one goes on with
  /** @type {ReturnType<typeof resumable>} the page was loaded again in the midst of it */ #left;
  #chooses = make('span');
  #microphones = /** @type {HTMLSelectElement} */ (make('select', { onchange: () => this.#useMicrophone(this.#microphones.value) }));
  #choice = make('label', { hidden: true }, this.#chooses, this.#microphones);
  #copy = make('button', { type: 'button', onclick: () => this.#copyTurns() });
  #menu = make('div', { className: 'menu', popover: 'auto' }, this.#choice, this.#copy);
  #more = iconButton('more');
  #micID = ''; // of the microphone that was chosen
  #minimise = iconButton('minimise', () => this.dispatchEvent(new CustomEvent('minimise')));
  #leave = iconButton('close', () => this.dispatchEvent(new CustomEvent('close')));
  #greeting = make('span');
  #empty = make('div', { className: 'empty' }, this.#greeting);
  #log = make('div', { className: 'log', role: 'log', tabIndex: 0 });
  #status = make('p', { className: 'status', role: 'status' });
  #since = make('span');
  #retry = make('button', { type: 'button', onclick: () => this.#session?.retry() });
  #absence = make('p', { className: 'absence', hidden: true }, this.#since, ' ', this.#retry);
  #retryMic = make('button', { type: 'button', onclick: () => this.#session?.mute(false) });
  #denied = make('p', { className: 'absence denied', hidden: true }, this.#retryMic);
  #text = /** @type {HTMLTextAreaElement} */ (make('textarea', { rows: 1, dir: 'auto', autocomplete: 'off', enterKeyHint: 'send', maxLength: 20_000 }));
  #submit = iconButton('send', undefined, 'submit');
  #form = make('form', { className: 'type', onsubmit: (/** @type {Event} */ e) => this.#send(e) }, this.#text, this.#submit);
  #down = iconButton('down', () => this.#showEnd());
  #way = make('div', { className: 'way' }, this.#absence, this.#down);
  #mute = iconButton('mute', () => this.#session?.mute());
  #orb = /** @type {VoxgateOrb} */ (make('voxgate-orb'));
  #press = make('button', { className: 'orb', type: 'button', onclick: () => this.#pressOrb() }, this.#orb);
  #end = iconButton('end', () => this.stop());
  #goOn = make('button', { type: 'button', onclick: () => this.start(undefined, this.#before) });
  #again = make('button', { type: 'button', onclick: () => this.start() });
  #close = make('button', { type: 'button', onclick: () => this.dispatchEvent(new CustomEvent('close')) });
  #dock = make('div', { className: 'dock' }, this.#mute, this.#press, this.#end, this.#goOn, this.#again, this.#close);
  #whole = make('div', { className: 'whole' }, make('div', { className: 'head' }, this.#picture, this.#name, this.#clock, this.#more, this.#minimise, this.#leave, this.#menu), this.#log, this.#way,
    this.#dock, this.#status, this.#denied, this.#form);

  constructor() {
    super();
    const sheet = new CSSStyleSheet(); // a page's policy has no say in it
    sheet.replaceSync(looks + style);
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    root.append(this.#whole);
    this.#log.append(this.#empty);
    this.#more.popoverTargetElement = this.#menu;
    this.#menu.addEventListener('beforetoggle', (/** @type {ToggleEvent} */ e) => e.newState === 'open' && this.#fillMenu());
    new ResizeObserver(() => this.#fit()).observe(this.#log);
    this.#down.hidden = true;
    this.#log.addEventListener('scroll', () => {
      this.#atEnd = this.#log.scrollHeight - this.#log.clientHeight - this.#log.scrollTop < AWAY;
      this.#down.hidden = this.#atEnd;
    }, { passive: true });
    growField(this.#text);
    root.addEventListener('keydown', (e) => this.#escape(/** @type {KeyboardEvent} */ (e)));
    this.#text.addEventListener('input', () => this.#mark(''));
  }

  connectedCallback() {
    const read = { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) };
    const [who, agent] = [this.getAttribute('who'), this.getAttribute('agent')];
    if (who) callIt(who);
    else if (agent) callAgent(agent);
    keepName();
    this.#ready = speak({ talk: words, states, errors }, read).then(() => this.#render());
    const { resume } = this.#asked();
    if (resume && !this.source) this.recall(resumable(resume), readEarlier(resume));
    else this.#render();
  }

  /**
   * Shows what was said before the page was loaded again; the next session goes on with it. @internal
   * @param {ReturnType<typeof resumable>} left
   * @param {Earlier} earlier what the conversation has gone on with
   */
  recall(left, { at, turns, tools }) {
    if (left && !this.#session && !this.#left) {
      this.#left = left;
      [this.#known, this.#tools, this.#began] = [turns, tools, at];
      const show = (/** @type {Turn} */ turn) => {
        this.#showTurn(turn);
        for (const { call, after } of tools) if (after === turn.id) this.#showCard(call);
      };
      turns.forEach(show);
      if (turns.length) this.#rule(true, at);
      left.turns.forEach(show);
    }
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
    if (session) this.#follow(session, this.#left ? this.#known : []);
    else {
      this.#leaveSession();
      this.#render();
    }
  }

  #leaveSession() {
    for (const off of this.#off.splice(0)) off();
    this.#session = undefined;
    this.#known = [];
  }

  /** @param {Session} session @param {readonly Turn[]} known */
  #follow(session, known) {
    this.#leaveSession();
    this.#session = session;
    if (this.#left) this.#known = known; // it is shown, and the turns of the session, too
    else {
      const earlier = renameEarlier(known, this.#tools);
      [this.#known, this.#tools, this.#began] = [earlier.turns, earlier.tools, Date.now()];
      if (this.#log.querySelector('.user, .model')) this.#rule(known.length > 0);
      this.#lines = new Map();
    }
    this.#left = undefined;
    if (!known.length) this.#talked = 0;
    this.#ended = undefined;
    this.#keep();
    this.#orb.session = session;
    const mine = () => this.#session === session;
    for (const turn of session.turns) this.#turn(turn);
    this.#off = [
      session.on('state', () => mine() && session.state !== 'closed' && this.#state()),
      session.on('turn', (turn) => mine() && this.#turn(turn)),
      session.on('tool', (call) => mine() && this.#tool(call)),
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
  async start(said, known = this.#left ? this.#known : []) {
    if (this.#session && this.#session.state !== 'closed') return;
    const { config, ...rest } = this.#asked();
    const { source } = this;
    const knows = this.#left && source ? [] : known; // the app knows what the conversation went on with
    const wished = { ...rest, config: withHistory(config, knows), ...(said && { mic: false }) };
    const apart = () => source?.start({ ...(wished.config !== config && { config: wished.config }), ...(said && { mic: false }) });
    const goesOn = !said && known.length > 0 && known === this.#before; // the app's own conversations have a config that is not known here
    const session = (goesOn && source?.goOn?.()) || apart() || open(wished);
    if (session !== this.#session) this.#follow(session, known);
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
    this.#left = undefined;
    this.#before = this.#known = this.#tools = [];
    this.#ended = undefined;
    this.#render();
  }

  focus() {
    [this.#end, this.#goOn, this.#again, this.#close, this.#press].find((button) => !button.hidden)?.focus();
  }

  /** @returns {Options} */
  #asked() {
    const of = (/** @type {string} */ name) => this.getAttribute(name) ?? undefined;
    const { config, ...rest } = this.options;
    const voice = of('voice') && { generationConfig: { ...config?.generationConfig, speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: of('voice') } } } } };
    const prompt = of('prompt') && { systemInstruction: { parts: [{ text: of('prompt') }] } };
    const read = { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) };
    return { url: of('url') ?? '', token: this.token ?? of('token'), agent: of('agent'), resume: of('resume'), ...(this.#micID && { mic: { deviceId: { ideal: this.#micID } } }), ...read, ...rest, config: { ...config, ...(voice || {}), ...(prompt || {}) } };
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

  /** @param {Session|undefined} session that is on */
  #currentStatus(session) {
    const offers = OFFERS.button.filter((offer) => offer !== 'orb' || !this.#ended); // what goes on then has names
    const idle = !session && !this.#ended && { state: /** @type {const} */ ('idle'), resumable: Boolean(this.#left) };
    const isNarrow = this.clientWidth < NARROW; // the name of the microphone, which the menu has, too, would take two lines more, and move the orb
    return statusOf(situationOf(session, { offers, ...(isNarrow && { microphone: '' }), ...(session && hasUser(this.#known) && { hasTyped: true }), ...idle }, this.#ended));
  }

  #render() {
    const session = this.#session?.state === 'closed' ? undefined : this.#session;
    const current = this.#currentStatus(session);
    this.#pressed = current.press;
    this.#showStatus(current);
    const live = Boolean(session);
    const useless = !live && current.press === '';
    const name = (/** @type {HTMLElement} */ e, /** @type {string} */ text) => (e.ariaLabel = e.title = text);
    this.#name.textContent = this.getAttribute('who') ?? fill('{who}');
    this.#picture.hidden = !this.getAttribute('picture');
    if (this.getAttribute('picture')) this.#picture.src = this.getAttribute('picture');
    this.#greeting.textContent = this.getAttribute('greeting') ?? this.#word('greeting');
    this.#empty.hidden = this.#log.childElementCount > 1;
    this.toggleAttribute('data-fresh', !this.#empty.hidden); // the orb is large until there are words
    this.ariaLabel = this.#word('with');
    this.role = 'region';
    this.#log.ariaLabel = this.#word('conversation');
    this.#log.ariaLive = session?.mic === 'live' ? 'off' : 'polite'; // it would speak into the open microphone
    this.#text.ariaLabel = this.#text.placeholder = this.#word('type');
    name(this.#submit, this.#word('send'));
    name(this.#minimise, this.#word('minimise'));
    name(this.#more, this.#word('more'));
    this.#more.hidden = !live && !this.#turns.length;
    this.#chooses.textContent = this.#word('microphone');
    name(this.#down, this.#word('to end'));
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
    this.#end.hidden = !live;
    this.#mute.hidden = !live || current.canRetryMic; // Try again is the one control for it
    this.#greeting.hidden = current.canRetryMic; // it would invite to what cannot be done
    this.#mute.toggleAttribute('data-away', session?.state === 'reconnecting');
    this.#press.hidden = useless || over;
    this.#form.hidden = useless;
    this.#again.hidden = !over || useless;
    this.#goOn.hidden = !over || useless || !this.#before.length;
    this.#close.hidden = !closable || live || !useless;
    const lost = over && current.next !== 'start'; // who tries again goes on with what was said
    this.#again.textContent = this.#word(lost && this.#goOn.hidden ? 'try again' : 'new');
    this.#goOn.textContent = this.#word(lost ? 'try again' : 'go on');
    this.#close.textContent = this.#word('close');
    this.#retry.textContent = this.#word('try now');
    this.#retryMic.textContent = this.#word('try again');
    this.#denied.hidden = !current.canRetryMic || current.isBrief;
    this.#goOn.className = 'primary';
    this.#again.className = this.#goOn.hidden ? 'primary' : '';
    this.toggleAttribute('data-live', live);
    this.toggleAttribute('data-over', over && !useless);
    this.toggleAttribute('data-ended', over);
    this.#mute.toggleAttribute('data-on', live && !isOpen(session?.mic) && session?.mic !== 'asking');
    this.#renderTimes();
    this.#fit();
  }

  /** Shows the status. What can be done about a microphone is a button in it. @param {Status} status */
  #showStatus({ text, keys, isBrief }) {
    const [first, rest] = splitStatus(text);
    const link = (/** @type {string} */ words, /** @type {() => void} */ onclick) => make('button', { type: 'button', className: 'link', textContent: words, onclick });
    const chooses = keys.includes('states choose mic');
    const more = chooses ? link(rest.trim(), () => this.#chooseMicrophone()) : isBrief ? link(this.#word('try again'), () => this.#session?.mute(false)) : rest.trim();
    const line = make('span', {}, make('b', { textContent: first }), ...(more ? [' ', make('span', { className: isBrief || rest.startsWith(' ·') ? '' : 'apart' }, more)] : []));
    if (this.#status.textContent !== line.textContent) this.#status.replaceChildren(line);
  }

  #showEnd() {
    this.#log.scrollTo({ top: this.#log.scrollHeight, behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
    this.#log.focus({ preventScroll: true }); // the button goes
  }

  /** Opens the menu at its microphones. */
  async #chooseMicrophone() {
    this.#menu.showPopover();
    await this.#fillMenu();
    this.#microphones.focus();
  }

  /** The orb is as large as there is room, and without stays in the dock; with more, the group is in the middle of what is free. */
  #fit() {
    if (!this.isConnected) return;
    const em = parseFloat(getComputedStyle(this).fontSize);
    const isFlat = this.clientHeight < FLAT * em && this.clientWidth >= BROAD * em;
    this.toggleAttribute('data-flat', isFlat);
    this.#fitRoomy();
    if (this.#atEnd) this.#log.scrollTop = this.#log.scrollHeight; // what is below it may have grown
    const small = this.#press.offsetWidth;
    const room = this.#log.clientHeight - 3 * em - this.#greeting.offsetHeight;
    const enlarged = small ? Math.min(LARGE / small, (SHARE * Math.min(this.clientWidth, this.clientHeight)) / small, 1 + (room - 2 * this.#text.offsetHeight) / small) : 1; // a lost connection has a line below it
    const free = room - (enlarged - 1) * small;
    this.toggleAttribute('data-low', isFlat || enlarged < LEAST || this.#log.clientWidth < 16 * em);
    const sizes = { '--lift': `${Math.max(0, free) / 2}px`, ...(!this.hasAttribute('data-roomy') && { '--enlarged': enlarged.toFixed(2) }), '--under': `${this.#form.offsetTop - this.#way.offsetTop}px` };
    for (const [name, size] of Object.entries(sizes)) this.#whole.style.setProperty(name, size);
  }

  /** While all that was said fits above it, the orb stays large. */
  #fitRoomy() {
    const { firstElementChild: first, lastElementChild: last } = this.#log;
    const small = this.#press.offsetWidth;
    const size = Math.min(ROOMY, SHARE * Math.min(this.clientWidth, this.clientHeight)); // no larger than before the first words
    const words = (last?.getBoundingClientRect().bottom ?? 0) - (first?.nextElementSibling?.getBoundingClientRect().top ?? 0);
    const room = this.#log.clientHeight + this.#dock.clientHeight - 5 * parseFloat(getComputedStyle(this).fontSize); // paddings, and a line that is to come
    const isRoomy = this.matches('[data-live]:not([data-fresh], [data-flat])') && small > 0 && small * LEAST < size && words + size < room;
    this.toggleAttribute('data-roomy', isRoomy);
    if (isRoomy) this.#whole.style.setProperty('--enlarged', (size / small).toFixed(2));
  }

  /** How long the conversation has been on, and the gateway away. */
  #renderTimes() {
    const session = this.#session?.state === 'closed' ? undefined : this.#session;
    const absence = absenceOf(session?.away);
    if (this.#absence.hidden === Boolean(absence)) this.#showStatus(this.#currentStatus(session)); // it tells more than that the connection is made again
    this.#absence.hidden = !absence;
    this.#since.textContent = absence;
    const { resumed, startedAt } = session?.setup ?? {};
    if (session?.setup) this.#startedAt ||= Math.min(Date.now(), (resumed && startedAt) || Date.now()) - this.#talked;
    else this.#startedAt = 0;
    const seconds = this.#startedAt ? Math.floor((Date.now() - this.#startedAt) / SECOND) : 0;
    this.#clock.hidden = !this.#startedAt;
    this.#clock.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
    this.toggleAttribute('data-heard', isOpen(session?.mic) && session?.state !== 'reconnecting');
    clearTimeout(this.#counting);
    if (session) this.#counting = setTimeout(() => this.#renderTimes(), SECOND);
  }

  /** @param {Turn} turn */
  #turn(turn) {
    this.#showTurn(turn);
    this.dispatchEvent(new CustomEvent('turn', { detail: turn }));
  }

  /** @param {Turn} turn */
  #showTurn(turn) {
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
    const sources = sourcesOf(turn).flatMap(({ title, href }) => [', ', href ? make('a', { textContent: title, href, target: '_blank', rel: 'noopener noreferrer' }) : title]);
    if (sources.length) line.append(make('small', {}, `${this.#word('found')} `, ...sources.slice(1)));
    if (turn.chips) line.append(suggestionsFrame(turn.chips, () => this.#fit()));
    if (waits) {
      line.append(make('small', { textContent: this.#word(session?.setup ? 'sent back' : 'sent later') }));
      this.#unsent.set(line, turn.text);
    }
    this.#fitRoomy();
    if (this.#atEnd || turn.role === 'user') this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** @param {ToolCall} call */
  #tool(call) {
    if (!cardOf(call)) return;
    this.#tools = [...this.#tools, { call, after: this.#turns.at(-1)?.id }];
    this.#keep();
    this.#showCard(call);
  }

  /** Keeps what a page that is loaded again shows before the turns of the session, and its cards. */
  #keep() {
    if (!this.source) keepEarlier(this.#asked().resume, { at: this.#began, turns: this.#known, tools: this.#tools });
  }

  /** Shows that a tool has run. @param {ToolCall} call */
  #showCard(call) {
    const card = cardOf(call);
    if (!card) return;
    const e = make('div', { className: 'card' }, make('span', { textContent: card.title }), ' ', make('span', { className: card.isQuiet ? 'unseen' : 'outcome', textContent: card.outcome }));
    Object.assign(e.dataset, { kind: 'tool', status: card.status });
    this.#add(e);
    this.#fitRoomy();
    if (this.#atEnd) this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** @param {HTMLElement} line */
  #add(line) {
    this.#empty.hidden = true;
    this.toggleAttribute('data-fresh', false);
    this.#log.append(line);
    if (this.#log.childElementCount > MOST) this.#log.children[1]?.remove();
  }

  /** Another conversation begins, which knows what was said, or does not. @param {boolean} knows @param {number} [at] ms since 1970 */
  #rule(knows, at = Date.now()) {
    const time = new Date(at).toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' });
    const { lastElementChild } = this.#log;
    if (lastElementChild?.matches('.rule')) lastElementChild.remove(); // nothing came of that one
    this.#add(make('p', { className: knows ? 'rule known' : 'rule', textContent: fill(words[knows ? 'continued' : 'began'], { time }) }));
  }

  /** Shows a note above the field, or none. @param {string} note */
  #mark(note) {
    this.shadowRoot?.querySelector('.mark')?.remove();
    if (note) this.#form.before(make('p', { className: 'absence mark', textContent: note }));
  }

  /** @param {Session} session @param {VoxgateError} why */
  #over(session, why) {
    this.#ended = why;
    this.#talked = this.#startedAt && Date.now() - this.#startedAt;
    this.#before = [...this.#known, ...session.turns.filter((turn) => !this.#unsent.has(this.#lines.get(turn.id) ?? this))].slice(-MOST);
    if (this.#unsent.size) {
      this.#text.value = [this.#text.value, ...this.#unsent.values()].filter(Boolean).join(' '); // nothing typed gets lost
      this.#mark(this.#word('not sent'));
      for (const line of this.#unsent.keys()) line.remove();
      this.#unsent.clear();
    }
    const { next } = statusOf(situationOf(undefined, {}, why));
    if (!next) console.warn(`voxgate: ${why.told ?? why.message}`); // for the author of the page
    const focused = this.shadowRoot?.activeElement;
    this.#render();
    if (focused && !focused.checkVisibility()) this.focus(); // the keyboard goes on where the buttons are now
    this.dispatchEvent(new CustomEvent('state', { detail: { state: 'closed', mic: 'off' } }));
  }

  /** The turns that are shown. */
  get #turns() {
    if (this.#left) return this.#left.turns;
    return this.#ended ? this.#before : [...this.#known, ...(this.#session?.turns ?? [])];
  }

  /** Puts the menu under its button, and the microphones into it. */
  async #fillMenu() {
    const { bottom } = this.#more.getBoundingClientRect();
    const { right, width } = this.getBoundingClientRect();
    Object.assign(this.#menu.style, { top: `${bottom}px`, right: `${document.documentElement.clientWidth - right + EDGE}px`, maxWidth: `min(20rem, ${width - 2 * EDGE}px)` });
    addEventListener('scroll', () => this.#menu.hidePopover(), { once: true, passive: true });
    this.#copy.textContent = this.#word('copy');
    this.#copy.hidden = !navigator.clipboard || !this.#turns.length;
    const all = (await navigator.mediaDevices?.enumerateDevices().catch(() => [])) ?? [];
    const known = all.filter((d) => d.kind === 'audioinput' && d.label && !['', 'default', 'communications'].includes(d.deviceId));
    this.#choice.hidden = !known.length || !this.#session || this.#session.state === 'closed';
    const standard = nameOfDefault(all, 'audioinput') ?? (this.#micID ? '' : this.#session?.track?.label);
    this.#microphones.replaceChildren(new Option(`${this.#word('standard')}${standard ? ` (${standard})` : ''}`, ''), ...known.map((d) => new Option(d.label, d.deviceId)));
    this.#microphones.value = known.some((d) => d.deviceId === this.#micID) ? this.#micID : '';
  }

  /** @param {string} id */
  #useMicrophone(id) {
    this.#micID = id;
    void this.source?.use?.({ mic: id ? { deviceId: { ideal: id } } : {} }); // the next conversation, too
    void this.#session?.use({ mic: id ? { deviceId: { exact: id } } : {} }); // Chromium has kept the one before an ideal one
  }

  async #copyTurns() {
    const text = this.#turns.map((t) => `${t.role === 'model' ? this.#name.textContent : this.#word('you')}: ${t.heard ?? t.text}`).join('\n\n');
    const isCopied = await navigator.clipboard.writeText(text).then(() => true, () => false);
    if (isCopied) this.#copy.textContent = this.#word('copied');
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
    if (this.#menu.contains(/** @type {Node} */ (e.target))) return; // closes it
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
