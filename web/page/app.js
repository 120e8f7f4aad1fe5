/** The page: buttons, sentences, what a person sees of a conversation. All it knows of the gateway it knows through voxgate.js. */
import { growField, label as translate, lineOf, make } from './dom.js';
import { canvas as canvasWords, errors, states } from './en.js';
import { isOpen } from './look.js';
import { nativeTools } from './native.js';
import { page as words } from './page.en.js';
import { asOptions, load, save } from './preferences.js';
import { openStage, showPart } from './stage.js';
import { absenceOf, muteOf, OFFERS, situationOf, splitStatus, statusOf } from './status.js';
import { callAgent, fill, formatDuration, language, named, speak as read } from './strings.js';
import { Transcript } from './transcript.js';
import { forget as forgetLeft, open, resumable, VoxgateError as Failure } from './voxgate.js';

/**
 * @import { Canvas } from './canvas.js'
 * @import { Session } from './voxgate.js'
 * @import { TurnLatency, Usage } from './messages.d.ts'
 * @import { CanvasCall, Devices, ToolCall, Transport, Turn, Video, VoxgateError } from './types.d.ts'
 */

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const { body } = document;
const text = /** @type {HTMLTextAreaElement} */ ($('text'));
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const orb = /** @type {HTMLButtonElement} */ ($('talk'));
const picture = /** @type {import('./orb.js').VoxgateOrb} */ ($('orb'));
const view = /** @type {HTMLVideoElement} */ ($('view'));
const dock = /** @type {HTMLElement} */ (document.querySelector('footer'));
const glow = $('glow');
const earlier = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('.earlier'));
const main = /** @type {HTMLElement} */ (document.querySelector('main'));
const { arrange, glide, showStatus, showWayDown, isAtEnd, isStill, showEnd, takeDock } = openStage({
  chooseMicrophone: () => $('settings').click(),
  isGrowing: () => $('growing').childElementCount > 0,
  onEnd: () => unfold(),
});
/** @type {Promise<Canvas>|undefined} */
let loading;
/** @type {Canvas|undefined} */
let drawn;
/** What Gemini shows is drawn by canvas.js, which is loaded with the first conversation. */
const canvas = {
  load: () => (loading ??= Promise.all([import('./canvas.js'), import('./cards.js'), import('./history.js')]).then(([{ Canvas }, { describeCall, joinCanvases }, { keep }]) => {
    keepInHistory = keep;
    transcript.joinCanvases = joinCanvases;
    transcript.describeCall = (call) => describeCall(call, GATEWAY, drawn?.photos);
    transcript.describeKept();
    drawn = new Canvas($('canvas'));
    $('reopen').append(drawn.showButton);
    const section = /** @type {HTMLElement} */ ($('canvas').querySelector('.canvas'));
    new ResizeObserver(([entry]) => cover(entry?.borderBoxSize[0]?.blockSize ?? 0)).observe(section, { box: 'border-box' });
    new MutationObserver(() => body.classList.toggle('shows-canvas', !section.hidden)).observe(section, { attributeFilter: ['hidden'] }); // see showPart
    drawn.onWaiting = () => {
      toolAsked ||= [...running.keys()].some(canvas.waitsFor);
      render();
    };
    drawn.onShown = unfold;
    drawn.offersAgain = false; // it stands in the conversation
    return drawn;
  })),
  show: (/** @type {CanvasCall} */ call) => drawn?.show(withCards(call)) ?? canvas.load().then((c) => c.show(withCards(call))),
  hide: (/** @type {string|undefined} */ id) => (drawn ? drawn.hide(id) : void loading?.then((c) => c.hide(id))),
  keep: (/** @type {string} */ ref, /** @type {Blob} */ blob) => drawn?.keep(ref, blob),
  kept: (/** @type {string} */ ref) => drawn?.kept(ref),
  get waiting() {
    return drawn?.waiting ?? false;
  },
  get title() {
    return drawn?.title;
  },
  waitsFor: (/** @type {string} */ id) => drawn?.waitsFor(id) ?? false,
};
/**
 * What is pressed on a canvas after its answer goes to the model as a message: it stands in the conversation, too.
 * @param {CanvasCall} call @returns {CanvasCall}
 */
