/** The status of a conversation: its sentences, what pressing the orb does, and what can be done next. For the page, the talk button, React and VOX. */
import { errors, states } from './en.js';
import { isOpen, lookFor } from './look.js';
import { fill, speak } from './strings.js';

/** @import { Look } from './look.js' */
/** @import { Mic, Session, State, VoxgateError } from './types.d.ts' */

/**
 * Everything that the status depends on.
 * @typedef {object} Situation
 * @property {State|'idle'} state `idle`: no conversation yet
 * @property {Mic} [mic]
 * @property {string} [microphone] its name
 * @property {boolean} [asksMic] the browser asks the person for the microphone
 * @property {string} [wait] the sentence for a person who waits for the model
 * @property {boolean} [resumable] before it starts: a reload has interrupted a conversation, which goes on
 * @property {boolean} [isLostForLong] the connection has been lost for longer than a moment
 * @property {boolean} [hasTyped] the person has typed or spoken already: the status is brief
 * @property {boolean} [blocked] the browser holds the sound back
 * @property {string} [activity] a tool that runs, in words
 * @property {boolean} [asks] a question to the person is open on the screen, and the tool that runs, if any, is the one that asks
 * @property {boolean} [push] push to talk
 * @property {string} [reason] the code of the error with which it ended
 * @property {string} [message] the gateway's own sentence for that
 * @property {number} [retryIn] seconds until a busy gateway is tried again
 * @property {Offer[]} [offers] controls of this surface: no sentence mentions others
 * @property {string} [who] answers, if not {who} of strings.js
 */

/**
 * @typedef {'orb'|'type'|'microphone'|'devices'|'goOn'} Offer an orb to press, a text field, a microphone button, a choice of microphones; the orb goes on with
 *   what was said
 */

/**
 * @typedef {object} Status
 * @property {string[]} keys of the sentences, as `states listening`
 * @property {string} text the sentences
 * @property {Look} look of the orb
 * @property {boolean} listens the person is heard
 * @property {''|'start'|'interrupt'|'mute'|'unmute'|'use'|'unblock'} press what pressing the orb does
 * @property {''|'start'|'retry'|'later'|'elsewhere'} next what helps after the end: `start` another conversation; `retry` now, or `later`,
 *   in a minute; `elsewhere`: at another page or with another sign-in; '': nothing
 * @property {boolean} canRetryMic the microphone cannot be used, and the person may have mended that: "Try again" belongs to the sentence, and no
 *   other control for the microphone is shown
 * @property {boolean} isBrief the person has refused the microphone and types: "Try again" stands in the line of the sentence
 */

const NAME = 32; // characters of a microphone's name: the sentence has to fit above a phone's buttons

speak({ states, errors });

/**
 * How a conversation goes on that ended with a code; others may be tried again. `says` replaces the error's own sentence, `then`
 * follows it.
 * @type {Record<string, {next: Status['next'], says?: string, then?: string}>}
 */
const ENDS = {
  closed: { next: 'start' },
  aborted: { next: 'start', says: 'states ready' },
  ended: { next: 'start' },
  time_limit: { next: 'start' },
  silence: { next: 'start' },
  token_limit: { next: '' },
  budget: { next: '' },
  shutdown: { next: 'later', then: 'states later' },
  busy: { next: 'later', then: 'states later' },
  connection_failed: { next: 'later', then: 'states later' },
  no_token: { next: 'retry', says: 'states no sign-in' },
  unauthorized: { next: 'elsewhere', then: 'states sign in' },
  replaced: { next: 'elsewhere' },
  forbidden: { next: '' },
  bad_message: { next: '' },
  bad_config: { next: '' },
  // The person can do nothing about these: the gateway's log and the console say what is wrong.
  ...Object.fromEntries(['authentication_failed', 'api_key_missing', 'project_id_missing', 'origin_refused', 'bad_options'].map((code) => (
    [code, { next: /** @type {Status['next']} */ (''), says: 'states not available' }]))),
};

/** @param {Situation} situation */
const endOf = ({ reason = 'closed' }) => ({ name: reason, ...(ENDS[reason] ?? { next: /** @type {Status['next']} */ ('retry') }) });

/** The controls of each surface. Those of an app made with React are unknown: its sentences mention none. @type {Record<'page'|'button'|'vox'|'react', Offer[]>} */
export const OFFERS = {
  page: ['orb', 'type', 'microphone', 'devices'],
  button: ['orb', 'type', 'microphone', 'devices'],
  vox: ['orb', 'type', 'microphone', 'devices', 'goOn'],
  react: [],
};

