/**
 * A talk button for any page, in one line of HTML:
 *
 *   <script type="module" src="https://voxgate.example.com/embed.js"></script>
 *
 * It adds a button to the corner of the page, or upgrades a `<voxgate-talk>` element of the page. Attributes: `label`, `token`, `agent`,
 * `voice`, `prompt`, `lang`, `theme` (light, dark, auto; the page's own if absent), `side` (left); `who`, `picture` and `greeting` are of who answers; `resume` as for `open`.
 * Properties: `token` (a function, too), `strings` and `options` as for `connect` of voxgate.js. Theme: the custom properties below. Events: `state`,
 * `turn` and `error`, as in voxgate.js. Before it is pressed, nothing is loaded and no microphone is open. The conversation is conversation.js.
 */
/** @import { VoxgateConversation } from './conversation.js' */
/** @import { Options } from './types.d.ts' */

const style = `
:host { --accent: var(--voxgate-accent, light-dark(oklch(53% .21 285), oklch(76% .14 290))); --on-accent: var(--voxgate-on-accent, light-dark(#fff, oklch(18% .05 290)));
  position: fixed; z-index: 2147483000;
  inset: auto max(var(--voxgate-offset-x, 16px), env(safe-area-inset-right)) max(var(--voxgate-offset, 16px), env(safe-area-inset-bottom)) auto;
  font: max(15px, .9375rem)/1.5 var(--voxgate-font, system-ui, sans-serif); }
:host([side=left]) { inset: auto auto max(var(--voxgate-offset, 16px), env(safe-area-inset-bottom)) max(var(--voxgate-offset-x, 16px), env(safe-area-inset-left)); }
:host([theme=light]) { color-scheme: light; }
:host([theme=dark]) { color-scheme: dark; }
:host([theme=auto]) { color-scheme: light dark; }
:host([inline]) { position: relative; inset: auto; z-index: auto; display: inline-block; vertical-align: middle; }
:host([inline]) voxgate-conversation, :host([inline]) .small, :host([inline]) .failed { position: fixed; inset: auto max(var(--voxgate-offset-x, 16px), env(safe-area-inset-right)) max(var(--voxgate-offset, 16px), env(safe-area-inset-bottom)) auto; z-index: 2147483000; }
[hidden] { display: none !important; }
button { display: flex; align-items: center; justify-content: center; gap: 12px; min-width: 44px; min-height: 44px; padding: 0 20px; border: 0; border-radius: 999px;
  background: var(--accent); color: var(--on-accent); font: inherit; font-weight: 600; cursor: pointer; }
.talk { min-height: 56px; max-width: calc(100vw - 32px); padding: 5px 22px 5px 5px; text-align: start; line-height: 1.25; }
:host([inline]) .talk { min-height: 44px; padding: 4px 18px 4px 4px; box-shadow: none; }
:host([inline]) :is(.sphere, .talk img) { width: 36px; height: 36px; }
.talk img { flex: none; width: 46px; height: 46px; border-radius: 50%; object-fit: cover; }
.sphere { display: grid; place-content: center; flex: none; width: 46px; height: 46px; border-radius: 50%; color: #fff; box-shadow: 0 0 0 2px color-mix(in oklch, var(--on-accent) 70%, transparent);
  background: radial-gradient(circle at 28% 22%, #fff8 0, #0000 38%), radial-gradient(circle at 78% 28%, oklch(74% .13 205) 0, #0000 52%),
    radial-gradient(circle at 62% 84%, oklch(66% .22 330) 0, #0000 58%), oklch(from var(--accent) .53 .22 h); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.talk, .small { box-shadow: 0 4px 16px rgb(0 0 0 / .25); border-radius: 999px; }
.small { --text: var(--voxgate-text, light-dark(oklch(23% .02 285), oklch(95% .008 285))); --ground: var(--voxgate-background, light-dark(#fff, oklch(21% .022 285)));
  display: flex; align-items: center; gap: 2px; max-width: calc(100vw - 32px); box-sizing: border-box; padding: 5px; border: 1px solid color-mix(in oklch, var(--text) 14%, var(--ground)); background: var(--ground); color: var(--text); }
.small button { flex: none; padding: 0 11px; background: none; color: inherit; }
.small .back { padding: 0; }
.small .retry { color: var(--accent); }
.small .mute[data-away] { opacity: .5; }
.small .end { --halt: oklch(from CanvasText calc(.5 + .28 * l) calc(.19 - .06 * l) 25); aspect-ratio: 1; margin-inline-start: 4px; background: color-mix(in oklch, var(--halt) 16%, transparent); color: var(--halt); } /* as in the panel */
.small voxgate-orb { width: 48px; }
.now { flex: 0 1 auto; min-width: 0; max-width: 12rem; margin: 0 6px 0 10px; line-height: 1.25; cursor: pointer; }
.now > * { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.now span { display: -webkit-box; white-space: normal; -webkit-box-orient: vertical; -webkit-line-clamp: 2; color: color-mix(in oklch, var(--text) 68%, var(--ground)); font-size: max(13px, .8125rem); }
.failed { display: grid; gap: 12px; justify-items: start; padding: 16px 20px; max-width: 20rem; border-radius: 1.25rem; background: Canvas; color: CanvasText; box-shadow: 0 8px 40px rgb(0 0 0 / .3); }
svg { width: 22px; height: 22px; fill: currentColor; flex: none; }
.small svg { width: max(22px, 1.375rem); height: max(22px, 1.375rem); fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
:not([data-on]) > svg > .slash { display: none; }
voxgate-conversation { width: min(max(22.5rem, 360px), calc(100vw - 32px)); height: min(max(36rem, 560px), calc(100dvh - 32px)); box-shadow: 0 8px 40px rgb(0 0 0 / .3); }
@media (max-width: 480px) {
  /* A phone: the panel stands on the lower edge. */
  voxgate-conversation, :host([inline]) voxgate-conversation { position: fixed; inset: auto 0 0; width: 100%; max-width: none; height: min(max(40rem, 600px), calc(100dvh - 24px)); box-sizing: border-box;
    padding-bottom: env(safe-area-inset-bottom); border-width: 1px 0 0; border-radius: var(--voxgate-radius, 1.25rem) var(--voxgate-radius, 1.25rem) 0 0; }
}
@media (forced-colors: active) { .talk, .small, .small .end, .failed { border: 1px solid; } }
`;

