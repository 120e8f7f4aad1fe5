/** The page of VOX: the conversation with its dock. What VOX does is in vox.js; cards.js shows the conversation, project.js what is made in it. */
import { growField, label as translate, make } from '../dom.js';
import { states } from '../en.js';
import '../orb.js';
import { asOptions, load } from '../preferences.js';
import { openStage, showPart } from '../stage.js';
import { absenceOf, hasUser, muteOf } from '../status.js';
import { callIt, fill, language, named, speak } from '../strings.js';
import { Cards } from './cards.js';
import { vox as words } from './en.js';
import { ProjectView } from './project.js';
import { nameOf, projectList, Projects } from './projects.js';
import { VoxLive } from './vox.js';

/** @import { VoxgateOrb } from '../orb.js' */
/** @import { Snapshot } from './types.d.ts' */

/** The themes, their voices and how Google describes these. */
const THEMES = [
  ['expert', 'Orus', 'firm'],
  ['sharp', 'Fenrir', 'excitable'],
  ['warm', 'Aoede', 'breezy'],
  ['casual', 'Kore', 'firm'],
  ['future', 'Puck', 'upbeat'],
  ['minimal', 'Zephyr', 'bright'],
  ['retro', 'Charon', 'informative'],
  ['creative', 'Leda', 'youthful'],
];
const PLACES = ['welcome', 'studio', 'settings', 'files', 'preview', 'chat'];
const TWICE = 4_000; // ms for the second Esc
const RECENT = 3; // projects that are shown at the beginning

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ ($(id));
const { body } = document;
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const model = /** @type {HTMLSelectElement} */ ($('model'));
const setup = /** @type {HTMLDialogElement} */ ($('setup'));
const shelf = /** @type {HTMLDialogElement} */ ($('shelf'));
const about = /** @type {HTMLDialogElement} */ ($('about'));
const orb = /** @type {VoxgateOrb} */ ($('orb'));

// A link to this page may bring a token, behind the # so that no server logs it, and not for other eyes.
const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);

named(document.documentElement.dataset['backend']);
const preferences = load(new URLSearchParams());
const lang = new URLSearchParams(location.search).get('lang') || preferences.lang;
await Promise.all([speak({ states }, lang ? { lang } : {}), speak({ vox: words }, {}, { de: () => import('./de.js') })]);
document.documentElement.lang = language();
/** @param {string} name @param {Record<string, unknown>} [values] */
const word = (name, values) => fill(words[name] ?? states[name], values);
translate(document, word);

const vox = new VoxLive({ url: new URL('../api/vox/live', document.baseURI), token, targets: PLACES });
/** Nothing is going on, and nothing is about to. */
const over = () => ['idle', 'ended', 'failed'].includes(vox.state);

const isExample = document.documentElement.dataset['backend'] === 'emulator'; // it cannot hear which language is spoken
const projects = new Projects();

// --- the person

/** @param {boolean} [mic] */
async function start(mic = true) {
  if (!over()) return;
  void loadReasons();
  const writes = model.value !== '';
  const devices = asOptions(preferences);
  const options = { theme: chosen(), model: model.value || undefined, mic: mic && !writes && devices.mic, speaker: preferences.speaker, language: preferences.language || (isExample ? language() : undefined), pushToTalk: preferences.push && !writes };
  await vox.startSession(options).catch(() => {}); // the status says it
}

/** @param {string} said */
async function tell(said) {
  if (over()) await start(false); // who types first is not asked for a microphone
  showEnd();
  return vox.sendText(said);
}

const chosen = () => /** @type {HTMLInputElement} */ (document.querySelector('[name=theme]:checked')).value;

/** @type {Record<string, string>|undefined} what is said of the tools of the registry, once it is loaded */
let reasons;
/** @type {Promise<void>|undefined} */
let loading;
/** Loads the descriptions of the tools, which are not needed before the first tool is shown. */
const loadReasons = () => (loading ??= import('./tools.en.js').then(async ({ tools }) => {
  await speak({ tools }, {}, { de: () => import('./tools.de.js') });
  reasons = tools;
}).catch(() => void (reasons = {}))); // the registry's own words are shown then
const translated = (/** @type {string} */ name) => reasons?.[name] ?? '';
const cards = new Cards({
  log: $('log'), questions: $('questions'), word, translated, tell, answer: vox.answer,
  open: (name) => {
    project.open(name);
    show(true);
  },
  done: () => input('text').focus(),
});
const project = new ProjectView({ root: $('project'), word, translated, use: vox.useVersion, onView: (app) => cards.setViewed(app) });