/** The sentences for a microphone that is not heard, or none if it is. @param {Mic} mic @param {Offer[]} offers @param {boolean} [brief] the advice was read already */
function micKeys(mic, offers, brief) {
  if (mic === 'live') return [];
  if (mic === 'refused' && brief) return ['states mic none'];
  const keys = [`states mic ${mic}`];
  if (mic === 'refused') keys.push(`states allow ${placeOfPermission()}`);
  if (MENDABLE.includes(mic)) return keys;
  if (mic === 'silent') keys.push(offers.includes('devices') ? 'states choose mic' : 'states check mic');
  else if (mic === 'off') keys.push(...(offers.includes('microphone') ? ['states press mic'] : []));
  else if (mic !== 'muted' && mic !== 'asking' && offers.includes('type')) keys.push('states can type');
  return keys;
}

/** The states of a microphone that cannot be used until the person has mended something. @type {Mic[]} */
export const MENDABLE = ['refused', 'missing', 'failed', 'lost'];

/**
 * Where this browser lets the person allow what they have refused. An installed app, and a page in the frame of another, has no address of its own.
 * @param {string} [agent] @param {boolean} [hasAddress]
 */
export function placeOfPermission(agent = globalThis.navigator?.userAgent ?? '', hasAddress = isAddressShown()) {
  if (!hasAddress || /CriOS|FxiOS|EdgiOS|; wv\)|Electron/.test(agent)) return 'in settings';
  if (/iPhone|iPad/.test(agent)) return 'on iPhone';
  if (agent.includes('Firefox/')) return agent.includes('Android') ? 'by icon' : 'in Firefox';
  return agent.includes('Safari/') && !/Chrom|Edg/.test(agent) ? 'in Safari' : 'by icon';
}

/** A phone has no Space to hold. */
const hasKeyboard = () => !globalThis.matchMedia?.('(hover: none)').matches;

const isAddressShown = () => !globalThis.window || (window.top === window && !matchMedia('(display-mode: standalone), (display-mode: fullscreen)').matches);

/** What the microphone button does. @param {Mic} mic */
const micAction = (mic) => (isOpen(mic) || mic === 'asking' ? 'mute' : mic === 'muted' ? 'unmute' : 'use');

/** The label of the microphone button. @param {Mic} mic */
export const muteOf = (mic) => states[micAction(mic)] ?? '';

/**
 * @param {Situation} situation
 * @returns {Status}
 */
export function statusOf(situation) {
  const { state, mic = 'off', microphone, message, retryIn = 0, who } = situation;
  const { keys, next = '', own = '' } = sentencesOf(situation);
  const name = microphone && microphone.length > NAME ? `${microphone.slice(0, NAME - 1).trimEnd()}…` : microphone;
  const values = { name: name ? fill(states['quoted'], { name }) : states['microphone'], seconds: retryIn, ...(who && { who }) };
  const text = keys.map((key) => fill(wordOf(key) ?? message, values)).join(' ') || own;
  const isBrief = keys.includes('states mic none');
  const canRetryMic = isBrief || MENDABLE.some((name) => keys.includes(`states mic ${name}`));
  const waits = waitsForPerson(situation);
  return { keys, text, look: lookFor(state, mic, waits), listens: state === 'listening' && isOpen(mic) && !waits, press: pressOf(situation), next, canRetryMic, isBrief };
}

/** @param {string} key a section and a name in it */
function wordOf(key) {
  const at = key.indexOf(' ');
  return (key.startsWith('errors') ? errors : states)[key.slice(at + 1)];
}

/**
 * @param {Situation} situation
 * @returns {{keys: string[], next?: Status['next'], own?: string}} `own`: a sentence that is in no table
 */
function sentencesOf(situation) {
  const { state, mic = 'off', asksMic, wait, resumable, isLostForLong, hasTyped, blocked, activity, asks, push, message, retryIn, offers = [] } = situation;
  const orb = offers.includes('orb');
  const one = (/** @type {string} */ name) => ({ keys: [`states ${name}`] });
  switch (state) {
    case 'idle':
      return { keys: orb ? [resumable ? 'states left' : 'states ready'] : [], next: 'start' };
    case 'closed': {
      const { name, next, says, then } = endOf(situation);
      if (retryIn) return { keys: ['states trying'], next };
      if (says === 'states ready' && !orb) return { keys: ['states closed'], next };
      const advice = then ?? (!orb || says === 'states ready' ? '' : next === 'start' ? `states ${offers.includes('goOn') ? 'press on' : 'press anew'}` : next === 'retry' ? 'states press again' : '');
      const why = says ?? (name === 'closed' ? 'states closed' : name === 'ended' && message ? '' : `errors ${name}`);
      return { keys: [why || 'errors of the gateway', ...(advice ? [advice] : [])], next };
    }
    case 'connecting':
      return one(mic === 'asking' && asksMic ? 'mic asking' : 'connecting');
    case 'reconnecting':
      if (wait) return { keys: [], own: wait };
      return one(isLostForLong ? 'unreachable' : 'reconnecting');
  }
  if (waitsForPerson(situation)) return one('waits for you');
  const said = wait || (blocked || asks ? '' : activity); // what asks is on the screen
  if (said) return { keys: [], own: said };
  if (blocked) return one('blocked');
  if (state === 'thinking') return one('thinking');
  if (state === 'speaking') {
    if (mic === 'muted' && !push) return one('speaking muted');
    return one(`speaking${isOpen(mic) ? '' : ' alone'}${orb ? '' : ' untapped'}`);
  }
  if (push && mic === 'muted') return one(hasKeyboard() ? 'push' : 'push touch');
  const unheard = micKeys(mic, offers, hasTyped);
  return unheard.length ? { keys: unheard } : one('listening');
}

