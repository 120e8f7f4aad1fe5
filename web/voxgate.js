/**
 * The Voxgate client: a spoken conversation with Gemini through a gateway, over WebRTC or, where that cannot connect,
 * over the WebSocket alone.
 *
 *   const get_time = { description: 'The time', run: () => new Date().toString() };
 *   const session = await connect({ tools: { get_time } });
 *   session.on('turn', ({ role, text, final }) => console.log(role, text, final));
 *   session.send('What time is it?');
 *   await session.close();
 *
 * Call `connect` in a gesture (a click, a key), or the browser may hold the sound back. A session is used once;
 * `connect` again is always safe. No dependencies, no build.
 */
import { Voice } from './audio.js';
import { Connection, errorOf, LiveError, lost } from './connection.js';
import { dataURL, Sight } from './sight.js';

export { LiveError };

/**
 * @import { ClientMessage, ClientType, ContextEntry, FunctionCall, FunctionResponse, LiveConfig,
 *   ServerContent, ServerMessage, SessionState, SetupComplete, ToolStatus } from './messages.d.ts'
 * @import { CanvasAnswer, CanvasCall, Events, Look, Mic, Options, State, Tool, ToolCall, Turn } from './types.d.ts'
 */

/**
 * A message that is kept, because it waits for a connection, may not have arrived, or is owed an answer.
 * @typedef {ClientMessage & {sentAt?: number, answered?: boolean, resolve?: (entries: ContextEntry[]) => void,
 *   reject?: (error: LiveError) => void}} Kept
 */

const KEPT_FOR = 60_000; // how long a lost conversation is looked for: as long as gateways wait by default
const KEPT = 64; // messages; the gateway knows the newest 256 that arrived
// For a tool that asks the person first, who may have to look for the page. A model that waits for its tools
// is told after 10 s that the result follows as text.
const FOREGROUND_TIMEOUT = '60s';
const SETTLED = 10_000; // a message has arrived if the gateway was heard as long as this after it was sent

const CANVAS_TOOLS = ['create_canvas_tool', 'append_to_canvas_tool', 'show_canvas_tool'];

/** What may be over when the gateway is asked again. */
const PASSING = [
  'lost', 'no_gateway', 'timeout', 'busy', 'connection_failed', 'connection_not_established', 'websocket_error', 'unknown_error',
];

/**
 * Opens a conversation. Resolves when both sides can speak; rejects with a LiveError, within 25 s at the latest.
 * A refused microphone is no failure: see `session.mic`.
 * @param {Options} [options]
 */
export async function connect(options = {}) {
  if (options.signal?.aborted) throw aborted();
  const session = new Session(options);
  await session.open();
  return session;
}

/**
 * What a tool returns so that the model sees a picture with the answer.
 * @param {object} result
 * @param {Blob} picture a JPEG or PNG
 */
export const withPicture = (result, picture) => new Pictured(result, picture);

class Pictured {
  /** @param {object} result @param {Blob} picture */
  constructor(result, picture) {
    this.result = result;
    this.picture = picture;
  }
}