const withCards = (call) => ({
  ...call,
  send(answer) {
    call.send(answer);
    const { name, args } = call;
    transcript.tool({ id: `${call.id} again ${++presses}`, name, args, status: 'done', response: answer, where: 'client' });
  },
});
let presses = 0;

// A link to this page may bring a token and settings, behind the # so that no server logs it, and a token is not for other eyes.
const given = new URLSearchParams(location.hash.slice(1));
const token = given.get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);
const preferences = load(given);
const lang = new URLSearchParams(location.search).get('lang') ?? preferences.lang;
named(document.documentElement.dataset['backend']);
const agent = new URLSearchParams(location.search).get('agent') ?? undefined;
if (agent) callAgent(agent);
body.classList.toggle('agent', Boolean(agent));
await Promise.all([read({ states, errors, canvas: canvasWords }, lang ? { lang } : {}), read({ page: words }, {}, { de: () => import('./page.de.js') })]);
document.documentElement.lang = language();
const relabel = () => translate(document, (name) => fill(words[name] ?? states[name]));
relabel();
const transcript = new Transcript($('log'), $('growing'), (text) => void navigator.clipboard?.writeText(text));
transcript.onShown = () => {
  $('empty').hidden = true;
  showWayDown(true);
  if (body.classList.contains('wordless')) glide(() => body.classList.remove('wordless'));
};
transcript.isInPanel = (id) => drawn?.showsCall(id) ?? false;
transcript.isBeside = () => wide.matches;
transcript.restore();
if (transcript.lines.some((line) => line.call)) void canvas.load();
addEventListener('pagehide', () => transcript.store()); // a page that is loaded again shows what was said
const tools = nativeTools({ canvas });

const GATEWAY = new URL('ws', document.baseURI);
const TWICE = 4_000; // ms for the second Esc
const CALM = 400; // ms that a state lasts before a screen reader reads it

/** @type {Map<string, string>} the names of what is tried by a command to the emulator, which is nothing that a person has said */
const WISHES = new Map();
/** Errors for the author of the configuration or of tools: they are shown in the statistics. */
const DEVELOPERS = ['bad_message', 'bad_config', 'bad_offer', 'invalid_audio_format', 'not_connected', 'invalid_state', 'tool_execution_error', 'tool_not_found'];
const DETAILS = 50; // of the newest calls and errors that are kept for developers
/** @type {object[]} */
const details = [];

/** @type {typeof import('./history.js').keep|undefined} loaded with the first conversation: a page that goes has no time for it */
let keepInHistory;
/** @type {Session|undefined} from the first press on */
let session;
/** What the gateway says of itself. */
const status = { backend: '', models: /** @type {string[]} */ ([]) };
/** @type {VoxgateError|undefined} why the last session ended */
let ended;
/** @type {Usage|undefined} the tokens of the conversation so far */
let usage;
/** @type {TurnLatency[]} how long the last answers took */
const answers = [];
let toolAsked = false; // a tool has asked the person: the time until the next answer is theirs as well
const ANSWERS = 20;
/** Push to talk: it is held. */
let held = false;
/** @type {Map<string, string>} the titles of the tools that run */
const running = new Map();
/** @type {Turn[]} what was typed while there was no connection yet */
const typed = [];

let begun = 0; // ms since 1970, the conversation
let resumedAt = -1; // `begun` of a conversation that was resumed after a reload: all lines on the page belong to it
let lasted = 0; // ms, the last one
/** @type {readonly Turn[]} what was said in it */
let before = [];
let wished = true; // of the last press of the microphone button
/** @type {{at: number, timer: ReturnType<typeof setInterval>}|undefined} when a busy gateway is asked again */
let again;
const HISTORY = 100; // turns that a conversation goes on with, as many as the gateway takes
const PATIENCE = 120; // s for which a press of the button still counts

/** Whose conversation the page keeps through a reload. */
const resume = agent ? `page ${agent}` : 'page';
let left = resumable(resume); // the page was loaded again in the midst of a conversation
if (!left) before = transcript.turns; // or after its end
if (before.length) ended = new Failure('closed');

/** @param {number} seconds @param {boolean} mic */
function startIn(seconds, mic) {
  const at = Date.now() + 1_000 * seconds;
  again = { at, timer: setInterval(() => (Date.now() < at ? render() : start(mic)), 1_000) };
}

