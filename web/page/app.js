/** The page: buttons, sentences, what a person sees of a conversation. All it knows of the gateway it knows through voxgate.js. */
import { lineOf, make } from './dom.js';
import { nativeTools } from './native.js';
import { asOptions, load, save } from './preferences.js';
import { Transcript } from './transcript.js';
import { open } from './voxgate.js';

/**
 * @import { Canvas } from './canvas.js'
 * @import { Session } from './voxgate.js'
 * @import { TurnLatency, Usage } from './messages.d.ts'
 * @import { CanvasCall, Devices, ToolCall, Transport, Turn, Video, VoxgateError } from './types.d.ts'
 */

/** @param {string} id */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const { body } = document;
const text = /** @type {HTMLInputElement} */ ($('text'));
const mute = /** @type {HTMLButtonElement} */ ($('mute'));
const orb = /** @type {HTMLButtonElement} */ ($('talk'));
const view = /** @type {HTMLVideoElement} */ ($('view'));
const dock = /** @type {HTMLElement} */ (document.querySelector('footer'));
const main = /** @type {HTMLElement} */ (document.querySelector('main'));
const AWAY = 48; // pixels, counted from the end: a person who scrolled further up sees that there is something new
const still = matchMedia('(prefers-reduced-motion: reduce)');
/** @type {Promise<Canvas>|undefined} */
let loading;
/** @type {Canvas|undefined} */
let drawn;
/** What Gemini shows is drawn by canvas.js, which is loaded with the first conversation. */
const canvas = {
  load: () => (loading ??= import('./canvas.js').then(({ Canvas }) => {
    drawn = new Canvas($('canvas'));
    drawn.onWaiting = render;
    return drawn;
  })),
  show: (/** @type {CanvasCall} */ call) => drawn?.show(call) ?? canvas.load().then((c) => c.show(call)),
  hide: (/** @type {string|undefined} */ id) => (drawn ? drawn.hide(id) : void loading?.then((c) => c.hide(id))),
  keep: (/** @type {string} */ ref, /** @type {Blob} */ blob) => drawn?.keep(ref, blob),
  kept: (/** @type {string} */ ref) => drawn?.kept(ref),
  get waiting() {
    return drawn?.waiting ?? false;
  },
};
const transcript = new Transcript($('log'), $('growing'));
transcript.onShown = () => {
  $('empty').hidden = true;
  $('newest').hidden = main.scrollTop > -AWAY;
};
transcript.restore();
addEventListener('pagehide', () => transcript.store()); // a page that is loaded again shows what was said
// A link to this page may bring a token and settings, behind the # so that no server logs it, and a token is not for other eyes.
const given = new URLSearchParams(location.hash.slice(1));
const token = given.get('token') ?? undefined;
if (token) history.replaceState(null, '', location.pathname + location.search);
const preferences = load(given);
const tools = nativeTools({ canvas, contacts: $('contacts') });

/** @type {Record<string, string>} what a person can do about it; other codes bring their own sentence */
const FAILED = {
  no_gateway: 'The gateway cannot be reached. Check your connection, then press the button.',
  timeout: 'Gemini did not answer in time. Press the button to try again.',
  connection_failed: 'Gemini cannot be reached just now. Try again in a minute.',
  connection_not_established: 'Gemini did not answer in time. Press the button to try again.',
  websocket_error: 'The connection to Gemini was lost. Press the button to start anew.',
  busy: 'Busy just now. Try again in a minute.', // the gateway is full or about to stop, or Google's quota is used up
  lost: 'The connection was lost. Press the button to start anew.',
  peer_failed: 'WebRTC could not connect from here. Press the button to try again.',
  unauthorized: 'You are not signed in here, or no longer. Open this page again from where you came.',
  replaced: 'This conversation goes on in another window.',
  unknown_error: 'Something went wrong at the gateway. Press the button to start anew.',
  // A visitor can do nothing about these; the gateway's log says what is wrong.
  authentication_failed: 'Gemini is not available here.',
  api_key_missing: 'Gemini is not available here.',
  project_id_missing: 'Gemini is not available here.',
};

