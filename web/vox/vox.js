/**
 * The VOX client: a conversation with VOX, spoken or typed, over one WebSocket. It is an observable object without a framework.
 *
 *   const vox = new VoxLive({ url: 'wss://voxgate.example.com/api/vox/live', projectContext: { summary: 'a shop for bicycles' } });
 *   vox.addEventListener('change', () => console.log(vox.message, vox.transcript));
 *   await vox.startSession();
 *   vox.sendText('Which tools do I need?');
 *   vox.endSession();
 *
 * Call `startSession` in a gesture (a click, a key), or the browser may hold the sound back.
 */
import { Voice } from '../audio.js';
import { errors, states } from '../en.js';
import { isOpen } from '../look.js';
import { pauses, refusal, sleep, socketURL, tokenOf } from '../reach.js';
import { hasUser, isMomentary, isWhole, MOMENT, OFFERS, statusOf as describe } from '../status.js';
import { fill, speak } from '../strings.js';
import { keepAwake } from '../wakelock.js';
import { vox as words } from './en.js';

/**
 * @import { App, Mic, Options, Snapshot, State, ToolAction, TranscriptEntry, VoxMessage } from './types.d.ts'
 */

const UP_RATE = 16_000; // Hz, what the endpoint takes
const READY_TIMEOUT = 25_000; // ms: the gateway tries Gemini more than once
const KEPT_FOR = 60_000; // ms that a lost conversation is looked for: as long as gateways wait by default
const SOCKET_QUEUE = 64 * 1024; // bytes: more unsent sound than this is dropped, for late speech is worth less than new speech
const BREATH = 300; // ms: frames come at most 200 ms ahead, so a shorter gap is not the end of VOX's speech
const ANSWERS = 50; // whose latencies are kept
const MAX_TEXT = 20_000; // characters, as the endpoint's

/** What may be over when the gateway is asked again. */
const PASSING = ['no_token', 'no_gateway', 'lost', 'timeout', 'busy', 'connection_failed', 'unknown_error'];

/** Words of VOX; that of who answers is its own. @param {string} name @param {Record<string, unknown>} [values] */
const say = (name, values) => fill(words[name], values);

/** @type {Snapshot} */
const NOTHING = {
  state: 'idle', get message() { return fill(states['ready']); }, sentences: [], canRetryMic: false, mic: 'off', isMuted: false, isPushToTalk: false, isConnected: false, isVoxSpeaking: false,
  transcript: [], lastToolAction: null, actions: [], questions: [], project: { tools: [], apps: [] },
  place: '', theme: '', model: '', mode: '', sessionId: '', resumeToken: '', projectId: '', isRecorded: false, appModel: '', away: undefined, unsent: [],
  latencies: [], usage: undefined,
};
const CAUSED = 3_000; // ms: a call that came so shortly before the first of the person's words was caused by them
const REPLACED = 3_000; // ms: an answer that is cut off so shortly after the person has typed or pressed something was cut off by that
const EARLIER = 12; // turns that the model of a later conversation gets to know,
const LONGEST = 500; // and characters of each: a context may have 64 KB

/** Why a conversation did not begin, or ended. */
export class VoxError extends Error {
  name = 'VoxError';