/** @param {boolean} [mic] @param {readonly Turn[]} [known] what was said before, which the conversation goes on with */
function start(mic = true, known = []) {
  if (session) return;
  clearInterval(again?.timer);
  again = undefined;
  wished = mic;
  ended = usage = undefined;
  answers.length = 0;
  toolAsked = false;
  running.clear();
  const options = asOptions(preferences);
  const history = known.filter((t) => t.final && (t.heard ?? t.text)).map(({ role, text, heard }) => ({ role, content: heard ?? text })).slice(-HISTORY);
  if (history.length) options.config = { ...options.config, voxgate: { ...options.config?.voxgate, history } };
  begun = Date.now();
  $('empty').hidden = true; // it begins calm
  const query = new URLSearchParams(location.search);
  const transport = /** @type {Transport} */ (query.get('transport') ?? options.transport);
  const opened = open({ ...options, url: GATEWAY, worklets: new URL('.', import.meta.url), tools, canvas, mic: mic && options.mic, transport, token, agent, resume });
  session = opened;
  left = undefined;
  if (opened.turns.length) { // it goes on after a reload
    resumedAt = begun;
    transcript.separate(true);
  } else transcript.begin(history.length > 0);
  listen(opened);
  keep();
  glide(render);
  canvas.load().catch(() => {}); // what needs it will say so
  import('./callcontrols.js').then(({ asCall }) => session === opened && asCall(opened, stop));
  requestAnimationFrame(() => showLevel(opened));
  opened.ready.then(
    () => {
      showBackend(opened.setup?.backend);
    },
    () => {}, // `closed` tells
  );
}

/** @param {Session} opened */
function listen(opened) {
  opened.on('state', () => {
    if (session !== opened || opened.state === 'closed') return; // `closed` tells why
    if (opened.setup && opened.state !== 'reconnecting' && typed.length) {
      transcript.waited(); // it is sent now, though the microphone may still be asked for
      for (const turn of typed.splice(0)) transcript.turn(turn);
    }
    render();
  });
  opened.on('usage', (used) => {
    usage = used;
    render();
  });
  opened.on('latency', (latency) => {
    if (toolAsked) return void (toolAsked = canvas.waiting);
    answers.splice(0, answers.length - ANSWERS + 1);
    answers.push(latency);
    render();
  });
  opened.on('turn', (told) => {
    const turn = { ...told, text: WISHES.get(told.text) ?? told.text };
    const back = opened.state === 'reconnecting';
    if ((opened.setup && !back) || turn.role === 'model') return transcript.turn(turn);
    typed.push(turn);
    transcript.waiting(turn.text, fill(states[back ? 'sent back' : 'sent later']));
  });
  opened.on('tool', (call) => session === opened && showTool(call));
  opened.on('grounding', (g) => session === opened && transcript.grounding(g));
  opened.on('log', (l) => console.debug('gateway:', l.message, l.details ?? ''));
  opened.on('error', showError);
  opened.on('closed', (why) => over(opened, why));
}

/**
 * @param {Session} whose
 * @param {VoxgateError} why
 */
function over(whose, why) {
  if (session !== whose) return; // another one has been started since
  ended = why;
  if (agent && !whose.setup && why.code === 'bad_message') ended = nobodyAnswers(agent);
  session = undefined;
  clearTimeout(leaving);
  leaving = undefined;
  if (why.code === 'busy' && why.retryAfter && why.retryAfter <= PATIENCE) startIn(why.retryAfter, wished);
  stopRecording = undefined; // it has ended by itself
  transcript.waited();
  transcript.store(); // the page may be on its way out
  if (typed.length) {
    text.value = [text.value, ...typed.splice(0).map((turn) => turn.text)].filter(Boolean).join(' '); // nothing typed gets lost
    $('unsent').hidden = false;
    body.classList.add('typing');
  }
  lasted = whose.setup && !transcript.empty ? Date.now() - begun : 0;
  before = whose.turns;
  const from = new Date(begun).toISOString();
  if (preferences.history && whose.setup) keepInHistory?.({ id: whose.setup.sessionId, at: begun, ms: Date.now() - begun, lines: transcript.lines.filter((l) => l.at >= from || resumedAt === begun) });
  $('empty').hidden = !transcript.empty;
  glide(render);
}

