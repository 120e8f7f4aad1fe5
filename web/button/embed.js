/**
 * A talk button for any page, in one line of HTML:
 *
 *   <script type="module" src="https://voxgate.example.com/embed.js"></script>
 *
 * It adds a button to the corner of the page, or upgrades a `<voxgate-talk>` element of the page. Attributes: `label`, `token`, `agent`,
 * `voice`, `prompt`, `lang`, `theme` (light, dark, auto; the page's own if absent), `side` (left). Properties: `token` (a function, too),
 * `strings` and `options` as for `connect` of voxgate.js. Theme: the custom properties
 * below. Events: `state`, `turn` and `error`, as in voxgate.js. Before it is pressed, nothing is loaded and no microphone is open.
 */
/** @import { Session } from './voxgate.js' */
/** @import { Options, Turn } from './types.d.ts' */

const style = `
:host { --accent: var(--voxgate-accent, light-dark(oklch(53% .21 285), oklch(76% .14 290))); --on-accent: var(--voxgate-on-accent, light-dark(#fff, oklch(18% .05 290)));
  --ground: var(--voxgate-background, light-dark(#fff, oklch(21% .022 285))); --ink: var(--voxgate-text, light-dark(oklch(23% .02 285), oklch(95% .008 285)));
  --round: var(--voxgate-radius, 1.25rem); position: fixed; z-index: 2147483000;
  inset: auto max(var(--voxgate-offset-x, 16px), env(safe-area-inset-right)) max(var(--voxgate-offset, 16px), env(safe-area-inset-bottom)) auto;
  font: 15px/1.5 var(--voxgate-font, system-ui, sans-serif); color: var(--ink); }
:host([side=left]) { inset: auto auto max(var(--voxgate-offset, 16px), env(safe-area-inset-bottom)) max(var(--voxgate-offset-x, 16px), env(safe-area-inset-left)); }
:host([theme=light]) { color-scheme: light; }
:host([theme=dark]) { color-scheme: dark; }
:host([theme=auto]) { color-scheme: light dark; }
:host([inline]) { position: relative; inset: auto; display: inline-block; }
[hidden] { display: none !important; }
button, input { font: inherit; color: inherit; }
button { min-height: 44px; padding: 0 14px; border: 1px solid color-mix(in srgb, var(--ink) 25%, transparent); border-radius: 999px; background: none; cursor: pointer; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
input:focus-visible { outline-offset: -2px; }
.orb { flex: none; min-height: 0; padding: 0; border: 0; border-radius: 50%; }
.talk { display: flex; align-items: center; gap: 10px; padding: 0 20px 0 16px; min-height: 52px; border: 0; background: var(--accent); color: var(--on-accent);
  font-weight: 600; box-shadow: 0 4px 16px rgb(0 0 0 / .25); }
svg { width: 22px; height: 22px; fill: currentColor; flex: none; }
.panel { display: flex; flex-direction: column; gap: 10px; box-sizing: border-box; width: min(360px, calc(100vw - 32px)); max-height: min(560px, calc(100dvh - 32px));
  padding: 14px; border-radius: var(--round); background: var(--ground); border: 1px solid color-mix(in srgb, var(--ink) 15%, transparent); box-shadow: 0 8px 40px rgb(0 0 0 / .3); }
.status { margin: 0; font-weight: 600; }
.head { display: flex; align-items: center; gap: 16px; padding: 4px; }
voxgate-orb { flex: none; width: 44px; aspect-ratio: 1; border-radius: 50%; }
.log { flex: 1; min-height: 80px; overflow-y: auto; display: flex; flex-direction: column; gap: 8px; overflow-wrap: anywhere; }
.log p { margin: 0; }
.log .user { align-self: flex-end; max-width: 85%; padding: 6px 12px; border-radius: 14px 14px 4px; background: color-mix(in srgb, var(--accent) 14%, transparent); }
.log small { display: block; opacity: .7; }
form, .row { display: flex; gap: 8px; }
input { flex: 1; min-width: 0; min-height: 44px; box-sizing: border-box; padding: 0 14px; border: 1px solid color-mix(in srgb, var(--ink) 45%, transparent); border-radius: 999px; background: none; }
.row button { flex: 1; }
@media (forced-colors: active) { .talk, .log .user { border: 1px solid; } }
`;

