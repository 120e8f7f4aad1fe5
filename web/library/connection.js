/**
 * The connection to a gateway: a WebSocket and a WebRTC peer, which messages use which, and whether the gateway still responds.
 */
import { errors } from './en.js';
import { fill } from './strings.js';

/**
 * @import { ClientMessage, ClientType, ConnectGemini, GeminiError, Piece, ServerMessage, SetupComplete } from './messages.d.ts'
 * @import { Transport } from './types.d.ts'
 * @import { Voice } from './audio.js'
 * @import { Sight } from './sight.js'
 */

const GATEWAY_TIMEOUT = 5_000; // for GEMINI_CONNECTED: the gateway answers at once or not at all
const SETUP_TIMEOUT = 20_000; // for SETUP_COMPLETE: Gemini may be slow, and the gateway tries more than once
const PEER_TIMEOUT = 10_000; // for WebRTC: the gateway gives a peer up then, too. ICE that works is done in one second
const RESTART_TIMEOUT = 5_000; // for an ICE restart, which is silent
// How often we look whether anything has come. Silence is counted in looks: a page that was busy, throttled or asleep
// has missed some.
const LOOK = 250;
const PING = 2; // looks without anything until we ask
// Looks without anything until the way of the voice is suspect. To a microphone, also a muted one, the gateway reports ten times
// a second: at 20 % loss the longest gap was 0.43 s (Chromium 156). Without one little comes but PONGs, two of three.
// Over the socket everything waits for what was lost before it: a PONG took up to 4.0 s, four times lost and sent again by TCP.
const SUSPECT = { webrtc: 6, silent: 12, websocket: 20 };
// So many of them another network leaves.
const CHANGED = { webrtc: 4, silent: 4, websocket: 16 };
const SETTLE = 2; // looks from suspect to lost, if another socket is open: that took two round trips, an answer on this one takes one
// Likewise when the socket has closed: it is the gateway that has died, as a rule, and not the network.
const CLOSED = { suspect: 2, settle: 1 };
const REDIAL = 12; // looks until another socket is tried: TCP itself would wait longer each time
const UNREACHED = 40; // looks until it is lost though there is nothing better: for 10 s the gateway keeps what is said
const OVER = 120; // the same for a conversation that cannot be resumed: a gateway waits 20 s for a socket and 30 s for a peer
const GOODBYE_TIMEOUT = 1_000;
const GAP = 300; // how long an event waits for one sent before it on the other way
const SOCKET_QUEUE = 64 * 1024; // more unsent audio than this is dropped: late speech is worth less than new speech
const PIECE = 16 * 1024;

/**
 * `code` is one of PROTOCOL.md's (`refused`, `busy`, `connection_failed` …) or one of ours: `bad_options`, `no_token`, `no_gateway`,
 * `origin_refused`, `timeout`, `lost`, `ended`, `time_limit`, `token_limit`, `budget`, `silence`, `shutdown`, `replaced`, `closed`, `aborted`, `playback_failed`, `microphone_kept`,
 * `not_resumed`.
 */
export class VoxgateError extends Error {
  name = 'VoxgateError';
  fatal = false; // the session has ended with it

  /**
   * @param {string} code for programs
   * @param {string} [message] for people, where the table has none for this code
   * @param {{field?: string, retryAfter?: number}} [details] what is wrong, and in how many seconds to come back
   */
  constructor(code, message, { field, retryAfter } = {}) {
    super(fill((code === 'ended' && message) || (errors[code] ?? message)));
    this.told = message;
    this.code = code;
    this.field = field;
    this.retryAfter = retryAfter;
  }
}

/**
 * A WebSocket and a WebRTC peer to one gateway. It cannot be used again after it is closed.
 * `onLost` is called at most once, and only after `open` has resolved.
 */
