/** The page: buttons, sentences, transcript. Everything it knows of the gateway it knows through voxgate.js. */
import { Canvas } from './canvas.js';
import { nativeTools } from './native.js';
import { connect, LiveError } from './voxgate.js';

/**
 * @import { Session } from './voxgate.js'
 * @import { Look, ToolCall, Transport, Turn } from './types.d.ts'
 */

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const text = /** @type {HTMLInputElement} */ ($('text'));
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const view = /** @type {HTMLVideoElement} */ ($('view'));
const canvas = new Canvas($('canvas'));
canvas.onWaiting = render;
// A link to this page may bring a token, behind the # so that no server logs it, and not for other eyes.
const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);
const tools = nativeTools({ canvas, contacts: $('contacts') });

/** @type {Record<string, string>} what a person can do about it; other codes bring their own sentence */
const FAILED = {
  no_gateway: 'The gateway cannot be reached. Check your connection, then press the button.',
  timeout: 'Gemini did not answer in time. Press the button to try again.',
  connection_failed: 'Gemini cannot be reached just now. Try again in a minute.',
  connection_not_established: 'Gemini did not answer in time. Press the button to try again.',
  websocket_error: 'The connection to Gemini was lost. Press the button to start anew.',
  busy: 'Gemini is busy, or its quota is used up. Try again in a minute.',
  lost: 'The connection was lost. Press the button to start anew.',
  peer_failed: 'WebRTC could not connect from here. Press the button to try again.',
  unauthorized: 'You are not signed in here, or no longer. Open this page again from where you came.',
  replaced: 'This conversation goes on in another window.',
  unknown_error: 'Something went wrong at the gateway. Press the button to start anew.',
};

/** @type {Record<string, string>} */
const NO_MIC = {
  asking: 'Waiting for your microphone. Allow it if the browser asks.',
  refused: 'The microphone is not allowed. Type below, or allow it in the browser and press Use mic.',
  missing: 'No microphone was found. Type below and Gemini answers aloud.',
  failed: 'The microphone is in use by another program. Type below, or free it and press Use mic.',
  insecure: 'The microphone needs https or localhost. Type below and Gemini answers aloud.',
  off: 'Type below and Gemini answers aloud. To speak, press Use mic.',
  muted: 'You are muted. Gemini does not hear you.',
};

/** @type {Record<string, string>} */
const SIGHT = {
  'camera asking': 'Waiting for your camera. Allow it if the browser asks.',
  'camera live': 'Gemini sees your camera.',
  'camera refused': 'The camera is not allowed. Allow it in the browser and press Camera again.',
  'camera missing': 'No camera was found.',
  'camera failed': 'The camera is in use by another program.',
  'camera insecure': 'The camera needs https or localhost.',
  'screen asking': 'Choose what Gemini shall see.',
  'screen live': 'Gemini sees your screen.',
  'screen refused': 'The screen is not shared.',
  'screen insecure': 'Sharing the screen needs https or localhost.',
};

const ASKS = 'Gemini asks you something.';
const READY = 'Ready. Press the button and speak.';
const EMULATOR = 'No Gemini key is set: a built-in emulator answers and repeats what you say.';

/** @type {Session|undefined} */
let session;
/** @type {AbortController|undefined} the session's, from the first press on */
let attempt;
/** @type {LiveError|undefined} why the last session ended */
let ended;
/** The tokens of the conversation so far. */
let tokens = 0;
/** How long the last answer took, in milliseconds. */
let waited = 0;
/** @type {Map<string, string>} the titles of the tools that run */
const running = new Map();

/** @param {boolean} [mic] */
async function start(mic = true) {
  if (attempt) return;
  const mine = (attempt = new AbortController());
  ended = undefined;
  tokens = waited = 0;
  running.clear();
  render();
  try {
    const transport = /** @type {Transport} */ (new URLSearchParams(location.search).get('transport') ?? 'auto');
    const opened = await connect({ tools, canvas, mic, transport, token, signal: mine.signal });
    session = opened;
    opened.on('state', () => session === opened && render());
    opened.on('link', () => session === opened && render());
    opened.on('usage', ({ total }) => {
      tokens = total.totalTokens;
      render();
    });
    opened.on('latency', ({ totalMs }) => {
      waited = totalMs;
      render();
    });
    opened.on('turn', showTurn);
    opened.on('tool', showTool);
    opened.on('grounding', showGrounding);
    opened.on('log', (l) => console.debug('gateway:', l.message, l.details ?? ''));
    opened.on('error', showError);
    opened.on('closed', (why) => over(mine, why));
    showBackend(opened.setup?.backend);
    requestAnimationFrame(() => showLevel(opened));
    render();
  } catch (e) {
    over(mine, e instanceof LiveError ? e : new LiveError('unknown_error', String(e)));
  }
}

/**
 * @param {AbortController} whose
 * @param {LiveError} why
 */
