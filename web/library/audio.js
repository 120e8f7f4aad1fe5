/**
 * The browser's side of the voice: the microphone, the loudspeaker, and how loud both are.
 * Nothing here knows the protocol.
 */

const MIC_RATE = 16_000; // what the model hears at
const VOICE_RATE = 24_000; // what AUDIO_CHUNK carries
const LOAD_TIMEOUT = 5_000; // ms
const SILENT = 8_000; // ms of not one sound from an open microphone: a room is never so quiet
const WITHHELD = 500; // ms for which the browser or the system gives nothing of it (`track.muted`)
const LOOK = 250; // ms between two looks at that
const HELD_BACK = 500; // ms of a track that a browser may hold back: measured 46 to 103 on lossy links, 225 on a busy machine

/** @type {MediaTrackConstraints} */
const MIC = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };

/** Made in a gesture (the click on start), or the browser may keep it silent until `unblock`. */
export class Voice {
  #mic = new Meter(MIC_RATE);
  #model = new Meter(VOICE_RATE); // plays and measures what is given to `play`
  /** @type {Meter|undefined} */ #stream; // measures the WebRTC track, which the element plays
  /** @type {{context: AudioContext, stream: MediaStream}|undefined} */ #mix;
  #element = document.createElement('audio');
  /** @type {Promise<AudioWorkletNode>|undefined} */ #player;
  /** @type {AudioWorkletNode|undefined} */ #capture;
  /** @type {((pcm: Int16Array<ArrayBuffer>, rate: number) => void)|undefined} */ #onPcm;
  #wish = 0; // for a microphone: the newest counts
  #heard = 0; // when the microphone gave its last sound, or was not to give any
  /** @type {ReturnType<typeof setInterval>|undefined} */ #looking;
  #muted = false;
  #volume = 1; // of the voice, 0 to 1
  #broken = false; // chunks cannot be played, and that was reported
  #queued = false;
  #hushed = 0;
  #closed = false;
  #worklets;
  #onVisible = () => document.hidden || this.#resume(); // a phone call may have stopped the contexts

  /** The browser will not play until a gesture; call `unblock` in one. */
  blocked = false;
  /** `blocked` has changed. */
  onBlocked = () => {};
  /**
   * This browser cannot play chunks, for instance because the page came over plain http.
   * @type {(cause: unknown) => void}
   */
  onBroken = () => {};
  /** The queue of `play` has run out. */
  onIdle = () => {};
  /** The microphone was unplugged or taken away. */
  onMicEnded = () => {};

  /** The microphone is open, and nothing comes from it: a switch, a headset that sleeps, a system that keeps it. */
  silent = false;
  /** `silent` has changed. */
  onSilent = () => {};

  /** @type {MediaStreamTrack|undefined} */ track;