/** The address names an unknown agent: the page stops calling it by that name, and links to the page without an agent. @param {string} name */
function nobodyAnswers(name) {
  callAgent();
  const title = /** @type {HTMLElement} */ ($('empty').querySelector('h2'));
  title.textContent = words['nobody here'] ?? '';
  const other = /** @type {HTMLAnchorElement} */ (make('a', 'chip', fill(words['title'])));
  other.href = location.pathname;
  $('empty').querySelector('.chip')?.remove();
  title.after(other);
  return new Failure('bad_message', fill(words['no agent'], { name }));
}

function stop() {
  session?.close();
  if (!again) return;
  clearInterval(again.timer);
  again = ended = undefined;
  render();
}

/** The status of the page. */
function currentStatus() {
  const [, other] = [...running].find(([id]) => !canvas.waitsFor(id)) ?? []; // a tool that does not wait for the person
  const activity = other ?? [...running.values()][0];
  const current = statusOf(situationOf(session, {
    push: preferences.push,
    ...(left && { resumable: true }),
    offers: OFFERS.page,
    ...(activity && { activity }),
    ...(canvas.waiting && !other && { asks: true }),
    ...(again && { retryIn: Math.max(1, Math.ceil((again.at - Date.now()) / 1_000)) }),
  }, ended));
  return canvas.waiting && current.keys[0] === 'states listening' ? { ...current, text: fill(words['listening asks']) } : current; // speech is heard as well
}

/** @type {import('./status.js').Status['press']} what pressing the orb does */
let pressed = 'start';

/** @type {ReturnType<typeof setTimeout>|undefined} */
let telling;
let told = ''; // a screen reader knows it

/**
 * What is seen is seen at once; a screen reader reads a state that lasts. One that reads what is heard anyway would speak into the open
 * microphone.
 * @param {string} now
 */
function tell(now) {
  clearTimeout(telling);
  telling = setTimeout(() => {
    const turns = [states['listening'], words['listening asks'], states['thinking'], states['speaking'], states['speaking alone']];
    const heard = session?.mic === 'live' && !preferences.read && turns.includes(now) && turns.includes(told);
    told = now;
    say('told', heard ? '' : now);
  }, CALM);
}

function render() {
  const current = currentStatus();
  const now = leaving && session && session.state !== 'connecting' ? fill(states['again']) : current.text;
  const mic = session?.mic ?? 'off';
  if (showStatus(now === current.text ? current : { ...current, text: now, keys: [] }, mic)) tell(now);
  const asks = canvas.waiting ? canvas.title ?? fill(canvasWords['asks']) : '';
  const title = session ? `● ${asks || splitStatus(now)[0]} · Voxgate` : 'Voxgate'; // a question is seen from other tabs
  if (document.title !== title) document.title = title;
  const hears = isOpen(mic) || mic === 'asking';
  body.dataset['state'] = session ? 'live' : 'ready';
  const look = running.size && ['listening', 'muted'].includes(current.look) ? 'thinking' : current.look;
  body.dataset['orb'] = look;
  picture.setAttribute('state', look);
  const { className } = body; // the next lines change the layout
  body.classList.toggle('home', !session && transcript.empty);
  body.classList.toggle('wordless', Boolean(session) && transcript.empty);
  if (body.className !== className) arrange();
  const ready = session && session.state !== 'connecting';
  pressed = current.press;
  label(orb, states[pressed || 'start']);
  orb.ariaDisabled = pressed ? null : 'true';
  mute.disabled = !session || !ready || mic === 'asking' || mic === 'insecure' || (preferences.push && (isOpen(mic) || mic === 'muted'));
  mute.toggleAttribute('data-on', Boolean(ready) && !hears);
  mute.toggleAttribute('data-away', session?.state === 'reconnecting');
  label(mute, ready ? muteOf(mic) : states['mute']);
  $('log').ariaLive = mic === 'live' && !preferences.read ? 'off' : 'polite'; // it would speak into the open microphone
  $('after').hidden = Boolean(session) || !(lasted || before.length || left) || transcript.empty;
  $('anew').hidden = !left;
  const time = left ? fill(words['left'], { time: formatDuration(Date.now() - left.at) }) : lasted ? formatDuration(lasted) : '';
  say('lasted', time && !left ? fill(words['lasted'], { time }) : time);
  renderSight(session?.video ?? { state: 'off' });
  if (!session) for (const button of earlier) button.hidden = !hasHistory(); // it reads all of it, and is out of sight in a conversation
  renderAway();
  say('recording', session?.setup?.recording || stopRecording ? fill(states['recording']) : '');
  renderDetail();
}