  /**
   * @param {string} code for programs: one of the endpoint's, or `bad_options`, `no_token`, `no_gateway`, `timeout`, `lost`
   * @param {string} [message] for people
   * @param {number} [retryAfterMs] when to come back, if that is known
   */
  constructor(code, message, retryAfterMs) {
    super(message || fill(errors[code] ?? errors['unknown_error'], { who: 'VOX' }));
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Dispatches events: `change`, the snapshot has changed; `action`, an instruction to the page, whose `detail` is a ui_action of the
 * protocol; `notice`, whose `detail` is a sentence about an error that did not end the conversation.
 */
export class VoxLive extends EventTarget {
  #given;
  /** @type {Options} */ #options;
  #now = NOTHING;
  /** @type {AbortController|undefined} the conversation's, from its start on */ #talk;
  /** @type {Promise<void>|undefined} */ #starting;
  /** @type {WebSocket|undefined} */ #socket;
  /** @type {Voice|undefined} */ #voice;
  /** @type {string[]} typed while there was no connection */ #unsent = [];
  #link = ''; // what the gateway says of its own connection: waiting, reconnecting
  #linkMessage = '';
  #seam = false; // what comes next belongs to no turn from before
  #told = -1; // the turn that the gateway has told of last, by its place in the transcript
  #broken = false; // the voice cannot be played, and that was reported
  #answeredAt = -Infinity; // when something was typed, or a question was answered by a button
  #asked = false; // something was typed, and its answer is not over
  #phase = /** @type {'idle'|'connecting'|'live'|'lost'|'ended'|'failed'} */ ('idle');
  /** @type {VoxError|undefined} */ #why;
  /** @type {ReturnType<typeof setTimeout>|undefined} */ #breath;
  #speak;
  /** @type {Set<SpeechSynthesisUtterance>} that are being read aloud */ #aloud = new Set();
  /** @type {Map<string, number>} when a call began, by its id */ #begun = new Map();
  /** @type {{app: string, version: number}|undefined} a version that a button has asked the gateway for */ #switching;
  #wake = () => {}; // tries at once to reach the gateway

  /** @param {Options} [options] of every session that does not say otherwise */
  constructor(options = {}) {
    super();
    this.#options = this.#given = options;
    speak({ vox: words }, options, { de: () => import('./de.js') }).then(() => this.#set({}));
    this.#speak = options.speak !== false;
  }

  /** The newest snapshot: the same object until something changes. */
  getSnapshot = () => this.#now;

  /**
   * Calls `listener` after each change, until the function that it returns is called.
   * @param {() => void} listener
   */
  subscribe = (listener) => {
    this.addEventListener('change', listener);
    return () => this.removeEventListener('change', listener);
  };

  get state() { return this.#now.state; }
  get message() { return this.#now.message; }
  get mic() { return this.#now.mic; }
  get isMuted() { return this.#now.isMuted; }
  get isConnected() { return this.#now.isConnected; }
  get isVoxSpeaking() { return this.#now.isVoxSpeaking; }
  get transcript() { return this.#now.transcript; }
  get lastToolAction() { return this.#now.lastToolAction; }
  get questions() { return this.#now.questions; }
  get project() { return this.#now.project; }

  /** Loudness of both sides now, 0 to 1, as the analysers hear it; for a meter that asks at every frame. */
  get level() {
    const { mic = 0, model = 0 } = this.#voice?.level ?? {};
    return { mic: this.#hears ? mic : 0, vox: model };
  }

  /** True while the browser holds the sound back for want of a gesture. */
  get blocked() {
    return this.#voice?.blocked ?? false;
  }

  /** Lets the sound play that was held back. Call it in a gesture. */
  unblock = () => this.#voice?.unblock();

  /** Uses other devices from now on. @param {{mic?: MediaTrackConstraints, speaker?: string}} devices */
  useDevices = ({ mic, speaker }) => {
    this.#options = { ...this.#options, ...(mic && { mic }), ...(speaker !== undefined && { speaker }) };
    const voice = this.#voice;
    if (speaker !== undefined) voice?.setSpeaker(speaker);
    if (mic && voice?.track) this.#openMic(voice);
  };

  /** Whether answers of a model that only writes are read aloud. */
  get speak() {
    return this.#speak;
  }

  set speak(on) {
    this.#speak = on;
    if (!on) this.#hush();
  }

  /**
   * Starts a conversation, or waits for the one that is starting. Resolves when VOX is ready, within 35 s (10 s for your `token()`, 25 s
   * for the gateway). Rejects with a VoxError, whose sentence is also `message`. A refused microphone is not a failure: see `mic`.
   * @param {Options} [options]
   * @returns {Promise<void>}
   */
  startSession = (options = {}) => (this.#starting ??= this.#start(options));

  /** Ends the conversation and lets go of everything. Safe to call at any time. */
  endSession = () => {
    if (!this.#talk) return;
    this.#send({ type: 'end' });
    this.#finish('ended');
  };

  /** Push to talk: what is said from now on is heard, or has ended. @param {boolean} on */
  talk = (on) => {
    if (!this.#now.isPushToTalk || on !== this.#now.isMuted || !this.#voice?.track) return;
    if (on) this.#send({ type: 'talk', talking: true });
    this.#set({ isMuted: !on });
    this.#voice.mute(!on);
    if (!on) this.#send({ type: 'talk', talking: false });
  };

  /** Mutes or unmutes; push to talk stays muted until `talk`. It requests the microphone if none is open yet. */
  toggleMute = () => {
    const voice = this.#voice;
    if (!voice || this.#now.mic === 'asking') return;
    const { isPushToTalk } = this.#now;
    if (isPushToTalk && voice.track) return;
    const isMuted = isPushToTalk || (Boolean(voice.track) && !this.#now.isMuted);
    if (isMuted !== this.#now.isMuted) this.#send({ type: 'mute', muted: isMuted });
    this.#set({ isMuted });
    voice.mute(isMuted);
    if (!voice.track) this.#openMic(voice);
  };

  /**
   * Sends a typed message, which interrupts the current answer. Without a connection it is queued.
   * @param {string} text
   * @returns {boolean} false without a conversation, or if the text is empty
   */
  sendText = (text) => {
    const said = text.trim().slice(0, MAX_TEXT);
    if (!said || !this.#talk) return false;
    this.#hush();
    const isSent = this.#send({ type: 'text', text: said });
    if (!isSent) this.#unsent.push(said);
    this.#asked = true;
    this.#answeredAt = performance.now();
    this.#grow('user', said, true, true, !isSent);
    return true;
  };

  /**
   * Answers one of `questions`.
   * @param {string} id
   * @param {boolean} yes
   * @param {string} [words] what the person has pressed, which then stands in the transcript, unless they said the same last
   */
  answer = (id, yes, words) => {
    if (this.#now.isVoxSpeaking) this.interrupt(); // it need not go on asking
    if (!this.#send({ type: 'answer', id, yes })) return; // it stays asked
    this.#answeredAt = performance.now();
    const newest = this.#now.transcript.findLast(({ role }) => role === 'user');
    if (words && !(newest && isSame(newest.text, words))) this.#grow('user', words, true, true);
    this.#set({ questions: this.#now.questions.filter((q) => q.id !== id) });
  };

  /**
   * Shows an app as it was in a version.
   * @param {string} app its name
   * @param {number} version counted from 1; 0 is the version before the one that is shown
   * @returns {boolean} false if there is no such version
   */
  useVersion = (app, version) => {
    const { tools, apps } = this.#now.project;
    const now = apps.find((a) => a.name === app);
    const number = version || now?.versions[now.version - 1]?.from || 0;
    const chosen = now?.versions[number - 1];
    if (!now || !chosen) return false;
    this.#switching = this.#send({ type: 'version', app, version: number }) ? { app, version: number } : undefined;
    if (this.#switching) return true; // app_ready follows
    const { url, files, title } = chosen;
    const shown = { ...now, url, files, title, version: number, isUnsent: true };
    this.#set({ project: { tools, apps: apps.map((a) => (a === now ? shown : a)) } });
    this.#recordSwitch(shown);
    return true;
  };

  /** Records a version that was chosen by a button among the calls, as if it were chosen by voice; several in a row are one call. @param {App} app */
  #recordSwitch({ name, title, url, files, version }) {
    const { actions, transcript } = this.#now;
    const at = transcript.length;
    const before = actions.at(-1);
    const id = before?.id.startsWith('switch ') && before.at === at ? before.id : `switch ${Date.now()}`;
    this.#act({ id, name: 'undo_change', args: {}, data: { app: name, title, url, files, version }, status: 'done', at });
  }

  /** Tries at once to reach a gateway that is away. */
  retry = () => this.#wake();

  /** Stops an answer that runs. */
  interrupt = () => void this.#send({ type: 'interrupt' });

  /**
   * Goes on with a project: what a snapshot had of it, after a reload. Without one it begins a new project. Not while a conversation runs.
   * @param {Partial<Pick<Snapshot, 'projectId'|'project'|'transcript'|'actions'>>} [saved]
   */
  restore = ({ projectId = '', project = NOTHING.project, transcript = [], actions = [] } = {}) => {
    if (this.#talk) return;
    const apps = project.apps.filter((a) => a.url).map((a) => ({ ...a, bytes: undefined })); // what was being written then is not any more
    this.#phase = 'idle';
    this.#why = undefined;
    this.#set({ ...NOTHING, projectId, project: { tools: project.tools, apps }, transcript, actions: actions.filter((a) => a.status !== 'running') });
  };

  // --- the conversation, and its connections

  /** @param {Options} options */
  async #start(options) {
    this.#options = { ...this.#given, ...options };
    const talk = (this.#talk = new AbortController());
    keepAwake(talk.signal);
    addEventListener('pagehide', this.endSession, talk);
    addEventListener('offline', () => this.#socket?.close(), talk); // its close would come minutes later
    this.#phase = 'connecting';
    this.#unsent = [];
    this.#link = '';
    this.#why = undefined;
    this.#asked = this.#broken = false;
    this.#answeredAt = -Infinity;
    this.#told = -1;
    const { projectId, project, transcript, actions } = this.#now; // the project goes on
    this.#seam = true;
    const isPushToTalk = Boolean(this.#options.pushToTalk);
    this.#set({ ...NOTHING, projectId, project, transcript, actions, isPushToTalk, isMuted: isPushToTalk, resumeToken: typeof this.#options.resume === 'string' ? this.#options.resume : '' });
    try {
      const voice = this.#openVoice();
      if (this.#options.mic !== false) this.#openMic(voice);
      await this.#dial(talk);
    } catch (e) {
      const why = talk.signal.aborted ? ended() : asVoxError(e);
      if (this.#talk === talk) this.#finish('failed', why);
      throw why;
    }
  }

  /**
   * One socket, from its opening to its end. Resolves when the gateway is ready.
   * @param {AbortController} talk
   */
  async #dial(talk) {
    const shown = await tokenOf(this.#options.token).catch((e) => {
      throw new VoxError('no_token', e.message);
    });
    if (talk.signal.aborted) throw ended();
    const socket = new WebSocket(voxURL(this.#options.url));
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    let ready = false;
    let why = new VoxError('no_gateway');
    await new Promise((resolve, reject) => {
      const give = (/** @type {VoxError} */ error) => {
        reject(error);
        socket.close();
      };
      const late = setTimeout(() => give(new VoxError('timeout')), READY_TIMEOUT);
      talk.signal.addEventListener('abort', () => clearTimeout(late), { once: true });
      socket.onopen = () => {
        why = new VoxError('lost');
        socket.send(JSON.stringify(this.#hello(shown)));
      };
      socket.onmessage = ({ data }) => {
        if (this.#socket !== socket) return;
        if (typeof data !== 'string') return this.#play(data);
        const message = JSON.parse(data);
        if (message.type === 'error' && !ready) return give(errorOf(message));
        if (message.type === 'session_end' && !ready) return give(new VoxError('ended', message.message));
        if (message.type === 'ready') {
          ready = true;
          clearTimeout(late);
          this.#ready(message);
          return resolve(undefined);
        }
        this.#receive(message);
      };
      socket.onclose = () => {
        clearTimeout(late);
        reject(why);
        if (ready && this.#socket === socket) this.#lost(talk);
      };
    });
  }

  /** @param {string|undefined} token */
  #hello(token) {
    const { theme, language, model, projectContext, targets, resume = true, questions = true } = this.#options;
    const { resumeToken, projectId, transcript, isPushToTalk } = this.#now;
    const known = !resumeToken && transcript.length ? { ...projectContext, earlier: transcript.slice(-EARLIER).map(({ role, text }) => ({ role, text: text.slice(0, LONGEST) })) } : projectContext;
    return {
      type: 'start', theme, language, projectContext: known, model, targets, questions, pushToTalk: isPushToTalk || undefined, resume: resumeToken || resume || undefined,
      project: projectId || undefined, token,
    };
  }

  /** @param {VoxMessage} message */
  #ready({ sessionId, theme = '', model = '', mode = 'live', resume = '', resumed, recording = false, project: projectId = '', appModel = '' }) {
    if (this.#now.resumeToken && this.#now.sessionId !== sessionId && !resumed) {
      this.#notice(say('kept'));
      this.#set({ questions: [] });
    }
    if (this.#now.projectId && projectId && this.#now.projectId !== projectId) this.#set({ project: NOTHING.project }); // it was not kept
    // What is being generated goes on in the gateway, which tells when it is ready.
    if (this.#phase === 'lost') this.#dropCalls(say('call lost'), (a) => !isWriter(a.name));
    this.#phase = 'live';
    this.#link = '';
    this.#set({ sessionId, theme, model, mode, projectId, resumeToken: resume, isRecorded: recording, appModel, away: undefined });
    if (mode === 'text') this.#closeMic();
    else if (this.#now.isMuted && !this.#now.isPushToTalk) this.#send({ type: 'mute', muted: true });
    const unsent = this.#unsent.splice(0);
    if (unsent.length) this.#set({ transcript: this.#now.transcript.map(({ isUnsent, ...t }) => t) });
    for (const text of unsent) this.#send({ type: 'text', text });
    for (const { name, version, isUnsent } of this.#now.project.apps) if (isUnsent) this.#send({ type: 'version', app: name, version });
  }

  /**
   * The socket was lost without a close frame: tries to resume the conversation until the gateway has given it up, too.
   * @param {AbortController} talk
   */
  async #lost(talk) {
    const { signal } = talk;
    if (this.#now.isVoxSpeaking) this.#cut('link');
    if (!this.#now.resumeToken) return this.#finish('failed', new VoxError('lost'));
    this.#flush();
    this.talk(false);
    this.#seam = true;
    this.#phase = 'lost';
    this.#set({ away: { since: Date.now(), reachable: true } });
    setTimeout(() => this.#now.away && this.#set({}), MOMENT); // the status changes then
    const until = Date.now() + KEPT_FOR;
    let busy = 0; // ms
    for (const pause of pauses()) {
      await Promise.race([sleep(Math.max(busy, pause), signal), new Promise((resolve) => (this.#wake = () => resolve(undefined)))]);
      if (signal.aborted) return;
      try {
        return await this.#dial(talk);
      } catch (e) {
        if (signal.aborted) return;
        const why = asVoxError(e);
        busy = why.retryAfterMs ?? 0;
        const { away } = this.#now;
        if (away) this.#set({ away: { ...away, reachable: why.code !== 'no_gateway' } });
        const late = Date.now() + busy > until;
        if (late || !PASSING.includes(why.code)) return this.#finish('failed', why.code === 'no_gateway' ? new VoxError('lost') : why);
      }
    }
  }

  /**
   * @param {'ended'|'failed'} phase
   * @param {VoxError} [why]
   */
  #finish(phase, why) {
    this.#phase = phase;
    this.#why = why;
    this.#talk?.abort();
    this.#talk = this.#starting = undefined;
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(1000);
    clearTimeout(this.#breath);
    this.#hush();
    this.#dropCalls(say('call over'));
    this.#voice?.close();
    this.#voice = undefined;
    const unsent = this.#unsent.splice(0); // the gateway never received it
    const transcript = this.#now.transcript.filter((t) => !t.isUnsent);
    this.#set({ mic: 'off', isVoxSpeaking: false, isRecorded: false, questions: [], away: undefined, unsent, transcript });
  }

  /**
   * @param {VoxMessage} message
   * @returns {boolean} false without a connection
   */
  #send(message) {
    if (this.#phase !== 'live' || this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  // --- what the gateway says

  /** @param {VoxMessage} message */
  #receive(message) {
    const now = this.#now;
    switch (message.type) {
      case 'transcript':
        return this.#grow(message['role'], message['text'], message['newTurn']);
      case 'tool_call': {
        const { id = `${now.actions.length}`, name, title, args = {} } = message;
        this.#begun.set(id, performance.now());
        return this.#act({ id, name, title, args, data: null, status: 'running', at: now.transcript.length });
      }
      case 'tool_result': {
        const begun = now.actions.findLast((a) => (message['id'] ? a.id === message['id'] : a.name === message['name']));
        const { id = `${now.actions.length}`, name, data } = message;
        if (now.mode === 'live') this.#asked = false; // the model may say nothing more
        if (data.error && isWriter(name)) this.#forgetUnfinished();
        const status = statusOf(name, data);
        // What takes minutes stands where it has begun, below the person's answer, and then where it is ready.
        const moves = isWriter(name) && (status === 'done' ? begun?.status !== 'done' : data['app'] && !begun?.data?.['app']);
        const at = moves ? now.transcript.length : begun?.at ?? now.transcript.length;
        return this.#act({ id, name, args: {}, ...begun, data, status, at });
      }
      case 'ui_action':
        return this.#obey(message);
      case 'question': {
        const others = now.questions.filter((q) => q.id !== message['id']);
        const asked = message['withdrawn'] ? [] : [{ id: message['id'], text: message['text'] }];
        return this.#set({ questions: [...others, ...asked] });
      }
      case 'interrupted':
        this.#cut('person');
        return this.#flush();
      case 'state':
        this.#link = message['state'];
        this.#linkMessage = message['message'] ?? '';
        if (this.#link === 'live') this.#asked = false; // a typed answer is over
        return this.#set({});
      case 'latency': {
        const { type, ...latency } = message;
        return this.#set({ latencies: [...now.latencies, /** @type {any} */ (latency)].slice(-ANSWERS) });
      }
      case 'usage': {
        const { type, ...usage } = message;
        return this.#set({ usage: /** @type {any} */ (usage) });
      }
      case 'log':
        if (message['recording'] !== undefined) this.#set({ isRecorded: message['recording'] });
        return console.debug('gateway:', message['message']);
      case 'error':
        this.#why = errorOf(message);
        this.#asked = false;
        return this.#notice(this.#why.message);
      case 'session_end':
        return this.#over(message);
    }
  }

  /** @param {VoxMessage} message */
  #over({ reason, message }) {
    const said = this.#why?.message === message ? this.#why : new VoxError('ended', message); // the error before it has a code
    if (reason === 'error') return this.#finish('failed', said);
    this.#finish('ended', message || reason === 'timeout' ? new VoxError('ended', message || fill(errors['time_limit'])) : undefined);
  }

  /**
   * @param {TranscriptEntry['role']} role
   * @param {string} text
   * @param {boolean} [newTurn]
   * @param {boolean} [typed] here: what is left of an answer that it cuts off comes later, and belongs to that
   * @param {boolean} [isUnsent] it waits for the connection
   */
  #grow(role, text, newTurn, typed = false, isUnsent = false) {
    const { transcript, actions, mode } = this.#now;
    const goesOn = !typed && !newTurn && !this.#seam && transcript[this.#told]?.role === role;
    if (!typed) {
      this.#seam = false;
      if (!goesOn) this.#told = transcript.length;
    }
    const grown = (/** @type {TranscriptEntry} */ entry, /** @type {number} */ i) => (i === this.#told ? withoutFalseCut({ ...entry, text: entry.text + text }) : entry);
    const last = transcript.length;
    const caused = (/** @type {ToolAction} */ a) => a.at === last && performance.now() - (this.#begun.get(a.id) ?? -Infinity) < CAUSED;
    this.#set({
      transcript: goesOn ? transcript.map(grown) : [...transcript, { role, text, ...(isUnsent && { isUnsent }) }],
      ...(!goesOn && role === 'user' && !typed && { actions: actions.map((a) => (caused(a) ? { ...a, at: last + 1 } : a)) }),
    });
    if (role === 'vox' && mode === 'text' && this.#speak) this.#say(text);
  }

  /** Marks the answer that is cut off. @param {'person'|'link'} by */
  #cut(by) {
    const { transcript } = this.#now;
    const at = transcript[this.#told]?.role === 'vox' ? this.#told : -1;
    const cutBy = by === 'person' && performance.now() - this.#answeredAt < REPLACED ? 'answer' : by;
    if (at >= 0) this.#set({ transcript: transcript.map((t, i) => (i === at ? withoutFalseCut({ ...t, cutBy }) : t)) });
  }

  /** @param {ToolAction} action */
  #act(action) {
    const { actions } = this.#now;
    const known = actions.some((a) => a.id === action.id);
    this.#set({
      lastToolAction: action,
      actions: known ? actions.map((a) => (a.id === action.id ? action : a)) : [...actions, action],
    });
  }

  /** @param {VoxMessage} message a ui_action */
  #obey(message) {
    const { action, target, tool_id: id, tool_name: name, integration_prompt: prompt, app, title, bytes, part, url, files = [], version = 1, versions = [] } = message;
    const { tools, apps } = this.#now.project;
    this.dispatchEvent(new CustomEvent('action', { detail: message }));
    switch (action) {
      case 'navigate':
        return this.#set({ place: target });
      case 'add_tool':
        if (tools.some((t) => t.id === id)) return; // a client that is back gets all of them again
        return this.#set({ project: { apps, tools: [...tools, { id, name, prompt }] } });
      case 'app_progress':
      case 'app_ready': {
        const at = (/** @type {string} */ place) => new URL(place, gatewayURL(this.#options.url)).href;
        const old = apps.find((a) => a.name === app);
        if (url && old?.isUnsent && version !== old.version && versions.length === old.versions.length) return; // the gateway learns of the switch just now
        const one = url
          ? { name: app, title, url: at(url), files, version, versions: versions.map((/** @type {any} */ v) => ({ ...v, url: at(v.url) })) }
          : { files: [], version: 0, versions: [], ...old, name: app, bytes: bytes ?? 0, part };
        this.#set({ project: { tools, apps: old ? apps.map((a) => (a === old ? one : a)) : [...apps, one] } });
        const writing = this.#now.actions.findLast((a) => isWriter(a.name) && a.status === 'running');
        if (!url) { // the call's own result says it only after a while
          if (writing && !writing.data?.['app']) this.#act({ ...writing, data: { app, status: 'writing' }, at: this.#now.transcript.length });
          return;
        }
        if (this.#switching?.app === app && this.#switching?.version === version) this.#switching = void this.#recordSwitch(/** @type {App} */ (one));
        // Its result may have been lost.
        if (writing) this.#act({ ...writing, data: { app, title, url, files, version }, status: 'done', at: this.#now.transcript.length });
      }
    }
  }

  /**
   * Fails what runs; a result that comes all the same counts.
   * @param {string} error
   * @param {(action: ToolAction) => boolean} [which] all if absent
   */
  #dropCalls(error, which = () => true) {
    const { actions } = this.#now;
    if (!actions.some((a) => a.status === 'running' && which(a))) return;
    this.#set({ actions: actions.map((a) => (a.status === 'running' && which(a) ? { ...a, data: { error }, status: 'failed' } : a)) });
  }

  #forgetUnfinished() {
    const { tools, apps } = this.#now.project;
    this.#set({ project: { tools, apps: apps.filter((a) => a.url).map((a) => ({ ...a, bytes: undefined })) } });
  }

  // --- sound

  #openVoice() {
    const voice = (this.#voice = new Voice(() => gatewayURL(this.#options.url)));
    voice.onIdle = () => this.#pause();
    voice.onMicEnded = () => this.#openMic(voice);
    voice.onBlocked = () => this.#set({});
    voice.onSilent = () => isOpen(this.#now.mic) && this.#set({ mic: voice.silent ? 'silent' : 'live' });
    voice.onBroken = () => {
      if (!this.#broken) this.#notice(say('unplayable'));
      this.#broken = true;
      this.#pause();
    };
    if (this.#options.speaker) voice.setSpeaker(this.#options.speaker);
    voice.mute(this.#now.isMuted);
    voice.unblock(); // while the gesture counts
    return voice;
  }

  /** @param {Voice} voice */
  async #openMic(voice) {
    const set = (/** @type {Mic} */ mic) => this.#voice === voice && this.#set({ mic });
    set('asking');
    try {
      if (!navigator.mediaDevices) return set('insecure');
      await voice.openMic(this.#options.mic || true);
      const thin = new Thinner();
      await voice.capture((pcm, rate) => this.#hear(thin.from(pcm, rate)));
      set('live');
      if (this.#now.mode === 'text') this.#closeMic(); // the person has taken their time to allow it
    } catch (e) {
      set(refusal(e));
    }
  }

  #closeMic() {
    this.#voice?.stopCapture();
    this.#voice?.track?.stop();
    this.#set({ mic: 'off' });
  }

  get #hears() {
    return this.#phase === 'live' && isOpen(this.#now.mic) && !this.#now.isMuted && this.#now.mode === 'live';
  }

  /** @param {Int16Array<ArrayBuffer>} pcm at 16 kHz */
  #hear(pcm) {
    const socket = this.#socket;
    if (this.#hears && socket && socket.readyState === WebSocket.OPEN && socket.bufferedAmount < SOCKET_QUEUE) socket.send(pcm);
  }

  /** @param {ArrayBuffer} pcm */
  #play(pcm) {
    clearTimeout(this.#breath);
    if (this.#now.mode === 'live') this.#asked = false; // what was typed is being answered
    this.#voice?.play(new Int16Array(pcm));
    if (!this.#now.isVoxSpeaking) this.#set({ isVoxSpeaking: true });
  }

  /** What there was has been played. */
  #pause() {
    clearTimeout(this.#breath);
    this.#breath = setTimeout(() => this.#set({ isVoxSpeaking: false }), BREATH);
  }

  #flush() {
    this.#voice?.flush();
    this.#hush();
    clearTimeout(this.#breath);
    this.#set({ isVoxSpeaking: false });
  }

  /** @param {string} text */
  #say(text) {
    if (!window.speechSynthesis) return;
    const utterance = new SpeechSynthesisUtterance(text);
    const tell = () => this.#set({ isVoxSpeaking: this.#aloud.size > 0 });
    utterance.onstart = () => (this.#aloud.add(utterance), tell());
    utterance.onend = utterance.onerror = () => this.#aloud.delete(utterance) && tell();
    speechSynthesis.speak(utterance);
  }

  #hush() {
    if (this.#now.mode !== 'text') return;
    this.#aloud.clear();
    window.speechSynthesis?.cancel();
    this.#set({ isVoxSpeaking: false });
  }

  // --- telling

  /** @param {Partial<Snapshot>} change */
  #set(change) {
    this.#now = { ...this.#now, ...change };
    const { text: message, keys: sentences, canRetryMic } = this.#status();
    this.#now = { ...this.#now, isConnected: this.#phase === 'live', state: this.#stateNow(), message, sentences, canRetryMic };
    this.dispatchEvent(new Event('change'));
  }

  /** @param {string} sentence */
  #notice(sentence) {
    this.dispatchEvent(new CustomEvent('notice', { detail: sentence }));
  }

  /** @returns {State} */
  #stateNow() {
    if (this.#phase === 'lost') return 'reconnecting';
    if (this.#phase !== 'live') return this.#phase;
    if (this.#link === 'reconnecting') return 'reconnecting';
    if (this.#now.isVoxSpeaking) return 'speaking';
    return this.#hears && isOpen(this.#now.mic) ? 'listening' : 'ready';
  }

  /** The status, the same as on the other pages. */
  #status() {
    const { mic, mode, isVoxSpeaking, transcript } = this.#now;
    const waits = this.#link && this.#link !== 'live';
    const live = waits ? 'reconnecting' : isVoxSpeaking ? 'speaking' : 'listening';
    const state = { idle: 'idle', connecting: 'connecting', lost: 'reconnecting', live, ended: 'closed', failed: 'closed' }[this.#phase];
    const activity = this.#activity();
    return describe({
      state: /** @type {import('../status.js').Situation['state']} */ (state),
      mic: isOpen(mic) && !this.#hears ? 'muted' : mic,
      push: this.#now.isPushToTalk,
      asksMic: true,
      resumable: this.#phase !== 'idle' || transcript.length > 0,
      isLostForLong: !isMomentary(this.#now.away),
      hasTyped: hasUser(transcript),
      blocked: this.blocked,
      who: 'VOX',
      offers: OFFERS.vox,
      ...(waits && { wait: this.#linkMessage || fill(errors['resuming']) }),
      ...(activity && mode && { activity }),
      ...(this.#why && { reason: this.#why.code, message: this.#why.message }),
    });
  }

  /** What goes on beside the talk, in words: a question, a tool, or an answer that is written. */
  #activity() {
    const { mode, mic, isVoxSpeaking, questions, actions, transcript } = this.#now;
    if (questions.length) return say('question');
    const running = actions.find((a) => a.status === 'running' && !isWriter(a.name)); // an app that is being written shows itself
    if (running?.title) return running.title;
    if (mode !== 'text') return mic !== 'off' || isVoxSpeaking ? '' : say(this.#asked ? 'thinking' : 'can speak');
    if (!this.#asked) return say('typing');
    return transcript.at(-1)?.role === 'vox' ? say('writing') : say('thinking');
  }
}

/**
 * Makes 16 kHz of what some browsers capture only at the device's rate: each sample is the mean of those it stands for, which keeps
 * most of what is above 8 kHz out of it.
 */
class Thinner {
  #sum = 0;
  #weight = 0; // how much of a sample is in the sum, 0 to 1

  /**
   * @param {Int16Array<ArrayBuffer>} pcm
   * @param {number} rate of it
   */
  from(pcm, rate) {
    if (rate === UP_RATE) return pcm;
    const step = UP_RATE / rate;
    const out = new Int16Array(Math.ceil(pcm.length * step) + 1);
    let n = 0;
    for (const x of pcm) {
      let left = step; // of x, in samples of ours
      while (this.#weight + left >= 1) {
        out[n++] = this.#sum + x * (1 - this.#weight);
        left -= 1 - this.#weight;
        this.#sum = this.#weight = 0;
      }
      this.#sum += x * left;
      this.#weight += left;
    }
    return out.subarray(0, n);
  }
}

/** An answer whose last sentence was heard to its end was not cut off. @param {TranscriptEntry} entry @returns {TranscriptEntry} */
function withoutFalseCut(entry) {
  const { cutBy, ...whole } = entry;
  return isWhole(entry.text) ? whole : entry;
}

/** @param {string} one @param {string} other */
const isSame = (one, other) => [one, other].map((text) => text.toLowerCase().replaceAll(/[^\p{L}\p{N}]+/gu, ' ').trim()).every((text, _, [first]) => text === first);

/** Whether a tool writes an app, which takes minutes. @param {string} name */
const isWriter = (name) => ['generate_app', 'change_app'].includes(name);

/**
 * The first results of generate_app and change_app are that the person is asked, and that it has begun.
 * @param {string} name
 * @param {Record<string, any>} data
 */
function statusOf(name, data) {
  if (data['error']) return 'failed';
  return isWriter(name) && data['status'] && !data['url'] ? 'running' : 'done';
}

/** @param {VoxMessage} message */
const errorOf = ({ code = 'unknown_error', message, retryAfterMs }) => new VoxError(code, message, retryAfterMs);

const ended = () => new VoxError('ended', fill(errors['closed']));

/** @param {unknown} e */
const asVoxError = (e) => (e instanceof VoxError ? e : new VoxError('unknown_error', String(e)));

const badURL = (/** @type {string} */ why) => new VoxError('bad_options', `url ${why}: it is the gateway's endpoint, as wss://voxgate.example.com/api/vox/live`);

/** @param {string|URL} [url] */
const voxURL = (url) => socketURL(url, badURL);

/**
 * The gateway's root, which the endpoint is three names below.
 * @param {string|URL} [url]
 */
function gatewayURL(url) {
  const u = new URL('../../', voxURL(url));
  u.protocol = u.protocol.replace('ws', 'http');
  return u;
}
