/** Plays recordings of ended conversations. */
import { ask, sentence } from './ask.js';
import { get, put } from './table.js';

const LOADING = 60_000; // ms that a recording may take
const tape = get('tape');

/** The name of a recording, for the buttons that play it. @param {any} c @param {number} i */
export const nameOf = (c, i) => `${c.id} ${i}`;
export const isPlaying = (/** @type {any} */ c, /** @type {number} */ i) => tape.dataset.of === nameOf(c, i) && !tape.paused;

/** Plays a recording, or pauses it. An <audio> can show no key, so all of it is loaded. @param {any} c @param {number} i */
export async function play(c, i) {
  const name = nameOf(c, i);
  if (tape.dataset.of === name && tape.hasAttribute('src')) return tape.paused ? tape.play() : tape.pause();
  stopTape();
  tape.dataset.of = name;
  put(get('ended'), 'The recording is loading…');
  const answer = await ask(`ended/${encodeURIComponent(c.id)}/recordings/${i}`, 'GET', LOADING).catch(() => null);
  const sound = answer?.ok && (await answer.blob());
  if (tape.dataset.of !== name) return;
  put(get('ended'), sound ? '' : answer ? await sentence(answer) : 'The gateway does not answer.');
  if (!sound) return stopTape();
  tape.src = URL.createObjectURL(sound);
  tape.hidden = false;
  await tape.play().catch(() => {}); // the person presses play
}

export function stopTape() {
  tape.pause();
  URL.revokeObjectURL(tape.src);
  tape.removeAttribute('src');
  delete tape.dataset.of;
  tape.hidden = true;
  mark();
}

/** Each button that plays what is heard now pauses it. */
function mark() {
  for (const button of document.querySelectorAll('[data-of]:is(button)')) {
    const is = button instanceof HTMLElement && button.dataset['of'] === tape.dataset.of && !tape.paused;
    put(button, `${is ? '❚❚' : '▶'}${button.textContent?.replace(/^\S+/, '') ?? ''}`);
    button.ariaPressed = String(is);
  }
}
tape.onplay = tape.onpause = tape.onended = mark;
tape.onerror = () => tape.hasAttribute('src') && put(get('ended'), 'This browser cannot play the recording.');