function renderDetail() {
  const carrier = session?.transport;
  const way = carrier === 'webrtc' ? 'WebRTC' : 'WebSocket';
  const waited = answers.at(-1)?.totalMs ?? 0;
  const took = waited < 100 ? `${waited.toFixed()} ms` : `${(waited / 1000).toFixed(1)} s`;
  const facts = [carrier && way, waited && fill(words['answered in'], { time: took }), usage && fill(words['tokens used'], { count: usage.total.totalTokens.toLocaleString(language()) })];
  const [line, text, name] = $('detail').children;
  name?.toggleAttribute('hidden', !waited); // the words say it themselves
  $('detail').title = session ? facts.filter(Boolean).join(' · ') : '';
  $('detail').hidden = !session?.transport || !(waited || usage || details.length); // there is nothing to tell yet
  const [before = '', after = ''] = (words['answered in'] ?? '').split('{time}');
  text?.replaceChildren(...(waited ? [make('i', '', before), took, make('i', '', after)] : [fill(words['statistics'])]));
  line?.toggleAttribute('hidden', answers.length < 2);
  line?.replaceChildren(lineOf(answers.map((a) => a.totalMs), 44, 16));
}

/** The cards of what the panel shows no longer get their whole height, and the end stays where it is. */
function unfold() {
  cancelAnimationFrame(unfolding);
  unfolding = requestAnimationFrame(() => {
    if (!isStill()) return unfold(); // in a frame in which nothing else moves, what is seen below a card stands still
    transcript.unfold(isAtEnd());
    if (isAtEnd()) main.scrollTop = main.scrollHeight;
  });
}
let unfolding = 0;

/** @type {ReturnType<typeof setTimeout>|undefined} */
let counting;

/** How long the gateway has been away already, once a second. A screen reader hears of it once. */
function renderAway() {
  const absence = absenceOf(session?.away);
  showPart('absence', Boolean(absence));
  say('since', absence);
  clearTimeout(counting);
  if (session?.away) counting = setTimeout(render, 1_000); // the status changes with it
}

