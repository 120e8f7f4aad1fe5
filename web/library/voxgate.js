/**
 * The Voxgate client: a spoken conversation with Gemini through a gateway, over the WebSocket at once, and over WebRTC as soon as
 * that has connected.
 *
 *   const get_time = { description: 'The time', run: () => new Date().toString() };
 *   const session = open({ url: 'wss://voxgate.example.com/ws', tools: { get_time } });
 *   session.on('turn', ({ role, text, final }) => console.log(role, text, final));
 *   await session.ready;
 *   session.send('What time is it?');
 *   await session.close();
 *
 * Call `open` in a gesture (a click, a key), or the browser may hold the sound back. A session is used once;
 * `open` again is always safe. No dependencies, no build. types.d.ts describes all of it.
 */
import { SupersededError, Voice } from './audio.js';
import { Calls, tool, withPicture, withTools } from './calls.js';
import { asError, Connection, errorOf, VoxgateError } from './connection.js';
import { asks, errors } from './en.js';
import { Outbox } from './outbox.js';
import { pauses, refusal, sleep, socketURL, tokenOf } from './reach.js';
import { callIt, fill, named, speak } from './strings.js';
import { Turns } from './turns.js';
import { keepAwake } from './wakelock.js';

export { tool, VoxgateError, withPicture };

/**
 * @import { ClientType, ContextEntry, FunctionCall, ServerContent, ServerMessage, SessionState, SetupComplete } from './messages.d.ts'
 * @import { Kept } from './outbox.js'
 * @import { Away, CanvasAnswer, CanvasCall, Devices, Events, Mic, Options, State, Turn, Video } from './types.d.ts'
 */

const KEPT_FOR = 60_000; // ms that a lost conversation is looked for: as long as gateways wait by default
const SPEAKS = 100; // ms within which the voice follows the end of the thinking
const PROMPT = 60_000; // ms that `ready` waits for the answer to the microphone prompt; the person can type meanwhile
const RELOADED = 600_000; // ms after which a page that is back begins another conversation

/** What may be over when the gateway is asked again. */
const PASSING = [
  'lost', 'no_gateway', 'no_token', 'timeout', 'busy', 'connection_failed', 'connection_not_established', 'websocket_error', 'unknown_error',
];

/**
 * Begins a conversation, and returns at once: `ready` tells when the person can speak.
 * @param {Options} options
 */
export const open = (options) => new Session(options);

/**
 * Begins a conversation, and waits until the person can speak.
 * @param {Options} options
 */
export async function connect(options) {
  const session = open(options);
  await session.ready;
  return session;
}

export class Session {
  #options;
  #voice = new Voice(() => new URL(this.#options?.worklets ?? '.', this.#gateway));
  /** @type {import('./sight.js').Sight|undefined} */ #sight; // from the first picture on
  #looks = 0; // wishes to show something: the newest counts
  #turns;
  #calls;
  #outbox;
  #spoken; // the words are in the language of the page
  #ended = new AbortController();
  #begun = false; // the person could speak
  /** @type {Mic} */ #mic = 'off';
  /** @type {Video} */ #video = { state: 'off' };
  /** @type {Video['kind']} */ #seen; // the newest that was live
  /** @type {Connection|undefined} */ #connection;
  /** @type {SetupComplete|undefined} */ #setup;
  /** @type {string|undefined} */ #token; // to resume with
  #generation = 0; // of the voice: what is older is void
  /** @type {Map<string, Set<Function>>} */ #listeners = new Map();
  /** @type {SessionState} */ #link = { state: 'dialing' };
  #muted = false;
  #event = 0; // number of the last event of the conversation
  #doubted = false; // nothing comes from the gateway, and it is not yet given up
  /** @type {Away|undefined} */ #away;
  #wake = () => {}; // ends the pause before the next try
  #thinking = false; // the gateway says that an answer is due
  /** @type {ReturnType<typeof setTimeout>|undefined} */ #settling; // it says so no more
  #talking = false; // the person is, as the gateway hears it
  #speaking = false; // the model is
  #turnOver = false; // TURN_COMPLETE came while the end of the answer is still being played
  #hide = () => this.#leave();
  #abort = () => this.close(aborted());

