/** The page of VOX: its panel, and the studio beside it. What VOX does is in vox.js; here it is only shown. */
import { label as translate, make } from '../dom.js';
import { states } from '../en.js';
import { muteOf } from '../says.js';
import { fill, language, named, speak } from '../strings.js';
import { vox as words } from './en.js';
import { VoxLive } from './vox.js';

/** @import { App, Snapshot, ToolAction } from './types.d.ts' */

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
const SHOWN = 3; // found tools in a card of the transcript; all of them are in the studio
const NEWEST = 36; // characters of what was said last, which a collapsed transcript shows
const PITCH = 6; // px from one bar of the waveform to the next
const MOST = 200; // bars that are kept, for the widest waveform
const EVERY = 50; // ms between two bars
const NEAR = 64; // px from the end of the transcript that count as its end
const TWICE = 4_000; // ms for the second Esc
const CALM = 500; // ms between two pictures for who wants no motion

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ ($(id));
const talk = $('talk');
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const which = /** @type {HTMLSelectElement} */ ($('which'));
const model = /** @type {HTMLSelectElement} */ ($('model'));
const transcript = /** @type {HTMLDetailsElement} */ ($('transcript'));
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const narrow = matchMedia('(max-width: 43.99rem)');

// A link to this page may bring a token, behind the # so that no server logs it, and not for other eyes.
const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);

named(document.documentElement.dataset['backend']);
const lang = new URLSearchParams(location.search).get('lang');
await Promise.all([speak({ states }, lang ? { lang } : {}), speak({ vox: words }, {}, { de: () => import('./de.js') })]);
document.documentElement.lang = language;
/** @param {string} name @param {Record<string, unknown>} [values] */
const word = (name, values) => fill(words[name] ?? states[name], values);
translate(document, word);

const vox = new VoxLive({ url: new URL('../api/vox/live', document.baseURI), token, targets: PLACES });
/** Nothing is going on, and nothing is about to. */
const over = () => ['idle', 'ended', 'failed'].includes(vox.state);

// --- what the person does

/** @param {boolean} [mic] */
async function start(mic = true) {
  const typed = chosen('mode') === 'text';
  if (typed) await listing;
  if (!over()) return;
  const writer = input(model.hidden ? 'model-name' : 'model').value.trim();
  if (typed && !writer) return nameModel();
  clear();
  const summary = input('summary').value.trim();
  await vox.startSession({
    theme: chosen('theme'),
    model: typed ? writer : undefined,
    projectContext: summary ? { summary } : null,
    mic: mic && !typed,
  }).catch(() => {}); // the status says it
}

function nameModel() {
  if (!['welcome', 'settings'].includes(document.body.dataset['place'] ?? '')) go('settings');
  say('status', word('name writer'));
  input('model-name').focus();
}

/** @param {string} name */
const chosen = (name) => /** @type {HTMLInputElement} */ (document.querySelector(`[name=${name}]:checked`)).value;

talk.addEventListener('click', () => (over() ? start() : vox.endSession()));
mute.addEventListener('click', vox.toggleMute);
document.addEventListener('click', () => vox.blocked && vox.unblock());

$('type').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = input('text');
  const said = text.value.trim();
  if (!said) return;
  text.value = '';
  if (over()) await start(false); // who types first is not asked for a microphone
  if (!vox.sendText(said)) text.value ||= said; // it failed: nothing typed gets lost
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  if (key === 'Escape') escape(target);
  else if (key === 'Enter' && !repeat && !target.closest('input, textarea, select, button, a, summary')) start();
  else if (key.toLowerCase() === 'm' && !repeat && !target.closest('input, textarea, select') && !mute.disabled) vox.toggleMute();
});

$('places').addEventListener('click', ({ target }) => {
  const button = /** @type {HTMLElement} */ (target).closest('button');
  if (button) go(button.dataset['target'] ?? '');
});
which.addEventListener('change', () => showApp(vox.project.apps.find((a) => a.name === which.value)));
input('summary').addEventListener('input', () => render(vox.getSnapshot()));
$('setup').addEventListener('submit', (event) => event.preventDefault());
$('modes').addEventListener('change', () => {
  vox.speak = input('speak').checked;
  const typed = chosen('mode') === 'text';
  $('writer').hidden = $('aloud').hidden = !typed;
  if (typed && !model.options.length) listing = listModels();
});

