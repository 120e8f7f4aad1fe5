/** What the person has chosen: kept in this browser, and given to `connect`. The sheet that changes it is settings.js. */

/** @import { Options, Transport } from './types.d.ts' */

const KEY = 'voxgate.settings';

/** '' is the model's, the browser's or the gateway's own choice. */
const DEFAULTS = {
  microphone: '', // the id of a device, as for the two below
  speaker: '',
  camera: '',
  echo: true, // is taken out of what the microphone hears
  noise: true, // is suppressed in what the microphone hears
  model: '',
  voice: '',
  language: '',
  instructions: '',
  pause: '', // milliseconds that end a turn
  interrupt: true,
  push: false, // to talk
  record: false, // the conversation, in this page
  history: true, // conversations are kept in this browser
  keys: true, // single ones are commands
  read: false, // answers, to a screen reader, though the microphone is open
  transport: 'auto',
  lang: '', // of the page
  hint: true, // how to give the gateway a key, where it has none
};

/** @typedef {typeof DEFAULTS} Preferences */

/** Never part of a link: they are of this device, or may be private. */
const OWN = ['microphone', 'speaker', 'camera', 'instructions', 'record', 'history', 'hint'];

/**
 * @param {URLSearchParams} given by a link, and not kept until something is changed
 * @returns {Preferences}
 */
export function load(given) {
  /** @type {Record<string, unknown>} */
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(KEY) ?? '{}') ?? {};
  } catch {
    // storage is blocked for this page, or holds foreign data
  }
  const entries = Object.entries(DEFAULTS).map(([name, standard]) => {
    const linked = OWN.includes(name) ? null : given.get(name);
    const value = linked === null ? kept[name] : typeof standard === 'boolean' ? linked === 'true' : linked;
    return [name, typeof value === typeof standard ? value : standard];
  });
  return Object.fromEntries(entries);
}

/** @param {Preferences} preferences */
export function save(preferences) {
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // then they are forgotten with the page
  }
}

/** Resets everything to the defaults. @param {Preferences} preferences */
export const reset = (preferences) => Object.assign(preferences, DEFAULTS);

/**
 * The address of this page that brings them along.
 * @param {Preferences} preferences
 */
export function link(preferences) {
  const changed = Object.entries(preferences).filter(([n, v]) => v !== DEFAULTS[/** @type {keyof Preferences} */ (n)] && !OWN.includes(n));
  const url = new URL(location.href);
  url.hash = new URLSearchParams(changed.map(([n, v]) => [n, String(v)])).toString();
  return url.href;
}

/**
 * What of them is for `connect` and `update`.
 * @param {Preferences} p
 * @returns {Pick<Options, 'config'|'mic'|'speaker'|'camera'|'transport'|'muted'>}
 */
export function asOptions(p) {
  const speech = {
    ...(p.voice && { voiceConfig: { prebuiltVoiceConfig: { voiceName: p.voice } } }),
    ...(p.language && { languageCode: p.language }),
  };
  const vad = { ...(p.push && { enabled: false }), ...(p.pause && { silenceDurationMs: Number(p.pause) }) };
  const voxgate = { ...(Object.keys(vad).length && { vad }), ...(!p.interrupt && { interrupts: { enabled: false } }) };
  return {
    config: {
      ...(p.model && { model: p.model }),
      ...(Object.keys(speech).length && { generationConfig: { speechConfig: speech } }),
      ...(p.instructions && { systemInstruction: p.instructions }),
      ...(Object.keys(voxgate).length && { voxgate }),
    },
    mic: { echoCancellation: p.echo, noiseSuppression: p.noise, ...(p.microphone && { deviceId: { ideal: p.microphone } }) },
    speaker: p.speaker,
    camera: p.camera ? { deviceId: { ideal: p.camera } } : {},
    transport: /** @type {Transport} */ (p.transport),
    muted: p.push,
  };
}
