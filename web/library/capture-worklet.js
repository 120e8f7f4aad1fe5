/**
 * The microphone for plain WebSocket audio: 128-frame blocks in, 16-bit chunks of 40 ms out.
 * The context runs at the rate that is sent, so nothing is resampled here.
 */
class Capture extends AudioWorkletProcessor {
  #chunk = new Int16Array(Math.round(sampleRate / 25));
  #filled = 0;
  #over = false;

  constructor() {
    super();
    // It is over, and the rest is asked for. A browser runs this on, connected or not, for as long as `process` returns true.
    this.port.onmessage = () => {
      this.#over = true;
      if (this.#filled) this.#post(this.#chunk.slice(0, this.#filled));
    };
  }

  /** @param {Int16Array} chunk */
  #post(chunk) {
    this.port.postMessage(chunk, [chunk.buffer]);
    this.#chunk = new Int16Array(Math.round(sampleRate / 25));
    this.#filled = 0;
  }

  /** @param {Float32Array[][]} inputs */
  process([input]) {
    if (this.#over) return false;
    // No input means that the source is not connected: the model's clock is its input, so silence goes on.
    const block = input?.[0] ?? new Float32Array(128);
    for (const x of block) {
      this.#chunk[this.#filled++] = Math.max(-1, Math.min(1, x)) * 32767;
      if (this.#filled === this.#chunk.length) this.#post(this.#chunk);
    }
    return true;
  }
}

registerProcessor('capture', Capture);