/** @type {Record<string, string>} */
const NO_MIC = {
  asking: 'Waiting for your microphone. Allow it if the browser asks.',
  refused: 'The microphone is not allowed. Allow it in the browser and press the microphone, or type.',
  missing: 'No microphone was found. Plug one in and press the microphone, or type.',
  failed: 'The microphone is in use by another program. Free it and press the microphone, or type.',
  lost: 'The microphone is gone. Plug it in and press the microphone, or type.',
  insecure: 'The microphone needs https or localhost. You can type.',
  unheard: 'Gemini cannot hear you. This page cannot send your voice from here; you can type.',
  off: 'Gemini answers aloud what you type. To speak, press the microphone.',
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
  'screen missing': 'No screen was found to share, or the system does not allow it.',
  'screen failed': 'The screen cannot be shared.',
  'screen insecure': 'Sharing the screen needs https or localhost.',
};

const GATEWAY = new URL('ws', document.baseURI);
const ASKS = 'Gemini asks you something.';
const LEAVING = 'Press Esc again to end the conversation.';
const TWICE = 4_000; // ms for the second Esc
const TURNS = /^(Listening|Thinking|Speaking)/;
const READY = 'Ready. Press the button and speak.';

/** @type {Record<string, string>} what to try first, and how it is said to the model */
const TRIES = {
  'What can you see?': 'What can you see? If you need to, take a photo.',
  'Quiz me on capitals': 'Quiz me on the capitals of the world, one question at a time.',
  'Be my interpreter': 'Be my interpreter. Ask me first which languages we speak.',
};
/** @type {Record<string, string>} what the emulator can do */
const EMULATOR_TRIES = {
  'Say something': 'Once upon a time there was a parrot.',
  'Search the web': '/ground parrots',
  'Take a photo': '/tool take_photo {}',
};
/** The names of what is a command to the emulator, which nobody has said. */
const WISHES = new Map(Object.entries(EMULATOR_TRIES).filter(([, said]) => said.startsWith('/')).map(([name, said]) => [said, name]));
const LEAVES = 'Your voice, and what you show or allow, goes through this gateway to Google’s Gemini while a conversation is on.';
const EMULATOR_LEAVES = 'Your voice goes to this gateway while a conversation is on, and no further.';

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
const ANSWERS = 20;
/** Push to talk: it is held. */
let held = false;
/** @type {Map<string, string>} the titles of the tools that run */
const running = new Map();
/** @type {Turn[]} what was typed while there was no connection yet */
const typed = [];

let wished = true; // a microphone, by whoever pressed the button last
/** @type {{at: number, timer: ReturnType<typeof setInterval>}|undefined} when a busy gateway is asked again */
let again;
const PATIENCE = 120; // s for which a person who has pressed the button still means it

/** @param {number} seconds @param {boolean} mic */
function startIn(seconds, mic) {
  const at = Date.now() + 1_000 * seconds;
  again = { at, timer: setInterval(() => (Date.now() < at ? render() : start(mic)), 1_000) };
}