/** The model does nothing until the person has answered on the screen. @param {Situation} situation */
const waitsForPerson = ({ state, asks, wait, blocked, activity }) => Boolean(asks) && !wait && !blocked && (state === 'thinking' || (state === 'listening' && Boolean(activity)));

/** @param {Situation} situation @returns {Status['press']} */
function pressOf(situation) {
  const { state, mic = 'off', blocked, push } = situation;
  if (state === 'idle') return 'start';
  if (state === 'closed') return endOf(situation).next ? 'start' : '';
  if (state === 'connecting') return '';
  if (blocked) return 'unblock';
  if (state === 'speaking') return 'interrupt';
  if (mic === 'asking' || mic === 'insecure' || (push && (isOpen(mic) || mic === 'muted'))) return '';
  return micAction(mic);
}

/** Whether the person has a turn among these. @param {readonly {role: string}[]} turns */
export const hasUser = (turns) => turns.some(({ role }) => role === 'user');

/**
 * The situation of a session, for statusOf.
 * @param {Session|undefined} session
 * @param {Partial<Situation>} [more] what the session does not know: activity, push, offers, and in how many seconds it is tried again
 * @param {VoxgateError} [ended] why the last session ended
 * @returns {Situation}
 */
export function situationOf(session, more, ended) {
  if (!session || session.state === 'closed') {
    return { state: session || ended ? 'closed' : 'idle', ...(ended && { reason: ended.code, message: ended.told ?? ended.message }), ...more };
  }
  const { state, mic, setup, link, away, blocked, track, turns } = session;
  return {
    state, mic, blocked, asksMic: Boolean(setup), hasTyped: hasUser(turns), ...(track?.label && { microphone: track.label }),
    ...(link.message && { wait: link.message }), ...(away && { isLostForLong: !isMomentary(away) }), ...more,
  };
}

/** A status as its first sentence, which is shown in bold, and the rest. @param {string} text @returns {[string, string]} */
export function splitStatus(text) {
  const [first = text] = /^.*?(?:[.…](?= |$)|(?= ·)|$)/.exec(text) ?? [];
  return [first, text.slice(first.length)];
}

export const MOMENT = 3_000; // ms for which a lost connection is only said to be made again

/** Whether the connection was lost a moment ago. Who shows the status looks again each second. @param {{since: number}} [away] */
export const isMomentary = (away) => !away || Date.now() - away.since < MOMENT;

/** When the connection was lost, in words; '' in the first moment. @param {{since: number}} [away] */
export const absenceOf = (away) => (!away || isMomentary(away) ? '' : fill(states['away'], { seconds: Math.floor((Date.now() - away.since) / 1_000) }));

const SENTENCE_END = /[.!?…。！？।؟]["'”’»)\]]*\s*$/;

/** Whether a text ends with the end of a sentence. @param {string} text */
export const isWhole = (text) => SENTENCE_END.test(text);

/**
 * What cut an answer off, in words; '' if the end of the conversation says it, or if its last sentence was heard to the end.
 * @param {'person'|'link'|'end'} [by]
 * @param {string} [said] what was heard of it
 * @param {string} [text] all of it
 */
export const cutOf = (by, said = '', text = said) => (!by || (said.trim() === text.trim() && isWhole(said)) ? '' : fill(states[`cut ${by}`]));

/**
 * The pages on which Google Search found an answer, as links. A page without https gets a name without a link.
 * @param {Pick<import('./types.d.ts').Turn, 'sources'>} turn
 * @returns {{title: string, href?: string}[]}
 */
export const sourcesOf = ({ sources = [] }) =>
  sources.flatMap(({ title, uri = '' }) => (title ? [{ title, ...(uri.startsWith('https:') && URL.canParse(uri) && { href: uri }) }] : []));

/**
 * The name of the device that is the browser's own choice, without "Default - " before it; undefined if the browser does not say.
 * @param {MediaDeviceInfo[]} devices
 * @param {MediaDeviceKind} kind
 */
export const nameOfDefault = (devices, kind) => devices.find((d) => d.kind === kind && d.deviceId === 'default')?.label.replace(/^[^-]+ - /, '');