/** @param {Video} video */
function renderSight({ state, kind, track }) {
  for (const name of ['camera', 'screen']) {
    const button = /** @type {HTMLButtonElement} */ ($(name));
    button.disabled = !session || session.state === 'connecting' || state === 'asking';
    button.setAttribute('aria-pressed', String(state === 'live' && kind === name));
  }
  const stream = /** @type {MediaStream|null} */ (view.srcObject);
  if (stream?.getTracks()[0] !== track) view.srcObject = track ? new MediaStream([track]) : null;
  view.hidden = !track;
  say('sight', fill(words[`${kind} ${state}`]));
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
 * @param {string|undefined} name
 */
function label(button, name) {
  const span = /** @type {HTMLElement} */ (button.querySelector('span'));
  if (!name || span.textContent === name) return;
  button.title = span.textContent = name;
}

const wide = matchMedia('(min-width: 80rem)'); // a canvas stands beside the conversation

/** A canvas lies over the end of the conversation. @param {number} height in pixels */
function cover(height) {
  body.style.setProperty('--covered', `${height}px`);
  glide(() => {
    body.classList.toggle('covered', height > 0 && !wide.matches);
    if (!height) arrange();
  });
}

/** @param {Session} whose */
function showLevel(whose) {
  const { mic, model } = session === whose ? whose.level : { mic: 0, model: 0 };
  picture.show(mic, model);
  glow.style.setProperty('--model', model.toFixed(2));
  if (session === whose) {
    requestAnimationFrame(() => showLevel(whose));
  }
}

/** What is without a key, and what is with one, the style sheet knows by `data-backend`. @param {string} [backend] */
function showBackend(backend) {
  if (!backend) return;
  named(backend);
  document.documentElement.dataset['backend'] = backend;
  relabel();
  $('notice').hidden = !preferences.hint;
}

for (const button of /** @type {NodeListOf<HTMLElement>} */ ($('tries').querySelectorAll('[data-say]'))) {
  const { say: says = '', text: name = '' } = button.dataset;
  if (!words[says]) WISHES.set(says, words[name] ?? '');
  button.addEventListener('click', () => send(words[says] ?? says));
}

/** @param {VoxgateError} error */
function showError(error) {
  if (error.code === 'peer_failed') return; // the voice goes on over the socket
  if (DEVELOPERS.includes(error.code)) return detail({ error: error.code, message: error.message });
  if (error.code === 'not_resumed') transcript.begin(true); // the new conversation gets the transcript
  if (error.code === 'session_resumption_failed' && !session?.turns.length) return; // nothing was said that could be lost
  transcript.note(error.message);
}

/** @param {object} what */
function detail(what) {
  details.splice(0, details.length - DETAILS + 1);
  details.push(what);
}

/** @param {ToolCall} call */
function showTool(call) {
  const { id, name, title, status, args, response, ms } = call;
  if (status !== 'running') detail({ tool: name, status, ms, args, response });
  if (call.missed) offerNotification();
  if (status !== 'running') running.delete(id);
  else if (title && !name.endsWith('_canvas_tool')) running.set(id, title);
  render();
  transcript.tool(call, session?.state === 'closed' ? 'ended' : drawn?.whyUnanswered(id));
}

/** Offers notifications to a person who missed a question. The browser asks only in a user gesture. */
function offerNotification() {
  if (!window.Notification || Notification.permission !== 'default' || document.querySelector('#log .offer')) return;
  const button = make('button', 'offer', words['notify']);
  button.addEventListener('click', () => Notification.requestPermission().then(() => button.remove()));
  transcript.note(fill(words['missed'])).append(' ', button);
}

// --- what the person does

/** The orb starts, stops an answer, and mutes; it never ends the conversation. */
orb.addEventListener('click', () => {
  if (pressed === 'start') start();
  else if (pressed === 'interrupt') session?.interrupt();
  else if (pressed && pressed !== 'unblock') speak(pressed === 'mute'); // a click anywhere lets the sound play
});

/** Mutes or unmutes; who typed first is asked for the microphone now. @param {boolean} [on] */
function speak(on = false) {
  if (session?.mic !== 'off') return session?.mute(on);
  session.use({ mic: asOptions(preferences).mic });
  if (!preferences.push) session.mute(false);
}

/** Push to talk: while the orb or Space is held. @param {boolean} on */
function hold(on) {
  if (on === held || (on && !(preferences.push && session))) return;
  held = on;
  session?.talk(on);
}
orb.addEventListener('pointerdown', () => hold(true));
for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => hold(false));
addEventListener('blur', () => hold(false));
document.addEventListener('keyup', ({ key }) => key === ' ' && hold(false));
$('end').addEventListener('click', stop);
$('goon').addEventListener('click', () => start(true, left ? [] : before));
$('anew').addEventListener('click', () => {
  forgetLeft(resume);
  left = undefined;
  start(true, []);
});
$('keep').addEventListener('click', async () => {
  const { asMarkdown, saveAs, translated } = await import('./settings.js');
  await translated();
  saveAs('transcript.md', asMarkdown(transcript.lines));
});
$('tryagain').addEventListener('click', () => speak());
$('retry').addEventListener('click', () => session?.retry());
mute.addEventListener('click', () => speak(isOpen(session?.mic)));
for (const name of /** @type {('camera'|'screen')[]} */ (['camera', 'screen'])) {
  $(name).addEventListener('click', () => session?.use({ video: $(name).ariaPressed === 'true' ? null : name }));
}
$('screen').hidden = !navigator.mediaDevices?.getDisplayMedia; // phones have none

/** @param {string} said */
function send(said) {
  if (!session) start(false); // who types first is not asked for a microphone
  session?.send(said);
  showEnd();
}

$('type').addEventListener('submit', (event) => {
  event.preventDefault();
  const said = text.value.trim();
  text.value = '';
  $('unsent').hidden = true;
  if (body.classList.contains('typing')) typing(false); // the answer is what there shall be room for
  if (said) send(said);
});

