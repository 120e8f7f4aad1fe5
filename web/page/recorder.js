/** Records a conversation in the page. It is loaded on demand. */

/** @import { Session } from './types.d.ts' */

const EVERY = 5_000; // ms: so much is lost when the page dies, and no more
const TYPE = 'audio/webm;codecs=opus'; // Firefox would make Ogg, and not say so

/**
 * Records both sides until the session ends, or `stop` is called.
 * @param {Session} session
 * @param {(recording: Blob) => void} done
 */
export function record(session, done) {
  /** @type {Blob[]} */
  const parts = [];
  const recorder = new MediaRecorder(session.mix(), MediaRecorder.isTypeSupported(TYPE) ? { mimeType: TYPE } : {});
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.onstop = () => done(new Blob(parts, { type: recorder.mimeType }));
  recorder.start(EVERY);
  const stop = () => recorder.state === 'inactive' || recorder.stop();
  session.on('closed', stop);
  return stop;
}
