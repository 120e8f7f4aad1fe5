/** The page: buttons, sentences, transcript. Everything it knows of the gateway it knows through voxgate.js. */
import { connect, LiveError } from './voxgate.js';

/**
 * @import { Session } from './voxgate.js'
 * @import { Tool, ToolCall, Transport, Turn } from './types.d.ts'
 */

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const text = /** @type {HTMLInputElement} */ ($('text'));
const mute = /** @type {HTMLButtonElement} */ ($('mute'));

/** @type {Record<string, Tool>} */
const tools = {
  get_current_time: {
    description: 'The date and time where the person is.',
    run() {
      const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
      return { time: new Date().toLocaleString('en', { dateStyle: 'full', timeStyle: 'medium' }), timeZone };
    },
  },
};

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

/** @param {boolean} [mic] */
async function start(mic = true) {
  if (attempt) return;
  const mine = (attempt = new AbortController());
  ended = undefined;
  tokens = 0;
  render();
  try {
    const transport = /** @type {Transport} */ (new URLSearchParams(location.search).get('transport') ?? 'auto');
    const opened = await connect({ tools, mic, transport, signal: mine.signal });
    session = opened;
    opened.on('state', () => session === opened && render());
    opened.on('link', () => session === opened && render());
    opened.on('usage', ({ total }) => {
      tokens = total.totalTokens;
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
  if (session.state === 'reconnecting') return 'Reconnecting, your conversation is kept.';
  if (session.link.message) return session.link.message; // it makes the person wait
  if (session.blocked) return 'The browser holds the sound back. Click anywhere to hear Gemini.';
  if (session.state === 'speaking') return 'Gemini is speaking...';
  return NO_MIC[session.mic] ?? 'Gemini is listening...';
}

function render() {
  const now = sentence();
  const status = $('status');
  if (status.textContent !== now) status.textContent = now; // a live region speaks at every change
  document.body.dataset['state'] = attempt ? 'live' : 'ready';
  label($('talk'), attempt ? 'Stop' : 'Start');
  const mic = session?.mic ?? 'off';
  const hears = mic === 'live' || mic === 'asking';
  mute.disabled = !session || mic === 'asking' || mic === 'insecure';
  mute.toggleAttribute('data-on', Boolean(session) && !hears);
  label(mute, !session || hears ? 'Mute' : mic === 'muted' ? 'Unmute' : 'Use mic');
  const carrier = session?.transport;
  const details = [carrier && (carrier === 'webrtc' ? 'WebRTC' : 'WebSocket'), tokens && `${tokens.toLocaleString('en')} tokens`];
  $('detail').textContent = session ? details.filter(Boolean).join(' · ') : '';
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
  if (e.parentElement !== where && e.parentElement !== $('log')) where.append(e);
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
  place(`call ${call.id}`, () => make('div', 'card'), call.status !== 'running', (e) => {
    const took = call.ms === undefined ? '' : `, ${call.ms} ms`;
    const lines = [call.args, call.response].filter(Boolean).map((o) => make('code', '', JSON.stringify(o)));
    e.dataset['status'] = call.status;
    e.replaceChildren(make('span', '', `Tool ${call.name}: ${call.status}${took}`), ...lines);
  });
}

/** @param {any} grounding */
function showGrounding(grounding) {
  const searched = grounding.webSearchQueries?.join(', ');
  const found = grounding.groundingChunks?.map((/** @type {any} */ c) => c.web?.title).filter(Boolean).join(', ');
  if (searched) note(`Searched the web for ${searched}`);
  if (found) note(`Found on ${found}`);
}

/** @param {string} what */
function note(what) {
  $('log').append(make('p', 'note', what));
  $('empty').hidden = true;
}

// --- what the person does

$('talk').addEventListener('click', () => (attempt ? stop() : start()));
mute.addEventListener('click', () => session?.mute());

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
  if (key === 'Escape') stop();
  else if (key === 'Enter' && !repeat && !target.closest('input, button')) start();
  else if (key.toLowerCase() === 'm' && !repeat && target !== text && !mute.disabled) session?.mute();
});

document.addEventListener('click', () => session?.blocked && session.unblock());

fetch('status')
  .then((r) => r.json())
  .then((s) => session || showBackend(s.backend))
  .catch(() => {}); // the button says it, if the gateway is not there
