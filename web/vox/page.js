/** The page of VOX: the conversation with its dock. What VOX does is in vox.js; cards.js shows the conversation, project.js what is made in it. */
import { label as translate, make } from '../dom.js';
import { states } from '../en.js';
import '../orb.js';
import { muteOf } from '../status.js';
import { fill, language, named, speak } from '../strings.js';
import { Cards } from './cards.js';
import { vox as words } from './en.js';
import { ProjectView } from './project.js';
import { VoxLive } from './vox.js';

/** @import { VoxgateOrb } from '../orb.js' */
/** @import { Snapshot } from './types.d.ts' */

/** The themes, their voices and how Google describes these. */
const THEMES = [
  ['expert', 'Orus, firm'],
  ['sharp', 'Fenrir, excitable'],
  ['warm', 'Aoede, breezy'],
  ['casual', 'Kore, firm'],
  ['future', 'Puck, upbeat'],
  ['minimal', 'Zephyr, bright'],
  ['retro', 'Charon, informative'],
  ['creative', 'Leda, youthful'],
];
const PLACES = ['welcome', 'studio', 'settings', 'files', 'preview', 'chat'];
const TWICE = 4_000; // ms for the second Esc
const KEY = 'voxgate.vox'; // of what the browser keeps
const KEPT = 200; // turns

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ ($(id));
const { body } = document;
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const model = /** @type {HTMLSelectElement} */ ($('model'));
const setup = /** @type {HTMLDialogElement} */ ($('setup'));
const orb = /** @type {VoxgateOrb} */ ($('orb'));

// A link to this page may bring a token, behind the # so that no server logs it, and not for other eyes.
const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);

named(document.documentElement.dataset['backend']);
const lang = new URLSearchParams(location.search).get('lang');
await Promise.all([speak({ states }, lang ? { lang } : {}), speak({ vox: words }, {}, { de: () => import('./de.js') })]);
document.documentElement.lang = language();
/** @param {string} name @param {Record<string, unknown>} [values] */
const word = (name, values) => fill(words[name] ?? states[name], values);
translate(document, word);

const vox = new VoxLive({ url: new URL('../api/vox/live', document.baseURI), token, targets: PLACES });
/** Nothing is going on, and nothing is about to. */
const over = () => ['idle', 'ended', 'failed'].includes(vox.state);

// --- what the browser keeps of the project, and of how VOX shall be

/** @type {Record<string, any>} */
let kept = {};
try {
  kept = JSON.parse(localStorage.getItem(KEY) ?? '{}') ?? {};
} catch {
  // storage is blocked for this page, or holds foreign data
}

/** @param {Record<string, unknown>} changed */
function keep(changed) {
  kept = { ...kept, ...changed };
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // then it is forgotten with the page
  }
}

// --- the person

/** @param {boolean} [mic] */
async function start(mic = true) {
  if (!over()) return;
  const writes = model.value !== '';
  await vox.startSession({ theme: chosen(), model: model.value || undefined, mic: mic && !writes }).catch(() => {}); // the status says it
}

/** @param {string} said */
async function tell(said) {
  if (over()) await start(false); // who types first is not asked for a microphone
  return vox.sendText(said);
}

const chosen = () => /** @type {HTMLInputElement} */ (document.querySelector('[name=theme]:checked')).value;

const cards = new Cards({ log: $('log'), questions: $('questions'), word, tell, answer: vox.answer, done: () => input('text').focus() });
const project = new ProjectView({ root: $('project'), word, use: vox.useVersion });

/** The orb begins, lets the sound play, interrupts, or mutes: as its look says. */
function press() {
  if (over()) return start();
  if (vox.blocked) return vox.unblock();
  if (vox.isVoxSpeaking) return vox.interrupt();
  if (!mute.disabled) vox.toggleMute();
}

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
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented || setup.open) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  if (key === 'F6') return event.preventDefault(), move(event.shiftKey ? -1 : 1);
  if (key === 'Escape') return escape(target);
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

/** On a phone the project is a sheet over the conversation. @param {boolean} on */
function show(on) {
  body.classList.toggle('showing', on);
  $('open').ariaExpanded = String(on);
  if (on) $('project-title').focus();
  else if (document.activeElement === body) $('open').focus();
}
$('open').addEventListener('click', () => show(true));
$('close').addEventListener('click', () => show(false));
$('new').addEventListener('click', () => {
  vox.endSession();
  cards.clear();
  vox.restore();
  show(false);
});

/** Where VOX leads, in the words of the design. @param {string} place */
function go(place) {
  if (place === 'settings') return setup.open || setup.showModal();
  if (['studio', 'files', 'preview'].includes(place)) project.show(place);
  show(['studio', 'files', 'preview'].includes(place) && !$('project').hidden);
}

// --- settings

for (const [name = '', voice = ''] of THEMES) {
  const label = make('label');
  const radio = Object.assign(document.createElement('input'), { type: 'radio', name: 'theme', value: name, checked: name === (THEMES.some(([t]) => t === kept['theme']) ? kept['theme'] : 'expert') });
  const about = make('span', '', `${name.charAt(0).toUpperCase()}${name.slice(1)}`);
  about.append(make('small', '', voice));
  label.append(radio, about);
  $('themes').append(label);
}
document.documentElement.dataset['theme'] = chosen();

