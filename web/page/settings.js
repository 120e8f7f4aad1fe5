/** The sheet of settings. It is loaded when it is opened. */
import { make } from './dom.js';
import { asOptions, link, reset, save } from './preferences.js';
import { connect } from './voxgate.js';

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
 * @property {{backend: string, models: string[]}} status of the gateway
 * @property {{url: URL, token?: string}} gateway
 * @property {(name: keyof Preferences|undefined) => void} onChange one of them, or all
 * @property {(on: boolean) => void} quiet while it is on, nobody in the conversation shall speak, or hear
 * @property {() => number} level of the microphone, 0 to 1
 * @property {() => Line[]} lines of the transcript
 * @property {() => Blob|undefined} recording of the last conversation
 * @property {() => void} forget all of that
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
  sheet.addEventListener('close', () => {
    playing?.abort();
    sheet.remove();
  });
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
async function sections(page) {
  const { preferences: p, status } = page;
  const devices = await navigator.mediaDevices?.enumerateDevices().catch(() => []) ?? [];
  /** @param {MediaDeviceKind} kind */
  const of = (kind) => Object.fromEntries([['', 'Default'], ...devices.filter((d) => d.kind === kind && d.deviceId && d.label).map((d) => [d.deviceId, d.label])]);
  const meter = make('meter');
  meter.ariaLabel = 'How loud the microphone is';
  const names = new Intl.DisplayNames('en', { type: 'language' });
  const languages = Object.fromEntries([['', 'Automatic'], ...LANGUAGES.map((l) => [l, names.of(l)])]);
  const [standard, ...others] = status.models;
  const models = { '': standard ? `Default, ${standard}` : 'Default', ...Object.fromEntries(others.map((m) => [m, m])) };
  const instructions = /** @type {HTMLTextAreaElement} */ (make('textarea'));
  Object.assign(instructions, { name: 'instructions', value: p.instructions, maxLength: 20_000, placeholder: 'Be brief and friendly.', dir: 'auto' });
  return [
    section('Sound', select('microphone', 'Microphone', of('audioinput'), p.microphone), meter,
      ...('setSinkId' in HTMLMediaElement.prototype ? [select('speaker', 'Speaker', of('audiooutput'), p.speaker)] : []),
      select('camera', 'Camera', of('videoinput'), p.camera),
      toggle('echo', 'Take out the echo', 'off for headphones and music', p.echo), toggle('noise', 'Take out noise', '', p.noise)),
    section('Voice', voices(page)),
    section('Conversation', select('model', 'Model', models, p.model), select('language', 'Language', languages, p.language),
      toggle('push', 'Push to talk', 'hold Space, or the orb', p.push), toggle('interrupt', 'I may interrupt', 'speaking stops the answer', p.interrupt),
      select('pause', 'Pause that ends a turn', PAUSES, p.pause), row('Instructions', 'what Gemini reads before you speak', instructions, 'tall'),
      ...('MediaRecorder' in window ? [toggle('record', 'Record', 'both sides, kept in this page until it is closed', p.record)] : [])),
    section('Accessibility', toggle('read', 'Read answers to my screen reader', 'also while the microphone is open', p.read),
      toggle('keys', 'Single keys are commands', 'Enter, Esc, M and /', p.keys)),
    section('Connection', select('transport', 'Way of the voice', TRANSPORTS, p.transport, 'from the next conversation on'),
      ...(status.backend === 'emulator' ? [toggle('hint', 'Say how to set a key', 'before a conversation', p.hint)] : [])),
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
  const recording = page.recording();
  box.append(copy, clear);
  if (!lines.length && !recording) return box;
  const forget = make('button', '', 'Clear the transcript');
  forget.addEventListener('click', () => {
    page.forget();
    fill();
  });
  box.append(...(lines.length ? downloads(lines) : []));
  if (recording) box.append(download(`Recording .${recording.type.includes('mp4') ? 'mp4' : 'webm'}`, recording));
  box.append(forget);
  return box;
}

/** @param {Line[]} lines */
function downloads(lines) {
  const who = { user: '**You:** ', model: '**Gemini:** ', tool: '*Tool:* ', note: '*Note:* ' };
  const markdown = lines.map((l) => who[l.role] + l.text + (l.interrupted ? ' … *(interrupted)*' : '')).join('\n\n');
  return [
    download('Transcript .md', new Blob([markdown], { type: 'text/markdown' })),
    download('Transcript .json', new Blob([JSON.stringify(lines, null, 2)], { type: 'application/json' })),
  ];
}

/** A button that saves a file of its name. @param {string} name as "Transcript .md" @param {Blob} content */
function download(name, content) {
  const button = make('button', '', name);
  button.addEventListener('click', () => {
    const href = URL.createObjectURL(content);
    Object.assign(document.createElement('a'), { href, download: name.toLowerCase().replace(' ', '') }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
  });
  return button;
}

/** @param {Page} page */
function voices(page) {
  const chosen = page.preferences.voice;
  const grid = make('div', 'voices');
  const choice = (/** @type {string[]} */ [name = '', word = '']) => {
    const box = make('div');
    const label = make('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'voice', value: name, checked: name === chosen });
    const words = make('span', '', name || 'Default');
    words.append(make('small', '', word));
    label.append(input, words);
    box.append(label);
    if (name) box.append(sampler(name, page));
    return box;
  };
  const all = [['', 'the gateway’s'], ...VOICES].map(choice);
  const more = make('button', 'more', `${VOICES.length - FIRST} more…`);
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

/** @type {AbortController|undefined} the sample that is heard */
let playing;
const SAMPLE = 20_000; // ms until one is given up

/**
 * A button that has the voice say a sentence. Pressed again, or on another, it stops.
 * @param {string} voice
 * @param {Page} page
 */
function sampler(voice, page) {
  const button = make('button', 'sample', '▶');
  const named = (/** @type {string} */ what) => (button.title = button.ariaLabel = what);
  named(`Hear ${voice}`);
  button.addEventListener('click', async () => {
    const mine = new AbortController();
    const again = button.ariaBusy === 'true';
    playing?.abort();
    if (again) return;
    playing = mine;
    button.ariaBusy = 'true';
    button.textContent = '■';
    page.quiet(true);
    try {
      await say(voice, page, mine.signal);
      named(`Hear ${voice}`);
    } catch (e) {
      if (!mine.signal.aborted) named(`${voice} cannot be heard: ${/** @type {Error} */ (e).message}`);
    } finally {
      button.ariaBusy = null;
      button.textContent = '▶';
      if (playing === mine) playing = undefined;
      if (!playing) page.quiet(false);
    }
  });
  return button;
}

/**
 * A conversation of one sentence.
 * @param {string} voice
 * @param {Page} page
 * @param {AbortSignal} signal
 */
async function say(voice, { preferences, gateway }, signal) {
  const { config = {}, speaker } = asOptions({ ...preferences, voice, instructions: '', push: false });
  const session = await connect({ ...gateway, config, speaker, mic: false, transport: 'websocket', signal });
  const language = preferences.language && ` in ${new Intl.DisplayNames('en', { type: 'language' }).of(preferences.language)}`;
  try {
    await new Promise((resolve, reject) => {
      let spoken = false;
      session.on('state', ({ state }) => {
        if (state === 'speaking') spoken = true;
        else if (spoken) resolve(undefined);
      });
      session.on('closed', reject);
      setTimeout(() => reject(new Error('the gateway did not answer in time')), SAMPLE);
      session.send(`Hello! Introduce yourself in one short sentence${language}. Your name is ${voice}.`);
    });
  } finally {
    session.close();
  }
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
