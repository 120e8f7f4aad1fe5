/** The sheet of settings. It is loaded when it is opened. */
import { make } from './dom.js';
import { states } from './en.js';
import { asOptions, link, reset, save } from './preferences.js';
import { refusal } from './reach.js';
import { settings as words } from './settings.en.js';
import { cutOf, nameOfDefault } from './status.js';
import { fill, language, speak } from './strings.js';
import { twice } from './twice.js';
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

const PAUSES = [300, 600, 1000, 2000]; // ms
const PAGES = { en: 'English', de: 'Deutsch' };

/**
 * @typedef {object} Page the parts of the page that the sheet uses
 * @property {Preferences} preferences
 * @property {{backend: string, models: string[]}} status of the gateway
 * @property {{url: URL, token?: string}} gateway
 * @property {(name: keyof Preferences|undefined) => void} onChange one of them, or all
 * @property {(on: boolean) => void} quiet while it is on, both sides of the conversation are muted
 * @property {() => Promise<void>} check opens the check of the connection
 * @property {() => number} level of the microphone, 0 to 1
 * @property {() => boolean} live a conversation has the microphone
 * @property {() => Line[]} lines of the transcript
 * @property {() => Blob|undefined} recording of the last conversation
 * @property {() => void} forget all of that
 */

/** @param {Page} page */
export async function openSettings(page) {
  await translated();
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet panes settings'));
  const title = make('h2', '', words['settings']);
  title.id = 'settings-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const done = make('button', '', words['done']);
  done.addEventListener('click', () => sheet.close());
  const head = make('header');
  head.append(title, done);
  const list = make('nav');
  list.ariaLabel = words['settings'] ?? '';
  const form = make('div', 'pane');
  sheet.append(head, list, form);
  const refill = async () => {
    form.replaceChildren(...(await sections(page)), ...saved(page, refill), these(page, refill));
    listSections(list, form);
  };
  await refill();
  form.addEventListener('change', ({ target }) => changed(page, /** @type {HTMLInputElement} */ (target)));
  sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close()); // a click on the backdrop
  sheet.addEventListener('close', () => {
    playing?.abort();
    trial?.stop();
    sheet.remove();
  });
  document.body.append(sheet);
  sheet.showModal();
  showLevel(sheet, page.level);
}

/** A list of the sections, which leads to them and marks the section in sight. It is shown where there is room. @param {HTMLElement} list @param {HTMLElement} pane */
function listSections(list, pane) {
  const all = /** @type {HTMLElement[]} */ ([...pane.children]);
  const marked = list.querySelector('[aria-current]')?.textContent;
  const mark = (/** @type {HTMLElement|undefined} */ section) => {
    [...list.children].forEach((button, i) => (button.ariaCurrent = all[i] === section ? 'true' : null));
  };
  const markRead = () => {
    const isAtEnd = pane.scrollTop + pane.clientHeight >= pane.scrollHeight - 1 && pane.scrollTop > 0;
    mark(isAtEnd ? all.at(-1) : all.findLast((e) => e.offsetTop - pane.offsetTop <= pane.scrollTop + READ) ?? all[0]);
  };
  list.replaceChildren(...all.map((section) => {
    const button = make('button', '', section.ariaLabel ?? '');
    button.addEventListener('click', () => {
      pane.scrollTop = section.offsetTop - pane.offsetTop;
      isChosen = true;
      mark(section);
    });
    return button;
  }));
  let isChosen = false; // it may be too near to the end to be at the top
  pane.onclick = (event) => {
    const section = all.find((e) => event.composedPath().includes(e)); // its button may be gone by now
    isChosen = Boolean(section);
    if (section) mark(section);
  };
  pane.onscroll = () => (isChosen ? (isChosen = false) : markRead());
  if (pane.scrollTop) mark(all.find((e) => e.ariaLabel === marked) ?? all[0]); // filled again
  else mark(all[0]);
}
const READ = 80; // px from the top of the pane, where one reads

/** Lets go of the microphone that is tried. */
export const stopTrial = () => trial?.stop();

/** The meter of a sheet follows the microphone while it is open. @param {HTMLDialogElement} sheet @param {() => number} level */
export function showLevel(sheet, level) {
  const meter = () => {
    const e = /** @type {HTMLMeterElement|null} */ (sheet.querySelector('meter'));
    if (e) e.value = trial?.level() ?? level();
    if (sheet.open) requestAnimationFrame(meter);
  };
  meter();
}