/** @type {ReturnType<typeof setTimeout>|undefined} Esc was pressed once */
let leaving;

/** Esc leaves a field, and ends the conversation only when it is pressed twice. @param {HTMLElement} from */
function escape(from) {
  if (from.closest('input, textarea, select')) return from.blur();
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

/** @param {string} place */
function go(place) {
  document.body.dataset['place'] = place;
  for (const button of $('places').querySelectorAll('button')) {
    button.ariaCurrent = button.dataset['target'] === place ? 'page' : null;
  }
  for (const e of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('#pane > [data-place]'))) {
    e.hidden = !e.dataset['place']?.split(' ').includes(place);
  }
  transcript.open = place === 'chat' || !narrow.matches;
}

// --- what is chosen before

for (const [name = '', voice = ''] of THEMES) {
  const label = make('label', 'choice');
  const radio = Object.assign(document.createElement('input'), { type: 'radio', name: 'theme', value: name, checked: name === 'expert' });
  const words = make('span', '', ` ${voice}`);
  words.prepend(make('b', '', capital(name)));
  label.append(radio, words);
  /** @type {HTMLElement} */ (document.querySelector('#themes .choices')).append(label);
}

/** @type {Promise<void>|undefined} */
let listing;

/** Those that write, or a field for a name where the gateway does not tell. */
async function listModels() {
  /** @type {any[]} */
  let all = []; // also if it is not allowed, or cannot be had
  try {
    const answer = await fetch('../v1beta/models?pageSize=1000', { headers: token ? { 'x-goog-api-key': token } : {} });
    if (answer.ok) all = (await answer.json()).models ?? [];
  } catch {}
  const names = all.filter((m) => m.supportedGenerationMethods?.includes('generateContent')).map((m) => m.name.replace('models/', ''));
  model.replaceChildren(...names.map((n) => new Option(n)));
  model.hidden = !names.length;
  $('model-name').hidden = names.length > 0;
}

// --- what VOX does

/** @type {Snapshot|undefined} what is on the page */
let shown;
/** @type {Map<string, HTMLElement>} turns, cards and questions */
let entries = new Map();

function clear() {
  shown = undefined;
  entries = new Map();
  $('log').replaceChildren();
  $('empty').hidden = false;
  $('newest').textContent = '';
}

vox.addEventListener('change', () => {
  const now = vox.getSnapshot();
  const atEnd = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < NEAR;
  const before = shown;
  shown = now;
  render(now);
  if (now.transcript !== before?.transcript) showTranscript(now, before);
  if (now.actions !== before?.actions || now.questions !== before?.questions) showActions(now);
  if (now.questions !== before?.questions) showQuestions(now);
  if (now.project !== before?.project) showProject(now, before);
  if (now.mode === 'text' && before?.mode !== 'text') transcript.open = true; // there is no voice to hear the answer from
  if (atEnd) transcript.scrollTop = transcript.scrollHeight; // unless the person has scrolled away from it
});
vox.addEventListener('action', (e) => {
  const { action, target } = /** @type {CustomEvent} */ (e).detail;
  if (action === 'navigate') go(target);
});
vox.addEventListener('notice', (e) => {
  $('log').append(make('p', 'note', /** @type {CustomEvent} */ (e).detail));
  $('empty').hidden = true;
});

/** @param {Snapshot} now */
function render(now) {
  const { state, message, mic, isMuted, mode } = now;
  const idle = over();
  document.body.dataset['state'] = state;
  say('status', leaving && !idle ? word('again') : message);
  say('recording', now.isRecorded ? word('recording') : '');
  label(talk, idle ? word('talk') : fill(words['end']));
  const hears = ['live', 'silent', 'asking'].includes(mic);
  mute.disabled = idle || mode === 'text' || mic === 'asking' || mic === 'insecure';
  const quiet = idle || mode === 'text'; // there is nothing to mute
  mute.toggleAttribute('data-on', !quiet && (!hears || isMuted));
  label(mute, muteOf(quiet ? 'live' : hears && isMuted ? 'muted' : mic));
  for (const id of ['themes', 'summary']) input(id).disabled = !idle;
  for (const e of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('[name=mode], #model, #model-name'))) e.disabled = !idle;
  $('setup-note').hidden = idle;
  const { sessionId, theme, model } = now;
  say('session', idle ? '' : [model, theme && word('with voice', { name: theme }), sessionId && word('session', { id: sessionId })].filter(Boolean).join(' · '));
  const summary = input('summary').value.trim();
  say('building', summary || word('unknown'));
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
  const span = /** @type {HTMLElement} */ (button.querySelector('span'));
  if (span.textContent !== name) span.textContent = name;
}