/** The orb begins, lets the sound play, interrupts, or mutes: as its look says. */
function press() {
  if (over()) return start();
  if (vox.blocked) return vox.unblock();
  if (vox.isVoxSpeaking) return vox.interrupt();
  if (!mute.disabled) vox.toggleMute();
}

/** Push to talk: while the orb or Space is held. @param {boolean} on */
const hold = (on) => vox.talk(on);
$('talk').addEventListener('pointerdown', () => hold(true));
for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => hold(false));
addEventListener('blur', () => hold(false));
document.addEventListener('keyup', ({ key }) => key === ' ' && hold(false));

$('talk').addEventListener('click', press);
$('end').addEventListener('click', vox.endSession);
mute.addEventListener('click', vox.toggleMute);
document.addEventListener('click', () => vox.blocked && vox.unblock());

$('type').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = input('text');
  const said = text.value.trim();
  if (!said) return;
  text.value = '';
  if (!(await tell(said))) text.value ||= said; // it failed: nothing typed gets lost
  else typing(false);
});

/** On a narrow screen the field takes the place of the dock. @param {boolean} on */
function typing(on) {
  body.classList.toggle('typing', on);
  $('keyboard').ariaExpanded = String(on);
  if (on) input('text').focus();
}
$('keyboard').addEventListener('click', () => typing(!body.classList.contains('typing')));
input('text').addEventListener('blur', ({ target }) => setTimeout(() => /** @type {HTMLInputElement} */ (target).value || document.activeElement?.closest('#type') || typing(false)));

for (const wish of ['wish 1', 'wish 2', 'wish 3']) {
  const button = make('button', '', word(wish));
  button.addEventListener('click', () => tell(word(wish)));
  $('tries').append(button);
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented || document.querySelector('dialog[open]')) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  if (key === 'F6') return event.preventDefault(), move(event.shiftKey ? -1 : 1);
  if (key === 'Escape') return escape(target);
  if (key === ' ' && vox.getSnapshot().isPushToTalk && !over() && !target.closest('input, textarea, select, a, summary, button:not(#talk)')) {
    event.preventDefault();
    return hold(true);
  }
  if (repeat || target.closest('input, textarea, select')) return;
  if (key === 'Enter' && !target.closest('button, a, summary')) start();
  else if (key.toLowerCase() === 'm' && !mute.disabled) vox.toggleMute();
  else if (key === '/') event.preventDefault(), typing(true);
});

/** F6 goes from part to part. @param {number} by */
function move(by) {
  const parts = [input('text').checkVisibility() ? input('text') : $('talk'), document.querySelector('main'), $('project-title')];
  const there = /** @type {HTMLElement[]} */ (parts.filter((e) => e?.checkVisibility()));
  const at = there.findIndex((e) => e === document.activeElement || e.parentElement?.contains(document.activeElement));
  there[(at + by + there.length) % there.length]?.focus();
}

/** @type {ReturnType<typeof setTimeout>|undefined} Esc was pressed once */
let leaving;

/** Esc leaves a field, closes the project, and ends the conversation only when it is pressed twice. @param {HTMLElement} from */
function escape(from) {
  if (from.closest('input, textarea, select')) return from.blur(), typing(false);
  if (body.classList.contains('showing')) return show(false);
  const twice = leaving;
  clearTimeout(leaving);
  leaving = undefined;
  if (twice) vox.endSession();
  else if (!over()) leaving = setTimeout(() => {
    leaving = undefined;
    render(vox.getSnapshot());
  }, TWICE);
  render(vox.getSnapshot());
}

/** The project stands beside the conversation; on a phone it is a sheet over it. @param {boolean} on */
function show(on) {
  const had = $('project').contains(document.activeElement);
  if (isNarrow()) body.classList.toggle('wide', body.classList.toggle('showing', on) || isWide);
  else if (!body.classList.toggle('beside', on)) widen(false);
  $('open').ariaExpanded = String(on);
  if (on) $('project-title').focus();
  else if (had || document.activeElement === body) $('open').focus();
}
for (const part of ['open', 'close']) $(part).addEventListener('click', () => {
  show(part === 'open');
  projects.keep({ aside: part === 'open' ? '' : projects.settings['open'] }); // that it stays closed after a reload
});