/** @param {boolean} [mic] */
function start(mic = true) {
  if (session) return;
  clearInterval(again?.timer);
  again = undefined;
  wished = mic;
  ended = usage = undefined;
  answers.length = 0;
  running.clear();
  const options = asOptions(preferences);
  const transport = /** @type {Transport} */ (new URLSearchParams(location.search).get('transport') ?? options.transport);
  const opened = open({ ...options, url: GATEWAY, worklets: new URL('.', import.meta.url), tools, canvas, mic: mic && options.mic, transport, token, resume: 'page' });
  session = opened;
  if (!opened.turns.length) transcript.begin(); // else it goes on
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
    if (session !== opened) return;
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
    answers.splice(0, answers.length - ANSWERS + 1);
    answers.push(latency);
    render();
  });
  opened.on('turn', (told) => {
    const turn = { ...told, text: WISHES.get(told.text) ?? told.text };
    const back = opened.state === 'reconnecting';
    if ((opened.setup && !back) || turn.role === 'model') return transcript.turn(turn);
    typed.push(turn);
    transcript.waiting(turn.text, back ? 'is sent when we are back' : 'is sent when connected');
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
  session = undefined;
  clearTimeout(leaving);
  leaving = undefined;
  if (why.code === 'busy' && why.retryAfter && why.retryAfter <= PATIENCE) startIn(why.retryAfter, wished);
  stopRecording = undefined; // it has ended by itself
  transcript.waited();
  transcript.store(); // the page may be on its way out
  text.value ||= typed.map((turn) => turn.text).join(' '); // nothing typed gets lost
  typed.length = 0;
  $('empty').hidden = !transcript.empty;
  glide(render);
}

function stop() {
  session?.close();
  if (!again) return;
  clearInterval(again.timer);
  again = ended = undefined;
  render();
}

/** One sentence that is true of the server, the voice and the microphone together. */
function sentence() {
  if (!session) {
    if (!ended || ended.code === 'closed' || ended.code === 'aborted') return READY;
    if (again) return `Busy just now. Trying again in ${Math.max(1, Math.ceil((again.at - Date.now()) / 1_000))} s.`;
    return FAILED[ended.code] ?? `${ended.message} Press the button to start anew.`;
  }
  if (session.state === 'connecting') return session.mic === 'asking' && session.setup ? NO_MIC['asking'] ?? '' : 'Connecting…';
  if (leaving) return LEAVING;
  if (session.link.message) return session.link.message; // it makes the person wait
  if (session.state === 'reconnecting') {
    const kept = session.setup?.resumeToken;
    if (session.away?.reachable === false) return 'The gateway cannot be reached. What you type is sent when it is back.';
    return kept ? 'Reconnecting… Nothing you say is heard right now.' : 'The connection is interrupted. Waiting for it to come back.';
  }
  if (session.blocked) return 'The browser holds the sound back. Click anywhere to hear Gemini.';
  if (canvas.waiting) return ASKS;
  for (const title of running.values()) return title;
  if (session.state === 'speaking') return session.mic === 'live' ? 'Speaking · talk or tap to interrupt' : 'Speaking · tap to interrupt';
  if (session.state === 'thinking') return 'Thinking…';
  if (preferences.push && session.mic === 'muted') return 'Hold Space or the orb to talk.';
  if (session.mic === 'silent') return `We hear nothing from ${session.track?.label ? `“${session.track.label}”` : 'the microphone'}. Speak, or choose another in the settings.`;
  return NO_MIC[session.mic] ?? 'Listening';
}

/** A microphone is open, whether or not a sound comes from it. */
const isOpen = () => session?.mic === 'live' || session?.mic === 'silent';

/** What the orb looks like. */
function shape() {
  if (!session) return 'ready';
  if (session.state === 'connecting') return 'connecting';
  if (session.state === 'reconnecting') return 'reconnecting';
  if (canvas.waiting) return 'asking';
  if (session.state === 'speaking') return 'speaking';
  if (running.size || session.state === 'thinking') return 'thinking';
  return session.mic === 'live' ? 'listening' : 'muted';
}

function render() {
  const now = sentence();
  const mic = session?.mic ?? 'off';
  // A screen reader that reads what is heard anyway would speak into the open microphone.
  const hush = mic === 'live' && !preferences.read;
  const before = $('status').textContent ?? '';
  const known = now === ASKS || (hush && TURNS.test(now) && TURNS.test(before)); // the canvas has said it, or the voice
  if (before !== now) {
    $('status').ariaLive = known ? 'off' : 'polite';
    const [first = now] = /^.*?(?:[.…](?= |$)|(?= ·)|$)/.exec(now) ?? [];
    $('status').replaceChildren(make('b', '', first), now.slice(first.length));
    document.title = session ? `● ${first} · Voxgate` : 'Voxgate';
  }
  const hears = isOpen() || mic === 'asking';
  const speaking = session?.state === 'speaking';
  body.dataset['state'] = session ? 'live' : 'ready';
  body.dataset['orb'] = shape();
  body.classList.toggle('home', !session && transcript.empty);
  const ready = session && session.state !== 'connecting';
  label(orb, !session ? 'Start' : speaking ? 'Interrupt' : ready && !hears ? 'Speak' : 'Interrupt');
  orb.ariaDisabled = session && !speaking && (hears || !ready) ? 'true' : null;
  mute.disabled = !session || !ready || mic === 'asking' || mic === 'insecure' || (preferences.push && (isOpen() || mic === 'muted'));
  mute.toggleAttribute('data-on', Boolean(ready) && !hears);
  label(mute, !ready || hears ? 'Mute' : mic === 'muted' ? 'Unmute' : 'Use mic');
  $('log').ariaLive = hush ? 'off' : 'polite';
  renderSight(session?.video ?? { state: 'off' });
  renderAway();
  say('recording', session?.setup?.recording || stopRecording ? 'Recording' : '');
  renderDetail();
}

function renderDetail() {
  const carrier = session?.transport;
  const way = carrier === 'webrtc' ? 'WebRTC' : 'WebSocket';
  const waited = answers.at(-1)?.totalMs ?? 0;
  const took = waited < 100 ? `${waited.toFixed()} ms` : `${(waited / 1000).toFixed(1)} s`;
  const details = [carrier && way, waited && `answered in ${took}`, usage && `${usage.total.totalTokens.toLocaleString('en')} tokens`];
  const [line, text] = $('detail').children;
  $('detail').title = session ? details.filter(Boolean).join(' · ') : '';
  $('detail').hidden = !session?.transport;
  if (text) text.textContent = waited ? took : way;
  line?.toggleAttribute('hidden', answers.length < 2);
  line?.replaceChildren(lineOf(answers.map((a) => a.totalMs), 44, 16));
}

/** @type {ReturnType<typeof setTimeout>|undefined} */
let counting;

/** How long the gateway has been away already, once a second. A screen reader hears of it once. */
function renderAway() {
  const seconds = session?.away ? Math.floor((Date.now() - session.away.since) / 1_000) : 0;
  $('absence').hidden = seconds < 2;
  say('since', `For ${seconds} s`);
  clearTimeout(counting);
  if (session?.away) counting = setTimeout(renderAway, 1_000);
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
  if (span.textContent === name) return;
  button.title = span.textContent = name;
}

/**
 * The orb glides from where it was to where the change puts it.
 * @param {() => void} change
 */
function glide(change) {
  const from = orb.getBoundingClientRect();
  change();
  const to = orb.getBoundingClientRect();
  const [x, y] = [from.x + from.width / 2 - to.x - to.width / 2, from.y + from.height / 2 - to.y - to.height / 2];
  if (still.matches || Math.abs(x) + Math.abs(y) < 1) return;
  orb.animate([{ transform: `translate(${x}px, ${y}px) scale(${from.width / to.width})` }, {}], { duration: 300, easing: 'ease-out' });
}

/** @param {Session} whose */
function showLevel(whose) {
  const { mic, model } = session === whose ? whose.level : { mic: 0, model: 0 };
  dock.style.setProperty('--mic', mic.toFixed(2));
  dock.style.setProperty('--model', model.toFixed(2));
  if (session === whose) {
    requestAnimationFrame(() => showLevel(whose));
  }
}

/** @param {string} [backend] */
function showBackend(backend) {
  if (!backend) return;
  const emulator = backend === 'emulator';
  $('notice').hidden = !emulator || !preferences.hint;
  $('leaves').textContent = emulator ? EMULATOR_LEAVES : LEAVES;
  const tries = emulator ? EMULATOR_TRIES : TRIES;
  $('tries').replaceChildren(
    ...Object.entries(tries).map(([name, said]) => {
      const button = make('button', '', name);
      button.addEventListener('click', () => send(said));
      return button;
    }),
  );
}

/** @param {VoxgateError} error */
function showError(error) {
  if (error.code === 'peer_failed') return; // the voice goes on over the socket
  if (error.code === 'not_resumed') transcript.begin();
  transcript.note(error.code === 'session_resumption_failed' ? 'Some of the conversation may be lost.' : error.message);
}

/** @param {ToolCall} call */
function showTool(call) {
  const { id, name, title, status } = call;
  if (call.missed) offerNotification();
  if (status !== 'running') running.delete(id);
  else if (title && !name.endsWith('_canvas_tool')) running.set(id, title);
  render();
  transcript.tool(call);
}

/** Offers who was missed to be called next time: the browser asks them in a gesture only. */
function offerNotification() {
  if (!window.Notification || Notification.permission !== 'default' || document.querySelector('#log .offer')) return;
  const button = make('button', 'offer', 'Notify me next time');
  button.addEventListener('click', () => Notification.requestPermission().then(() => button.remove()));
  transcript.note('Gemini needed you while this page was in the background.').append(' ', button);
}

// --- what the person does

/** The orb starts, and stops an answer; it never ends the conversation. */
orb.addEventListener('click', () => {
  if (!session) start();
  else if (session?.state === 'speaking') session.interrupt();
  else if (!orb.ariaDisabled && !preferences.push) speak();
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
$('retry').addEventListener('click', () => session?.retry());
mute.addEventListener('click', () => speak(isOpen()));
for (const name of /** @type {('camera'|'screen')[]} */ (['camera', 'screen'])) {
  $(name).addEventListener('click', () => session?.use({ video: $(name).ariaPressed === 'true' ? null : name }));
}
$('screen').hidden = !navigator.mediaDevices?.getDisplayMedia; // phones have none

/** @param {string} said */
function send(said) {
  if (!session) start(false); // who types first is not asked for a microphone
  session?.send(said);
}

$('type').addEventListener('submit', (event) => {
  event.preventDefault();
  const said = text.value.trim();
  text.value = '';
  if (body.classList.contains('typing')) typing(false); // the answer is what there shall be room for
  if (said) send(said);
});

/** On a phone the text field takes the place of the buttons. @param {boolean} on */
function typing(on) {
  body.classList.toggle('typing', on);
  $('keyboard').ariaExpanded = String(on);
  if (on) text.focus();
  else if (document.activeElement === text) text.blur();
}
$('keyboard').addEventListener('click', () => typing(!body.classList.contains('typing')));
text.addEventListener('blur', () => text.value || setTimeout(() => document.activeElement?.closest('#type') || typing(false))); // not to Send

main.addEventListener('scroll', () => main.scrollTop > -AWAY && ($('newest').hidden = true), { passive: true });
$('newest').addEventListener('click', () => main.scrollTo({ top: 0, behavior: still.matches ? 'auto' : 'smooth' }));

$('dismiss').addEventListener('click', () => {
  preferences.hint = false;
  save(preferences);
  $('notice').hidden = true;
  orb.focus();
});

$('copy').addEventListener('click', async () => {
  await navigator.clipboard?.writeText(document.querySelector('.command code')?.textContent ?? '');
  $('copy').textContent = 'Copied';
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const { key, repeat } = event;
  if (event.defaultPrevented || document.querySelector('dialog[open]')) return; // by the canvas, which Esc closes first
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
  if (key === 'Enter' && !button) start();
  else if (key.toLowerCase() === 'm' && !mute.disabled) speak(isOpen());
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
  if (on && isOpen()) hushed = session;
  if (session && session === hushed) session.mute(on);
  if (!on) hushed = undefined;
}

/** @type {Blob|undefined} of the last conversation, or of the part that was wanted */
let recording;
/** @type {(() => void)|undefined} */
let stopRecording;

/** Begins to record the conversation, or ends that, as it is wanted. */
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
      transcript.note('This browser cannot record the conversation.');
    }
  }
  render();
}

/** Takes what was said from the page. */
function forget() {
  transcript.clear();
  recording = undefined;
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
  if (!device && !['keys', 'read', 'transport', 'hint'].includes(name ?? '')) session?.update({ config });
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
  } catch (e) {
    transcript.note(`This cannot be opened: ${/** @type {Error} */ (e).message}`);
  } finally {
    opening = false;
  }
}

$('settings').addEventListener('click', () => openSheet(async () => {
  const { openSettings } = await import('./settings.js');
  const level = () => session?.level.mic ?? 0;
  const kept = { lines: () => transcript.lines, recording: () => recording, forget };
  await openSettings({ preferences, status, gateway: { url: GATEWAY, token }, onChange: preferred, level, quiet, ...kept });
}));

$('detail').addEventListener('click', () => openSheet(async () => {
  const { openStatistics } = await import('./statistics.js');
  await openStatistics({ session: () => session, answers, usage: () => usage });
}));
preferred();

fetch('status')
  .then((r) => r.json())
  .then((s) => {
    Object.assign(status, s);
    if (!session) showBackend(status.backend);
  })
  .catch(() => {}); // the button says it, if the gateway is not there
