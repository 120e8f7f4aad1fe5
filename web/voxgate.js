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

/**
 * @import { ClientMessage, ClientType, ConnectGemini, ContextEntry, FunctionCall, LiveConfig, Piece, ServerContent,
 *   ServerMessage, SessionState, SetupComplete } from './messages.d.ts'
 * @import { Events, Mic, Options, State, Tool, ToolCall, Transport, Turn } from './types.d.ts'
 */

/**
 * A message that is kept, because it waits for a connection, may not have arrived, or is owed an answer.
 * @typedef {ClientMessage & {sentAt?: number, answered?: boolean, resolve?: (entries: ContextEntry[]) => void,
 *   reject?: (error: LiveError) => void}} Kept
 */

const GATEWAY_TIMEOUT = 5_000; // for GEMINI_CONNECTED: the gateway answers at once or not at all
const SETUP_TIMEOUT = 20_000; // for SETUP_COMPLETE: Gemini may be slow, and the gateway tries more than once
const PEER_TIMEOUT = 5_000; // for WebRTC: ICE that works is done in one
const PEER_PAUSE = 2_000; // a "disconnected" peer often comes back by itself
const GOODBYE_TIMEOUT = 1_000;
const KEPT_FOR = 60_000; // how long a lost conversation is looked for: as long as gateways wait by default
const GAP = 300; // how long an event waits for one sent before it on the other way
const SOCKET_QUEUE = 64 * 1024; // more unsent audio than this is dropped: late speech is worth less than new speech
const SOCKET_STALL = 6_000; // a queue that stays full as long as this is a dead connection
const PIECE = 16 * 1024;
const KEPT = 64; // messages; the gateway knows the newest 256 that arrived
const SETTLED = 10_000; // a message has arrived if the gateway was heard as long as this after it was sent

/** What may be over when the gateway is asked again. */
const PASSING = [
  'lost', 'no_gateway', 'timeout', 'busy', 'connection_failed', 'connection_not_established', 'websocket_error', 'unknown_error',
];

/**
 * `code` is one of PROTOCOL.md's (`refused`, `busy`, `connection_failed` …) or one of ours: `no_gateway`, `timeout`,
 * `lost`, `ended`, `replaced`, `closed`, `aborted`, `playback_failed`, `not_resumed`.
 */
export class LiveError extends Error {
  name = 'LiveError';