const isNarrow = () => matchMedia('(max-width: 59.99rem)').matches;
let isWide = false; // the person has hidden the conversation

/** The project can have the whole window. @param {boolean} on */
function widen(on) {
  body.classList.toggle('wide', (isWide = on));
  $('wide').ariaPressed = String(on);
}
$('wide').addEventListener('click', () => widen(!isWide));

// --- projects

/** @param {string} id of a project; '' begins a new one */
function choose(id) {
  if (shelf.open) shelf.close();
  if (id === projects.settings['open']) return;
  vox.endSession();
  cards.clear();
  shown = undefined;
  project.clear();
  projects.choose(id);
  show(false);
  body.classList.remove('beside');
  widen(false);
  restore();
}

let isRestoring = false; // a project is opened as it was left

function restore() {
  isRestoring = true;
  vox.restore(projects.open ?? {});
  isRestoring = false;
}

function listProjects() {
  const all = projects.all;
  const page = { word, choose, remove: (/** @type {string} */ id) => {
    const open = projects.settings['open'] === id;
    projects.remove(id);
    if (open) vox.endSession(), cards.clear(), project.clear(), (shown = undefined), vox.restore();
    listProjects();
  } };
  $('kept').replaceChildren(...projectList(all, page));
  $('no-projects').hidden = all.length > 0;
  $('recent').replaceChildren(...projectList(all.slice(0, RECENT), page));
  showPart('recent', all.length > 0);
}

$('name').addEventListener('click', () => {
  listProjects();
  openSheet(shelf);
});
$('new').addEventListener('click', () => choose(''));

/** @param {HTMLDialogElement} sheet */
function openSheet(sheet) {
  if (sheet.open) return;
  if (!over()) takeDock(sheet);
  sheet.showModal();
}
for (const sheet of [setup, shelf, about]) sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close()); // a click on the backdrop
$('shelved').addEventListener('click', () => shelf.close());

/** What this conversation is held with, what its project is made of, and what can be kept of it. */
function openMore() {
  $('about-title').textContent = $('name').textContent;
  const sources = project.sources();
  $('sources').replaceChildren(...sources);
  $('no-sources').hidden = sources.length > 0;
  /** @type {HTMLButtonElement} */ ($('keep')).disabled = !vox.transcript.length;
  openSheet(about);
}
for (const button of document.querySelectorAll('.icon.more:not(summary)')) button.addEventListener('click', openMore);
$('read').addEventListener('click', () => about.close());
for (const id of ['voice-now', 'model-now']) $(id).addEventListener('click', async () => {
  await closed(about);
  openSettings();
});

/** Closes a sheet; its event takes the dock back. @param {HTMLDialogElement} sheet */
function closed(sheet) {
  const gone = new Promise((resolve) => sheet.addEventListener('close', resolve, { once: true }));
  sheet.close();
  return gone;
}

/** Where VOX leads, in the words of the design. @param {string} place */
function go(place) {
  if (place === 'settings') return void openSettings();
  const isPart = ['studio', 'files', 'preview'].includes(place);
  if (isPart) project.show(place);
  if (isPart || isNarrow()) show(isPart && !$('project').hidden);
}

// --- settings

for (const [name = '', voice = '', is = ''] of THEMES) {
  const box = make('div');
  box.dataset['theme'] = name; // its colour
  const label = make('label');
  const radio = Object.assign(document.createElement('input'), { type: 'radio', name: 'theme', value: name, checked: name === (THEMES.some(([t]) => t === projects.settings['theme']) ? projects.settings['theme'] : 'expert') });
  const about = make('span', '', word(`theme ${name}`));
  about.append(make('small', '', word('voice of', { voice, is: word(`is ${is}`) })));
  label.append(radio, about);
  box.append(label);
  $('themes').append(box);
}
document.documentElement.dataset['theme'] = chosen();