/** @param {Pick<Page, 'preferences'|'onChange'>} page @param {HTMLInputElement} control */
export function changed({ preferences, onChange }, { name, type, value, checked }) {
  if (!(name in preferences)) return;
  const key = /** @type {keyof Preferences} */ (name);
  Object.assign(preferences, { [key]: type === 'checkbox' ? checked : value });
  save(preferences);
  onChange(key);
}

/** The devices. @param {Pick<Page, 'preferences'|'live'>} page @param {boolean} [camera] the page uses it */
export async function soundSection(page, camera = true) {
  const { preferences: p } = page;
  const devices = await navigator.mediaDevices?.enumerateDevices().catch(() => []) ?? [];
  /** @param {MediaDeviceKind} kind */
  const of = (kind) => {
    const named = devices.filter((d) => d.kind === kind && d.deviceId && d.label); // once the person has allowed one
    const standard = nameOfDefault(named, kind) ?? (named.length === 1 ? named[0]?.label : undefined);
    return Object.fromEntries([['', standard ? fill(words['by default'], { name: standard }) : words['default'] ?? ''],
      ...named.filter((d) => d.deviceId !== 'default').map((d) => [d.deviceId, d.label])]);
  };
  return section('sound', select('microphone', of('audioinput'), p.microphone, 'device'), levelRow(page),
    ...('setSinkId' in HTMLMediaElement.prototype ? [select('speaker', of('audiooutput'), p.speaker, 'device')] : []), toneRow(p),
    ...(camera ? [select('camera', of('videoinput'), p.camera, 'device')] : []), toggle('echo', p.echo), toggle('noise', p.noise));
}

/** The language of the voice. @param {Preferences} p */
export function languageRow(p) {
  const names = new Intl.DisplayNames(language(), { type: 'language' });
  return select('language', Object.fromEntries([['', fill(words['the spoken one'])], ...LANGUAGES.map((l) => [l, names.of(l) ?? l])]), p.language);
}

/** The language of the page. @param {Preferences} p */
export function pageLanguageRow(p) {
  const wished = navigator.languages.map((l) => l.toLowerCase().split('-')[0] ?? '').find((l) => l in PAGES) ?? 'en';
  return select('lang', { '': fill(words['default is'], { name: PAGES[/** @type {keyof typeof PAGES} */ (wished)] }), ...PAGES }, p.lang);
}

/** @param {Page} page */
async function sections(page) {
  const { preferences: p, status } = page;
  const [standard, ...others] = status.models;
  const models = { '': standard ? fill(words['default is'], { name: standard }) : words['default'] ?? '', ...Object.fromEntries(others.map((m) => [m, m])) };
  const pauses = { '': fill(words['it decides']), ...Object.fromEntries(PAUSES.map((ms) => [ms, fill(words['seconds'], { seconds: (ms / 1_000).toLocaleString(language()) })])) };
  const instructions = /** @type {HTMLTextAreaElement} */ (make('textarea'));
  Object.assign(instructions, { name: 'instructions', value: p.instructions, maxLength: 20_000, placeholder: words['instructions hint'], dir: 'auto' });
  return [
    await soundSection(page),
    section('voice', voices(page)),
    section('conversation', languageRow(p), row(words['instructions'], fill(words['instructions about']), instructions, 'tall'), select('model', models, p.model)),
    section('turns', toggle('push', p.push), toggle('interrupt', p.interrupt), select('pause', pauses, p.pause)),
    section('kept', toggle('history', p.history), ...('MediaRecorder' in window ? [toggle('record', p.record)] : []),
      ...(/** @type {any} */ (navigator).contacts?.select ? [] : [action('contacts', 'open', async () => (await import('./device.js')).openContacts())])), // of the device
    section('page', pageLanguageRow(p), toggle('keys', p.keys), toggle('read', p.read), ...(status.backend === 'emulator' ? [toggle('hint', p.hint)] : [])),
    section('connection', action('check connection', 'check', page.check),
      select('transport', { auto: words['webrtc or'] ?? '', webrtc: words['webrtc alone'] ?? '', websocket: words['web alone'] ?? '' }, p.transport)),
  ];
}

/** What concerns all settings. @param {Page} page @param {() => void} again fills the sheet */
function these(page, again) {
  const copy = make('button', '', words['copy link']);
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(link(page.preferences));
    copy.textContent = fill(words['copied']);
  });
  const clear = twice(words['reset'], () => {
    save(reset(page.preferences));
    page.onChange(undefined);
    again();
  }, '');
  return section('these', pressable('link', copy), pressable('defaults', clear));
}