  /** @param {() => URL} worklets the folder where capture-worklet.js and playback-worklet.js are */
  constructor(worklets) {
    this.#worklets = worklets;
    this.#element.autoplay = true;
    document.addEventListener('visibilitychange', this.#onVisible);
  }

  /** True while chunks given to `play` are still to be heard. */
  get playing() {
    return this.#queued;
  }

  /** @returns {{mic: number, model: number}} loudness now, 0 to 1 */
  get level() {
    return { mic: this.#mic.level, model: Math.max(this.#model.level, this.#stream?.level ?? 0) };
  }

  get volume() {
    return this.#volume;
  }

  set volume(volume) {
    this.#volume = this.#element.volume = volume;
    this.#player?.then(({ port }) => port.postMessage(volume), () => {});
  }

  /** Both sides of the conversation in one stream, over WebRTC or WebSocket. After the end the stream is empty. @returns {MediaStream} */
  mix() {
    if (this.#mix) return this.#mix.stream;
    if (this.#closed) return new MediaStream();
    const context = new AudioContext();
    const all = context.createMediaStreamDestination();
    for (const meter of [this.#mic, this.#model, (this.#stream ??= new Meter())]) {
      const out = meter.context.createMediaStreamDestination();
      meter.analyser.connect(out);
      context.createMediaStreamSource(out.stream).connect(all);
    }
    this.#mix = { context, stream: all.stream };
    return all.stream;
  }

  /**
   * Asks for the microphone. Rejects as getUserMedia does, and with a SupersededError if another wish came since.
   * @param {true|MediaTrackConstraints|MediaStreamTrack} wish
   */
  async openMic(wish) {
    const newest = ++this.#wish;
    /** @type {MediaStreamTrack|undefined} */
    let track;
    if (wish instanceof MediaStreamTrack) {
      if (wish.readyState === 'live') track = wish.clone(); // ours to stop
    } else {
      const audio = wish === true ? MIC : { ...MIC, ...wish };
      [track] = (await navigator.mediaDevices.getUserMedia({ audio })).getAudioTracks();
    }
    if (!track) throw new DOMException('no audio track', 'NotFoundError');
    const superseded = () => this.#closed || newest !== this.#wish;
    if (superseded()) {
      track.stop();
      throw new SupersededError();
    }
    this.#dropMic();
    track.enabled = !this.#muted; // before anything can send it
    this.track = track;
    track.onended = () => this.onMicEnded();
    this.#mic.listen(track);
    this.#heard = performance.now();
    this.#looking = setInterval(() => this.#look(), LOOK);
    await this.#startCapture();
    if (superseded()) throw new SupersededError();
    return track;
  }

  closeMic() {
    this.#wish++;
    this.#dropMic();
    this.#stopCapture();
  }

  /** Mutes this microphone, and every microphone that is opened later, without closing it. @param {boolean} on */
  mute(on) {
    this.#muted = on;
    if (this.track) this.track.enabled = !on;
    this.#look();
  }

  /** A connection that comes and goes has no say in it. */
  #look() {
    const { muted = false, enabled = false } = this.track ?? {};
    const now = performance.now();
    if (!enabled || (!muted && !this.#mic.still)) this.#heard = now;
    const silent = now - this.#heard > (muted ? WITHHELD : SILENT);
    if (silent === this.silent) return;
    this.silent = silent;
    this.onSilent();
  }

  #dropMic() {
    clearInterval(this.#looking);
    this.silent = false;
    if (this.track) this.track.onended = null;
    this.track?.stop();
    this.track = undefined;
  }

  /** @param {AudioContext} context @param {string} name */
  async #load(context, name) {
    const loaded = context.audioWorklet.addModule(new URL(name, this.#worklets())); // throws where a page came over plain http
    const late = new Promise((_, reject) => setTimeout(reject, LOAD_TIMEOUT, new Error(`${name} does not come`)));
    await Promise.race([loaded, late]);
  }

  /** Loads what `capture` and `play` need. Rejects if it cannot be had. */
  async prepare() {
    this.#player ??= this.#openPlayer();
    await Promise.all([this.#load(this.#mic.context, 'capture-worklet.js'), this.#player]);
  }

  /**
   * From now on the microphone, once there is one, comes as 16-bit chunks of 40 ms, silence too.
   * @param {(pcm: Int16Array<ArrayBuffer>, rate: number) => void} f
   */
  async capture(f) {
    this.#onPcm = f;
    await this.#startCapture();
  }

  async #startCapture() {
    this.#stopCapture();
    if (!this.#onPcm || !this.track) return;
    const { context } = this.#mic;
    await this.#load(context, 'capture-worklet.js').catch((e) => {
      throw Object.assign(new Error(`the microphone cannot be read here: ${e.message}`), { name: 'UnheardError' });
    });
    if (this.#closed || this.#capture || !this.#onPcm || !this.track || context !== this.#mic.context) return; // meanwhile
    this.#capture = new AudioWorkletNode(context, 'capture', { channelCount: 1, channelCountMode: 'explicit' });
    this.#capture.port.onmessage = ({ data }) => this.#onPcm?.(data, context.sampleRate);
    this.#capture.connect(context.destination); // silent; without it some browsers do not run the node
    this.#mic.node?.connect(this.#capture);
  }

  /** What was said until now still comes, as the last chunk. */
  stopCapture() {
    const { port } = this.#capture ?? {};
    const last = this.#onPcm;
    const { sampleRate } = this.#mic.context;
    if (port) port.onmessage = ({ data }) => last?.(data, sampleRate);
    this.#onPcm = undefined;
    this.#stopCapture();
  }

  #stopCapture() {
    this.#capture?.port.postMessage('stop');
    this.#capture?.disconnect();
    this.#capture = undefined;
  }

  /**
   * Plays a WebRTC track. The element must play it, or WebAudio hears nothing of it.
   * @param {MediaStreamTrack} track
   */
  playTrack(track) {
    this.#element.srcObject = new MediaStream([track]);
    this.#stream ??= new Meter();
    this.#stream.listen(track);
    this.unblock();
  }

  /**
   * Where the voice is heard; a browser that cannot choose leaves it where it was.
   * @param {string} id of a device; '' is the default one
   */
  setSpeaker(id) {
    const contexts = /** @type {any[]} */ ([this.#element, this.#model.context]);
    for (const e of contexts) e.setSinkId?.(id).catch(() => {}); // not available now, or not allowed
  }

  stopTrack() {
    this.#element.srcObject = null;
  }

  /**
   * Queues 24 kHz PCM behind what is already queued.
   * @param {string|Int16Array<ArrayBuffer>} voice base64 of 16-bit samples, or the samples, which are taken away
   */
  async play(voice) {
    if (this.#closed || this.#broken) return;
    const pcm = typeof voice === 'string' ? unpack(voice) : voice;
    this.#queued = true;
    this.#player ??= this.#openPlayer();
    try {
      const player = await this.#player;
      player.port.postMessage(pcm, [pcm.buffer]);
    } catch (e) {
      this.#queued = false;
      if (this.#broken) return;
      this.#broken = true;
      this.onBroken(e);
    }
  }

  async #openPlayer() {
    const { context } = this.#model;
    await this.#load(context, 'playback-worklet.js');
    const player = new AudioWorkletNode(context, 'playback', { numberOfInputs: 0, outputChannelCount: [1] });
    player.port.onmessage = () => {
      this.#queued = false;
      this.onIdle();
    };
    player.port.postMessage(this.#volume);
    player.connect(context.destination);
    this.#model.listen(player);
    if (context.state === 'suspended') this.unblock();
    return player;
  }

  /** Drops what is queued, and mutes a track, whose buffer cannot be emptied, until the next answer or its end. */
  async flush() {
    this.#element.muted = true;
    clearTimeout(this.#hushed);
    this.#hushed = setTimeout(() => this.answer(), HELD_BACK);
    (await this.#player?.catch(() => undefined))?.port.postMessage('flush');
  }

  /** Another answer begins. */
  answer() {
    clearTimeout(this.#hushed);
    this.#element.muted = false;
  }

  /** Starts what the browser held back; works only in a gesture. */
  unblock() {
    if (this.blocked) this.#block(false);
    this.#resume();
    if (this.#element.srcObject) {
      this.#element.play().catch((e) => e.name === 'NotAllowedError' && this.#block(true));
    }
    // resume() stays pending, rather than failing, while a gesture is missing.
    setTimeout(() => this.#queued && this.#model.context.state === 'suspended' && this.#block(true), 300);
  }

  /** @param {boolean} blocked */
  #block(blocked) {
    this.blocked = blocked;
    this.onBlocked();
  }

  #resume() {
    for (const m of [this.#mic, this.#model, this.#stream]) m?.resume();
    this.#mix?.context.resume().catch(() => {}); // rejected only when closed
  }

  close() {
    this.#closed = true;
    document.removeEventListener('visibilitychange', this.#onVisible);
    this.closeMic();
    this.stopCapture();
    this.stopTrack();
    for (const m of [this.#mic, this.#model, this.#stream]) m?.close();
    this.#mix?.context.close();
    this.#mix = undefined;
  }
}

/** Of a wish for a device that another one followed. Browsers use the name AbortError for devices that fail. */
export class SupersededError extends Error {
  name = 'SupersededError';
}

/** @param {string} base64 */
function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Int16Array(bytes.buffer, 0, bytes.length >> 1);
}

/** An AudioContext with an analyser in it. */
class Meter {
  /** @type {AudioNode|undefined} */ node;
  #samples = new Float32Array(1024);
  #closed = false;

  /** @param {number} [rate] the device's own if absent */
  constructor(rate) {
    this.context = new AudioContext({ sampleRate: rate, latencyHint: 'interactive' });
    this.analyser = this.context.createAnalyser();
  }

  /** @param {MediaStreamTrack|AudioNode} source */
  listen(source) {
    if (this.#closed) return;
    this.node?.disconnect();
    this.node = source instanceof AudioNode ? source : this.#source(source);
    this.node.connect(this.analyser);
  }

  /** @param {MediaStreamTrack} track */
  #source(track) {
    const stream = new MediaStream([track]);
    try {
      return this.context.createMediaStreamSource(stream);
    } catch {
      // Some browsers want the device's own rate here; the gateway takes any from 8 to 48 kHz.
      this.context.close();
      this.context = new AudioContext();
      this.analyser = this.context.createAnalyser();
      return this.context.createMediaStreamSource(stream);
    }
  }

  /** Root mean square of the last 20 to 60 ms on a scale where speech reaches 1. */
  get level() {
    this.analyser.getFloatTimeDomainData(this.#samples);
    const sum = this.#samples.reduce((a, x) => a + x * x, 0);
    return Math.min(1, 4 * Math.sqrt(sum / this.#samples.length));
  }

  /** The level meter runs, and every sample is zero. */
  get still() {
    const samples = new Float32Array(this.analyser.fftSize);
    this.analyser.getFloatTimeDomainData(samples);
    return this.context.state === 'running' && samples.every((x) => x === 0);
  }

  resume() {
    if (!this.#closed) this.context.resume().catch(() => {}); // rejected only when closed
  }

  close() {
    this.#closed = true;
    this.context.close().catch(() => {}); // closed already
  }
}