let isListed = false;
/** The Live model, and those that write: Google's, and those that the operator has named. A list that could not be had is asked for again. */
async function listModels() {
  aboutModel();
  if (isListed) return;
  /** @type {any[]} */
  let all = []; // also if it is not allowed, or cannot be had
  try {
    const answer = await fetch('../v1beta/models?pageSize=1000', { headers: token ? { 'x-goog-api-key': token } : {} });
    if (answer.ok) all = (await answer.json()).models ?? [];
    isListed = answer.ok;
  } catch {}
  const writers = all.filter((m) => m.supportedGenerationMethods?.includes('generateContent')).map((m) => m.name.replace('models/', ''));
  model.replaceChildren(new Option(word('live'), ''), ...writers.map((name) => new Option(word('typed', { name }), name)));
  model.value = writers.includes(projects.settings['model']) ? projects.settings['model'] : '';
  aboutModel();
  render(vox.getSnapshot());
}

function aboutModel() {
  $('mode-about').textContent = word(model.value ? 'typed about' : 'live about');
  $('aloud').hidden = !model.value;
  $('pushing').hidden = model.value !== '';
}

input('speak').checked = vox.speak = projects.settings['speak'] ?? true;
model.append(new Option(word('live'), ''));
setup.addEventListener('change', () => {
  vox.speak = input('speak').checked;
  document.documentElement.dataset['theme'] = chosen();
  aboutModel();
  projects.keep({ theme: chosen(), model: model.value, speak: vox.speak });
  render(vox.getSnapshot());
});
/** The parts that the settings have from the page of the gateway are loaded when they are opened. */
async function openSettings() {
  openSheet(setup);
  void listModels();
  /** @type {HTMLInputElement} */ (setup.querySelector('[name=push]')).checked = preferences.push;
  const parts = await import('../settings.js');
  await parts.translated();
  $('devices').replaceChildren(await parts.soundSection({ preferences, live: () => vox.isConnected && ['live', 'silent'].includes(vox.mic) }, false));
  setup.addEventListener('close', parts.stopTrial, { once: true });
  $('language').replaceChildren(parts.languageRow(preferences), parts.pageLanguageRow(preferences));
  let isMuted = false;
  const quiet = (/** @type {boolean} */ on) => {
    if (on && vox.isVoxSpeaking) vox.interrupt();
    if (on ? !mute.disabled && !vox.isMuted : isMuted) vox.toggleMute();
    isMuted = on && vox.isMuted;
  };
  for (const label of document.querySelectorAll('#themes label:not(:has(+ .sample))')) {
    const voice = THEMES.find(([theme]) => theme === label.querySelector('input')?.value)?.[1] ?? '';
    label.after(parts.sampler(voice, { preferences, gateway: { url: new URL('../ws', document.baseURI), ...(token && { token }) }, quiet }));
  }
  parts.showLevel(setup, () => vox.level.mic);
}
setup.addEventListener('change', async ({ target }) => {
  const { changed } = await import('../settings.js');
  changed({ preferences, onChange: (name) => {
    if (name === 'lang' && over()) return location.reload();
    const { mic } = asOptions(preferences);
    if (['microphone', 'echo', 'noise'].includes(name ?? '') && typeof mic === 'object') vox.useDevices({ mic: /** @type {MediaTrackConstraints} */ (mic) });
    render(vox.getSnapshot());
    if (name === 'speaker') vox.useDevices({ speaker: preferences.speaker });
  } }, /** @type {HTMLInputElement} */ (target));
});
$('keep').addEventListener('click', async () => {
  const { asMarkdown, saveAs, translated } = await import('../settings.js');
  await translated();
  callIt('VOX');
  saveAs(`${nameOf(vox.getSnapshot()) || 'VOX'}.md`, asMarkdown(cards.lines(vox.getSnapshot())));
  callIt('');
});
$('statistics').addEventListener('click', async () => {
  const { openStatistics } = await import('../statistics.js');
  const tokens = () => {
    const { inputTokens = 0, outputTokens = 0, cachedTokens, dollars } = vox.getSnapshot().usage ?? {};
    const total = { inputTokens, outputTokens, totalTokens: inputTokens + outputTokens, cachedTokens };
    return /** @type {import('../messages.d.ts').Usage} */ ({ turn: total, total, dollars });
  };
  const session = () => (over() ? undefined : /** @type {any} */ ({
    stats: () => Promise.resolve(), transport: 'websocket', link: { state: vox.state === 'reconnecting' ? 'reconnecting' : 'live' },
    setup: { model: vox.getSnapshot().model, backend: document.documentElement.dataset['backend'] },
  }));
  await closed(about);
  await openStatistics({ session, answers, usage: tokens, details: [] });
  const sheet = /** @type {HTMLDialogElement} */ (document.querySelector('.statistics'));
  sheet.querySelector('header')?.setAttribute('role', 'none'); // the page has its banner
  if (!over()) takeDock(sheet);
});
for (const id of ['settings', 'the-voice', 'the-model']) $(id).addEventListener('click', openSettings);
$('done').addEventListener('click', () => setup.close());