  /**
   * @param {string} code for programs
   * @param {string} message for people
   * @param {number} [retryAfter] seconds, where it is known when to come back
   */
  constructor(code, message, retryAfter) {
    super(message);
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

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

export class Session {
  #options;
  #voice = new Voice();
  #ended = new AbortController();
  /** @type {State} */ #state = 'connecting';
  /** @type {Mic} */ #mic = 'off';
  /** @type {Connection|undefined} */ #connection;
  /** @type {SetupComplete|undefined} */ #setup;
  /** @type {Map<string, Set<Function>>} */ #listeners = new Map();
  #turns = 0;
  /** @type {Turn|undefined} */ #heard; // what the person is saying, or has said to the open answer
  /** @type {Turn|undefined} */ #answer;
  /** @type {Map<string, {call: ToolCall, abort: AbortController}>} */ #calls = new Map();
  /** @type {Kept[]} */ #kept = []; // in the order in which they were meant
  #messages = 0;
  /** @type {SessionState} */ #link = { state: 'dialing' };
  #muted = false;
  #turnOver = false; // TURN_COMPLETE came while the end of the answer is still being played
  #hide = () => this.close();
  #abort = () => this.close(aborted());

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    this.#voice.onIdle = () => this.#turnOver && this.#set('listening');
    this.#voice.onMicEnded = () => this.#openMic();
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
    return this.#state;
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
    if (this.#voice.track) this.#voice.track.enabled = !on;
    else if (!on && this.#mic !== 'asking') this.#openMic();
    if (on && this.transport === 'websocket') this.post('SEND_REALTIME_INPUT', { audioStreamEnd: true });
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

  async #dial() {
    const connection = new Connection({
      url: gatewayURL(this.#options.url),
      transport: this.#options.transport ?? 'auto',
      voice: this.#voice,
      hello: {
        initialConfig: withTools(this.#options.config ?? {}, this.#options.tools ?? {}),
        resumable: true,
        resumeToken: this.#setup?.resumeToken,
      },
      onMessage: (m) => this.#connection === connection && this.#receive(m),
      onCarrier: () => this.#connection === connection && this.#set(this.#state),
      onWayLost: () => this.#connection === connection && this.#postAgain(),
      onLost: (e) => this.#connection === connection && this.#lost(e),
    });
    this.#connection = connection;
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

  /** @param {LiveError} error */
  async #lost(error) {
    if (error.code !== 'lost' || !this.#setup?.resumeToken) return this.#end(error);
    this.#connection = undefined;
    this.#link = { state: 'dialing' };
    for (const m of this.#kept) m.sentAt = undefined; // it may have been sent to nobody
    this.#voice.flush();
    this.#finish(true);
    this.#set('reconnecting');
    const until = Date.now() + KEPT_FOR;
    for (let pause = 250; ; pause = Math.min(2 * pause, 5_000)) {
      await this.#sleep(pause * (0.5 + Math.random())); // spread: a restarted gateway meets all its clients at once
      if (this.#ended.signal.aborted) return;
      try {
        const { resumed } = await this.#dial();
        if (resumed) return;
        this.#dropCalls();
        this.#emit('error', new LiveError('not_resumed', 'The conversation could not be kept; this is a new one.'));
        return;
      } catch (e) {
        if (this.#ended.signal.aborted) return;
        const why = asLiveError(e);
        const next = Date.now() + 1_000 * (why.retryAfter ?? 0);
        if (!PASSING.includes(why.code) || next > until) return this.#end(why.code === 'no_gateway' ? error : why);
      }
    }
  }

  /** @param {number} ms */
  #sleep(ms) {
    const { signal } = this.#ended;
    return new Promise((resolve) => {
      setTimeout(resolve, ms);
      signal.addEventListener('abort', resolve, { once: true });
    });
  }

  /** @param {LiveError} why */
  #end(why) {
    if (this.#state === 'closed') return;
    removeEventListener('pagehide', this.#hide);
    this.#options.signal?.removeEventListener('abort', this.#abort);
    this.#ended.abort();
    this.#connection?.end(why);
    for (const m of this.#kept.splice(0)) m.reject?.(why);
    this.#dropCalls();
    this.#voice.close();
    this.#mic = 'off';
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
      const { name } = /** @type {Error} */ (e);
      if (name === 'NotAllowedError' || name === 'SecurityError') this.#setMic('refused');
      else this.#setMic(name === 'NotFoundError' || name === 'OverconstrainedError' ? 'missing' : 'failed');
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
  #receive({ type, payload }) {
    const settled = performance.now() - SETTLED;
    this.#kept = this.#kept.filter((m) => m.resolve || !m.sentAt || m.sentAt > settled);
    switch (type) {
      case 'CONTENT_MESSAGE':
        return this.#content(payload.serverContent);
      case 'ASSISTANT_SPEAKING':
        this.#turnOver = false;
        this.#answering();
        return this.#set('speaking');
      case 'AUDIO_CHUNK':
        return void this.#voice.play(payload.data);
      case 'INTERRUPTED':
        this.#voice.flush();
        this.#finish(true);
        return this.#set('listening');
      case 'TURN_COMPLETE':
        this.#finish(false);
        this.#turnOver = true;
        if (!this.#voice.playing) this.#set('listening');
        return;
      case 'TOOL_CALL':
        return payload.toolCall.functionCalls.forEach((/** @type {FunctionCall} */ c) => this.#call(c));
      case 'TOOL_CALL_CANCELLATION':
        return this.#dropCalls(payload.toolCallCancellation.ids);
      case 'groundingMetadata':
        return this.#emit('grounding', payload.groundingMetadata);
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
        if (payload.success) this.#setup = { ...this.#setup, ...payload };
    }
  }

  /** @param {ServerContent} content */
  #content(content) {
    const said = content.inputTranscription?.text;
    // Gemini does not promise that the end of a transcript comes before the answer to it, so it may grow after that.
    if (said) this.#heard = this.#grow(this.#heard ?? this.#newTurn('user'), said);
    const parts = content.modelTurn?.parts ?? [];
    const written = parts.map((p) => (p.thought ? '' : p.text ?? '')).join('');
    const answer = written + (content.outputTranscription?.text ?? '');
    if (!answer) return;
    this.#heardOut();
    if (!this.#answer) this.#answering();
    this.#answer = this.#grow(this.#answer ?? this.#newTurn('model'), answer);
  }

  /** The model has begun to answer what was sent so far. */
  #answering() {
    for (const m of this.#kept) m.answered ||= Boolean(m.sentAt);
  }

  #heardOut() {
    if (this.#heard && !this.#heard.final) this.#heard = this.#tell({ ...this.#heard, final: true });
  }

  /** @param {boolean} interrupted */
  #finish(interrupted) {
    this.#heardOut();
    if (this.#answer) this.#tell({ ...this.#answer, final: true, interrupted });
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
  async #call({ id, name, args = {} }) {
    const known = this.#calls.get(id);
    if (known) {
      // Asked again after a lost connection: an answer given meanwhile may not have arrived.
      if (known.call.response) this.#respond(known.call);
      return;
    }
    const abort = new AbortController();
    /** @type {ToolCall} */
    let call = { id, name, args, status: 'running' };
    const tell = (/** @type {Partial<ToolCall>} */ change) => {
      call = { ...call, ...change };
      this.#calls.set(id, { call, abort });
      this.#emit('tool', call);
    };
    abort.signal.addEventListener('abort', () => tell({ status: 'cancelled' }));
    if (this.#calls.size >= 64) this.#calls.delete(this.#calls.keys().next().value ?? '');
    tell({});
    const start = performance.now();
    /** @type {Partial<ToolCall>} */
    let outcome;
    try {
      const tool = this.#options.tools?.[name];
      if (!tool) throw new Error(`there is no tool ${name}`);
      const value = (await tool.run(args, { id, signal: abort.signal })) ?? null;
      const plain = typeof value === 'object' && value !== null && !Array.isArray(value);
      outcome = { status: 'done', response: JSON.parse(JSON.stringify(plain ? value : { output: value })) };
    } catch (e) {
      outcome = { status: 'failed', response: { error: e instanceof Error ? e.message : String(e) } };
    }
    if (abort.signal.aborted) return;
    tell({ ...outcome, ms: Math.round(performance.now() - start) });
    this.#respond(call);
  }

  /** @param {ToolCall} call */
  #respond({ id, name, response }) {
    const payload = { toolResponse: { functionResponses: [{ id, name, response }] } };
    this.#post({ type: 'SEND_TOOL_RESPONSE', payload, id: `tool ${id}`.slice(0, 128) }); // the same if asked again
  }

  /** @param {string[]} [ids] all if absent */
  #dropCalls(ids) {
    for (const { call, abort } of [...this.#calls.values()]) {
      if (call.status === 'running' && (ids?.includes(call.id) ?? true)) abort.abort();
    }
  }

  // --- telling

  /** @param {State} state */
  #set(state) {
    this.#state = state;
    if (state !== 'speaking') this.#turnOver = false;
    this.#emit('state', { state, mic: this.mic });
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

/**
 * One WebSocket and the peer beside it: two ways to one gateway. Used once.
 * `onLost` comes at most once, and only after `open` has resolved.
 */
class Connection {
  /** @type {'webrtc'|'websocket'|undefined} what carries the voice */ carrier;
  opened = false;
  #o;
  /** @type {WebSocket} */ #socket;
  /** @type {RTCPeerConnection|undefined} */ #pc;
  /** @type {RTCDataChannel|undefined} */ #channel;
  /** @type {RTCRtpSender|undefined} */ #sender;
  /** @type {Promise<unknown>} */ #negotiation = Promise.resolve(); // one step after the other
  /** @type {RTCIceCandidateInit[]} */ #waiting = []; // candidates that came before the answer
  #candidates = 0;
  #restarted = false;
  /** @type {SetupComplete|undefined} */ #setup;
  /** @type {ServerMessage|undefined} */ #fault; // a GEMINI_ERROR, until it is known whether the goodbye follows
  #ended = false;
  /** @type {(setup: SetupComplete) => void} */ #resolve = () => {};
  /** @type {(error: LiveError) => void} */ #reject = () => {};
  /** @type {Record<string, ReturnType<typeof setTimeout>|undefined>} */ #timers = {};
  #next = 1; // the seq to be told next
  /** @type {Map<number, ServerMessage>} */ #early = new Map();
  /** @type {Map<string, string[]>} */ #pieces = new Map();
  #pieceID = 0;
  #unstalled = 0; // when the socket last had room

  /**
   * @param {{url: URL, transport: Transport, voice: Voice, hello: ConnectGemini,
   *   onMessage: (m: ServerMessage) => void, onCarrier: () => void, onWayLost: () => void,
   *   onLost: (e: LiveError) => void}} o
   */
  constructor(o) {
    this.#o = o;
    this.#socket = new WebSocket(o.url);
  }

  /** @returns {Promise<SetupComplete>} when the model is there and the voice has a way */
  open() {
    const socket = this.#socket;
    socket.onopen = () => this.#say('CONNECT_GEMINI', this.#o.hello);
    socket.onmessage = ({ data }) => this.#read(data);
    socket.onclose = ({ code }) => this.#socketClosed(code);
    const silent = () => this.end(new LiveError('no_gateway', 'The gateway does not answer.'));
    this.#after('gateway', GATEWAY_TIMEOUT, silent);
    this.#after('setup', SETUP_TIMEOUT, () => this.end(new LiveError('timeout', 'Gemini did not answer in time.')));
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  #maybeOpen() {
    if (this.opened || !this.#setup || !this.carrier) return;
    this.opened = true;
    this.#resolve(this.#setup);
  }

  /**
   * @param {LiveError} error
   * @param {boolean} [keepSocket]
   */
  end(error, keepSocket) {
    if (this.#ended) return;
    this.#ended = true;
    for (const t of Object.values(this.#timers)) clearTimeout(t);
    this.#closePeer();
    this.#o.voice.stopCapture();
    this.#socket.onclose = null;
    if (!keepSocket) this.#socket.close(1000);
    this.#reject(error);
    if (this.opened) this.#o.onLost(error);
  }

  /**
   * Resolves when the gateway has answered, or will not. For everybody else the connection has ended at once.
   * @param {LiveError} why
   */
  async goodbye(why) {
    const [socket, pc, channel] = [this.#socket, this.#pc, this.#channel];
    const told = this.#say('DISCONNECT_GEMINI');
    this.#pc = undefined;
    this.end(why, told);
    if (told) {
      await new Promise((resolve) => {
        setTimeout(resolve, GOODBYE_TIMEOUT);
        const heard = (/** @type {MessageEvent} */ { data }) => /"GEMINI_DISCONNECTED"/.test(data) && resolve(0);
        socket.onclose = resolve;
        socket.onmessage = heard;
        if (channel) channel.onmessage = heard;
      });
    }
    pc?.close();
    socket.close(1000);
  }

  // --- the two ways

  /**
   * @param {ClientType} type
   * @param {any} [payload]
   */
  #say(type, payload) {
    return this.send({ type, payload });
  }

  /**
   * What is said goes over the channel while it is open; signalling stays with the socket.
   * @param {ClientMessage} message
   * @returns {boolean} false: there is no way
   */
  send({ type, id, payload }) {
    if (this.#ended) return false;
    const text = JSON.stringify({ type, id, payload });
    const socket = this.#socket.readyState === WebSocket.OPEN ? this.#socket : undefined;
    const channel = this.#channel?.readyState === 'open' ? this.#channel : undefined;
    const signalling = type.startsWith('WEBRTC_') || type.endsWith('_GEMINI');
    const fits = new TextEncoder().encode(text).length <= (this.#pc?.sctp?.maxMessageSize ?? 65536);
    const better = this.#pc?.connectionState === 'connected' && !signalling;
    try {
      if (channel && fits && (better || !socket)) channel.send(text);
      else if (socket) socket.send(text);
      else if (channel) for (const piece of this.#cut(text)) channel.send(piece);
      else return false;
    } catch {
      return false; // the channel's queue is full, which is a dead channel
    }
    return true;
  }

  /** @param {string} text */
  *#cut(text) {
    const id = String(++this.#pieceID);
    const bytes = new TextEncoder().encode(text);
    const parts = [];
    for (let from = 0, to = 0; from < bytes.length; from = to) {
      to = Math.min(from + PIECE, bytes.length);
      while (((bytes[to] ?? 0) & 0xc0) === 0x80) to--; // not within a character
      parts.push(new TextDecoder().decode(bytes.subarray(from, to)));
    }
    for (const [index, data] of parts.entries()) {
      yield JSON.stringify({ type: 'PIECE', payload: { id, index, count: parts.length, data } });
    }
  }

  /** @param {Piece} piece */
  #join({ id, index, count, data }) {
    const parts = this.#pieces.get(id) ?? [];
    if (index !== parts.length || count > 1024) return void this.#pieces.delete(id);
    parts.push(data);
    this.#pieces.set(id, parts);
    if (parts.length < count) return;
    this.#pieces.delete(id);
    this.#read(parts.join(''));
  }

  /** @param {unknown} data */
  #read(data) {
    if (this.#ended) return;
    /** @type {ServerMessage} */
    let message;
    try {
      message = JSON.parse(String(data));
    } catch {
      return; // not of this protocol
    }
    if (message.type === 'PIECE') return this.#join(message.payload);
    if (!message.seq) return this.#receive(message);
    if (message.seq < this.#next) return;
    this.#early.set(message.seq, message);
    this.#release();
  }

  /** Hands on the events that are next. Two ways can overtake each other; what one of them lost is given up soon. */
  #release() {
    for (let m; (m = this.#early.get(this.#next)) && !this.#ended; ) {
      this.#early.delete(this.#next++);
      this.#receive(m);
    }
    if (!this.#early.size) return this.#after('gap', 0);
    if (this.#timers['gap']) return;
    this.#after('gap', GAP, () => {
      this.#next = Math.min(...this.#early.keys());
      this.#release();
    });
  }

  /** @param {ServerMessage} message */
  #receive(message) {
    const { type, payload } = message;
    if (type !== 'GEMINI_DISCONNECTED') this.#tellFault();
    switch (type) {
      case 'GEMINI_CONNECTED':
        this.#after('gateway', 0);
        if (this.#o.transport === 'websocket') return this.#carry('websocket');
        return this.#openPeer(payload?.iceServers ?? []);
      case 'SETUP_COMPLETE':
        if (this.#setup) return this.#o.onMessage(message);
        this.#after('setup', 0);
        if (!payload.success) {
          return this.end(errorOf(payload.error));
        }
        this.#setup = payload;
        return this.#maybeOpen();
      case 'WEBRTC_ANSWER':
        this.#negotiate((pc) => pc.setRemoteDescription({ type: 'answer', sdp: payload.sdp }));
        for (const c of this.#waiting.splice(0)) this.#negotiate((pc) => pc.addIceCandidate(c));
        return;
      case 'WEBRTC_ICE_CANDIDATE': {
        const c = { ...payload, candidate: payload.candidate ?? '' };
        return this.#negotiate((pc) => (pc.remoteDescription ? pc.addIceCandidate(c) : this.#waiting.push(c)));
      }
      case 'GEMINI_ERROR': {
        const code = payload.details?.code;
        if (code === 'bad_offer' || code === 'peer_failed') this.#fallBack();
        this.#fault = message;
        return this.#after('fault', GAP, () => this.#tellFault());
      }
      case 'GEMINI_DISCONNECTED': {
        const { reason = 'The conversation has ended.' } = payload ?? {};
        if (this.#fault && this.#fault.payload.message === reason) return this.end(errorOf(this.#fault.payload));
        this.#tellFault();
        return this.end(new LiveError(reason === 'replaced' ? reason : 'ended', reason));
      }
      default:
        this.#o.onMessage(message);
    }
  }

  #tellFault() {
    const fault = this.#fault;
    this.#fault = undefined;
    this.#after('fault', 0);
    if (fault) this.#o.onMessage(fault);
  }

  /** @param {number} code */
  #socketClosed(code) {
    this.#after('gateway', 0);
    if (this.#fault && code === 1011) return this.end(errorOf(this.#fault.payload));
    this.#tellFault();
    if ([1000, 1008, 1009, 1011].includes(code)) return this.end(new LiveError('ended', 'The conversation has ended.'));
    if (!this.opened) return this.end(new LiveError('no_gateway', 'The gateway cannot be reached.'));
    this.#check();
  }

  /** Is there a way left? */
  #check() {
    if (this.#socket.readyState <= WebSocket.OPEN) return;
    if (this.#channel?.readyState === 'open') {
      const state = this.#pc?.connectionState;
      if (state === 'connected') {
        this.#after('peer', 0);
        return this.#o.onWayLost();
      }
      if (state === 'disconnected') return this.#after('peer', PEER_PAUSE, () => this.end(lost()));
    }
    this.end(lost());
  }

  // --- the voice over WebRTC

  /** @param {RTCIceServer[]} iceServers */
  #openPeer(iceServers) {
    /** @type {RTCPeerConnection} */
    let pc;
    try {
      pc = new RTCPeerConnection({ iceServers, bundlePolicy: 'max-bundle' });
    } catch {
      return this.#fallBack(); // no WebRTC here, or an ICE server it cannot read
    }
    this.#pc = pc;
    const channel = (this.#channel = pc.createDataChannel('events'));
    channel.onmessage = ({ data }) => this.#read(data);
    channel.onclose = () => this.#pc === pc && this.#check();
    // sendrecv before there is a microphone: it is put in when it comes, without another offer.
    this.#sender = pc.addTransceiver('audio', { direction: 'sendrecv' }).sender;
    if (this.#o.voice.track) this.setTrack(this.#o.voice.track);
    pc.ontrack = ({ track }) => this.#o.voice.playTrack(track);
    pc.onnegotiationneeded = () =>
      this.#negotiate(async () => {
        await pc.setLocalDescription();
        this.#say('WEBRTC_OFFER', { sdp: pc.localDescription?.sdp });
      });
    pc.onicecandidate = ({ candidate: c }) => {
      if (c?.candidate) this.#candidates++;
      const { candidate = null, sdpMid = null, sdpMLineIndex = null } = c?.toJSON() ?? {};
      this.#say('WEBRTC_ICE_CANDIDATE', { candidate, sdpMid, sdpMLineIndex });
    };
    pc.onicegatheringstatechange = () => {
      if (pc.iceGatheringState === 'complete' && !this.#candidates) this.#fallBack();
    };
    pc.onconnectionstatechange = () => this.#pc === pc && this.#peerChanged(pc.connectionState);
    this.#after('peer', PEER_TIMEOUT, () => this.#fallBack());
  }

  /**
   * Steps run one at a time and only on the peer they were meant for.
   * @param {(pc: RTCPeerConnection) => unknown} step
   */
  #negotiate(step) {
    const pc = this.#pc;
    if (!pc) return;
    this.#negotiation = this.#negotiation
      .then(() => (this.#pc === pc ? step(pc) : undefined))
      .catch((e) => console.debug('voxgate: negotiation', e)); // a bad candidate is no harm; a bad answer times out
  }

  /** @param {RTCPeerConnectionState} state */
  #peerChanged(state) {
    if (this.#socket.readyState > WebSocket.OPEN) return this.#check();
    if (state === 'connected') {
      this.#after('peer', 0);
      this.#restarted = false;
      this.#carry('webrtc');
    } else if (state === 'disconnected') {
      this.#after('peer', PEER_PAUSE, () => this.#restart());
    } else if (state === 'failed') {
      this.#restart();
    }
  }

  /** Another network, perhaps: new candidates once, then the socket. */
  #restart() {
    if (this.#restarted || this.carrier !== 'webrtc') return this.#fallBack();
    this.#restarted = true;
    this.#pc?.restartIce();
    this.#after('peer', PEER_TIMEOUT, () => this.#fallBack());
  }

  #fallBack() {
    if (this.#ended || this.carrier === 'websocket') return;
    const { opened } = this;
    if (this.#o.transport === 'webrtc') return this.end(new LiveError('peer_failed', 'WebRTC did not connect.'));
    this.#closePeer();
    // A chunk of audio takes the voice to the socket; silence does, when there is no microphone to send from.
    this.#sendAudio(new Int16Array(320), 16_000);
    this.#carry('websocket');
    if (opened) this.#o.onWayLost();
  }

  #closePeer() {
    this.#after('peer', 0);
    const pc = this.#pc;
    this.#pc = this.#channel = this.#sender = undefined;
    pc?.close();
    if (pc) this.#o.voice.stopTrack();
  }

  /** @param {MediaStreamTrack} track */
  setTrack(track) {
    this.#sender?.replaceTrack(track).catch(() => {}); // the peer was closed meanwhile
  }

  // --- the voice over the socket

  /** @param {'webrtc'|'websocket'} carrier */
  #carry(carrier) {
    this.carrier = carrier;
    if (carrier === 'websocket') {
      const { voice } = this.#o;
      voice.capture((pcm, rate) => voice.track?.enabled && this.#sendAudio(pcm, rate)).catch(reportError);
    }
    this.#o.onCarrier();
    this.#maybeOpen();
  }

  /**
   * @param {Int16Array} pcm
   * @param {number} rate
   */
  #sendAudio(pcm, rate) {
    const now = performance.now();
    if (this.#socket.bufferedAmount > SOCKET_QUEUE) {
      if (this.#unstalled && now - this.#unstalled > SOCKET_STALL) this.end(lost());
      return;
    }
    this.#unstalled = now;
    const data = btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)));
    this.#say('SEND_REALTIME_INPUT', { audio: { mimeType: `audio/pcm;rate=${rate}`, data } });
  }

  /**
   * Sets, or with no function clears, the one timer of a name.
   * @param {string} name
   * @param {number} ms
   * @param {() => void} [f]
   */
  #after(name, ms, f) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = f && setTimeout(() => {
      this.#timers[name] = undefined;
      f();
    }, ms);
  }
}

const aborted = () => new LiveError('aborted', 'The conversation was given up.');
const lost = () => new LiveError('lost', 'The connection was lost.');

/** @param {string|URL} [url] */
function gatewayURL(url = new URL('ws', import.meta.url)) {
  const u = new URL(url, location.href);
  u.protocol = u.protocol.replace('http', 'ws');
  return u;
}

/**
 * @param {LiveConfig} config
 * @param {Record<string, Tool>} tools
 */
function withTools(config, tools) {
  const functionDeclarations = Object.entries(tools).map(([name, { run, ...rest }]) => ({ name, ...rest }));
  if (!functionDeclarations.length) return config;
  return { ...config, tools: [...(config['tools'] ?? []), { functionDeclarations }] };
}

/**
 * What of a lost conversation goes to the one that had to be begun anew: what was said and has no answer yet. Tools'
 * answers belong to the old one.
 * @param {Kept} m
 */
const worthAsking = ({ type, answered, resolve }) => resolve || (!answered && type !== 'SEND_TOOL_RESPONSE');

/** @param {import('./messages.d.ts').GeminiError} error */
const errorOf = ({ message, details }) => new LiveError(details?.code ?? 'unknown_error', message, details?.retryAfter);

/** @param {unknown} e */
function asLiveError(e) {
  return e instanceof LiveError ? e : new LiveError('unknown_error', String(e));
}
