/**
 * The browser's side of pictures: the camera or the screen, and a JPEG a second of it where no track can carry it.
 * Nothing here knows the protocol.
 */

import { SupersededError } from './audio.js';

const SIDE = 768; // pixels: the model looks at no more
const EVERY = 1_000; // ms: nor at more than one picture a second
const RATE = 5; // pictures a second from the device, so that a new one is there when it is asked for

/** @type {MediaTrackConstraints} the camera at the back of a phone, for showing things */
const CAMERA = { width: { ideal: SIDE }, frameRate: { ideal: RATE }, facingMode: { ideal: 'environment' } };

/** One thing to look at, at a time. */
export class Sight {
  #wish = 0; // the newest counts
  #element = document.createElement('video');
  /** @type {ReturnType<typeof setInterval>|undefined} */ #timer;
  /** @type {((jpeg: string) => void)|undefined} */ #onJpeg;

  /** @type {MediaStreamTrack|undefined} */ track;
  /** The person, or the device, has ended it. */
  onEnded = () => {};

  constructor() {
    this.#element.muted = this.#element.playsInline = true;
  }

  /** What the track needs of a sender: no more pixels than the model looks at. */
  get encoding() {
    const { width = 0, height = 0 } = this.track?.getSettings() ?? {};
    return { maxBitrate: 500_000, maxFramerate: RATE, scaleResolutionDownBy: Math.max(1, Math.max(width, height) / SIDE) };
  }

  /**
   * Asks for the camera or the screen. Rejects as getUserMedia does, and with a SupersededError if another wish came since.
   * @param {'camera'|'screen'|MediaStreamTrack} what
   * @param {MediaTrackConstraints} [camera] which one, and how
   */
  async open(what, camera) {
    const wish = ++this.#wish;
    const track = await ask(what, camera);
    if (wish !== this.#wish) {
      track.stop();
      throw new SupersededError();
    }
    this.#let();
    this.track = track;
    track.contentHint = 'detail'; // or Chromium begins with 256 pixels, and what is looked at is a still picture anyway
    track.onended = () => this.onEnded();
    this.#start();
    return track;
  }

  /**
   * Starts sending the video to `f`, as one JPEG a second in base64.
   * @param {(jpeg: string) => void} f
   */
  capture(f) {
    this.#onJpeg = f;
    this.#start();
  }

  stopCapture() {
    this.#onJpeg = undefined;
    this.#stop();
  }

  #start() {
    this.#stop();
    if (!this.#onJpeg || !this.track) return;
    this.#element.srcObject = new MediaStream([this.track]);
    this.#element.play().catch(() => {}); // ended meanwhile
    this.#element.onloadeddata = () => this.#shoot(); // the first at once
    this.#timer = setInterval(() => this.#shoot(), EVERY);
  }

  #stop() {
    clearInterval(this.#timer);
    this.#element.srcObject = null;
  }

  #shoot() {
    const { videoWidth: width, videoHeight: height } = this.#element;
    if (!width) return; // nothing has come yet
    const scale = Math.min(1, SIDE / Math.max(width, height));
    const canvas = document.createElement('canvas');
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.getContext('2d')?.drawImage(this.#element, 0, 0, canvas.width, canvas.height);
    this.#onJpeg?.(canvas.toDataURL('image/jpeg', 0.75).replace(/^[^,]*,/, ''));
  }

  #let() {
    this.#stop();
    if (this.track) this.track.onended = null;
    this.track?.stop();
    this.track = undefined;
  }

  close() {
    this.#wish++;
    this.#let();
  }
}

/** @param {'camera'|'screen'|MediaStreamTrack} what @param {MediaTrackConstraints} [camera] */
async function ask(what, camera) {
  if (what instanceof MediaStreamTrack) {
    if (what.kind !== 'video' || what.readyState !== 'live') throw new DOMException('no live video track', 'NotFoundError');
    return what.clone(); // ours to stop
  }
  const { mediaDevices } = navigator;
  const stream =
    what === 'camera' ? mediaDevices.getUserMedia({ video: { ...CAMERA, ...camera } }) : mediaDevices.getDisplayMedia({ video: { frameRate: RATE } });
  const [track] = (await stream).getVideoTracks();
  if (!track) throw new DOMException('no video track', 'NotFoundError');
  return track;
}