// --- VOX

/** @type {Snapshot|undefined} what is on the page */
let shown;
/** @type {import('../messages.d.ts').TurnLatency[]} the statistics follow it */
const answers = [];

vox.addEventListener('change', showChange);
function showChange() {
  const now = vox.getSnapshot();
  if (!reasons && (now.project.tools.length || now.actions.length)) return void loadReasons().then(showChange);
  if (now.latencies !== shown?.latencies) answers.splice(0, Infinity, ...now.latencies);
  const before = shown;
  shown = now;
  cards.show(now, before);
  if (now.project !== before?.project) showProject(now, before);
  if (now.unsent !== before?.unsent && now.unsent.length) giveBack(now.unsent);
  if (now.away !== before?.away) renderAway();
  render(now);
  if (!before) return; // it was read just now
  if (now.project !== before.project || now.transcript !== before.transcript || now.projectId !== before.projectId || now.actions !== before.actions) projects.save(now);
}
vox.addEventListener('action', (e) => {
  const { action, target } = /** @type {CustomEvent} */ (e).detail;
  if (action === 'navigate') go(target);
});
vox.addEventListener('notice', (e) => cards.note(/** @type {CustomEvent} */ (e).detail));

/** @param {Snapshot} now @param {Snapshot|undefined} before */
function showProject(now, before) {
  const { tools, apps } = now.project;
  project.update(now, before);
  showPart('project', tools.length + apps.length > 0);
  $('wide').hidden = $('project').hidden;
  const isClosed = isRestoring && Boolean(projects.settings['aside']) && projects.settings['aside'] === projects.settings['open'];
  if (apps.length && !before?.project.apps.length && !isClosed) {
    body.classList.add('beside'); // tools alone are in the thread, and behind the chip
    projects.keep({ aside: '' });
  }
  const countOf = (/** @type {string} */ of, /** @type {number} */ count) => (count ? [word(count === 1 ? `one ${of}` : `some ${of}s`, { count })] : []);
  $('open').textContent = [...countOf('tool', tools.length), ...countOf('app', apps.length)].join(' · ');
  if ($('project').hidden && body.matches('.showing, .beside')) show(false);
}

/** Nothing typed gets lost. @param {string[]} unsent */
function giveBack(unsent) {
  const text = input('text');
  text.value = [text.value, ...unsent].filter(Boolean).join(' ');
  $('unsent').hidden = false;
  body.classList.add('typing');
}
growField(/** @type {any} */ (input('text')));
input('text').addEventListener('input', () => ($('unsent').hidden = true));

/** @type {ReturnType<typeof setTimeout>|undefined} */
let counting;

/** How long the gateway has been away already, once a second. */
function renderAway() {
  const { away } = vox.getSnapshot();
  const absence = absenceOf(away);
  showPart('absence', Boolean(absence));
  say('since', absence);
  clearTimeout(counting);
  if (away) counting = setTimeout(renderAway, 1_000);
}
$('retry').addEventListener('click', vox.retry);
$('tryagain').addEventListener('click', vox.toggleMute);

const { arrange, glide, showStatus, showEnd, takeDock } = openStage({
  chooseMicrophone: async () => {
    for (const sheet of [shelf, about]) if (sheet.open) await closed(sheet);
    openSettings();
  },
  isGrowing: () => vox.isVoxSpeaking,
});

let isDrawn = false; // before that nothing glides