const microphone = 'M12 15a3.5 3.5 0 0 0 3.5-3.5v-6a3.5 3.5 0 1 0-7 0v6A3.5 3.5 0 0 0 12 15Zm6.5-3.5a1 1 0 1 0-2 0 4.5 4.5 0 0 1-9 0 1 1 0 1 0-2 0 6.5 6.5 0 0 0 5.5 6.4V21a1 1 0 1 0 2 0v-3.1a6.5 6.5 0 0 0 5.5-6.4Z';

/** What it says, and how. It is loaded when the button is pressed, and before that where the label is to be in another language. */
const loadWords = async () => ({ ...(await import('./en.js')), ...(await import('./strings.js')), ...(await import('./status.js')) });

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
  /** @type {Session|undefined} */ #session;
  #begun = 0; // conversations
  /** @type {Map<string, HTMLElement>} */ #turns = new Map();
  #label = make('span');
  #talk = make('button', { className: 'talk', type: 'button', onclick: () => this.start() }, icon(), this.#label);
  #status = make('p', { className: 'status', role: 'status' });
  #log = make('div', { className: 'log', role: 'log', tabIndex: 0 });
  #text = /** @type {HTMLInputElement} */ (make('input', { autocomplete: 'off', enterKeyHint: 'send' }));
  #mute = make('button', { type: 'button', onclick: () => (this.#session ? this.#session.mute() : this.start()) });
  #end = make('button', { type: 'button', onclick: () => this.stop() });
  #submit = make('button', { type: 'submit', textContent: '↑' });
  #orb = /** @type {any} */ (make('voxgate-orb')); // orb.js makes it one, with the first conversation
  #interrupt = make('button', { className: 'orb', type: 'button', onclick: () => this.#session?.interrupt() }, this.#orb);
  #form = make('form', { onsubmit: (/** @type {Event} */ e) => this.#send(e) }, this.#text, this.#submit);
  #panel = make('section', { className: 'panel', hidden: true }, make('div', { className: 'head' }, this.#interrupt, this.#status), this.#log,
    this.#form, make('div', { className: 'row' }, this.#mute, this.#end));

  constructor() {
    super();
    const sheet = new CSSStyleSheet(); // a page's CSP has no say in it
    sheet.replaceSync(style);
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    root.append(this.#talk, this.#panel);
    this.#panel.addEventListener('keydown', (e) => this.#escape(e));
  }

  connectedCallback() {
    this.#label.textContent = this.getAttribute('label') ?? 'Talk';
    const foreign = !/^en\b/i.test(this.lang || navigator.language);
    if (foreign && !this.hasAttribute('label')) this.#load().then(() => (this.#label.textContent = this.#word('talk')), () => {});
  }

  async #load() {
    this.#words ??= await loadWords();
    const { speak, talk, states, errors } = this.#words;
    await speak({ talk, states, errors }, { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) });
  }

  /** @param {string} name in the table */
  #word(name) {
    return this.#words ? this.#words.fill(this.#words.talk[name] ?? this.#words.states[name]) : '';
  }

  /** Hides what cannot help. @param {boolean} on */
  #usable(on) {
    for (const e of [this.#form, this.#mute, this.#interrupt]) e.hidden = !on;
  }

  #relabel() {
    this.#panel.ariaLabel = this.#word('with');
    this.#log.ariaLabel = this.#word('conversation');
    this.#text.ariaLabel = this.#text.placeholder = this.#word('type');
    this.#submit.ariaLabel = this.#submit.title = this.#word('send');
    this.#interrupt.ariaLabel = this.#interrupt.title = this.#word('interrupt');
    this.#mute.textContent = this.#word('mute');
    this.#end.textContent = this.#word('end');
  }

  disconnectedCallback() {
    this.stop();
  }

  /**
   * Starts a conversation, as pressing the button does. Call it in a user gesture.
   * @param {string} [said] a typed first message; the microphone is then not requested
   */
  async start(said) {
    if (this.#session) return;
    const begun = ++this.#begun;
    const current = () => begun === this.#begun;
    this.#log.replaceChildren();
    this.#turns.clear();
    this.#talk.hidden = true;
    this.#panel.hidden = false;
    this.#usable(true);
    this.#show('connecting', this.#word('connecting') || '…');
    this.#relabel();
    this.#end.focus();
    const [loaded] = await Promise.all([import('./voxgate.js').catch(() => undefined), this.#load().catch(() => undefined), import('./orb.js').catch(() => {})]);
    if (!current()) return;
    this.#relabel();
    if (!loaded || !this.#words) return this.#over(this.#word('not loaded') || 'The conversation cannot be loaded.');
    this.#show('connecting', this.#word('connecting'));
    const { open } = loaded;
    const session = (this.#session = open({ ...this.#asked(), ...(said && { mic: false }) }));
    session.on('state', () => current() && this.#state(session));
    session.on('turn', (turn) => current() && this.#turn(turn));
    session.on('error', (error) => current() && this.dispatchEvent(new CustomEvent('error', { detail: error })));
    session.on('closed', (why) => {
      if (!current()) return;
      if (!session.setup) this.#text.value ||= said ?? ''; // nothing typed gets lost
      const status = this.#words?.statusOf(this.#words.situationOf(session, {}, why));
      if (status && !status.next) console.warn(`voxgate: ${why.told ?? why.message}`); // for the author of the page
      this.#over(status?.text ?? why.message, !status || Boolean(status.next));
    });
    if (said) session.send(said);
    this.#orb.session = session;
    await session.ready.catch(() => {}); // `closed` tells
  }

  /** Ends the conversation, and closes the panel. */
  stop() {
    this.#begun++;
    this.#session?.close();
    this.#session = undefined;
    this.#panel.hidden = true;
    this.#talk.hidden = false;
    this.#talk.focus();
  }

  /** @returns {Options} */
  #asked() {
    const of = (/** @type {string} */ name) => this.getAttribute(name) ?? undefined;
    const { config, ...rest } = this.options;
    const voice = of('voice') && { generationConfig: { ...config?.generationConfig, speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: of('voice') } } } } };
    const prompt = of('prompt') && { systemInstruction: { parts: [{ text: of('prompt') }] } };
    const read = { ...(this.lang && { lang: this.lang }), ...(this.strings && { strings: this.strings }) };
    const agent = of('agent') ?? new URL(import.meta.url).searchParams.get('agent') ?? undefined;
    return { url: new URL('ws', import.meta.url), token: this.token ?? of('token'), agent, ...read, ...rest, config: { ...config, ...(voice || {}), ...(prompt || {}) } };
  }

  /** @param {string} state @param {string} sentence */
  #show(state, sentence) {
    this.#panel.dataset.state = state;
    if (this.#status.textContent !== sentence) this.#status.textContent = sentence;
  }

  /** @param {Session} session */
  #state(session) {
    const { state, mic } = session;
    if (!this.#words) return;
    this.#show(state, this.#words.statusOf(this.#words.situationOf(session, { offers: this.#words.OFFERS.button })).text);
    this.#mute.textContent = this.#words.muteOf(mic);
    this.dispatchEvent(new CustomEvent('state', { detail: { state, mic } }));
  }

  /** @param {Turn} turn */
  #turn(turn) {
    let line = this.#turns.get(turn.id);
    if (!line) {
      line = make('p', { className: turn.role, dir: 'auto' });
      this.#turns.set(turn.id, line);
      this.#log.append(line);
    }
    line.textContent = turn.heard ?? turn.text;
    const by = this.#words?.cutOf(turn.cutBy);
    if (by) line.append(make('small', { textContent: by }));
    this.#log.scrollTop = this.#log.scrollHeight;
    this.dispatchEvent(new CustomEvent('turn', { detail: turn }));
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
    if (this.#session) this.#session.send(text);
    else this.start(text);
  }

  /** @param {string} why @param {boolean} [again] it can help to talk or type again */
  #over(why, again = true) {
    this.#session = undefined;
    this.#usable(again);
    this.#show('closed', why);
    this.#mute.textContent = this.#word('again');
    this.#end.textContent = this.#word('close') || '✕';
  }
}

customElements.define('voxgate-talk', VoxgateTalk);
if (!document.querySelector('voxgate-talk')) document.body.append(new VoxgateTalk());