export class Session {
  #options;
  #voice = new Voice();
  #sight = new Sight();
  #ended = new AbortController();
  /** @type {State} */ #state = 'connecting';
  /** @type {Mic} */ #mic = 'off';
  /** @type {Look} */ #looks = { state: 'off' };
  /** @type {Connection|undefined} */ #connection;
  /** @type {SetupComplete|undefined} */ #setup;
  #generation = 0; // of the voice: what is older is void
  /** @type {Map<string, Set<Function>>} */ #listeners = new Map();
  #turns = 0;
  /** @type {Turn|undefined} */ #heard; // what the person is saying, or has said to the open answer
  /** @type {Turn|undefined} */ #answer;
  /** @type {Map<string, {call: ToolCall, abort: AbortController, begun: number, answer?: FunctionResponse}>} */ #calls = new Map();
  #serial = 0; // of questions to the person, and of progress
  /** @type {Kept[]} */ #kept = []; // in the order in which they were meant
  #messages = 0;
  /** @type {SessionState} */ #link = { state: 'dialing' };
  #muted = false;
  #event = 0; // number of the last event of the conversation
  #doubted = false; // nothing comes from the gateway, and it is not yet given up
  #due = false; // the person has said or typed something that has no answer yet
  #talking = false; // the person is, as the gateway hears it
  #turnOver = false; // TURN_COMPLETE came while the end of the answer is still being played
  #hide = () => this.close();
  #abort = () => this.close(aborted());

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    this.#muted = options.muted ?? false;
    if (options.speaker) this.#voice.setSpeaker(options.speaker);
    this.#voice.onIdle = () => this.#turnOver && this.#set('listening');
    this.#voice.onMicEnded = () => this.#openMic();
    this.#sight.onEnded = () => this.look(null); // the browser's own "Stop sharing", or the camera was unplugged
    this.#voice.onBlocked = () => this.#set(this.#state);
    this.#voice.onBroken = (cause) =>
      this.#emit('error', new LiveError('playback_failed', `This browser cannot play the voice here: ${cause}`));
    addEventListener('pagehide', this.#hide);
    options.signal?.addEventListener('abort', this.#abort);
  }

  /** @internal `connect` does it */
  async open() {
    this.#voice.unblock(); // while the gesture counts
    if (this.#options.mic !== false) this.#openMic();
    try {
      await this.#dial();
    } catch (e) {
      const why = asLiveError(e);
      this.#end(why);
      throw why;
    }
  }

  get state() {
    return this.#doubted ? 'reconnecting' : this.#state;
  }

  /** An answer is due: the person has finished, and the model has not begun. */
  get thinking() {
    return this.#due && !this.#talking && this.state === 'listening';
  }

  get mic() {
    return this.#mic === 'live' && this.#muted ? 'muted' : this.#mic;
  }

  /** @returns {'webrtc'|'websocket'|undefined} what carries the voice */
  get transport() {
    return this.#connection?.carrier;
  }

  /** SETUP_COMPLETE: sessionId, model, backend, effectiveConfig. */
  get setup() {
    return this.#setup;
  }

  /** Where the conversation stands between the gateway and Gemini; `message` is for the person who waits. */
  get link() {
    return this.#link;
  }

  /** Loudness of both sides now, 0 to 1; for a meter that asks at every frame. */
  get level() {
    const { mic, model } = this.#voice.level;
    return { mic: this.mic === 'live' ? mic : 0, model };
  }

  /**
   * @template {keyof Events} K
   * @param {K} type
   * @param {(event: Events[K]) => void} f
   * @returns {() => void} unsubscribes
   */
  on(type, f) {
    const set = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, set.add(f));
    return () => void set.delete(f);
  }

  /**
   * A typed turn. It interrupts the voice.
   * @param {string} text
   */
  send(text) {
    this.#heardOut();
    this.#heard = undefined;
    this.#tell({ ...this.#newTurn('user'), text, final: true });
    this.post('SEND_MESSAGE', { parts: [{ text }], turnComplete: true });
    this.#setDue(true);
  }

  /** Stops the answer that is being given. The model takes it for said. */
  interrupt() {
    this.#voice.flush();
    this.post('INTERRUPT');
  }

  /**
   * Any message of the protocol. While reconnecting it waits. What was typed, tools' answers and changes of the
   * configuration arrive exactly once.
   * @param {ClientType} type
   * @param {any} [payload]
   */
  post(type, payload) {
    const once = ['SEND_MESSAGE', 'SEND_TOOL_RESPONSE', 'UPDATE_CONFIG'].includes(type) || payload?.text !== undefined;
    this.#post({ type, payload, id: once ? `m${++this.#messages}` : undefined });
  }

  /** @param {Kept} message */
  #post(message) {
    if (this.#state === 'closed') return message.reject?.(aborted());
    if (this.#connection?.opened && this.#connection.send(message)) message.sentAt = performance.now();
    if (message.sentAt && !message.id && !message.resolve) return; // nothing is lost with it
    this.#kept.push(message);
    if (this.#kept.length > KEPT) this.#kept.shift()?.reject?.(lost());
  }

  /** Sends again what may not have arrived, and then what waited. The gateway ignores what it knows. */
  #postAgain() {
    for (const message of this.#kept.splice(0)) this.#post(message);
  }

  /**
   * What was said so far.
   * @returns {Promise<ContextEntry[]>}
   */
  context() {
    return this.#ask('GET_CONTEXT');
  }

  /** Has the model forget what was said so far. */
  async clearContext() {
    await this.#ask('CLEAR_CONTEXT');
  }

  /**
   * @param {ClientType} type
   * @returns {Promise<ContextEntry[]>}
   */
  #ask(type) {
    return new Promise((resolve, reject) => this.#post({ type, resolve, reject }));
  }

  /**
   * Mutes, or lets speak again; asks for the microphone if there is none yet.
   * @param {boolean} [on] the other state if absent
   */
  mute(on = !this.#muted && this.#mic === 'live') {
    if (this.#state === 'closed') return;
    this.#muted = on;
    const { track } = this.#voice;
    if (track?.readyState === 'live' && this.#mic !== 'unheard') track.enabled = !on;
    else if (!on && this.#mic !== 'asking') this.#openMic();
    if (on && this.transport === 'websocket' && !this.#marks) this.post('SEND_REALTIME_INPUT', { audioStreamEnd: true });
    this.#set(this.#state);
  }

  /** The client marks speech, by `talk`. */
  get #marks() {
    return this.#options.config?.['voxgate']?.vad?.enabled === false;
  }

  /**
   * Push to talk, where `config.voxgate.vad.enabled` is false: what is said between talk(true) and talk(false) is heard, and answered.
   * @param {boolean} on
   */
  talk(on) {
    if (this.#state === 'closed' || on !== this.#muted) return;
    this.mute(!on);
    this.post('SEND_REALTIME_INPUT', on ? { activityStart: true } : { activityEnd: true });
  }

  /**
   * Changes what `connect` was given; what is left out stays as it is. A new `config` replaces the whole one, but for the tools.
   * @param {Pick<Options, 'config'|'mic'|'speaker'|'camera'>} changes
   */
  update(changes) {
    const { config, mic, speaker, camera } = changes;
    this.#options = { ...this.#options, ...changes };
    if (config) this.post('UPDATE_CONFIG', withTools(this.#options));
    if (mic && this.#voice.track) this.#openMic();
    if (speaker !== undefined) this.#voice.setSpeaker(speaker);
    if (camera && this.#looks.kind === 'camera') this.look('camera');
  }

  /** What the browser counts of the WebRTC way; undefined over the WebSocket. */
  stats() {
    return this.#connection?.stats() ?? Promise.resolve(undefined);
  }

  /** What the model is shown. */
  get looks() {
    return this.#looks;
  }

  /**
   * Shows the model the camera, the screen, or a video track; null shows nothing more. Resolves when the browser and the
   * person have decided: `looks` tells how. Call it in a gesture, or the browser may refuse the screen.
   * @param {'camera'|'screen'|MediaStreamTrack|null} what
   */
  async look(what) {
    if (this.#state === 'closed') return;
    if (!what) {
      this.#sight.close();
      this.#connection?.setVideo();
      return this.#setLooks({ state: 'off' });
    }
    const kind = what instanceof MediaStreamTrack ? 'track' : what;
    if (!navigator.mediaDevices) return this.#setLooks({ state: 'insecure', kind });
    const before = this.#looks;
    this.#setLooks({ ...before, state: 'asking', kind });
    try {
      const track = await this.#sight.open(what, this.#options.camera);
      this.#connection?.setVideo(track);
      this.#setLooks({ state: 'live', kind, track });
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return; // by another call, which tells
      // Who thinks better of the screen goes on with the camera.
      const { track } = this.#sight;
      this.#setLooks(track && before.track === track ? before : { state: refusal(e), kind });
    }
  }

  /** @param {Look} looks */
  #setLooks(looks) {
    if (this.#state === 'closed') return;
    this.#looks = looks;
    this.#set(this.#state);
  }

  /** True while the browser holds the sound back for want of a gesture. */
  get blocked() {
    return this.#voice.blocked;
  }

  /** Lets the sound play that was held back. Call it in a gesture. */
  unblock() {
    this.#voice.unblock();
  }

  /**
   * Says goodbye and lets go of everything. Safe to call at any time, and again.
   * @param {LiveError} [why] what `closed` tells
   * @returns {Promise<void>} when the gateway has heard it
   */
  async close(why = new LiveError('closed', 'The conversation was ended here.')) {
    const gone = this.#connection?.goodbye(why);
    this.#end(why);
    await gone;
  }

  // --- the connection, and the next one when it is lost

  /** @param {WebSocket} [socket] one that is open, or about to be */
  async #dial(socket) {
    const url = gatewayURL(this.#options.url);
    const { token } = this.#options;
    const shown = typeof token === 'function' ? await token() : token;
    if (this.#ended.signal.aborted) {
      socket?.close();
      throw aborted();
    }
    const connection = new Connection({
      url,
      socket: socket ?? new WebSocket(url),
      transport: this.#options.transport ?? 'auto',
      iceTransportPolicy: this.#options.iceTransportPolicy ?? 'all',
      voice: this.#voice,
      sight: this.#sight,
      hello: {
        initialConfig: withTools(this.#options),
        resumable: true,
        resumeToken: this.#setup?.resumeToken,
        lastEvent: this.#event,
        token: shown,
      },
      onMessage: (m) => this.#connection === connection && this.#receive(m),
      onCarrier: () => this.#connection === connection && this.#carried(),
      onUnheard: () => this.#connection === connection && this.#setMic('unheard'),
      onWayLost: () => this.#connection === connection && this.#postAgain(),
      onDoubt: (doubted) => this.#connection === connection && this.#doubt(doubted),
      onLost: (e, next) => this.#connection === connection && this.#lost(e, next),
    });
    this.#connection = connection;
    this.#generation = 0;
    this.#talking = false;
    const setup = await connection.open();
    if (this.#state === 'closed') throw aborted();
    this.#setup = setup;
    if (this.#link.state === 'dialing' || this.#link.state === 'setup') this.#link = { state: 'live' };
    this.#set('listening');
    const { resumed, received = [] } = setup;
    this.#kept = this.#kept.filter((m) => (resumed ? !received.includes(m.id ?? '') : worthAsking(m)));
    this.#postAgain();
    return setup;
  }

  #carried() {
    if (this.#mic === 'unheard' && this.transport === 'webrtc') this.#mic = 'live'; // a track needs no worklet
    this.#set(this.#state);
  }

  /** @param {boolean} doubted */
  #doubt(doubted) {
    if (doubted === this.#doubted) return;
    this.#doubted = doubted;
    this.#set(this.#state);
  }

  /**
   * @param {LiveError} error
   * @param {WebSocket} [next] another socket to the gateway
   */
  async #lost(error, next) {
    this.#doubted = false;
    if (error.code !== 'lost' || !this.#setup?.resumeToken) {
      next?.close();
      return this.#end(error);
    }
    if (next && next.readyState > WebSocket.OPEN) next = undefined;
    this.#connection = undefined;
    this.#link = { state: 'dialing' };
    for (const m of this.#kept) m.sentAt = undefined; // it may have been sent to nobody
    this.#voice.flush();
    this.#set('reconnecting');
    const until = Date.now() + KEPT_FOR;
    for (let pause = 250; ; pause = Math.min(2 * pause, 5_000)) {
      // Spread: a restarted gateway meets all its clients at once. Who gave up the old network is alone with the new one.
      if (!next) await this.#sleep(pause * (0.5 + Math.random()));
      if (this.#ended.signal.aborted) return next?.close();
      try {
        const dialed = this.#dial(next);
        next = undefined;
        const { resumed } = await dialed;
        if (resumed) return; // what was missed follows, the end of an open turn among it
        this.#finish(true);
        this.#dropCalls();
        this.#setDue(this.#kept.some((m) => m.type === 'SEND_MESSAGE'));
        this.#emit('error', new LiveError('not_resumed', 'The conversation could not be kept; this is a new one.'));
        return;
      } catch (e) {
        if (this.#ended.signal.aborted) return;
        const why = asLiveError(e);
        const earliest = Date.now() + 1_000 * (why.retryAfter ?? 0);
        if (!PASSING.includes(why.code) || earliest > until) return this.#end(why.code === 'no_gateway' ? error : why);
      }
    }
  }

  /**
   * Until the time is over, or there is a network again.
   * @param {number} ms
   */
  #sleep(ms) {
    const over = new AbortController();
    return new Promise((resolve) => {
      setTimeout(resolve, ms);
      this.#ended.signal.addEventListener('abort', resolve, over);
      addEventListener('online', resolve, over);
    }).finally(() => over.abort());
  }

  /** @param {LiveError} why */
  #end(why) {
    if (this.#state === 'closed') return;
    this.#doubted = false;
    removeEventListener('pagehide', this.#hide);
    this.#options.signal?.removeEventListener('abort', this.#abort);
    this.#ended.abort();
    this.#connection?.end(why);
    for (const m of this.#kept.splice(0)) m.reject?.(why);
    this.#dropCalls();
    this.#options.canvas?.hide();
    this.#voice.close();
    this.#sight.close();
    this.#mic = 'off';
    this.#looks = { state: 'off' };
    this.#finish(true);
    this.#set('closed');
    this.#emit('closed', why);
  }

  async #openMic() {
    const { mic = true } = this.#options;
    this.#setMic('asking');
    try {
      if (!navigator.mediaDevices) return this.#setMic('insecure');
      const track = await this.#voice.openMic(mic === false ? true : mic);
      track.enabled = !this.#muted;
      this.#connection?.setTrack(track);
      this.#setMic('live');
    } catch (e) {
      this.#setMic(/** @type {Error} */ (e).name === 'UnheardError' ? 'unheard' : refusal(e));
    }
  }

  /** @param {Mic} mic */
  #setMic(mic) {
    if (this.#state === 'closed') return;
    this.#mic = mic;
    this.#set(this.#state);
  }

  // --- what the gateway says

  /** @param {ServerMessage} message */
  #receive({ type, payload, event }) {
    if (event) this.#event = event;
    const settled = performance.now() - SETTLED;
    this.#kept = this.#kept.filter((m) => m.resolve || !m.sentAt || m.sentAt > settled);
    switch (type) {
      case 'CONTENT_MESSAGE':
        return this.#content(payload.serverContent);
      case 'USER_SPEAKING':
        this.#talking = payload.speaking;
        return this.#set(this.#state);
      case 'ASSISTANT_SPEAKING':
        this.#turnOver = this.#due = false;
        this.#voice.answer();
        this.#answering();
        return this.#set('speaking');
      case 'AUDIO_CHUNK':
        if (payload.generation < this.#generation) return; // it was on its way when it was cut off
        return void this.#voice.play(payload.data);
      case 'INTERRUPTED':
        this.#generation = payload?.generation ?? 0;
        if (payload?.by !== 'link') this.#voice.flush(); // else all that came of it is to be heard
        this.#finish(true, payload?.heard);
        this.#due &&= payload?.by === 'text' || payload?.by === 'voice'; // which is what the next answer is to
        return this.#set('listening');
      case 'TURN_COMPLETE':
        this.#finish(false);
        this.#due = false;
        this.#turnOver = true;
        if (!this.#voice.playing) this.#set('listening');
        return;
      case 'TOOL_CALL':
        return payload.toolCall.functionCalls.forEach((/** @type {FunctionCall} */ c) => this.#call(c));
      case 'TOOL_CALL_CANCELLATION':
        return this.#dropCalls(payload.toolCallCancellation.ids);
      case 'TOOL_STATUS':
        return this.#runsInGateway(payload);
      case 'groundingMetadata': {
        const chips = payload.chips && new URL(payload.chips, this.#gateway);
        return this.#emit('grounding', { ...payload.groundingMetadata, ...(chips && { chips: chips.href }) });
      }
      case 'TURN_LATENCY':
        return this.#emit('latency', payload);
      case 'LOG_MESSAGE':
        if (payload.details?.usage) this.#emit('usage', payload.details.usage);
        return this.#emit('log', payload);
      case 'SESSION_STATE':
        return this.#emit('link', (this.#link = payload));
      case 'CONTEXT': {
        const asked = this.#kept.findIndex((m) => m.resolve && m.sentAt);
        if (asked >= 0) this.#kept.splice(asked, 1)[0]?.resolve?.(payload.entries);
        return;
      }
      case 'GEMINI_ERROR':
        return this.#emit('error', errorOf(payload));
      case 'SETUP_COMPLETE': // to an UPDATE_CONFIG; a refusal comes as GEMINI_ERROR, too
        if (!payload.success) return;
        this.#setup = { ...this.#setup, ...payload };
        this.#set(this.#state);
    }
  }

  /** @param {ServerContent} content */
  #content(content) {
    const said = content.inputTranscription?.text;
    // Gemini does not promise that the end of a transcript comes before the answer to it, so it may grow after that.
    if (said) {
      this.#heard = this.#grow(this.#heard ?? this.#newTurn('user'), said);
      if (!this.#answer) this.#setDue(this.#state === 'listening');
    }
    const parts = content.modelTurn?.parts ?? [];
    const written = parts.map((p) => (p.thought ? '' : p.text ?? '')).join('');
    const answer = written + (content.outputTranscription?.text ?? '');
    if (!answer) return;
    this.#heardOut();
    if (!this.#answer) this.#answering();
    this.#setDue(false);
    this.#answer = this.#grow(this.#answer ?? this.#newTurn('model'), answer);
  }

  /** The model has begun to answer what was sent so far. */
  #answering() {
    for (const m of this.#kept) m.answered ||= Boolean(m.sentAt);
  }

  /** @param {boolean} due */
  #setDue(due) {
    if (this.#due === due) return;
    this.#due = due;
    this.#set(this.#state);
  }

  #heardOut() {
    if (this.#heard && !this.#heard.final) this.#heard = this.#tell({ ...this.#heard, final: true });
  }

  /**
   * @param {boolean} interrupted
   * @param {string} [heard] what the person heard of the answer
   */
  #finish(interrupted, heard) {
    this.#heardOut();
    if (this.#answer) this.#tell({ ...this.#answer, text: heard ?? this.#answer.text, final: true, interrupted });
    this.#heard = this.#answer = undefined;
  }

  /**
   * @param {'user'|'model'} role
   * @returns {Turn}
   */
  #newTurn(role) {
    return { id: `${role}-${++this.#turns}`, role, text: '', final: false, interrupted: false };
  }

  /**
   * @param {Turn} turn
   * @param {string} more
   */
  #grow(turn, more) {
    return this.#tell({ ...turn, text: turn.text + more });
  }

  /** @param {Turn} turn */
  #tell(turn) {
    this.#emit('turn', turn);
    return turn;
  }

  // --- tools

  /** @param {FunctionCall} asked */
  async #call({ id, name, args = {}, title }) {
    const known = this.#calls.get(id);
    if (known) {
      // Asked again after a lost connection: an answer given meanwhile may not have arrived. It goes under the same id.
      if (known.answer) this.#respond(known.answer, known.begun);
      return;
    }
    const { canvas, tools = {} } = this.#options;
    const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
    const shows = canvas && (CANVAS_TOOLS.includes(name) || id.startsWith('ask-'));
    /** @type {ToolCall} */
    const call = { id, name, title: title ?? tool?.title ?? this.#titleOf(name), where: 'client', args, status: 'running' };
    const { abort: { signal }, begun } = this.#track(call);
    const answered = new Promise((respond, reject) => tool && !tool.run && Object.assign(call, { respond, reject }));
    answered.catch(() => {}); // nobody may wait for it
    this.#emit('tool', call);
    /** @type {Partial<ToolCall>} */
    let outcome;
    /** @type {FunctionResponse['parts']} */
    let parts;
    try {
      if (!shows && !tool) throw new Error(`there is no tool ${name}`);
      const shown = shows && this.#show({ ...call, args }, signal, call);
      let value = await (shown || this.#run(/** @type {Tool} */ (tool), call, answered, signal));
      if (value instanceof Pictured) {
        const [, mimeType = '', data = ''] = /^data:([^;,]*).*?,(.*)$/.exec(await dataURL(value.picture)) ?? [];
        parts = [{ inlineData: { mimeType, data } }];
        value = value.result;
      }
      outcome = { status: 'done', response: asObject(value) };
    } catch (e) {
      outcome = { status: 'failed', response: { error: e instanceof Error ? e.message : String(e) } };
    }
    if (signal.aborted) return;
    const answer = { id, name, response: outcome.response, parts };
    const { respond: _, reject: __, ...rest } = call;
    this.#emit('tool', this.#track({ ...rest, ...outcome, ms: since(begun) }, answer).call);
    this.#respond(answer, begun);
  }

  /**
   * @param {Tool} tool
   * @param {ToolCall} call
   * @param {Promise<unknown>} answered by whoever hears of the call
   * @param {AbortSignal} signal
   */
  async #run(tool, call, answered, signal) {
    const { id, name, args, title } = call;
    /** @type {(schema: object|string, title?: string, view?: Element) => Promise<CanvasAnswer>} */
    const ask = (schema, title, view) =>
      this.#show({ id: `ask-${id}-${++this.#serial}`, name: 'show_canvas_tool', args: { schema }, title, view }, signal, call);
    const confirm = async (/** @type {string} */ text, yes = 'Yes', no = 'No', about = title) => {
      const elements = [
        { type: 'text', value: text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`) },
        { type: 'button', label: yes, action: 'submit' },
        { type: 'button', label: no, action: 'dismiss' },
      ];
      return (await ask({ type: 'canvas', elements }, about))['action'] === 'submit';
    };
    if (tool.foreground) {
      const what = title ?? name;
      if (document.hidden) {
        call.missed = !notify(what);
        const told = call.missed ? 'could not be notified' : 'was sent a notification';
        throw new Error(`The page is in the background; the person ${told}. Ask again when they are back.`);
      }
      const may = tool.foreground === 'asks' || (await confirm(`Gemini wants to: ${what}`, 'Allow', 'Not now', ''));
      if (!may) throw new Error('the person did not allow it');
    }
    const progress = (/** @type {unknown} */ value) => {
      if (signal.aborted || this.#calls.get(id)?.answer) return;
      this.#respond({ id, name, response: asObject(value), willContinue: true });
    };
    if (!tool.run) return answered;
    return tool.run(args, { id, signal, progress, confirm: (text) => confirm(text), ask: (schema, view) => ask(schema, title, view) });
  }

  /**
   * @param {Omit<CanvasCall, 'gateway'|'send'>} call
   * @param {AbortSignal} signal
   * @param {ToolCall} by
   */
  async #show(call, signal, by) {
    const { canvas } = this.#options;
    if (!canvas) throw new Error('there is no canvas to ask the person on');
    if (signal.aborted) return { dismissed: /** @type {const} */ (true) };
    signal.addEventListener('abort', () => canvas.hide(call.id), { once: true });
    const send = (/** @type {object} */ answer) => this.post('SEND_REALTIME_INPUT', { text: JSON.stringify(answer) });
    const answer = canvas.show({ ...call, gateway: this.#gateway, send });
    if (document.hidden && !(await Promise.race([answer, undefined])) && !notify(by.title ?? 'a question')) {
      this.#emit('tool', { ...by, missed: true });
    }
    return answer;
  }

  /** @param {ToolStatus} status */
  #runsInGateway({ id, name, title = this.#titleOf(name), status, ms, error }) {
    this.#emit('tool', this.#track({ id, name, title, where: 'gateway', status, ms, ...(error && { response: { error } }) }).call);
  }

  /** @param {string} name */
  #titleOf(name) {
    return this.#setup?.tools?.find((t) => t.name === name)?.title;
  }

  /**
   * @param {ToolCall} call
   * @param {FunctionResponse} [answer]
   */
  #track(call, answer) {
    let entry = this.#calls.get(call.id);
    if (!entry) {
      const over = [...this.#calls.values()].filter((e) => e.call.status !== 'running');
      for (const e of over.slice(0, -64)) this.#calls.delete(e.call.id);
      const fresh = (entry = { call, abort: new AbortController(), begun: performance.now() });
      const cancel = () => this.#emit('tool', (fresh.call = { ...fresh.call, status: 'cancelled', ms: since(fresh.begun) }));
      entry.abort.signal.addEventListener('abort', cancel);
      this.#calls.set(call.id, entry);
    }
    return Object.assign(entry, { call, answer });
  }

  /** @param {FunctionResponse} answer */
  #respond(answer, key = ++this.#serial) {
    const id = `tool ${key} ${answer.id}`.slice(0, 128);
    this.#post({ type: 'SEND_TOOL_RESPONSE', payload: { toolResponse: { functionResponses: [answer] } }, id });
  }

  get #gateway() {
    const url = new URL('.', gatewayURL(this.#options.url));
    url.protocol = url.protocol.replace('ws', 'http');
    return url;
  }

  /** @param {string[]} [ids] all if absent */
  #dropCalls(ids) {
    for (const [id, { call, abort }] of [...this.#calls]) {
      if (ids && !ids.includes(id)) continue;
      this.#calls.delete(id); // it may be used again
      if (call.status === 'running') abort.abort();
    }
  }

  // --- telling

  /** @param {State} state */
  #set(state) {
    this.#state = state;
    if (state !== 'speaking') this.#turnOver = false;
    this.#emit('state', { state: this.state, mic: this.mic });
  }

  /**
   * @template {keyof Events} K
   * @param {K} type
   * @param {Events[K]} event
   */
  #emit(type, event) {
    for (const f of this.#listeners.get(type) ?? []) {
      try {
        f(event);
      } catch (e) {
        reportError(e); // one listener's fault is not the next one's
      }
    }
  }
}

/** @param {number} then */
const since = (then) => Math.round(performance.now() - then);

const aborted = () => new LiveError('aborted', 'The conversation was given up.');

/**
 * Why there is no microphone, camera or screen.
 * @param {unknown} e
 */
function refusal(e) {
  const { name } = /** @type {Error} */ (e);
  if (name === 'NotAllowedError' || name === 'SecurityError') return 'refused';
  return name === 'NotFoundError' || name === 'OverconstrainedError' ? 'missing' : 'failed';
}

/** @param {string|URL} [url] */
function gatewayURL(url = new URL('ws', import.meta.url)) {
  const u = new URL(url, location.href);
  u.protocol = u.protocol.replace('http', 'ws');
  return u;
}

/**
 * @param {Options} options
 * @returns {LiveConfig}
 */
function withTools({ config = {}, tools = {}, canvas }) {
  const functionDeclarations = Object.entries(tools).map(([name, { run, foreground, ...rest }]) => ({
    name,
    ...(foreground && { timeout: FOREGROUND_TIMEOUT }),
    ...rest,
  }));
  return {
    ...config,
    ...(canvas && { voxgate: { canvas: true, ...config['voxgate'] } }),
    ...(functionDeclarations.length && { tools: [...(config['tools'] ?? []), { functionDeclarations }] }),
  };
}

/**
 * Answers are objects.
 * @param {unknown} value
 */
function asObject(value = null) {
  const plain = typeof value === 'object' && value !== null && !Array.isArray(value);
  return JSON.parse(JSON.stringify(plain ? value : { output: value }));
}

/**
 * Calls the person back to the page, if that was allowed before.
 * @param {string} what
 * @returns {boolean} false: it was not, or cannot be
 */
function notify(what) {
  try {
    if (Notification.permission !== 'granted') throw new Error('not allowed');
    const n = new Notification(`Gemini: ${what}`, { body: 'Gemini needs you in the conversation.', tag: 'voxgate' });
    n.onclick = () => {
      window.focus();
      n.close();
    };
    return true;
  } catch {
    return false; // Android has notifications only for service workers, old iPhones have none
  }
}

/**
 * What of a lost conversation goes to the one that had to be begun anew: what was said and has no answer yet. Tools'
 * answers belong to the old one.
 * @param {Kept} m
 */
const worthAsking = ({ type, answered, resolve }) => resolve || (!answered && type !== 'SEND_TOOL_RESPONSE');

/** @param {unknown} e */
function asLiveError(e) {
  return e instanceof LiveError ? e : new LiveError('unknown_error', String(e));
}