/** @param {Snapshot} now */
function render(now) {
  const { state, message, sentences, canRetryMic, mic, isMuted, isPushToTalk, mode, transcript, project: made, questions } = now;
  const idle = over();
  const wordless = !transcript.length && !now.actions.length && !made.tools.length && !made.apps.length;
  const begun = !idle || !wordless;
  // Until the first wish the proposals stay.
  const isUnwished = begun && !now.actions.length && !made.tools.length && !made.apps.length && !hasUser(transcript);
  body.classList.toggle('unwished', isUnwished);
  if (body.classList.contains('home') === begun || body.classList.contains('wordless') !== (begun && wordless)) {
    const change = () => {
      body.classList.toggle('home', !begun);
      body.classList.toggle('wordless', begun && wordless);
      arrange();
    };
    if (isDrawn) glide(change);
    else change();
  }
  isDrawn = true;
  if (!begun && $('recent').hidden !== false) listProjects();
  body.classList.toggle('calm', sentences.includes('states ready')); // the orb and the sentence above it say it
  body.classList.toggle('unheard', state === 'ready' && mic === 'off');
  body.dataset['state'] = idle ? 'ready' : state === 'ready' ? 'typed' : state;
  const name = nameOf(now) || word(begun ? 'new project' : 'projects');
  if ($('name').textContent !== name) $('name').textContent = name;
  $('name').hidden = !begun && $('recent').hidden;
  const voice = THEMES.find(([theme]) => theme === (idle ? chosen() : now.theme || chosen()))?.[1];
  say('the-voice', word('voice is', { voice }));
  say('voice-now', voice ?? '', 'b');
  const writer = idle ? model.value : now.mode === 'text' ? now.model : '';
  const writes = word(writer) || writer || word('live');
  say('the-model', writes);
  $('the-model').hidden = !writer; // it talks, as one sees
  say('model-now', writes, 'b');
  $('the-voice').hidden = $('voice-now').hidden = idle ? model.value !== '' : mode === 'text';
  $('open').hidden = $('project').hidden;
  const invited = isUnwished && state === 'listening' && sentences.includes('states listening') ? `${message} · ${word(isExample ? 'invite example' : 'invite')}` : message;
  showStatus({ canRetryMic, isBrief: sentences.includes('states mic none'), ...(leaving && !idle ? { text: word('again'), keys: [] } : { text: invited, keys: sentences }) }, mic);
  if (!idle && mic === 'off') $('mute').hidden = true; // the orb opens the microphone
  say('recording', now.isRecorded ? word('recording') : '');
  const hears = ['live', 'silent', 'asking'].includes(mic);
  mute.disabled = idle || mode === 'text' || mic === 'asking' || mic === 'insecure' || (isPushToTalk && ['live', 'silent'].includes(mic));
  const quiet = idle || mode === 'text'; // there is nothing to mute
  mute.toggleAttribute('data-on', !quiet && (hears ? isMuted : mic !== 'off'));
  mute.toggleAttribute('data-away', state === 'reconnecting');
  const does = muteOf(quiet ? 'live' : hears && isMuted ? 'muted' : mic);
  label(mute, does);
  mute.title = `${does} (M)`;
  label($('talk'), idle ? word('talk') : now.isVoxSpeaking ? fill(states['interrupt']) : does);
  // Only a muted microphone makes the orb grey; without one it can still be pressed to speak.
  const look = idle ? 'ready' : questions.length ? 'asking' : state === 'ready' ? (hears && isMuted && !isPushToTalk ? 'muted' : 'ready') : state;
  if (orb.getAttribute('state') !== look) orb.setAttribute('state', look);
  $('setup-note').hidden = idle;
  if (!idle) draw();
}

/**
 * A live region speaks at every change.
 * @param {string} id
 * @param {string} what
 * @param {string} [part] of it
 */
function say(id, what, part) {
  const place = /** @type {HTMLElement} */ (part ? $(id).querySelector(part) : $(id));
  if (place.textContent !== what) place.textContent = what;
}

/**
 * @param {HTMLElement} button
 * @param {string} name
 */
function label(button, name) {
  const span = /** @type {HTMLElement} */ (button.querySelector('.unseen'));
  if (span.textContent !== name) span.textContent = name;
}

let drawing = false;

/** The orb follows both voices. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const { mic, vox: voice } = vox.level;
    orb.show(mic, voice);
    $('glow').style.setProperty('--model', voice.toFixed(2));
    if (!over()) draw();
  });
}

if (projects.open) await loadReasons(); // of the tools that it has
restore();
shown = vox.getSnapshot();
listProjects();
render(shown);
if (projects.settings['model']) void listModels();