const microphone = 'M12 15a3.5 3.5 0 0 0 3.5-3.5v-6a3.5 3.5 0 1 0-7 0v6A3.5 3.5 0 0 0 12 15Zm6.5-3.5a1 1 0 1 0-2 0 4.5 4.5 0 0 1-9 0 1 1 0 1 0-2 0 6.5 6.5 0 0 0 5.5 6.4V21a1 1 0 1 0 2 0v-3.1a6.5 6.5 0 0 0 5.5-6.4Z';

/** What the conversation takes from this element. */
const PASSED = ['voice', 'prompt', 'who', 'picture', 'greeting', 'token'];

/** What it says, and how. It is loaded when the button is pressed, and before that where the label is to be in another language. */
const loadWords = async () => ({ ...(await import('./en.js')), ...(await import('./strings.js')), ...(await import('./status.js')), ...(await import('./look.js')) });

/**
 * @param {string} tag
 * @param {Record<string, any>} [set] properties
 * @param {(Node|string)[]} children
 */
function make(tag, set = {}, ...children) {
  const e = Object.assign(document.createElement(tag), set);
  e.append(...children);
  return e;
}

function icon() {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const path = document.createElementNS(svg.namespaceURI, 'path');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  /** @type {Element} */ (path).setAttribute('d', microphone);
  svg.append(path);
  return svg;
}

export class VoxgateTalk extends HTMLElement {
  /** @type {Options['token']} */ token;
  /** @type {Partial<Options>} */ options = {};
  /** @type {Options['strings']} */ strings;
  /** @type {Awaited<ReturnType<typeof loadWords>>|undefined} */ #words;
  /** @type {VoxgateConversation|undefined} */ #view;
  /** @type {typeof import('./conversation.js').iconButton|undefined} */ #iconButton;
  #begun = 0; // presses
  #label = make('span');
  #sphere = make('span', { className: 'sphere' }, icon());
  #face = make('img', { alt: '', hidden: true });
  #talk = make('button', { className: 'talk', type: 'button', onclick: () => this.start() }, this.#sphere, this.#face, this.#label);
  #failure = make('span', { className: 'status', role: 'status' });
  #away = make('button', { type: 'button', onclick: () => this.stop() });
  #failed = make('div', { className: 'failed', hidden: true }, this.#failure, this.#away);
  #small = make('div', { className: 'small', hidden: true });
  #name = make('b');
  #state = make('span', { role: 'status' });