function over(whose, why) {
  if (attempt !== whose) return; // another one has been started since
  ended = why;
  attempt = session = undefined;
  render();
}

function stop() {
  attempt?.abort();
}

/** One sentence that is true of the server, the voice and the microphone together. */
function sentence() {
  if (!attempt) {
    if (!ended || ended.code === 'closed' || ended.code === 'aborted') return READY;
    if (ended.code === 'busy' && ended.retryAfter) return `Gemini is busy. Try again in ${ended.retryAfter} s.`;
    return FAILED[ended.code] ?? `${ended.message} Press the button to start anew.`;
  }
  if (!session || session.state === 'connecting') return 'Connecting…';
  if (session.state === 'reconnecting') {
    const kept = session.setup?.resumeToken;
    return kept ? 'Reconnecting, your conversation is kept.' : 'The connection is interrupted. Waiting for it to come back.';
  }
  if (session.link.message) return session.link.message; // it makes the person wait
  if (session.blocked) return 'The browser holds the sound back. Click anywhere to hear Gemini.';
  if (canvas.waiting) return ASKS;
  for (const title of running.values()) return title;
  if (session.state === 'speaking') return 'Gemini is speaking...';
  return NO_MIC[session.mic] ?? 'Gemini is listening...';
}

function render() {
  const now = sentence();
  $('status').ariaLive = now === ASKS ? 'off' : 'polite'; // the canvas has said it
  say('status', now);
  document.body.dataset['state'] = attempt ? 'live' : 'ready';
  label($('talk'), attempt ? 'Stop' : 'Start');
  const mic = session?.mic ?? 'off';
  const hears = mic === 'live' || mic === 'asking';
  mute.disabled = !session || mic === 'asking' || mic === 'insecure';
  mute.toggleAttribute('data-on', Boolean(session) && !hears);
  label(mute, !session || hears ? 'Mute' : mic === 'muted' ? 'Unmute' : 'Use mic');
  renderSight(session?.looks ?? { state: 'off' });
  say('recording', session?.setup?.recording ? 'Recording' : '');
  const carrier = session?.transport;
  const details = [carrier && (carrier === 'webrtc' ? 'WebRTC' : 'WebSocket'), waited && `answered in ${waited < 100 ? `${waited.toFixed()} ms` : `${(waited / 1000).toFixed(1)} s`}`,
    tokens && `${tokens.toLocaleString('en')} tokens`];
  $('detail').textContent = session ? details.filter(Boolean).join(' · ') : '';
}