// --- the transcript and its cards

/**
 * The element of an entry of the log, made at its first mention.
 * @param {string} id
 * @param {() => HTMLElement} create
 */
function entry(id, create) {
  let e = entries.get(id);
  if (!e) {
    entries.set(id, (e = create()));
    $('log').append(e);
    $('empty').hidden = true;
  }
  return e;
}

/**
 * @param {Snapshot} now
 * @param {Snapshot|undefined} before
 */
function showTranscript({ transcript }, before) {
  transcript.forEach((turn, i) => {
    if (before?.transcript[i] === turn) return;
    const { role, text } = turn;
    const e = entry(`turn ${i}`, () => {
      const box = make('div', `turn ${role}`);
      box.append(make('b', '', role === 'user' ? word('you') : 'VOX'), make('span'));
      return box;
    });
    const span = /** @type {HTMLElement} */ (e.lastElementChild);
    // A phrase more is a node more, which is all that a screen reader reads.
    const had = span.textContent ?? '';
    const fresh = text.trimStart();
    if (fresh.startsWith(had)) span.append(fresh.slice(had.length));
    else span.textContent = fresh;
  });
  const newest = transcript.at(-1);
  if (!newest) return;
  const words = newest.text.trim();
  $('newest').textContent = `${newest.role === 'user' ? word('you') : 'VOX'}: ${words.length > NEWEST ? '…' : ''}${words.slice(-NEWEST)}`;
}

/** @param {Snapshot} now */
function showActions({ actions }) {
  for (const action of actions) {
    const card = entry(`call ${action.id}`, () => make('div', 'card'));
    const head = headOf(action);
    if (card.firstElementChild?.textContent === head) continue;
    card.dataset['status'] = action.status;
    card.dataset['tool'] = action.name;
    card.replaceChildren(make('span', '', head), ...bodyOf(action));
    $('newest').textContent = head;
  }
  const found = actions.findLast((a) => a.data?.['tools']?.length && a.name !== 'get_project_status')?.data?.['tools'] ?? [];
  $('found').replaceChildren(...(found.length ? found.map(tool) : [none(word('ask tools'))]));
}

/**
 * What a call does or has done, in words.
 * @param {ToolAction} action
 */
function headOf({ name, title, args, data }) {
  const what = (title ?? name.replaceAll('_', ' ')).replace(/…$/, '');
  if (data?.['error']) return `${what}: ${data['error']}`;
  if (!data) return name === 'generate_app' && vox.questions.length ? word('asks first') : `${what}…`;
  const count = data['tools']?.length ?? 0;
  switch (name) {
    case 'search_tools':
      return word(count === 1 ? 'found one' : 'found some', { count, query: args['query'] });
    case 'recommend_tools':
      return word(count ? 'recommended' : 'no recommendation');
    case 'add_tool':
      return word('added', { name: data['added']?.name ?? args['tool_id'] });
    case 'generate_app':
      if (data['url']) return word('wrote', { name: data['app'] });
      return word(data['app'] ? 'writing app' : 'asks first');
    case 'navigate_ui':
      return word('opened', { name: args['target'] });
    case 'get_project_status':
      return word('looked');
  }
  return word('done', { what });
}

/**
 * @param {ToolAction} action
 * @returns {HTMLElement[]}
 */
