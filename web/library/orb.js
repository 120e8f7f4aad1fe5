/**
 * The orb: the model is the sphere, the person the ring and the bars.
 *
 *   <voxgate-orb></voxgate-orb>
 *   document.querySelector('voxgate-orb').session = session; // as open() of voxgate.js returns it
 *
 * Or say yourself what it shows: the attribute `state` and the method `show(mic, model)`. Its size is that of its box, 4.5rem if nothing says so;
 * its colours are `--voxgate-accent` and `--voxgate-person`. It is a picture: put it into a button if it shall be pressed.
 */

import { lookFor } from './look.js';

/** @import { Session } from './types.d.ts' */

const style = `
:host { --a: var(--voxgate-accent, light-dark(oklch(53% .21 285), oklch(76% .14 290))); --p: var(--voxgate-person, light-dark(oklch(52% .12 195), oklch(82% .12 190)));
--mic: 0; --model: 0; position: relative; display: inline-grid; place-content: center; width: 4.5rem; aspect-ratio: 1; border-radius: 50%; color: #fff }
:host([hidden]), svg > * { display: none }
i { position: absolute; inset: 0; border-radius: 50%; pointer-events: none }
.glow { inset: var(--glow, -30%); background: radial-gradient(closest-side, var(--a) 35%, #0000); opacity: calc(.75*var(--model)) }
.sphere { background: radial-gradient(circle at 28% 22%, #fff8 0, #0000 38%), radial-gradient(circle at 78% 28%, oklch(74% .13 205) 0, #0000 52%),
radial-gradient(circle at 62% 84%, oklch(66% .22 330) 0, #0000 58%), oklch(from var(--a) .53 .22 h); box-shadow: 0 .5rem 2rem oklch(from var(--a) .53 .22 h/.35);
transform: scale(calc(.92 + .2*var(--model))) }
.ring { --w: calc(var(--ring, .1875rem) + .25rem*var(--mic)); inset: calc(-.0625rem - var(--w)); border: var(--w) solid var(--p); opacity: calc(.25 + .75*var(--mic)) }
:host(:is([state=thinking], [state=connecting], [state=reconnecting], [state=asking])) .ring { --w: var(--ring, .1875rem) }
svg { position: relative; width: 38%; justify-self: center; fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linecap: round; overflow: visible }
g path { transform-origin: center; transform: scaleY(calc(.3 + var(--mic)*var(--tall))) }
:host([state=ready]) svg { width: 50%; filter: drop-shadow(0 1px 3px oklch(from var(--a) .25 .12 h/.6)) }
.capsule { fill: currentColor }
:host([state=ready]) .sphere::after { content: ''; position: absolute; inset: 0; border-radius: 50%; background: radial-gradient(closest-side, oklch(from var(--a) .3 .14 h/.5) 35%, #0000) }
g, :host([state=thinking]) .dots, :host([state=connecting]) .dots, :host([state=asking]) .question, :host([state=ready]) .microphone { display: inline }
:host([state]:not([state=listening])) g { display: none }
:host(:not([state=listening])) g path { transform: scaleY(var(--tall)) }
:host([state=listening]) .sphere, :host([state=ready]) .sphere { animation: breathe 4s ease-in-out infinite }
:host([state=speaking]) .ring { opacity: calc(.75*var(--mic)) }
:host([state=thinking]) .ring, :host([state=connecting]) .ring { border-color: #0000 var(--a); opacity: 1; animation: turn 1.2s linear infinite }
:host([state=connecting]) .ring { border-color: #0000 #0000 #0000 var(--p) }
:host([state=muted]) .sphere, :host([state=reconnecting]) .sphere { filter: saturate(.15) brightness(.8) } /* the microphone's button shows why */
:host([state=muted]) .ring { opacity: 0 }
:host([state=reconnecting]) .ring { border: var(--w) dashed #889; opacity: 1 }
:host([state=asking]) .ring { border: var(--w) double var(--a); opacity: 1 }
@keyframes breathe { 50% { transform: scale(.95) } }
@keyframes turn { to { rotate: 1turn } }
@media (forced-colors: active) { :host([state=speaking]) g { display: inline !important } :host .sphere::after { display: none } :host svg { filter: none !important } .sphere { border: 2px solid ButtonText } :host { color: ButtonText } }
@media (prefers-reduced-motion: reduce) { i { transform: none !important; animation: none !important }
:host g path { transform: scaleY(var(--tall)) } :host([state=speaking]) .glow { opacity: .75 } }
`;