/** The Live model, and those that write: Google's, and those that the operator has named. */
async function listModels() {
  model.replaceChildren(new Option(word('live'), ''));
  /** @type {any[]} */
  let all = []; // also if it is not allowed, or cannot be had
  try {
    const answer = await fetch('../v1beta/models?pageSize=1000', { headers: token ? { 'x-goog-api-key': token } : {} });
    if (answer.ok) all = (await answer.json()).models ?? [];
  } catch {}
  const writers = all.filter((m) => m.supportedGenerationMethods?.includes('generateContent')).map((m) => m.name.replace('models/', ''));
  model.append(...writers.map((name) => new Option(word('typed', { name }), name)));
  model.value = writers.includes(kept['model']) ? kept['model'] : '';
  aboutModel();
}

function aboutModel() {
  $('mode-about').textContent = word(model.value ? 'typed about' : 'live about');
  $('aloud').hidden = !model.value;
}

input('speak').checked = vox.speak = kept['speak'] ?? true;
model.append(new Option(word('live'), ''));
setup.addEventListener('change', () => {
  vox.speak = input('speak').checked;
  document.documentElement.dataset['theme'] = chosen();
  aboutModel();
  keep({ theme: chosen(), model: model.value, speak: vox.speak });
});
$('settings').addEventListener('click', () => setup.showModal());
$('done').addEventListener('click', () => setup.close());
setup.addEventListener('click', ({ target }) => target === setup && setup.close()); // a click on the backdrop

// --- VOX

/** @type {Snapshot|undefined} what is on the page */
let shown;

vox.addEventListener('change', () => {
  const now = vox.getSnapshot();
  const before = shown;
  shown = now;
  cards.show(now, before);
  if (now.project !== before?.project) showProject(now, before);
  render(now);
  if (now.project !== before?.project || now.transcript !== before?.transcript || now.projectId !== before?.projectId) {
    keep({ projectId: now.projectId, project: now.project, transcript: now.transcript.slice(-KEPT) });
  }
});
vox.addEventListener('action', (e) => {
  const { action, target } = /** @type {CustomEvent} */ (e).detail;
  if (action === 'navigate') go(target);
});
vox.addEventListener('notice', (e) => cards.note(/** @type {CustomEvent} */ (e).detail));

/** @param {Snapshot} now @param {Snapshot|undefined} before */
function showProject(now, before) {
  const { tools, apps } = now.project;
  project.update(now, before);
  $('project').hidden = !tools.length && !apps.length;
  $('open').textContent = [
    tools.length && word(tools.length === 1 ? 'one tool' : 'some tools', { count: tools.length }),
    apps.length && word(apps.length === 1 ? 'one app' : 'some apps', { count: apps.length }),
  ].filter(Boolean).join(' · ');
  if ($('project').hidden) show(false);
}

/** @param {Snapshot} now */
function render(now) {
  const { state, message, mic, isMuted, mode, theme, transcript, project: made, questions } = now;
  const idle = over();
  const begun = !idle || transcript.length > 0 || made.tools.length > 0 || made.apps.length > 0;
  body.classList.toggle('home', !begun);
  body.dataset['state'] = idle ? 'ready' : state === 'ready' ? 'typed' : state;
  $('new').hidden = !idle || !begun;
  $('open').hidden = $('project').hidden;
  say('status', leaving && !idle ? word('again') : message);
  say('recording', now.isRecorded ? word('recording') : '');
  const hears = ['live', 'silent', 'asking'].includes(mic);
  mute.disabled = idle || mode === 'text' || mic === 'asking' || mic === 'insecure';
  const quiet = idle || mode === 'text'; // there is nothing to mute
  mute.toggleAttribute('data-on', !quiet && (!hears || isMuted));
  const does = muteOf(quiet ? 'live' : hears && isMuted ? 'muted' : mic);
  label(mute, does);
  mute.title = does;
  label($('talk'), idle ? word('talk') : now.isVoxSpeaking ? fill(states['interrupt']) : does);
  const look = idle ? 'ready' : questions.length ? 'asking' : state === 'ready' ? (mode === 'text' ? 'ready' : 'muted') : state;
  if (orb.getAttribute('state') !== look) orb.setAttribute('state', look);
  $('setup-note').hidden = idle;
  say('session', idle ? '' : [now.model, theme && word('with voice', { name: theme }), now.sessionId && word('session', { id: now.sessionId })].filter(Boolean).join(' · '));
  if (!idle) draw();
}

/**
 * A live region speaks at every change.
 * @param {string} id
 * @param {string} what
 */
function say(id, what) {
  if ($(id).textContent !== what) $(id).textContent = what;
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
    body.style.setProperty('--model', voice.toFixed(2));
    if (!over()) draw();
  });
}

const { project: made, transcript: said } = kept;
const whole = [made?.tools, made?.apps, said].every(Array.isArray) && made.apps.every((/** @type {any} */ a) => Array.isArray(a?.versions) && Array.isArray(a.files));
vox.restore(whole ? kept : {}); // otherwise it is from another version of this page, or foreign data
render(vox.getSnapshot());
listModels();

fetch('../status')
  .then((r) => r.json())
  .then(({ backend }) => ($('notice').hidden = backend !== 'emulator'))
  .catch(() => {}); // the talk button reports a gateway that does not answer