function bodyOf({ name, args, data }) {
  if (!data || data['error']) return [];
  switch (name) {
    case 'search_tools':
    case 'recommend_tools': {
      /** @type {any[]} */
      const tools = data['tools'] ?? [];
      if (!tools.length) return [make('p', '', word('nothing'))];
      const list = make('ul', 'tools');
      list.append(...tools.slice(0, SHOWN).map(tool));
      const more = make('button', 'more', word('show all', { count: tools.length }));
      more.addEventListener('click', () => go('studio'));
      return tools.length > SHOWN ? [list, more] : [list];
    }
    case 'add_tool': {
      const list = make('ul', 'tools');
      list.append(tool(data['added'] ?? { name: args['tool_id'] }));
      return [list];
    }
    case 'generate_app': {
      if (!data['url']) return [];
      const look = make('button', 'more', word('open preview'));
      look.addEventListener('click', () => go('preview'));
      return [make('p', '', (data['files'] ?? []).join(', ')), look];
    }
    case 'get_project_status': {
      const { tools = [], apps = [], place } = data;
      const has = tools.map((/** @type {any} */ t) => t.name).join(', ') || word('none yet');
      const apps_ = apps.map((/** @type {any} */ a) => a.name).join(', ') || word('none yet');
      return [make('p', '', word('has tools', { names: has })), make('p', '', word('has apps', { names: apps_ })), ...(place ? [make('p', '', word('is open', { name: place }))] : [])];
    }
  }
  return [];
}

/**
 * An entry of the registry. All of it is text.
 * @param {any} entry
 */
function tool({ name, domain, description, homepage, add }) {
  const item = make('li', 'tool');
  const head = make('p');
  head.append(make('b', '', name), make('i', '', domain ?? ''));
  item.append(head);
  if (description) item.append(make('p', '', description));
  if (add) item.append(make('code', '', add));
  if (URL.canParse(homepage) && new URL(homepage).protocol === 'https:') {
    const a = /** @type {HTMLAnchorElement} */ (make('a', '', new URL(homepage).host));
    Object.assign(a, { href: homepage, target: '_blank', rel: 'noopener noreferrer' });
    item.append(a);
  }
  return item;
}

/** @param {string} text */
const none = (text) => make('li', 'none', text);

/** @param {Snapshot} now */
function showQuestions({ questions }) {
  const had = document.activeElement?.closest('.question');
  const cards = questions.map(({ id, text }) => {
    const key = `question ${id}`;
    const known = entries.get(key);
    if (known) return known;
    const card = make('div', 'question');
    card.role = 'group';
    const words = make('p', '', text);
    words.id = `q-${id}`;
    words.tabIndex = 0; // a long one scrolls
    card.setAttribute('aria-labelledby', words.id);
    card.append(words);
    for (const [name, yes] of /** @type {[string, boolean][]} */ ([[word('yes'), true], [word('no'), false]])) {
      const button = make('button', yes ? 'yes' : '', name);
      button.addEventListener('click', () => vox.answer(id, yes));
      card.append(button);
    }
    entries.set(key, card);
    return card;
  });
  $('questions').replaceChildren(...cards);
  if (had && !had.isConnected) input('text').focus(); // the button that was pressed is gone
}

// --- the project

/**
 * @param {Snapshot} now
 * @param {Snapshot|undefined} before
 */
function showProject({ project: { tools, apps }, actions }, before) {
  const known = actions.flatMap((a) => [a.data?.['added'], ...(a.data?.['tools'] ?? [])]).filter((t) => t?.description);
  const items = tools.map(({ id, name, prompt }) => {
    const item = tool(known.find((t) => t.id === id) ?? { name });
    const copy = make('button', 'more', word('copy prompt'));
    copy.addEventListener('click', () =>
      navigator.clipboard.writeText(prompt).then(() => (copy.textContent = word('copied')), () => (copy.textContent = word('not copied'))));
    item.append(copy);
    return item;
  });
  $('added').replaceChildren(...(items.length ? items : [none(word('no tools'))]));
  showFiles(apps);
  const writing = apps.find((a) => !a.url);
  const size = Math.ceil((writing?.bytes ?? 0) / 1024);
  const told = writing ? word(size ? 'so far' : 'being written', { name: writing.name, size }) : '';
  for (const id of ['progress', 'progress-preview']) say(id, told);
  const ready = apps.filter((a) => a.url);
  $('no-preview').hidden = ready.length > 0 || Boolean(writing);
  if (ready.length === before?.project.apps.filter((a) => a.url).length) return;
  which.replaceChildren(...ready.map((a) => new Option(a.name)));
  which.hidden = ready.length < 2;
  which.value = ready.at(-1)?.name ?? '';
  showApp(ready.at(-1));
}