/** @param {Look} looks */
function renderSight({ state, kind, track }) {
  for (const name of ['camera', 'screen']) {
    const button = /** @type {HTMLButtonElement} */ ($(name));
    button.disabled = !session || state === 'asking';
    button.setAttribute('aria-pressed', String(state === 'live' && kind === name));
  }
  const stream = /** @type {MediaStream|null} */ (view.srcObject);
  if (stream?.getTracks()[0] !== track) view.srcObject = track ? new MediaStream([track]) : null;
  view.hidden = !track;
  say('sight', SIGHT[`${kind} ${state}`] ?? '');
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

/** @param {Session} whose */
function showLevel(whose) {
  const { style } = $('talk');
  const { mic, model } = session === whose ? whose.level : { mic: 0, model: 0 };
  style.setProperty('--mic', mic.toFixed(2));
  style.setProperty('--model', model.toFixed(2));
  if (session === whose) requestAnimationFrame(() => showLevel(whose));
}

/** @param {string} [backend] */
function showBackend(backend) {
  if (!backend) return;
  $('notice').hidden = backend !== 'emulator';
  $('notice').textContent = backend === 'emulator' ? EMULATOR : '';
}

/** @param {LiveError} error */
function showError(error) {
  if (error.code === 'peer_failed') return; // the voice goes on over the socket
  note(error.code === 'session_resumption_failed' ? 'Some of the conversation may be lost.' : error.message);
}

// --- the transcript

/**
 * @param {string} tag
 * @param {string} [className]
 * @param {string} [content]
 */
function make(tag, className = '', content = '') {
  const e = document.createElement(tag);
  e.className = className;
  e.textContent = content;
  return e;
}

/** @type {WeakMap<Session, Map<string, HTMLElement>>} */
const shown = new WeakMap();
let begun = 0; // turns and calls

/**
 * The element of a turn or a call: it grows outside of the log and moves into it when it is finished.
 * @param {string} id
 * @param {() => HTMLElement} create
 * @param {boolean} final
 * @param {(e: HTMLElement) => void} fill
 */
function place(id, create, final, fill) {
  if (!session) return;
  const all = shown.get(session) ?? new Map();
  shown.set(session, all);
  const e = all.get(id) ?? create();
  all.set(id, e);
  fill(e);
  const where = final ? $('log') : $('growing');
  // What was begun first stands first, though what cut it off may have been finished before it.
  e.dataset['begun'] ??= String(++begun);
  const next = [...where.children].find((o) => Number(/** @type {HTMLElement} */ (o).dataset['begun']) > Number(e.dataset['begun']));
  if (e.parentElement !== where && e.parentElement !== $('log')) where.insertBefore(e, next ?? null);
  $('empty').hidden = true;
}

/** @param {Turn} turn */
function showTurn(turn) {
  const create = () => {
    const e = make('div', `turn ${turn.role}`);
    e.append(make('b', '', turn.role === 'user' ? 'You' : 'Gemini'), make('span'));
    return e;
  };
  place(turn.id, create, turn.final, (e) => {
    const span = /** @type {HTMLElement} */ (e.lastElementChild);
    span.textContent = turn.text.trim();
    e.classList.toggle('interrupted', turn.interrupted);
  });
}

/** @param {ToolCall} call */
function showTool(call) {
  const { id, name, title, status, ms, args, response } = call;
  if (call.missed) offerNotification();
  const seen = name.endsWith('_canvas_tool'); // what it is about stands on the canvas
  if (status !== 'running') running.delete(id);
  else if (title && !seen) running.set(id, title);
  render();
  place(`call ${id}`, () => make('div', 'card'), status !== 'running', (e) => {
    const took = ms === undefined ? '' : `, ${Math.round(ms)} ms`;
    const told = (seen ? [] : [args ?? {}, response ?? {}]).filter((o) => Object.keys(o).length);
    const lines = told.map((o) => make('code', '', brief(JSON.stringify(o))));
    const what = title?.replace('…', '') ?? (seen ? 'Showing canvas' : `Tool ${name}`);
    e.dataset['status'] = response?.dismissed === true ? 'cancelled' : status;
    e.replaceChildren(make('span', '', `${what}: ${seen ? ofCanvas(call) : status + took}`), ...lines);
  });
}

/**
 * What became of a canvas, or of a tool's question. An input may have any id, but its value is no `true`.
 * @param {ToolCall} call
 */
function ofCanvas({ id, status, response }) {
  const question = id.startsWith('ask-') ? 'question ' : '';
  if (status === 'running') return `${question}open`;
  if (status === 'failed') return `${status}, ${response?.error}`;
  if (status === 'cancelled') return question + status;
  if (response?.dismissed === true) return `${question}put away`;
  return [response?.shown, response?.continued].includes(true) ? 'shown' : `${question}answered`;
}

/** Offers who was missed to be called next time: the browser asks them in a gesture only. */
function offerNotification() {
  if (!window.Notification || Notification.permission !== 'default' || document.querySelector('#log .offer')) return;
  const button = make('button', 'offer', 'Notify me next time');
  button.addEventListener('click', () => Notification.requestPermission().then(() => button.remove()));
  note('Gemini needed you while this page was in the background.').append(' ', button);
}

/** @param {string} text */
const brief = (text) => (text.length > 300 ? `${text.slice(0, 300)}…` : text);

/** @param {any} grounding */
function showGrounding(grounding) {
  const searched = grounding.webSearchQueries?.join(', ');
  const found = grounding.groundingChunks?.map((/** @type {any} */ c) => c.web?.title).filter(Boolean).join(', ');
  if (searched) note(`Searched the web for ${searched}`);
  if (found) note(`Found on ${found}`);
  if (grounding.chips) canvas.chips(grounding.chips);
}

/** @param {string} what */
function note(what) {
  const e = make('p', 'note', what);
  $('log').append(e);
  $('empty').hidden = true;
  return e;
}

// --- what the person does

$('talk').addEventListener('click', () => (attempt ? stop() : start()));
mute.addEventListener('click', () => session?.mute());
for (const name of /** @type {('camera'|'screen')[]} */ (['camera', 'screen'])) {
  $(name).addEventListener('click', () => session?.look($(name).ariaPressed === 'true' ? null : name));
}
$('screen').hidden = !navigator.mediaDevices?.getDisplayMedia; // phones have none

$('type').addEventListener('submit', async (event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (!said) return;
  text.value = '';
  if (!attempt) await start(false); // who types first is not asked for a microphone
  if (session) session.send(said);
  else text.value ||= said; // it failed, or is still connecting: nothing typed gets lost
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  if (event.defaultPrevented) return; // by the canvas, which Esc closes first
  if (key === 'Escape') stop();
  else if (key === 'Enter' && !repeat && !target.closest('input, textarea, button, a, .canvas')) start();
  else if (key.toLowerCase() === 'm' && !repeat && !target.closest('input, textarea') && !mute.disabled) session?.mute();
});

document.addEventListener('click', () => session?.blocked && session.unblock());

fetch('status')
  .then((r) => r.json())
  .then((s) => session || showBackend(s.backend))
  .catch(() => {}); // the button says it, if the gateway is not there