/** What can be saved of the conversation, and deleted. @param {Page} page @param {() => void} again fills the sheet */
function saved(page, again) {
  const lines = page.lines();
  const recording = page.recording();
  if (!lines.length && !recording) return [];
  const box = make('div', 'foot');
  const forget = twice(words['clear'], () => {
    page.forget();
    again();
  });
  box.append(...(lines.length ? downloads(lines) : []));
  if (recording) box.append(download('recording', `recording.${recording.type.includes('mp4') ? 'mp4' : 'webm'}`, recording));
  box.append(forget);
  return [section('said', box)];
}

/** The words of this sheet, and of the statistics, in the language of the page. */
export const translated = () => speak({ settings: words }, {}, { de: () => import('./settings.de.js') });

/** @param {Line[]} lines */
export function asMarkdown(lines) {
  const who = { user: `**${states['you']}:** `, model: fill('**{who}:** '), tool: `*${words['tool']}:* `, note: `*${words['note']}:* ` };
  const markdown = lines.map((l) => who[l.role] + l.text + (l.interrupted ? ` …${cutOf(l.cutBy ?? 'person').replace(/.+/, ' *($&)*')}` : '')).join('\n\n');
  return new Blob([markdown], { type: 'text/markdown' });
}

/** @param {Line[]} lines */
function downloads(lines) {
  return [download('transcript', 'transcript.md', asMarkdown(lines)), download('details', 'transcript.json', new Blob([JSON.stringify(lines, null, 2)], { type: 'application/json' }))];
}

/** A button that saves a file. @param {string} what in the table @param {string} name of the file @param {Blob} content */
function download(what, name, content) {
  const button = make('button', '', words[what]);
  button.addEventListener('click', () => saveAs(name, content));
  return button;
}

/** @param {string} name @param {Blob} content */
export function saveAs(name, content) {
  const href = URL.createObjectURL(content);
  Object.assign(document.createElement('a'), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

/** @type {{stop: () => void, level: () => number}|undefined} the microphone that is tried */
let trial;
const QUIET = 5_000; // ms after which a microphone without a sound is doubted
const HEARD = 0.02; // of the level: a quiet voice at arm's length

/** The microphone with a live level, before a conversation as well. @param {Pick<Page, 'preferences'|'live'>} page */
function levelRow(page) {
  const meter = make('meter');
  meter.ariaLabel = words['level'] ?? '';
  const said = make('small');
  said.role = 'status';
  const button = make('button', '', words['try microphone']);
  button.hidden = page.live();
  const name = make('span', '', words['level']);
  name.append(meter, said);
  button.addEventListener('click', async () => {
    if (trial) {
      trial.stop();
      return;
    }
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: /** @type {MediaTrackConstraints} */ (asOptions(page.preferences).mic) });
      const context = new AudioContext();
      const analyser = context.createAnalyser();
      context.createMediaStreamSource(stream).connect(analyser);
      const samples = new Float32Array(analyser.fftSize);
      let heard = false;
      const doubt = setTimeout(() => heard || (said.textContent = fill(words['hears nothing'])), QUIET);
      trial = {
        level: () => {
          analyser.getFloatTimeDomainData(samples);
          const level = Math.min(1, 4 * Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / samples.length));
          if (level > HEARD && !heard) {
            heard = true;
            said.textContent = fill(words['hears you']);
          }
          return level;
        },
        stop: () => {
          clearTimeout(doubt);
          for (const track of stream.getTracks()) track.stop();
          context.close();
          trial = undefined;
          button.textContent = fill(words['try microphone']);
        },
      };
      button.textContent = fill(words['stop trying']);
      said.textContent = fill(words['speak now']);
    } catch (e) {
      said.textContent = fill(states[`mic ${refusal(e)}`]);
    }
  });
  const box = make('div', 'row');
  box.append(name, button);
  return box;
}

/** A row that leads to another sheet in place of this one. @param {string} name in the table @param {string} button its words @param {() => Promise<unknown>} open */
function action(name, button, open) {
  const control = make('button', '', words[button]);
  control.addEventListener('click', () => {
    /** @type {HTMLDialogElement|null} */ (document.querySelector('.settings'))?.close();
    void open();
  });
  return pressable(name, control);
}

/** A row with a button. @param {string} name in the table @param {HTMLElement} button */
function pressable(name, button) {
  const box = make('div', 'row');
  const said = make('span', '', words[name]);
  if (words[`${name} about`]) said.append(make('small', '', fill(words[`${name} about`])));
  box.append(said, button);
  return box;
}

