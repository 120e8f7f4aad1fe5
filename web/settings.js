/** The sheet of settings. It is loaded when it is opened. */
import { make } from './elements.js';
import { link, reset, save } from './preferences.js';

/**
 * @import { Preferences } from './preferences.js'
 * @import { Line } from './transcript.js'
 */

/** The prebuilt voices and what Google says of each: https://ai.google.dev/gemini-api/docs/speech-generation#voices (2026-06). */
const VOICES = `Puck upbeat, Kore firm, Aoede breezy, Charon informative, Leda youthful, Zephyr bright, Fenrir excitable, Orus firm,
  Callirrhoe easy-going, Autonoe bright, Enceladus breathy, Iapetus clear, Umbriel easy-going, Algieba smooth, Despina smooth,
  Erinome clear, Algenib gravelly, Rasalgethi informative, Laomedeia upbeat, Achernar soft, Alnilam firm, Schedar even, Gacrux mature,
  Pulcherrima forward, Achird friendly, Zubenelgenubi casual, Vindemiatrix gentle, Sadachbia lively, Sadaltager knowledgeable, Sulafat warm`
  .split(',').map((v) => v.trim().split(' '));
const FIRST = 5; // of them are in sight at once

const LANGUAGES = 'en-US en-GB de-DE fr-FR es-ES it-IT pt-BR nl-NL pl-PL tr-TR ru-RU uk-UA ar-EG hi-IN id-ID ja-JP ko-KR cmn-CN'.split(' ');

const PAUSES = { '': 'Gemini’s own', 300: '0.3 s', 600: '0.6 s', 1000: '1 s', 2000: '2 s' };
const TRANSPORTS = { auto: 'Automatic', webrtc: 'WebRTC', websocket: 'WebSocket' };

/**
 * @typedef {object} Page what the sheet needs of it
 * @property {Preferences} preferences
 * @property {(name: keyof Preferences|undefined) => void} onChange one of them, or all
 * @property {() => number} level of the microphone, 0 to 1
 * @property {() => Line[]} lines of the transcript
 * @property {() => void} forget them
 */

/** @param {Page} page */
export async function openSettings(page) {
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet settings'));
  const title = make('h2', '', 'Settings');
  title.id = 'settings-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const done = make('button', '', 'Done');
  done.addEventListener('click', () => sheet.close());
  const head = make('header');
  head.append(title, done);
  const form = make('div');
  sheet.append(head, form);
  const fill = async () => form.replaceChildren(...(await sections(page)), foot(page, fill));
  await fill();
  form.addEventListener('change', ({ target }) => changed(page, /** @type {HTMLInputElement} */ (target)));
  sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close()); // beside it
  sheet.addEventListener('close', () => sheet.remove());
  document.body.append(sheet);
  sheet.showModal();
  const meter = () => {
    const e = /** @type {HTMLMeterElement|null} */ (sheet.querySelector('meter'));
    if (e) e.value = page.level();
    if (sheet.open) requestAnimationFrame(meter);
  };
  meter();
}

/** @param {Page} page @param {HTMLInputElement} control */
function changed({ preferences, onChange }, { name, type, value, checked }) {
  if (!(name in preferences)) return;
  const key = /** @type {keyof Preferences} */ (name);
  Object.assign(preferences, { [key]: type === 'checkbox' ? checked : value });
  save(preferences);
  onChange(key);
}

/** @param {Page} page */
async function sections({ preferences: p }) {
  const devices = await navigator.mediaDevices?.enumerateDevices().catch(() => []) ?? [];
  /** @param {MediaDeviceKind} kind */
  const of = (kind) => Object.fromEntries([['', 'Default'], ...devices.filter((d) => d.kind === kind && d.deviceId && d.label).map((d) => [d.deviceId, d.label])]);
  const meter = make('meter');
  meter.ariaLabel = 'How loud the microphone is';
  const names = new Intl.DisplayNames('en', { type: 'language' });
  const languages = Object.fromEntries([['', 'Automatic'], ...LANGUAGES.map((l) => [l, names.of(l)])]);
  const instructions = /** @type {HTMLTextAreaElement} */ (make('textarea'));
  Object.assign(instructions, { name: 'instructions', value: p.instructions, maxLength: 20_000, placeholder: 'Be brief and friendly.', dir: 'auto' });
  return [
    section('Sound', select('microphone', 'Microphone', of('audioinput'), p.microphone), meter,
      ...('setSinkId' in HTMLMediaElement.prototype ? [select('speaker', 'Speaker', of('audiooutput'), p.speaker)] : []),
      select('camera', 'Camera', of('videoinput'), p.camera),
      toggle('echo', 'Take out the echo', 'off for headphones and music', p.echo), toggle('noise', 'Take out noise', '', p.noise)),
    section('Voice', voices(p.voice)),
    section('Conversation', select('language', 'Language', languages, p.language),
      toggle('push', 'Push to talk', 'hold Space, or the orb', p.push), toggle('interrupt', 'I may interrupt', 'speaking stops the answer', p.interrupt),
      select('pause', 'Pause that ends a turn', PAUSES, p.pause), row('Instructions', 'what Gemini is told before you speak', instructions, 'tall')),
    section('Accessibility', toggle('read', 'Read answers to my screen reader', 'also while the microphone is open', p.read),
      toggle('keys', 'Single keys are commands', 'Enter, Esc, M and /', p.keys)),
    section('Connection', select('transport', 'Way of the voice', TRANSPORTS, p.transport, 'from the next conversation on')),
  ];
}