/** On a phone the text field takes the place of the buttons. @param {boolean} on */
function typing(on) {
  glide(() => body.classList.toggle('typing', on));
  $('keyboard').ariaExpanded = String(on);
  if (on) text.focus();
  else if (document.activeElement === text) text.blur();
}
growField(text);
text.addEventListener('input', () => ($('unsent').hidden = true));
$('keyboard').addEventListener('click', () => typing(!body.classList.contains('typing')));
text.addEventListener('blur', () => text.value || setTimeout(() => document.activeElement?.closest('#type') || typing(false))); // not to Send

$('dismiss').addEventListener('click', () => {
  preferences.hint = false;
  save(preferences);
  $('notice').hidden = true;
  orb.focus();
});

$('copy').addEventListener('click', async () => {
  await navigator.clipboard?.writeText(document.querySelector('.command code')?.textContent ?? '');
  $('copy').textContent = fill(words['copied']);
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  const mutes = preferences.keys && !repeat && key.toLowerCase() === 'm' && !mute.disabled;
  if (document.querySelector('dialog[open]')) return void (mutes && !target.closest('input:not([type=checkbox], [type=radio]), textarea, select') && speak(isOpen(session?.mic)));
  if (event.defaultPrevented) return; // by the canvas, which Esc closes first
  if (key === 'Escape' && target === text) return typing(false);
  if (key === 'F6') {
    event.preventDefault();
    return nextPart(event.shiftKey ? -1 : 1);
  }
  const button = target.closest('button, a, summary, audio, video');
  if (key === ' ' && preferences.push && session && !target.closest('input, textarea') && (!button || button === orb)) {
    event.preventDefault();
    return hold(true);
  }
  if (!preferences.keys) return;
  if (key === 'Escape') return escape();
  if (repeat || target.closest('input, textarea')) return;
  if (key === 'Enter' && !button) {
    start();
    orb.focus({ preventScroll: true });
  }
  else if (mutes) speak(isOpen(session?.mic));
  else if (key === '/') {
    event.preventDefault();
    if ($('keyboard').checkVisibility()) typing(true);
    else text.focus();
  }
});

document.addEventListener('click', () => session?.blocked && session.unblock());

/** @type {Session|undefined} whose microphone a sample has muted, and not the person */
let hushed;

/** Lets a sample of a voice be heard and not answered. @param {boolean} on */
function quiet(on) {
  if (on) session?.interrupt();
  if (on && isOpen(session?.mic)) hushed = session;
  if (session && session === hushed) session.mute(on);
  if (!on) hushed = undefined;
}

/** @type {Blob|undefined} of the last conversation, or of the part that was wanted */
let recording;
/** @type {(() => void)|undefined} */
let stopRecording;

/** Starts or stops the recording, as configured. */
async function keep() {
  const whose = session;
  if (!preferences.record || !whose) {
    stopRecording?.();
    stopRecording = undefined;
  } else if (!stopRecording) {
    const loading = (stopRecording = () => {});
    try {
      const { record } = await import('./recorder.js');
      if (stopRecording !== loading) return; // it is over, or was called off
      stopRecording = record(whose, (made) => (recording = made));
    } catch (e) {
      console.debug('voxgate: recorder', e);
      if (stopRecording !== loading) return;
      stopRecording = undefined;
      transcript.note(fill(words['no recorder']));
    }
  }
  render();
}

/** Takes what was said from the page. */
function forget() {
  transcript.clear();
  forgetLeft(resume);
  left = undefined;
  lasted = 0;
  before = [];
  ended = recording = undefined;
  $('empty').hidden = false;
  render();
}

let pushed = preferences.push;

/** What is asked of the gateway is changed at once, but for the way of the voice. @param {string} [name] all, if absent */
function preferred(name) {
  const { config, mic, speaker, camera } = asOptions(preferences);
  const device = { microphone: { mic }, echo: { mic }, noise: { mic }, speaker: { speaker }, camera: { camera } }[name ?? ''];
  /** @type {Devices} */
  const devices = device ?? (name ? {} : { mic, speaker, camera });
  if (session?.mic === 'off') delete devices.mic; // it is opened when they press it
  session?.use(devices);
  if (name === 'lang' && !session) return location.reload(); // in a conversation it waits for the next load
  if (!device && !['keys', 'read', 'transport', 'hint', 'history', 'lang'].includes(name ?? '')) session?.update({ config });
  if (pushed !== preferences.push) {
    pushed = preferences.push;
    if (pushed || session?.mic === 'muted') session?.mute(pushed); // else it would open a microphone
  }
  document.querySelector('.keys')?.toggleAttribute('hidden', !preferences.keys);
  if (name === 'hint') showBackend(status.backend);
  if (name === 'record' || name === undefined) keep();
  render();
}