  constructor() {
    super();
    const sheet = new CSSStyleSheet(); // a page's CSP has no say in it
    sheet.replaceSync(style);
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    root.append(this.#talk, this.#failed, this.#small);
  }

  connectedCallback() {
    this.#dress();
  }

  static observedAttributes = ['label', 'who', 'picture'];

  attributeChangedCallback() {
    if (this.isConnected) this.#dress();
  }

  /** Gives the button its label, and the face of who answers. */
  #dress() {
    const [label, who, picture] = ['label', 'who', 'picture'].map((name) => this.getAttribute(name));
    this.#sphere.hidden = Boolean(picture);
    this.#face.hidden = !picture;
    if (picture) this.#face.src = picture;
    this.#label.textContent = label ?? (who ? `Talk with ${who}` : 'Talk');
    if (label === null) this.#labelTalk(who).catch(() => {});
  }

  /** Labels the button in the page's language, and by what it does. @param {string|null|undefined} who */
  async #labelTalk(who) {
    const left = await this.#isLeft();
    if (!left && /^en\b/i.test(this.lang || navigator.language)) return;
    await this.#load();
    const name = left ? (who ? 'go on with' : 'go on here') : who ? 'with' : 'talk';
    this.#label.textContent = this.#words?.fill(this.#words.talk[name], who ? { who } : {}) ?? '';
  }

  get #agent() {
    return this.getAttribute('agent') || new URL(import.meta.url).searchParams.get('agent');
  }

  /** The name under which a conversation goes on in the next page of the site. */
  get #resume() {
    return this.getAttribute('resume') ?? `talk ${this.#agent ?? ''}`;
  }

  /** The page before was left in the midst of a conversation. */
  async #isLeft() {
    const isKept = Boolean(sessionStorage.getItem(`voxgate ${this.#resume}`)); // nothing is loaded without
    return isKept && Boolean((await import('./voxgate.js')).resumable(this.#resume));
  }

  disconnectedCallback() {
    this.#begun++;
    this.#view?.stop();
  }

  async #load() {
    this.#words ??= await loadWords();
    const { speak, talk, states } = this.#words;
    await speak({ talk, states }, { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) });
  }

  /** @param {string} name in the table */
  #word(name) {
    return this.#words ? this.#words.fill(this.#words.talk[name] ?? this.#words.states[name]) : '';
  }

  /**
   * Starts a conversation, as pressing the button does. Call it in a user gesture.
   * @param {string} [said] a typed first message; the microphone is then not requested
   */
  async start(said) {
    if (this.#view?.session && this.#view.session.state !== 'closed') return this.#open();
    const begun = ++this.#begun;
    this.#talk.ariaBusy = 'true';
    const [loaded] = await Promise.all([import('./conversation.js').catch(() => undefined), this.#load().catch(() => undefined)]);
    this.#talk.ariaBusy = null;
    if (begun !== this.#begun) return;
    this.#hideTalk();
    if (!loaded || !this.#words) {
      this.#failure.textContent = this.#word('not loaded') || 'The conversation cannot be loaded. Load the page again.';
      this.#away.textContent = this.#away.ariaLabel = this.#word('close') || 'Close';
      this.#failed.hidden = false;
      return;
    }
    this.#iconButton = loaded.iconButton;
    const view = (this.#view ??= this.#makeView());
    Object.assign(view, { token: this.token, strings: this.strings, options: { url: new URL('ws', import.meta.url), ...this.options } });
    await view.ready;
    this.#open();
    await view.start(said);
  }

  #makeView() {
    const view = /** @type {VoxgateConversation} */ (document.createElement('voxgate-conversation'));
    for (const name of PASSED) if (this.getAttribute(name)) view.setAttribute(name, this.getAttribute(name) ?? '');
    if (this.#agent) view.setAttribute('agent', this.#agent);
    view.setAttribute('resume', this.#resume);
    if (this.lang) view.lang = this.lang;
    view.toggleAttribute('closable', true);
    Object.assign(view, { strings: this.strings });
    for (const type of ['state', 'turn', 'error']) {
      view.addEventListener(type, (e) => this.dispatchEvent(new CustomEvent(type, { detail: /** @type {CustomEvent} */ (e).detail })));
    }
    view.addEventListener('state', () => this.#showSmall());
    view.addEventListener('minimise', () => this.#minimise());
    view.addEventListener('close', () => this.stop());
    this.shadowRoot?.append(view);
    return view;
  }

  /** In a text it stays: its place would be a hole in the sentence. */
  #hideTalk() {
    this.#talk.hidden = !this.hasAttribute('inline');
  }

  /** The conversation is in sight. */
  #open() {
    this.#small.hidden = this.#failed.hidden = true;
    this.#hideTalk();
    if (!this.#view) return;
    this.#view.hidden = false;
    this.#view.focus();
  }

  /** The page is in sight, and the open microphone with what mutes and ends it. */
  #minimise() {
    const session = this.#view?.session;
    if (!session || session.state === 'closed' || !this.#iconButton) return this.stop();
    if (this.#view) this.#view.hidden = true;
    const orb = /** @type {import('./orb.js').VoxgateOrb} */ (document.createElement('voxgate-orb'));
    const back = make('button', { className: 'back', type: 'button', onclick: () => this.#open() }, orb);
    back.ariaLabel = back.title = this.#word('open');
    const mute = this.#iconButton('mute', () => session.mute());
    const end = this.#iconButton('end', () => (this.#view?.stop(), this.#open()));
    end.ariaLabel = end.title = this.#word('end');
    const retry = make('button', { className: 'retry', type: 'button', hidden: true, textContent: this.#word('try now'), onclick: () => (session.retry(), back.focus()) });
    this.#name.textContent = this.getAttribute('who') ?? this.#words?.fill('{who}') ?? '';
    this.#small.replaceChildren(back, make('p', { className: 'now', onclick: () => this.#open() }, this.#name, this.#state), retry, mute, end);
    orb.session = session;
    this.#small.hidden = false;
    this.#showSmall();
    back.focus();
  }

  #showSmall() {
    const session = this.#view?.session;
    const mute = /** @type {HTMLElement|null} */ (this.#small.querySelector('.mute'));
    const retry = /** @type {HTMLElement|null} */ (this.#small.querySelector('.retry'));
    if (mute && retry && session && this.#words) {
      const { away } = session;
      mute.hidden = !this.#words.isMomentary(away); // the microphone is not heard then
      retry.hidden = !mute.hidden;
      if (away && retry.hidden) setTimeout(() => this.#showSmall(), this.#words.MOMENT);
      mute.ariaLabel = mute.title = this.#words.muteOf(session.mic);
      mute.toggleAttribute('data-on', !this.#words.isOpen(session.mic) && session.mic !== 'asking');
      mute.toggleAttribute('data-away', session.state === 'reconnecting');
      const { splitStatus, statusOf, situationOf, OFFERS } = this.#words;
      const { text, canRetryMic } = statusOf(situationOf(session, { offers: OFFERS.button }));
      const [state] = splitStatus(canRetryMic ? this.#word('mic none') : text);
      const told = state.replace(/\.$/, '');
      if (this.#state.textContent !== told) this.#state.textContent = told;
    }
    if (session?.state === 'closed' && !this.#small.hidden) this.#open(); // which says why
  }

  /** Ends the conversation, and closes the panel; what was said is there again with the next one. */
  stop() {
    this.#begun++;
    this.#view?.stop();
    if (this.#view) this.#view.hidden = true;
    this.#failed.hidden = this.#small.hidden = true;
    this.#talk.hidden = false;
    this.#talk.focus();
  }
}

customElements.define('voxgate-talk', VoxgateTalk);
if (!document.querySelector('voxgate-talk')) document.body.append(new VoxgateTalk());