export class Connection {
  /** @type {'webrtc'|'websocket'|undefined} what carries the voice */ carrier;
  opened = false;
  #o;
  /** @type {WebSocket} */ #socket;
  /** @type {RTCPeerConnection|undefined} */ #pc;
  /** @type {RTCDataChannel|undefined} */ #channel;
  /** @type {RTCRtpSender|undefined} */ #sender;
  /** @type {RTCRtpTransceiver|undefined} */ #video; // from the first picture on
  /** @type {Promise<unknown>} */ #negotiation = Promise.resolve(); // one step after the other
  /** @type {RTCIceCandidateInit[]} */ #waiting = []; // candidates that came before the answer
  #candidates = 0;
  /** @type {'asked'|'answered'|undefined} */ #restart; // of ICE, until something comes again
  /** @type {WebSocket|undefined} */ #next; // another socket, while it is not known whether ours lives
  /** @type {number|undefined} */ #came; // packets over WebRTC, at the last look
  #heard = false; // a message, since the last look
  #quiet = 0; // looks since something came the way of the voice
  #silent = 0; // looks since something came any way
  #looking = false;
  /** @type {ReturnType<typeof setInterval>|undefined} */ #watch;
  #network = network?.type;
  #changed = false; // the network, since the last look
  #onNetwork = (/** @type {Event} */ { type }) => {
    // `change` comes for another estimate of its speed, too
    this.#changed ||= type === 'online' || network?.type !== this.#network;
    this.#network = network?.type;
  };
  /** @type {SetupComplete|undefined} */ #setup;
  /** @type {ServerMessage|undefined} */ #fault; // a GEMINI_ERROR, until it is known whether the goodbye follows
  #ended = false;
  /** @type {(setup: SetupComplete) => void} */ #resolve = () => {};
  /** @type {(error: VoxgateError) => void} */ #reject = () => {};
  /** @type {Record<string, ReturnType<typeof setTimeout>|undefined>} */ #timers = {};
  #seq = 1; // of the next event
  /** @type {Map<number, ServerMessage>} */ #early = new Map();
  /** @type {Map<string, string[]>} */ #pieces = new Map();
  #pieceID = 0;

  /**
   * @param {{url: URL, socket: WebSocket, transport: Transport, iceTransportPolicy: RTCIceTransportPolicy, voice: Voice, sight: () => Sight|undefined, hello: ConnectGemini,
   *   onMessage: (m: ServerMessage) => void, onCarrier: () => void, onHeard: (heard: boolean) => void, onWayLost: () => void,
   *   onDoubt: (doubted: boolean, refused?: boolean) => void, onLost: (e: VoxgateError, next?: WebSocket) => void}} o
   */
  constructor(o) {
    this.#o = o;
    this.#socket = o.socket;
  }

  /** @returns {Promise<SetupComplete>} when the model is there and the voice has a way */
  open() {
    const socket = this.#socket;
    socket.onopen = () => this.#say('CONNECT_GEMINI', this.#o.hello);
    if (socket.readyState === WebSocket.OPEN) this.#say('CONNECT_GEMINI', this.#o.hello);
    socket.onmessage = ({ data }) => this.#read(data);
    socket.onclose = ({ code }) => this.#socketClosed(code);
    const silent = () => this.end(new VoxgateError('no_gateway'));
    this.#after('gateway', GATEWAY_TIMEOUT, silent);
    this.#after('setup', SETUP_TIMEOUT, () => this.end(new VoxgateError('timeout')));
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  #maybeOpen() {
    if (this.opened || !this.#setup || !this.carrier) return;
    this.opened = true;
    this.#watch = setInterval(() => this.#look(), LOOK);
    addEventListener('online', this.#onNetwork);
    network?.addEventListener('change', this.#onNetwork);
    this.#resolve(this.#setup);
  }

  /**
   * @param {VoxgateError} error
   * @param {boolean} [keepSocket]
   */
  end(error, keepSocket) {
    if (this.#ended) return;
    this.#ended = true;
    for (const t of Object.values(this.#timers)) clearTimeout(t);
    clearInterval(this.#watch);
    removeEventListener('online', this.#onNetwork);
    network?.removeEventListener('change', this.#onNetwork);
    this.#closePeer();
    this.#o.voice.stopCapture();
    this.#socket.onclose = null;
    if (!keepSocket) this.#socket.close(1000);
    this.#reject(error);
    if (this.opened) this.#o.onLost(error, this.#next);
  }

  /**
   * Resolves when the gateway has answered, or will not. For everybody else the connection has ended at once.
   * @param {VoxgateError} why
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
   * Sends over the data channel while it is open; signalling always uses the socket.
   * @param {ClientMessage} message
   * @returns {boolean} false without an open connection
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
    this.#heard = true;
    /** @type {ServerMessage} */
    let message;
    try {
      message = JSON.parse(String(data));
    } catch {
      return; // not of this protocol
    }
    if (message.type === 'PIECE') return this.#join(message.payload);
    if (!message.seq) return this.#receive(message);
    if (message.seq < this.#seq) return;
    this.#early.set(message.seq, message);
    this.#release();
  }

  /** Hands on the events that are next. Two ways can overtake each other; what one of them lost is given up soon. */
  #release() {
    for (let m; (m = this.#early.get(this.#seq)) && !this.#ended; ) {
      this.#early.delete(this.#seq++);
      this.#receive(m);
    }
    if (!this.#early.size) return this.#after('gap', 0);
    if (this.#timers['gap']) return;
    this.#after('gap', GAP, () => {
      this.#seq = Math.min(...this.#early.keys());
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
        if (this.#o.transport !== 'websocket') this.#openPeer(payload?.iceServers ?? []);
        // Nobody waits for ICE: the socket carries the voice until the peer can, but where this page cannot send or play sound by it.
        if (this.#o.transport === 'auto') this.#o.voice.prepare().then(() => this.#first(), (e) => console.debug('voxgate: worklets', e));
        if (this.#o.transport === 'websocket') this.#bySocket();
        return;
      case 'SETUP_COMPLETE':
        if (this.#setup) return this.#o.onMessage(message);
        this.#after('setup', 0);
        if (!payload.success) {
          return this.end(errorOf(payload.error));
        }
        this.#setup = payload;
        return this.#maybeOpen();
      case 'WEBRTC_ANSWER':
        if (this.#restart === 'asked') {
          this.#restart = 'answered';
          this.#after('peer', RESTART_TIMEOUT, () => this.#fallBack());
        }
        this.#negotiate((pc) => pc.setRemoteDescription({ type: 'answer', sdp: payload.sdp }));
        for (const c of this.#waiting.splice(0)) this.#negotiate((pc) => pc.addIceCandidate(c));
        return;
      case 'WEBRTC_ICE_CANDIDATE': {
        const c = { ...payload, candidate: payload.candidate ?? '' };
        return this.#negotiate((pc) => (pc.remoteDescription ? pc.addIceCandidate(c) : this.#waiting.push(c)));
      }
      case 'GEMINI_ERROR': {
        const code = payload.details?.code;
        if (code === 'bad_offer' || code === 'peer_failed') {
          const missed = this.carrier === 'websocket' && code === 'peer_failed';
          this.#fallBack();
          if (missed) return; // the voice was on the socket all the time
        }
        this.#fault = message;
        return this.#after('fault', GAP, () => this.#tellFault());
      }
      case 'GEMINI_DISCONNECTED': {
        const { reason = 'goodbye', code = 'ended' } = payload ?? {}; // the other side has ended it
        if (this.#fault && this.#fault.payload.message === reason) return this.end(errorOf(this.#fault.payload));
        this.#tellFault();
        return this.end(new VoxgateError(reason === 'replaced' ? reason : code, reason === 'goodbye' ? undefined : reason));
      }
      case 'PONG':
        return;
      case 'MOVE': { // to another gateway, which answers at the same address; this one serves on until that is reached
        const next = new WebSocket(this.#o.url);
        next.onopen = () => {
          if (this.#ended) return next.close();
          this.#closeNext();
          this.#next = next;
          this.end(lost());
        };
        return;
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
    if ([1000, 1008, 1009, 1011].includes(code)) return this.end(new VoxgateError('ended'));
    if (!this.opened) return void unreachable(this.#o.url).then((why) => this.end(why));
    this.#check();
  }

  /** Is there a way left? */
  #check() {
    if (this.#socket.readyState <= WebSocket.OPEN) return;
    const state = this.#channel?.readyState === 'open' ? this.#pc?.connectionState : 'closed';
    if (state === 'connecting' && !this.#restart) return; // the channel is there first, and the rest follows at once
    this.#settlePeer();
    if (state === 'connected') this.#o.onWayLost();
    else if (state !== 'disconnected') this.end(lost()); // an offline browser often reconnects by itself; otherwise the next checks detect the loss
  }

  // --- is anybody there?

  /** @returns {keyof typeof SUSPECT} */
  get #way() {
    return this.carrier !== 'webrtc' ? 'websocket' : this.#o.voice.track?.readyState === 'live' ? 'webrtc' : 'silent';
  }

  async #look() {
    if (this.#looking) return;
    this.#looking = true;
    const changed = this.#changed;
    this.#changed = false;
    const pc = this.carrier === 'webrtc' ? this.#pc : undefined;
    const came = pc && (await packets(pc));
    this.#looking = false;
    if (this.#ended || (pc && pc !== this.#pc)) return;
    const message = this.#heard;
    this.#heard = false;
    const before = this.#came;
    this.#came = came;
    if (!pc) this.#count(message, message);
    else this.#count(came === undefined ? pc.connectionState === 'connected' : came !== before, message);
    // What came until now came by the old network, perhaps.
    const quiet = SUSPECT[this.#way] - CHANGED[this.#way];
    if (!changed || this.#quiet >= quiet) return;
    this.#quiet = quiet;
    this.#say('PING');
  }

  /**
   * @param {boolean} heard something came the way of the voice
   * @param {boolean} message something came any way
   */
  #count(heard, message) {
    const closed = this.#socket.readyState > WebSocket.OPEN;
    const suspect = closed ? CLOSED.suspect : SUSPECT[this.#way];
    const settle = closed ? CLOSED.settle : SETTLE;
    if (heard) {
      this.#quiet = this.#silent = 0;
      this.#o.onDoubt(false);
      this.#closeNext();
      if (this.#restart === 'answered') this.#settlePeer();
      return;
    }
    this.#quiet++;
    this.#silent = message ? 0 : this.#silent + 1;
    const asked = this.carrier === 'webrtc' ? suspect : PING + 1; // TCP says it again
    if ((closed || this.#quiet >= PING) && this.#quiet < asked) this.#say('PING');
    if (this.#quiet < suspect) return;
    if (this.#quiet >= suspect + settle) this.#o.onDoubt(true); // not sooner: many a restart is done by now
    if (this.carrier === 'webrtc' && !this.#restart && this.#socket.readyState === WebSocket.OPEN) {
      this.#restart = 'asked'; // another network, perhaps: new candidates
      this.#pc?.restartIce();
    }
    const kept = this.#setup?.resumeToken;
    if (this.#quiet >= (kept ? UNREACHED : OVER)) return this.end(lost());
    if (this.#restart === 'answered') return this.#closeNext();
    if (!kept) return; // another socket would be another conversation
    // What is only interrupted comes back by itself, so it is not given up before there is something better.
    const there = this.#next?.readyState === WebSocket.OPEN && Math.min(this.#quiet - suspect, this.#silent) >= settle;
    if (there) return this.end(lost());
    if (this.#next && (this.#quiet - suspect) % REDIAL) return;
    this.#next?.close(); // first: Chromium opens one at a time
    const next = (this.#next = new WebSocket(this.#o.url));
    next.onerror = () => closed && this.#next === next && !this.#ended && this.#o.onDoubt(true, true); // the gateway refuses another socket, and the old one is closed
  }

  #closeNext() {
    const next = this.#next;
    this.#next = undefined;
    if (next?.readyState === WebSocket.CONNECTING) next.onopen = () => next.close(); // the console calls it a failure to close it now
    else next?.close();
  }

  // --- the voice over WebRTC

  /** @param {RTCIceServer[]} iceServers */
  #openPeer(iceServers) {
    /** @type {RTCPeerConnection} */
    let pc;
    try {
      pc = new RTCPeerConnection({ iceServers, iceTransportPolicy: this.#o.iceTransportPolicy, bundlePolicy: 'max-bundle' });
    } catch {
      return this.#fallBack(); // no WebRTC here, or an ICE server it cannot read
    }
    this.#pc = pc;
    const channel = (this.#channel = pc.createDataChannel('events'));
    channel.onmessage = ({ data }) => this.#read(data);
    channel.onclose = () => this.#pc === pc && this.#check();
    // sendrecv before there is a microphone: it is put in when it comes, without another offer.
    this.#sender = pc.addTransceiver('audio', { direction: 'sendrecv' }).sender;
    const sight = this.#o.sight();
    if (sight?.track) this.setVideo(sight);
    pc.ontrack = ({ track }) => this.#o.voice.playTrack(track);
    pc.onnegotiationneeded = () =>
      this.#negotiate(async () => {
        await pc.setLocalDescription();
        this.#say('WEBRTC_OFFER', { sdp: withNack(pc.localDescription?.sdp ?? '') });
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
      .catch((e) => console.debug('voxgate: negotiation', e)); // a bad candidate is ignored; a bad answer runs into the timeout
  }

  /** @param {RTCPeerConnectionState} state */
  #peerChanged(state) {
    if (state === 'connected') {
      this.#settlePeer();
      this.#byPeer();
    }
    if (this.#socket.readyState > WebSocket.OPEN) return this.#check();
    if (state === 'disconnected' || state === 'failed') {
      if (this.carrier !== 'webrtc') return this.#fallBack();
      this.#changed = true; // the next looks tell
    }
  }

  #fallBack() {
    if (this.#ended) return;
    if (this.carrier === 'websocket') return this.#closePeer(); // it did not connect, and nothing was lost with it
    if (this.#socket.readyState !== WebSocket.OPEN) return this.end(lost());
    const { opened } = this;
    if (this.#o.transport === 'webrtc') return this.end(new VoxgateError('peer_failed'));
    this.#closePeer();
    this.#bySocket();
    if (opened) this.#o.onWayLost();
  }

  /** Whether it connects is known, or no longer waited for. */
  #settlePeer() {
    this.#restart = undefined;
    this.#after('peer', 0);
  }

  #closePeer() {
    this.#settlePeer();
    const pc = this.#pc;
    this.#pc = this.#channel = this.#sender = this.#video = undefined;
    pc?.close();
    if (pc) this.#o.voice.stopTrack();
  }

  /** @returns {Promise<RTCStatsReport|undefined>} of the peer, if it carries the voice */
  async stats() {
    return this.carrier === 'webrtc' ? this.#pc?.getStats().catch(() => undefined) : undefined; // it was closed meanwhile
  }

  /** @param {MediaStreamTrack} [track] the microphone; none if absent */
  async setTrack(track) {
    if (this.carrier !== 'webrtc') return; // it is captured for the socket, or the peer gets it when it carries the voice
    await this.#sender?.replaceTrack(track ?? null).catch(() => {}); // the peer was closed meanwhile
  }

  /** @param {Sight} [sight] the video source; absent: video is stopped */
  setVideo(sight) {
    const pc = this.#pc;
    if (!pc || pc.signalingState === 'closed') return;
    const { track, encoding } = sight ?? {};
    if (!this.#video) {
      if (track) this.#video = pc.addTransceiver(track, { direction: 'sendonly', sendEncodings: [encoding ?? {}] });
      return;
    }
    const { sender } = this.#video;
    const limit = () => {
      const parameters = sender.getParameters();
      for (const e of parameters.encodings) Object.assign(e, encoding);
      return sender.setParameters(parameters);
    };
    // The changed direction triggers another offer, which tells the gateway that the video has stopped.
    this.#video.direction = track ? 'sendonly' : 'inactive';
    sender.replaceTrack(track ?? null).then(limit).catch(() => {}); // the peer was closed meanwhile
  }

  // --- the voice over the socket

  /** The voice goes by the peer from now on. */
  #byPeer() {
    const { voice } = this.#o;
    this.#carries('webrtc');
    // The peer sends before the socket stops, or a syllable would be lost between them.
    this.setTrack(voice.track).then(() => this.carrier === 'webrtc' && voice.stopCapture());
  }

  /** What is said before the peer connects, or whether it does, goes by the socket. */
  #first() {
    if (!this.#ended && !this.carrier) this.#bySocket();
  }

  /** The voice goes by the socket, if nothing carries it better by the time that the microphone can be read. */
  async #bySocket() {
    const { voice } = this.#o;
    // A chunk of audio requests it: silence without a microphone.
    if (this.#o.transport !== 'websocket') this.#sendAudio(new Int16Array(320), 16_000);
    const heard = await voice.capture((pcm, rate) => voice.track?.enabled && this.#sendAudio(pcm, rate)).then(() => true, (e) => {
      console.debug('voxgate: capture', e);
      return false;
    });
    if (this.#ended || this.#pc?.connectionState === 'connected') return;
    this.#o.onHeard(heard);
    this.#carries('websocket');
  }

  /** @param {'webrtc'|'websocket'} carrier */
  #carries(carrier) {
    this.carrier = carrier;
    this.#quiet = 0;
    this.#o.onDoubt(false);
    this.#o.onCarrier();
    this.#maybeOpen();
  }

  /**
   * @param {Int16Array} pcm
   * @param {number} rate
   */
  #sendAudio(pcm, rate) {
    if (this.#socket.bufferedAmount > SOCKET_QUEUE) return;
    const data = btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)));
    this.#say('SEND_REALTIME_INPUT', { audio: { mimeType: `audio/pcm;rate=${rate}`, data } });
  }

  /** @param {string} data a JPEG, in base64 */
  sendPicture(data) {
    if (this.#socket.bufferedAmount > SOCKET_QUEUE) return; // the voice goes first
    this.#say('SEND_REALTIME_INPUT', { video: { mimeType: 'image/jpeg', data } });
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

/** @type {(EventTarget & {type?: string})|undefined} missing in some browsers; a server has no navigator */
const network = /** @type {any} */ (globalThis.navigator)?.connection;

/**
 * How many packets came over WebRTC, in Firefox how many bytes; undefined where the browser counts neither.
 * @param {RTCPeerConnection} pc
 * @returns {Promise<number|undefined>}
 */
async function packets(pc) {
  const stats = [...((await pc.getStats().catch(() => undefined))?.values() ?? [])]; // not of a connection that was closed meanwhile
  const pair = stats.find((s) => s.type === 'candidate-pair' && s.selected);
  return stats.find((s) => s.type === 'transport')?.packetsReceived ?? pair?.bytesReceived;
}

/**
 * Why a WebSocket did not open, which a browser does not say. A gateway that refuses a page's origin can be reached by that page, and its
 * answer not be read.
 * @param {URL} url
 */
async function unreachable({ href, host, origin }) {
  const unknown = new VoxgateError('no_gateway');
  if (host === location.host) return unknown;
  const status = new URL('status', href.replace(/^ws/, 'http'));
  const asks = (/** @type {RequestMode} */ mode) => fetch(status, { mode, cache: 'no-store', signal: AbortSignal.timeout(GATEWAY_TIMEOUT) }).then(() => true, () => false);
  if ((await asks('cors')) || !(await asks('no-cors'))) return unknown;
  return new VoxgateError('origin_refused', `${origin.replace(/^ws/, 'http')} does not let pages of ${location.origin} talk: VOXGATE_ORIGINS of the gateway lists those that may.`);
}

export const lost = () => new VoxgateError('lost');

/** @param {GeminiError} error */
export const errorOf = ({ message, details }) => new VoxgateError(details?.code ?? 'unknown_error', message, details);

/** @param {unknown} e */
export const asError = (e) => (e instanceof VoxgateError ? e : new VoxgateError('unknown_error', String(e)));

/**
 * Browsers can ask for lost audio again but do not offer it; an answer that has it is all they need. With bursts of losses
 * it saves two thirds of what RED cannot, and costs no delay on a clean path (measured in Chromium 156).
 * @param {string} sdp
 */
const withNack = (sdp) => sdp.replace(/a=rtpmap:(\d+) (?:opus|red)\/48000\/2\r\n/g, '$&a=rtcp-fb:$1 nack\r\n');
