/** Which language people read, and how what they read is filled in. A page has one language; its words are in en.js, de.js, and in what an app gives. */

/** @import { Strings } from './types.d.ts' */

/** @typedef {Record<string, () => Promise<Strings>>} Languages beside English */

/** @type {Languages} */
const LIBRARY = { de: () => import('./de.js') };

/** @type {Map<string, {now: Record<string, string>, english: Record<string, string>, others: Languages}>} what is used of the table */
const used = new Map();
/** @type {{lang?: string, strings?: Strings}} what was asked for */
let asked = {};
let who = 'Gemini';
let chosen = ''; // by the page
let spoken = 'en';
/** The code of the language in use, as `en`. */
export const language = () => spoken;

/**
 * Translates sections of en.js, which callers read at each use, into the language of the page: the one requested last, or else the browser's.
 * @param {Record<string, Record<string, string>>} sections by their names
 * @param {{lang?: string, strings?: Strings}} [wish] for all sections; `strings` goes before every language
 * @param {Languages} [others] where these sections are translated
 */
export async function speak(sections, { lang, strings } = {}, others = LIBRARY) {
  asked = { lang: lang ?? asked.lang, strings: strings ?? asked.strings };
  for (const [name, section] of Object.entries(sections)) if (!used.has(name)) used.set(name, { now: section, english: { ...section }, others });
  const wished = (asked.lang ? [asked.lang] : globalThis.navigator?.languages ?? []).map((l) => l.toLowerCase().split('-')[0] ?? '');
  const found = wished.find((l) => l === 'en' || LIBRARY[l]) ?? 'en';
  spoken = found;
  await Promise.all([...used].map(async ([name, { now, english, others }]) => {
    Object.assign(now, english, (await others[found]?.().catch(() => undefined))?.[name], asked.strings?.[name]);
  }));
}

/**
 * @param {string|undefined} text with names in braces
 * @param {Record<string, unknown>} [values] by these names
 */
export const fill = (text = '', values) => text.replace(/\{(\w+)\}/g, (all, name) => String(/** @type {Record<string, unknown>} */ ({ who: chosen || who, ...values })[name] ?? all));

/** Who answers has a name. @param {string} [backend] the gateway's, which answers itself where it has no key */
export const named = (backend) => void (who = backend === 'emulator' ? 'Voxgate' : 'Gemini');

/** Keeps the name that is in use, even if the gateway reports another one. */
export const keepName = () => void (chosen ||= who);

/** The page's own name for who answers. @param {string} name */
export const callIt = (name) => void (chosen = name);

/** An agent of the gateway's is called by its name there: `front-desk` is Front desk. @param {string} [agent] */
export const callAgent = (agent = '') => callIt((agent.charAt(0).toUpperCase() + agent.slice(1)).replace(/[-_]+/g, ' '));

/**
 * A duration in words: seconds below a minute, minutes above.
 * @param {number} ms
 * @param {'long'|'short'} [unitDisplay]
 */
export function formatDuration(ms, unitDisplay = 'long') {
  const seconds = Math.max(1, Math.round(ms / 1_000));
  const [n, unit] = seconds < 60 ? [seconds, 'second'] : [Math.round(seconds / 60), 'minute'];
  return n.toLocaleString(language(), { style: 'unit', unit, unitDisplay });
}
