/**
 * The voice for plain WebSocket audio. Takes Int16Array chunks at the context's rate, the string 'flush', or a number, the volume; says
 * 'idle' when the last of the queue has been played or dropped.
 */
const LEAD = Math.round(sampleRate * 0.06); // buffered at the start of a talkspurt, so that one late chunk causes no gap
const FADE = Math.round(sampleRate * 0.005); // long enough not to click, too short to be heard as voice
const MOST = sampleRate * 30; // the gateway sends 0.2 s ahead; more than this is a fault, and the newest is dropped

class Playback extends AudioWorkletProcessor {
  /** @type {Int16Array[]} */
  #queue = [];
  #queued = 0;
  #at = 0; // next sample of the first chunk
  #waited = 0; // samples of silence given out since the first chunk of a talkspurt came
  #playing = false;
  #volume = 1;
  #last = 0; // the sample played last: a flush fades out from it

  constructor() {
    super();
    this.port.onmessage = ({ data }) => {
      if (data === 'flush') this.#flush();
      else if (typeof data === 'number') this.#volume = data;
      else this.#push(data);
    };
  }

  /** @param {Int16Array} chunk */
  #push(chunk) {
    if (this.#queued + chunk.length > MOST) return;
    this.#queue.push(chunk);
    this.#queued += chunk.length;
  }

  #flush() {
    // What is kept is at most FADE samples, run down to nothing.
    const first = this.#queue[0];
    const tail = new Int16Array(this.#playing ? FADE : 0);
    for (let i = 0; i < tail.length; i++) {
      tail[i] = (first?.[this.#at + i] ?? this.#last) * (1 - (i + 1) / FADE);
    }
    this.#queue = tail.length ? [tail] : [];
    this.#queued = tail.length;
    this.#at = 0;
    this.#waited = 0;
    if (!tail.length) this.port.postMessage('idle');
  }

  /**
   * @param {Float32Array[][]} _inputs
   * @param {Float32Array[][]} outputs
   */
  process(_inputs, [channels]) {
    const out = channels?.[0];
    if (!out || !this.#queued) return true;
    if (!this.#playing) {
      this.#waited += out.length;
      if (this.#queued < LEAD && this.#waited < LEAD) return true;
      this.#playing = true;
      this.#waited = 0;
    }
    for (let i = 0; i < out.length; i++) {
      const first = this.#queue[0];
      if (!first) break;
      this.#last = first[this.#at++] ?? 0;
      out[i] = (this.#volume * this.#last) / 32768;
      if (this.#at < first.length) continue;
      this.#queue.shift();
      this.#queued -= first.length;
      this.#at = 0;
    }
    if (!this.#queue.length) {
      this.#playing = false;
      this.#queued = 0;
      this.port.postMessage('idle');
    }
    return true;
  }
}

registerProcessor('playback', Playback);