/** Two notes on the chosen speaker. @param {Preferences} preferences */
function toneRow({ speaker }) {
  const button = make('button', '', words['play tone']);
  button.addEventListener('click', async () => {
    const context = /** @type {AudioContext & {setSinkId?: (id: string) => Promise<void>}} */ (new AudioContext());
    await context.setSinkId?.(speaker).catch(() => {}); // an unplugged speaker: the default one plays
    const gain = new GainNode(context, { gain: 0.15 });
    gain.connect(context.destination);
    const at = context.currentTime + 0.05;
    for (const [i, frequency] of [523, 659].entries()) {
      const note = new OscillatorNode(context, { frequency });
      note.connect(gain);
      note.start(at + 0.35 * i);
      note.stop(at + 0.35 * i + 0.3);
      if (i) note.onended = () => context.close();
    }
  });
  return pressable('tone', button);
}

/** @param {Page} page */
function voices(page) {
  const chosen = page.preferences.voice;
  const grid = make('div', 'voices');
  const choice = (/** @type {string[]} */ [name = '', word = '']) => {
    const box = make('div');
    const label = make('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'voice', value: name, checked: name === chosen });
    const about = make('span', '', name || words['default']);
    about.append(make('small', '', words[`is ${word}`] ?? word));
    label.append(input, about);
    box.append(label);
    if (name) box.append(sampler(name, page));
    return box;
  };
  const all = [['', words['gateway voice'] ?? ''], ...VOICES].map(choice);
  const more = make('button', 'more', fill(words['more'], { count: VOICES.length - FIRST }));
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
 * A button that plays a sample of the voice. Pressing it again, or another one, stops the sample.
 * @param {string} voice
 * @param {Pick<Page, 'preferences'|'gateway'|'quiet'>} page
 */
export function sampler(voice, page) {
  const button = make('button', 'sample', '▶\uFE0E');
  const named = (/** @type {string} */ what) => (button.title = button.ariaLabel = what);
  named(fill(words['hear'], { voice }));
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
      named(fill(words['hear'], { voice }));
    } catch (e) {
      if (!mine.signal.aborted) named(fill(words['not heard'], { voice, why: /** @type {Error} */ (e).message }));
    } finally {
      button.ariaBusy = null;
      button.textContent = '▶\uFE0E';
      if (playing === mine) playing = undefined;
      if (!playing) page.quiet(false);
    }
  });
  return button;
}

/**
 * A conversation of one sentence.
 * @param {string} voice
 * @param {Pick<Page, 'preferences'|'gateway'>} page
 * @param {AbortSignal} signal
 */
async function say(voice, { preferences, gateway }, signal) {
  const { config = {}, speaker } = asOptions({ ...preferences, voice, instructions: '', push: false });
  const session = await connect({ ...gateway, config, speaker, mic: false, transport: 'websocket', signal });
  const said = preferences.language && fill(words['in language'], { language: new Intl.DisplayNames(language(), { type: 'language' }).of(preferences.language) });
  try {
    await new Promise((resolve, reject) => {
      let spoken = false;
      session.on('state', ({ state }) => {
        if (state === 'speaking') spoken = true;
        else if (spoken) resolve(undefined);
      });
      session.on('closed', reject);
      setTimeout(() => reject(new Error(words['no answer'])), SAMPLE);
      session.send(fill(words['sample'], { language: said, voice }));
    });
  } finally {
    session.close();
  }
}

/** @param {string} name in the table @param {...HTMLElement} rows */
function section(name, ...rows) {
  const box = make('section');
  box.ariaLabel = fill(words[name]);
  box.append(make('h3', '', words[name]), ...rows);
  return box;
}

/** @param {string|undefined} name @param {string} about @param {HTMLElement} control @param {string} [kind] */
function row(name, about, control, kind = '') {
  const label = make('label', `row ${kind}`);
  const said = make('span', '', name);
  if (about) said.append(make('small', '', about));
  label.append(said, control);
  return label;
}

/** @param {string} name of the preference, and in the table @param {Record<string, string>} options @param {string} value @param {string} [kind] of the row */
function select(name, options, value, kind) {
  const control = /** @type {HTMLSelectElement} */ (make('select'));
  control.name = name;
  if (value && !(value in options)) options = { ...options, [value]: words['not here'] ?? '' };
  const entries = Object.entries(options).sort(([a], [b]) => Number(Boolean(a)) - Number(Boolean(b))); // numbers come first of themselves
  control.append(...entries.map(([v, text]) => new Option(text, v, v === value, v === value)));
  return row(words[name], words[`${name} about`] ?? '', control, kind);
}

/** @param {string} name of the preference @param {boolean} checked */
function toggle(name, checked) {
  const control = Object.assign(document.createElement('input'), { type: 'checkbox', name, checked, className: 'switch' });
  control.role = 'switch';
  return row(words[name], words[`${name} about`] ?? '', control);
}