  /** @param {Options} options */
  constructor(options) {
    this.#options = options ?? {};
    const { muted = false, speaker, resume, signal, who } = this.#options;
    if (who) callIt(who);
    this.#spoken = speak({ asks, errors }, this.#options);
    const { token, event = 0, turns, typed } = recall(resume);
    this.#token = token;
    this.#event = event;
    this.#turns = new Turns((turn) => this.#emit('turn', turn), turns);
    this.#outbox = new Outbox((message) => Boolean(this.#connection?.opened && this.#connection.send(message)), typed);
    this.#calls = new Calls({
      options: () => this.#options,
      gateway: () => this.#gateway,
      titleOf: (name) => this.#setup?.tools?.find((t) => t.name === name)?.title,
      tell: (call) => this.#emit('tool', call),
      show: (canvas) => this.#show(canvas),
      respond: (response, id) => this.#post('SEND_TOOL_RESPONSE', { toolResponse: { functionResponses: [response] } }, id),
      write: (text) => this.post('SEND_REALTIME_INPUT', { text }),
    });
    this.#muted = muted;
    this.#voice.mute(muted);
    if (speaker) this.#voice.setSpeaker(speaker);
    this.#voice.onIdle = () => this.#turnOver && this.#quiet();
    this.#voice.onMicEnded = () => this.#openMic('lost');
    this.#voice.onBlocked = this.#voice.onSilent = () => this.#changed();
    this.#voice.onBroken = (cause) =>
      this.#emit('error', new VoxgateError('playback_failed', String(cause)));
    addEventListener('pagehide', this.#hide);
    signal?.addEventListener('abort', this.#abort);
    const over = new Promise((_, reject) => this.#ended.signal.addEventListener('abort', () => reject(this.#ended.signal.reason)));
    this.ready = /** @type {Promise<void>} */ (Promise.race([this.#begin(), over])); // no wait once it has ended
    this.ready.catch(() => {}); // `closed` tells, too
  }

  async #begin() {
    try {
      this.#voice.unblock(); // while the gesture counts
      const asked = this.#options.mic === false || this.#options.signal?.aborted ? undefined : this.#openMic();
      await this.#spoken; // listeners are attached by then, too
      if (this.#options.signal?.aborted) throw aborted();
      await this.#dial();
      await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, PROMPT))]);
      if (this.#ended.signal.aborted) return;
      this.#begun = true;
      keepAwake(this.#ended.signal);
      this.#changed();
    } catch (e) {
      const why = asError(e);
      this.#end(why);
      throw why;
    }
  }

  /** @returns {State} */
  get state() {
    if (this.#ended.signal.aborted) return 'closed';
    if (!this.#begun) return 'connecting';
    const { state, message, unanswered } = this.#link;
    const waits = message && ['dialing', 'setup', 'resuming', 'reseeding'].includes(state);
    if (!this.#connection?.opened || this.#doubted || waits) return 'reconnecting';
    if (this.#speaking) return 'speaking';
    const due = this.#thinking || (message && !unanswered); // a gateway that makes the person wait expects an answer
    return due && !this.#talking ? 'thinking' : 'listening';
  }

  /** @returns {Mic} */
  get mic() {
    if (this.#mic !== 'live') return this.#mic;
    if (this.#muted) return 'muted';
    return this.#voice.silent ? 'silent' : 'live';
  }

  get track() {
    return this.#voice.track;
  }

  get video() {
    return this.#video;
  }

  get turns() {
    return this.#turns.list;
  }

  get transport() {
    return this.#connection?.carrier;
  }

  get setup() {
    return this.#setup;
  }

  get link() {
    return this.#link;
  }

  get away() {
    return this.#away;
  }

  retry() {
    this.#wake();
  }

  mix() {
    return this.#voice.mix();
  }

  get level() {
    const { mic, model } = this.#voice.level;
    return { mic: this.mic === 'live' ? mic : 0, model };
  }

  get blocked() {
    return this.#voice.blocked;
  }

  unblock() {
    this.#voice.unblock();
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
   * @template {keyof Events} K
   * @param {K} type
   * @param {(event: Events[K]) => void} f
   */
  once(type, f) {
    const off = this.on(type, (event) => {
      off();
      f(event);
    });
    return off;
  }

  /**
   * @template {keyof Events} K
   * @param {K} type
   * @param {(event: Events[K]) => void} f
   */
  off(type, f) {
    this.#listeners.get(type)?.delete(f);
  }

  get volume() {
    return this.#voice.volume;
  }

  set volume(volume) {
    this.#voice.volume = Math.min(1, Math.max(0, volume));
  }

  // --- what the person says, and does

  /** @param {string} text */
  send(text) {
    if (this.state === 'closed') return;
    this.#turns.typed(text);
    this.post('SEND_MESSAGE', { parts: [{ text }], turnComplete: true });
  }

  interrupt() {
    this.#voice.flush();
    this.post('INTERRUPT');
  }

  /** @param {boolean} [on] the other state if absent */
  mute(on = !this.#muted && this.#mic === 'live') {
    if (this.state === 'closed') return;
    this.#muted = on;
    this.#voice.mute(on);
    if (!on && !['live', 'asking'].includes(this.#mic)) this.#openMic();
    const marks = this.#options.config?.['voxgate']?.vad?.enabled === false; // by `talk`
    if (on && this.transport === 'websocket' && !marks) this.post('SEND_REALTIME_INPUT', { audioStreamEnd: true });
    this.#changed();
  }

  /** @param {boolean} on */
  talk(on) {
    if (this.state === 'closed' || on !== this.#muted) return;
    this.mute(!on);
    this.post('SEND_REALTIME_INPUT', on ? { activityStart: true } : { activityEnd: true });
  }

  /** @param {Devices} devices */
  async use({ mic, speaker, camera, video }) {
    if (this.state === 'closed') return;
    const chosen = Object.entries({ mic, speaker, camera }).filter(([, wish]) => wish !== undefined);
    this.#options = { ...this.#options, ...Object.fromEntries(chosen) };
    if (speaker !== undefined) this.#voice.setSpeaker(speaker);
    if (mic === false) this.#closeMic();
    const heard = mic && this.#openMic();
    if (video !== undefined) await this.#look(video);
    else if (camera && this.#video.kind === 'camera' && this.#video.state === 'live') await this.#look('camera');
    await heard;
  }

  /** @param {Pick<Options, 'config'|'tools'>} changes */
  update(changes) {
    const before = this.#options;
    const wished = (this.#options = { ...before, ...changes });
    const done = this.#ask('UPDATE_CONFIG', withTools(wished));
    done.catch(() => { // `error` tells, too
      const { config, tools } = this.#options; // what is in force is what the next conversation is asked for
      this.#options = { ...this.#options, config: config === wished.config ? before.config : config, tools: tools === wished.tools ? before.tools : tools };
    });
    return done;
  }

  /**
   * @param {ClientType} type
   * @param {any} [payload]
   */
  post(type, payload) {
    if (type === 'UPDATE_CONFIG') return void this.update({ config: payload }); // or the tools would be gone
    this.#post(type, payload);
  }

  /**
   * @param {ClientType} type
   * @param {any} [payload]
   * @param {string} [id]
   */
  #post(type, payload, id) {
    if (this.state !== 'closed') this.#outbox.post(type, payload, id);
  }

  /** @returns {Promise<ContextEntry[]>} */
  context() {
    return this.#ask('GET_CONTEXT');
  }

  async clearContext() {
    await this.#ask('CLEAR_CONTEXT');
  }

  /**
   * @param {ClientType} type
   * @param {any} [payload]
   * @returns {Promise<any>}
   */
  #ask(type, payload) {
    return this.state === 'closed' ? Promise.reject(aborted()) : this.#outbox.ask(type, payload);
  }

  stats() {
    return this.#connection?.stats() ?? Promise.resolve(undefined);
  }

  /** @param {VoxgateError} [why] what `closed` tells */
  async close(why = new VoxgateError('closed')) {
    const gone = this.#connection?.goodbye(why);
    this.#end(why);
    await gone;
  }

  /** For `await using`; a browser that does not know that never calls it. */
  [Symbol.asyncDispose]() {
    return this.close();
  }

  // --- the devices

  /** @param {Mic} [before] what it was */
  async #openMic(before) {
    if (this.#mic !== 'live' || before) this.#setMic('asking'); // else the person is heard until there is the other one
    try {
      if (!navigator.mediaDevices) return this.#setMic('insecure');
      const track = await this.#voice.openMic(this.#options.mic || true);
      this.#connection?.setTrack(track);
      this.#setMic('live');
    } catch (e) {
      if (e instanceof SupersededError) return; // the other wish tells
      const unheard = /** @type {Error} */ (e).name === 'UnheardError';
      if (!unheard && this.#mic === 'live') {
        return this.#emit('error', new VoxgateError('microphone_kept'));
      }
      const why = unheard ? 'unheard' : refusal(e);
      this.#setMic(before === 'lost' && why !== 'refused' ? 'lost' : why);
    }
  }

  #closeMic() {
    this.#voice.closeMic();
    this.#connection?.setTrack();
    this.#setMic('off');
  }

  /** @param {Mic} mic */
  #setMic(mic) {
    if (this.state === 'closed') return;
    this.#mic = mic;
    this.#changed();
  }

  /** @param {'camera'|'screen'|MediaStreamTrack|null} what */
  async #look(what) {
    const wish = ++this.#looks;
    if (!what) {
      this.#sight?.close();
      this.#connection?.setVideo();
      return this.#setVideo({ state: 'off' });
    }
    const kind = what instanceof MediaStreamTrack ? 'track' : what;
    if (!navigator.mediaDevices) return this.#setVideo({ state: 'insecure', kind });
    this.#setVideo({ ...this.#video, state: 'asking', kind });
    try {
      const { Sight } = await import('./sight.js'); // which may come to the second wish before the first
      if (this.state === 'closed' || wish !== this.#looks) return;
      const sight = (this.#sight ??= new Sight());
      sight.onEnded = () => this.use({ video: null }); // the browser's own "Stop sharing", or the camera was unplugged
      const track = await sight.open(what, this.#options.camera);
      this.#seen = kind;
      this.#setVideo({ state: 'live', kind, track });
      this.#connection?.setVideo(sight);
      this.#carried();
    } catch (e) {
      if (e instanceof SupersededError || wish !== this.#looks) return; // the other wish tells
      // Who thinks better of the screen goes on with the camera.
      const track = this.#sight?.track;
      this.#setVideo(track ? { state: 'live', kind: this.#seen, track } : { state: refusal(e), kind });
    }
  }

  /** @param {Video} video */
  #setVideo(video) {
    if (this.state === 'closed') return;
    this.#video = video;
    this.#changed();
  }

  /**
   * @param {CanvasCall} call
   * @returns {Promise<CanvasAnswer>}
   */
  #show(call) {
    const { canvas } = this.#options;
    if (canvas && canvas !== true) {
      call.signal.addEventListener('abort', () => canvas.hide(call.id), { once: true });
      return canvas.show(call);
    }
    return new Promise((resolve) => {
      call.signal.addEventListener('abort', () => resolve({ dismissed: true }), { once: true });
      this.#emit('canvas', { ...call, answer: resolve });
    });
  }

  // --- the connection, and the next one when it is lost

  /** @param {WebSocket} [socket] open or connecting */
  async #dial(socket) {
    const url = socketURL(this.#options.url, badURL);
    /** @type {string|undefined} */
    let token;
    try {
      token = await tokenOf(this.#options.token).catch((e) => {
        throw new VoxgateError('no_token', e.message);
      });
      if (this.#ended.signal.aborted) throw aborted();
    } catch (e) {
      socket?.close();
      throw e;
    }
    const resumeToken = this.#token;
    const connection = new Connection({
      url,
      socket: socket ?? new WebSocket(url),
      transport: this.#options.transport ?? 'auto',
      iceTransportPolicy: this.#options.iceTransportPolicy ?? 'all',
      voice: this.#voice,
      sight: () => this.#sight,
      hello: {
        agent: this.#options.agent,
        initialConfig: this.#config(),
        resumable: true,
        resumeToken,
        lastEvent: this.#event,
        token,
      },
      onMessage: (m) => this.#connection === connection && this.#receive(m),
      onCarrier: () => this.#connection === connection && this.#carried(),
      onHeard: (heard) => this.#connection === connection && this.#heard(heard),
      onWayLost: () => this.#connection === connection && this.#outbox.again(),
      onDoubt: (doubted, refused) => this.#connection === connection && this.#doubt(doubted, refused),
      onLost: (e, next) => this.#connection === connection && this.#lost(e, next),
    });
    this.#connection = connection;
    this.#generation = 0;
    this.#talking = this.#thinking = false;
    const setup = await connection.open();
    if (this.#ended.signal.aborted) throw aborted();
    this.#away = undefined;
    this.#setup = setup;
    named(setup.backend);
    this.#token = setup.resumeToken;
    if (this.#link.state === 'dialing' || this.#link.state === 'setup') this.#link = { state: 'live' };
    this.#changed();
    const { resumed, received = [] } = setup;
    if (resumed) return this.#outbox.resumed(received); // what was missed follows, the end of an open turn among it
    if (!resumeToken) return this.#outbox.again();
    this.#outbox.anew();
    this.#event = 0;
    this.#turns.finish('link');
    this.#calls.drop();
    this.#emit('error', new VoxgateError('not_resumed'));
  }

  /** The config, and what was said: should the conversation be gone, the next one knows. */
  #config() {
    const config = withTools(this.#options);
    const history = this.#token ? this.#turns.history(this.#outbox.texts) : [];
    const before = config['voxgate']?.history ?? [];
    return history.length ? { ...config, voxgate: { ...config['voxgate'], history: [...before, ...history].slice(-100) } } : config;
  }

  get #gateway() {
    const url = new URL('.', socketURL(this.#options.url, badURL));
    url.protocol = url.protocol.replace('ws', 'http');
    return url;
  }

  /** @param {boolean} heard the microphone can be sent, if there is one */
  #heard(heard) {
    if (!heard && this.#mic === 'live') this.#setMic('unheard');
    else if (this.#mic === 'unheard') this.#setMic('live');
  }

  #carried() {
    if (this.transport === 'webrtc') this.#heard(true); // a track needs no worklet
    if (this.transport === 'websocket') this.#sight?.capture((jpeg) => this.#connection?.sendPicture(jpeg));
    else this.#sight?.stopCapture();
    this.#changed();
  }

  /** @param {boolean} doubted @param {boolean} [refused] another socket was refused */
  #doubt(doubted, refused = false) {
    if (doubted === this.#doubted && (!refused || this.#away?.reachable === false)) return;
    this.#doubted = doubted;
    this.#away = doubted ? { since: this.#away?.since ?? Date.now(), reachable: !refused } : undefined;
    this.#changed();
  }

  /**
   * @param {VoxgateError} error
   * @param {WebSocket} [next] another socket to the gateway
   */
  async #lost(error, next) {
    this.#doubted = false;
    if (error.code !== 'lost' || !this.#token) {
      next?.close();
      return this.#end(error);
    }
    if (next && next.readyState > WebSocket.OPEN) next = undefined;
    this.#connection = undefined;
    this.#link = { state: 'dialing' };
    this.#away ??= { since: Date.now(), reachable: true };
    this.#turns.cut();
    this.#outbox.lost();
    this.#voice.flush();
    this.#sight?.stopCapture();
    this.#quiet();
    const until = Date.now() + KEPT_FOR;
    let earliest = 0; // as a busy gateway says
    for (const pause of pauses()) {
      if (!next) { // a client that gave up its old network is alone with the new one
        const waited = sleep(Math.max(earliest - Date.now(), pause), this.#ended.signal);
        await Promise.race([waited, new Promise((resolve) => (this.#wake = () => resolve(undefined)))]);
      }
      if (this.#ended.signal.aborted) return next?.close();
      try {
        const dialed = this.#dial(next);
        next = undefined;
        return await dialed;
      } catch (e) {
        if (this.#ended.signal.aborted) return;
        const why = asError(e);
        earliest = Date.now() + 1_000 * (why.retryAfter ?? 0);
        this.#away = { ...this.#away, reachable: why.code !== 'no_gateway' };
        this.#changed();
        if (!PASSING.includes(why.code) || earliest > until) return this.#end(why.code === 'no_gateway' ? error : why);
      }
    }
  }

  /** The page goes, perhaps to be loaded again. */
  #leave() {
    const { resume } = this.#options;
    if (!resume || !this.#token) return void this.close();
    remember(resume, { token: this.#token, event: this.#event, turns: this.turns, typed: this.#outbox.typed });
    this.#end(new VoxgateError('closed')); // without a goodbye the gateway keeps the conversation
  }

  /** @param {VoxgateError} why */
  #end(why) {
    if (this.state === 'closed') return;
    why.fatal = true;
    this.#doubted = false;
    this.#away = undefined;
    removeEventListener('pagehide', this.#hide);
    this.#options.signal?.removeEventListener('abort', this.#abort);
    this.#ended.abort(why);
    this.#connection?.end(why);
    this.#outbox.end(why);
    this.#calls.drop();
    const { canvas } = this.#options;
    if (canvas && canvas !== true) canvas.hide();
    this.#voice.close();
    this.#sight?.close();
    this.#mic = 'off';
    this.#video = { state: 'off' };
    this.#turns.finish(why.code === 'lost' ? 'link' : 'end');
    this.#changed();
    this.#emit('closed', why);
  }

  // --- what the gateway says

  /** @param {ServerMessage} message */
  #receive({ type, payload, event }) {
    if (event) this.#event = event;
    this.#outbox.settle();
    switch (type) {
      case 'CONTENT_MESSAGE':
        return this.#content(payload.serverContent);
      case 'USER_SPEAKING':
        this.#talking = payload.speaking;
        this.#emit('speech', payload);
        return this.#changed();
      case 'ASSISTANT_THINKING':
        clearTimeout(this.#settling);
        if (!payload.thinking) { // usually the answer begins at once
          this.#settling = setTimeout(() => this.#think(false), SPEAKS);
          return;
        }
        return this.#think(true);
      case 'ASSISTANT_SPEAKING':
        clearTimeout(this.#settling);
        this.#turnOver = this.#thinking = false;
        this.#speaking = true;
        this.#voice.answer();
        this.#outbox.answering();
        return this.#changed();
      case 'AUDIO_CHUNK':
        if (payload.generation < this.#generation) return; // it was on its way when it was cut off
        return void this.#voice.play(payload.data);
      case 'INTERRUPTED':
        this.#generation = payload?.generation ?? 0;
        if (payload?.by !== 'link') this.#voice.flush(); // else all that came of it is to be heard
        this.#turns.finish(payload?.by === 'link' ? 'link' : 'person', payload?.heard);
        return this.#quiet();
      case 'TURN_COMPLETE':
        this.#turns.finish();
        this.#turnOver = true;
        if (!this.#voice.playing) this.#quiet();
        return;
      case 'TOOL_CALL':
        return payload.toolCall.functionCalls.forEach((/** @type {FunctionCall} */ c) => this.#calls.run(c));
      case 'TOOL_CALL_CANCELLATION':
        return this.#calls.drop(payload.toolCallCancellation.ids);
      case 'TOOL_STATUS':
        return this.#calls.runsInGateway(payload);
      case 'groundingMetadata': {
        const chips = payload.chips && new URL(payload.chips, this.#gateway).href;
        const grounding = { ...payload.groundingMetadata, chips };
        this.#turns.found(grounding);
        return this.#emit('grounding', grounding);
      }
      case 'TURN_LATENCY':
        return this.#emit('latency', payload);
      case 'AGENT_STEP':
        this.#setup = this.#setup && { ...this.#setup, step: payload.step };
        return this.#emit('step', payload);
      case 'LOG_MESSAGE':
        if (payload.details?.usage) this.#emit('usage', payload.details.usage);
        if (this.#setup && payload.details?.recording !== undefined) {
          this.#setup = { ...this.#setup, recording: payload.details.recording };
          this.#changed();
        }
        return this.#emit('log', payload);
      case 'SESSION_STATE':
        if (payload.unanswered) this.#thinking = false; // no answer comes any more
        this.#emit('link', (this.#link = { ...payload, message: payload.message && waitOf(payload) }));
        return this.#changed();
      case 'CONTEXT':
        return this.#outbox.asked('GET_CONTEXT', 'CLEAR_CONTEXT')?.resolve?.(payload.entries);
      case 'GEMINI_ERROR':
        return this.#emit('error', errorOf(payload));
      case 'SETUP_COMPLETE': { // to an UPDATE_CONFIG; a refusal comes as GEMINI_ERROR, too
        const update = this.#outbox.asked('UPDATE_CONFIG');
        if (!payload.success) return update?.reject?.(errorOf(payload.error));
        this.#setup = { ...this.#setup, ...payload };
        update?.resolve?.();
        return this.#changed();
      }
    }
  }

  /** @param {ServerContent} content */
  #content({ inputTranscription, modelTurn, outputTranscription }) {
    if (inputTranscription?.text) this.#turns.said(inputTranscription.text);
    const written = (modelTurn?.parts ?? []).map((p) => (p.thought ? '' : p.text ?? '')).join('');
    const answer = written + (outputTranscription?.text ?? '');
    if (!answer) return;
    this.#outbox.answering();
    this.#turns.answers(answer, Boolean(outputTranscription?.text && this.#speaking));
  }

  /** @param {boolean} on */
  #think(on) {
    this.#thinking = on;
    if (this.state !== 'closed') this.#changed();
  }

  /** The model speaks no more. */
  #quiet() {
    this.#speaking = this.#turnOver = false;
    this.#changed();
  }

  // --- telling

  #changed() {
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

/** The sentence to show to the person meanwhile. @param {SessionState} link */
const waitOf = ({ state, unanswered }) => fill(errors[unanswered ? 'unanswered' : state === 'resuming' || state === 'reseeding' ? 'resuming' : 'waiting']);

const aborted = () => new VoxgateError('aborted');

const badURL = (/** @type {string} */ why) => new VoxgateError('bad_options', `url ${why}: it is the gateway's WebSocket, as wss://voxgate.example.com/ws`, { field: 'url' });

/**
 * The conversation that a page can go on with which was loaded again in the midst of it, as `open` with this name of `resume` does.
 * @param {string} name
 * @returns {{at: number, turns: Turn[]}|undefined} when it was left, in ms since 1970, and what was said
 */
export const resumable = (name) => read(name);

/** Forgets it: the next conversation is another one. @param {string} name */
export function forget(name) {
  try {
    sessionStorage.removeItem(keyOf(name));
  } catch {
    // storage is blocked for this page
  }
}

const keyOf = (/** @type {string} */ name) => `voxgate ${name}`;

/**
 * @param {string} name
 * @returns {{at: number, token?: string, event?: number, turns: Turn[], typed?: Kept[]}|undefined}
 */
function read(name) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(keyOf(name)) ?? '{}');
    return Date.now() - kept.at < RELOADED && Array.isArray(kept.turns) ? kept : undefined;
  } catch {
    return undefined; // storage is blocked for this page, or holds foreign data
  }
}

/**
 * Where a page that is loaded again finds its conversation: in this tab alone, and once.
 * @param {string} [name]
 * @returns {{token?: string, event?: number, turns?: Turn[], typed?: Kept[]}}
 */
function recall(name) {
  const kept = name && read(name);
  if (name) forget(name); // or a copy of this tab would take the conversation away
  return kept || {};
}

/**
 * @param {string} name
 * @param {{token: string, event: number, turns: readonly Turn[], typed: Kept[]}} kept
 */
function remember(name, kept) {
  try {
    sessionStorage.setItem(keyOf(name), JSON.stringify({ at: Date.now(), ...kept }));
  } catch {
    // storage is blocked for this page
  }
}