/** The bars by how tall they may be, and the other signs. */
const BARS = /** @type {[string, number][]} */ ([['M5 8v8', 0.5], ['M9.7 5v14', 1], ['M14.3 7v10', 0.7], ['M19 9v6', 0.5]]);
const CAPSULE = 'M12 4a2.6 2.6 0 0 1 2.6 2.6v4.8a2.6 2.6 0 0 1-5.2 0V6.6A2.6 2.6 0 0 1 12 4Z';
const MICROPHONE = `${CAPSULE}M6.5 11.5a5.5 5.5 0 0 0 11 0M12 17v3`;
const SIGNS = {
  dots: 'M6 12h.01M12 12h.01M18 12h.01',
  microphone: MICROPHONE,
  'microphone capsule': CAPSULE,
  question: 'M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 1.9M12 17.5h.01',
};

/** @param {string} tag @param {Record<string, string>} attributes @param {...Element} children */
function svg(tag, attributes, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

/** The look of the orb for the state of a session. @param {Session|undefined} session @param {boolean} [asking] a question to the person is pending */
export const lookOf = (session, asking) => lookFor(session?.state ?? 'idle', session?.mic, asking);

/** A quiet voice is to be seen, too: loudness is felt by its logarithm. @param {number} level 0 to 1 */
const felt = (level) => (level > 0.01 ? Math.min(1, Math.sqrt(level) * 1.3) : 0);

const Base = /** @type {typeof HTMLElement} */ (globalThis.HTMLElement ?? class {}); // a server has none

export class VoxgateOrb extends Base {
  /** @type {Session|undefined} */ #session;
  #off = () => {};
  #frame = 0;

  constructor() {
    super();
    const sheet = new CSSStyleSheet(); // a page's policy has no say in it
    sheet.replaceSync(style);
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    root.append(...['glow', 'sphere', 'ring'].map((className) => Object.assign(document.createElement('i'), { className })));
    const bars = svg('g', {}, ...BARS.map(([d, tall]) => {
      const bar = /** @type {SVGElement} */ (svg('path', { d }));
      bar.style.setProperty('--tall', String(tall));
      return bar;
    }));
    root.append(svg('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, bars, ...Object.entries(SIGNS).map(([name, d]) => svg('path', { class: name, d }))));
  }

  get session() {
    return this.#session;
  }

  /** The conversation that it shows, if any. */
  set session(session) {
    if (session === this.#session) return;
    this.#off();
    this.#session = session;
    const look = () => this.setAttribute('state', lookOf(session));
    this.#off = session?.on('state', look) ?? (() => {});
    look();
    this.#follow();
  }

  connectedCallback() {
    if (!this.hasAttribute('state')) this.setAttribute('state', lookOf(this.#session));
    this.#follow();
  }

  disconnectedCallback() {
    cancelAnimationFrame(this.#frame);
  }

  #follow() {
    cancelAnimationFrame(this.#frame);
    const step = () => {
      const { mic, model } = this.#session?.level ?? { mic: 0, model: 0 };
      this.show(mic, model);
      if (this.#session && this.#session.state !== 'closed' && this.isConnected) this.#frame = requestAnimationFrame(step);
    };
    step();
  }

  /** How loud both sides are, 0 to 1. @param {number} mic @param {number} model */
  show(mic, model) {
    this.style.setProperty('--mic', felt(mic).toFixed(2));
    this.style.setProperty('--model', felt(model).toFixed(2));
  }
}

if (globalThis.customElements && !customElements.get('voxgate-orb')) customElements.define('voxgate-orb', VoxgateOrb);