/** @type {ReturnType<typeof setTimeout>|undefined} Esc was pressed once */
let leaving;

/** Esc interrupts an answer, and ends the conversation only when it is pressed twice. */
function escape() {
  const twice = leaving;
  clearTimeout(leaving);
  leaving = undefined;
  if (!session || twice) return stop();
  if (session.state === 'speaking') return session.interrupt();
  leaving = setTimeout(() => {
    leaving = undefined;
    render();
  }, TWICE);
  render();
}

/** F6 goes to the next of what is on the page, and with Shift to the one before. @param {number} step */
function nextPart(step) {
  const parts = [main, ...document.querySelectorAll('.canvas'), dock].filter((e) => e === dock || e.getClientRects().length);
  const at = parts.findIndex((e) => e.contains(document.activeElement));
  const next = parts[at < 0 ? 0 : (at + step + parts.length) % parts.length];
  /** @type {HTMLElement} */ (next === main ? main : next === dock ? orb : next?.querySelector('.canvas-question, .canvas-sheet:not([hidden])') ?? orb).focus();
}

let opening = false;

/** Opens a sheet, which is loaded then; a second press opens no other. @param {() => Promise<unknown>} open */
async function openSheet(open) {
  if (opening || document.querySelector('dialog.sheet')) return;
  opening = true;
  try {
    await open();
    const sheet = /** @type {HTMLDialogElement|null} */ (document.querySelector('dialog.sheet'));
    if (session && sheet) takeDock(sheet);
  } catch (e) {
    transcript.note(fill(words['not opened'], { why: /** @type {Error} */ (e).message }));
  } finally {
    opening = false;
  }
}

$('settings').addEventListener('click', () => openSheet(async () => {
  const { openSettings } = await import('./settings.js');
  const level = () => session?.level.mic ?? 0;
  const kept = { lines: () => transcript.lines, recording: () => recording, forget };
  await openSettings({ preferences, status, gateway: { url: GATEWAY, token }, onChange: preferred, level, live: () => isOpen(session?.mic), quiet, check, ...kept });
}));

/** It is shown before a conversation, if there is one to show. */
const hasHistory = () => {
  try {
    return (localStorage.getItem('voxgate.history') ?? '[]').length > 2;
  } catch {
    return false; // storage is blocked for this page
  }
};
for (const button of earlier) {
  button.addEventListener('click', () => openSheet(async () => {
    const { openHistory } = await import('./historysheet.js');
    await openHistory((turns, lines) => {
      forgetLeft(resume);
      left = undefined;
      transcript.begin();
      for (const line of lines) transcript.line(line);
      start(true, turns);
    });
  }));
}

$('detail').addEventListener('click', () => openSheet(async () => {
  const { openStatistics } = await import('./statistics.js');
  await openStatistics({ session: () => session, answers, usage: () => usage, details });
}));

/** Opens the check of the connection in place of the sheet that is open. */
async function check() {
  const sheet = /** @type {HTMLDialogElement|null} */ (document.querySelector('dialog.sheet'));
  if (sheet) {
    const gone = new Promise((resolve) => sheet.addEventListener('close', resolve, { once: true }));
    sheet.close();
    await gone;
  }
  await openSheet(async () => (await import('./check.js')).openCheck({ url: GATEWAY, ...(token ? { token } : {}) }, quiet));
}
if (new URLSearchParams(location.search).has('check')) void check();
preferred();
showBackend(document.documentElement.dataset['backend']);

fetch(`status${agent ? `?agent=${encodeURIComponent(agent)}` : ''}`)
  .then((r) => r.json())
  .then((s) => {
    Object.assign(status, s);
    if (session) return;
    showBackend(status.backend);
    if (!agent || s.agent !== false) return;
    ended = nobodyAnswers(agent);
    render();
  })
  .catch(() => {}); // the button reports a gateway that does not answer