/** @param {App[]} apps */
function showFiles(apps) {
  const lists = apps.flatMap(({ name, url, files }) => {
    const list = make('ul', 'files');
    list.append(...files.map((file) => {
      const a = /** @type {HTMLAnchorElement} */ (make('a', '', file));
      Object.assign(a, { href: new URL(file, url).href, target: '_blank', rel: 'noopener noreferrer' });
      const item = make('li');
      item.append(a);
      return item;
    }));
    return [make('h3', '', url ? name : word('unfinished', { name })), list];
  });
  $('files').replaceChildren(...(lists.length ? lists : [make('p', '', word('no files'))]));
}

/**
 * Foreign code: its frame has no origin, so that it can reach neither this page nor the microphone.
 * @param {App} [app]
 */
function showApp(app) {
  const alone = /** @type {HTMLAnchorElement} */ ($('alone'));
  alone.hidden = !app;
  $('frame').replaceChildren();
  if (!app?.url) return;
  alone.href = app.url;
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts allow-forms allow-modals');
  frame.title = word('the app', { name: app.name });
  frame.src = app.url;
  $('frame').append(frame);
}

// --- the waveform

/** @type {{mic: number, vox: number}[]} the newest last */
let levels = [];
let drawing = false;
let drawn = 0; // when

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(step);
}

/** @param {number} time */
function step(time) {
  drawing = false;
  if (time - drawn >= (calm.matches ? CALM : EVERY)) {
    drawn = time;
    levels = [...levels, vox.level].slice(-MOST);
    paint(calm.matches);
  }
  if (!over()) return draw();
  levels = [];
  paint(false);
}

/** @param {boolean} still one meter for each side that does not run across the page */
function paint(still) {
  const canvas = /** @type {HTMLCanvasElement} */ ($('wave'));
  const brush = canvas.getContext('2d');
  if (!brush) return;
  const width = (canvas.width = Math.round(canvas.clientWidth * devicePixelRatio));
  const height = (canvas.height = Math.round(canvas.clientHeight * devicePixelRatio));
  const style = getComputedStyle(canvas);
  const mine = style.getPropertyValue('--halt');
  const voice = style.getPropertyValue('--accent');
  const bar = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w, /** @type {number} */ h, /** @type {string} */ color) => {
    brush.fillStyle = color;
    brush.beginPath();
    brush.roundRect(x, y, w, h, Math.min(w, h) / 2);
    brush.fill();
  };
  const newest = levels.at(-1) ?? { mic: 0, vox: 0 };
  if (still) {
    bar(0, height * 0.2, Math.max(height * 0.2, newest.mic * width), height * 0.2, mine);
    bar(0, height * 0.6, Math.max(height * 0.2, newest.vox * width), height * 0.2, voice);
    return;
  }
  const pitch = PITCH * devicePixelRatio;
  const bars = Math.floor(width / pitch);
  for (let i = 0; i < bars; i++) {
    const { mic, vox } = levels[i - bars + levels.length] ?? { mic: 0, vox: 0 };
    const level = Math.max(mic, vox);
    const h = Math.max(pitch * 0.5, level * height);
    bar(i * pitch, (height - h) / 2, pitch * 0.5, h, level < 0.02 ? style.getPropertyValue('--line') : vox >= mic ? voice : mine);
  }
}

/** @param {string} word */
function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

new ResizeObserver(() => paint(calm.matches && !over())).observe($('wave'));
narrow.addEventListener('change', () => go(document.body.dataset['place'] ?? 'welcome'));
go('welcome');
showActions(vox.getSnapshot());
showProject(vox.getSnapshot(), undefined);
render(vox.getSnapshot());

fetch('../status')
  .then((r) => r.json())
  .then(({ backend }) => ($('notice').hidden = backend !== 'emulator'))
  .catch(() => {}); // the talk button says it, if the gateway is not there