/** @param {Page} page @param {() => void} fill */
function foot(page, fill) {
  const box = make('div', 'foot');
  const copy = make('button', '', 'Copy link');
  copy.title = 'A link to this page with these settings, without devices and instructions';
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(link(page.preferences));
    copy.textContent = 'Copied';
  });
  const clear = make('button', '', 'Reset');
  clear.addEventListener('click', () => {
    save(reset(page.preferences));
    page.onChange(undefined);
    fill();
  });
  const lines = page.lines();
  box.append(copy, clear);
  if (!lines.length) return box;
  const forget = make('button', '', 'Clear the transcript');
  forget.addEventListener('click', () => {
    page.forget();
    fill();
  });
  box.append(...downloads(lines), forget);
  return box;
}

/** @param {Line[]} lines */
function downloads(lines) {
  const who = { user: '**You:** ', model: '**Gemini:** ', tool: '*Tool:* ', note: '*Note:* ' };
  const markdown = lines.map((l) => who[l.role] + l.text + (l.interrupted ? ' … *(interrupted)*' : '')).join('\n\n');
  const kinds = { 'transcript.md': ['text/markdown', markdown], 'transcript.json': ['application/json', JSON.stringify(lines, null, 2)] };
  return Object.entries(kinds).map(([name, [type, text = '']]) => {
    const button = make('button', '', name.replace('transcript', 'Transcript '));
    button.addEventListener('click', () => {
      const href = URL.createObjectURL(new Blob([text], { type }));
      Object.assign(document.createElement('a'), { href, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(href), 10_000);
    });
    return button;
  });
}

/** @param {string} chosen */
function voices(chosen) {
  const grid = make('div', 'voices');
  const choice = (/** @type {string[]} */ [name = '', word = '']) => {
    const label = make('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'voice', value: name, checked: name === chosen });
    const box = make('span', '', name || 'Default');
    box.append(make('small', '', word));
    label.append(input, box);
    return label;
  };
  const all = [['', 'the gateway’s'], ...VOICES].map(choice);
  const more = make('button', '', `${VOICES.length - FIRST} more…`);
  const rest = VOICES.findIndex(([name]) => name === chosen) < FIRST;
  const showAll = () => more.replaceWith(...all.slice(FIRST + 1));
  more.addEventListener('click', () => {
    const next = all[FIRST + 1]?.querySelector('input');
    showAll();
    next?.focus();
  });
  grid.append(...all.slice(0, FIRST + 1), more);
  if (!rest) showAll();
  return grid;
}

/** @param {string} name @param {...HTMLElement} rows */
function section(name, ...rows) {
  const box = make('section');
  box.ariaLabel = name;
  box.append(make('h3', '', name), ...rows);
  return box;
}

/** @param {string} name @param {string} about @param {HTMLElement} control @param {string} [kind] */
function row(name, about, control, kind = '') {
  const label = make('label', `row ${kind}`);
  const words = make('span', '', name);
  if (about) words.append(make('small', '', about));
  label.append(words, control);
  return label;
}

/** @param {string} name @param {string} title @param {Record<string, string>} options @param {string} value @param {string} [about] */
function select(name, title, options, value, about = '') {
  const control = /** @type {HTMLSelectElement} */ (make('select'));
  control.name = name;
  if (value && !(value in options)) options = { ...options, [value]: 'Not here now' };
  const entries = Object.entries(options).sort(([a], [b]) => Number(Boolean(a)) - Number(Boolean(b))); // numbers come first of themselves
  control.append(...entries.map(([v, text]) => new Option(text, v, v === value, v === value)));
  return row(title, about, control);
}

/** @param {string} name @param {string} title @param {string} about @param {boolean} checked */
function toggle(name, title, about, checked) {
  const control = Object.assign(document.createElement('input'), { type: 'checkbox', name, checked, className: 'switch' });
  control.role = 'switch';
  return row(title, about, control);
}
