/** The look of the orb, and whether a microphone is open: what orb.js and status.js share. */

/** @import { Mic, State } from './types.d.ts' */

/** @typedef {'ready'|'connecting'|'listening'|'thinking'|'speaking'|'muted'|'asking'|'reconnecting'} Look */

/** A microphone is open, whether or not a sound comes from it. @param {Mic} [mic] */
export const isOpen = (mic) => mic === 'live' || mic === 'silent';

/** @param {State|'idle'} state @param {Mic} [mic] @param {boolean} [asking] a question to the person is pending @returns {Look} */
export function lookFor(state, mic, asking) {
  if (state === 'idle' || state === 'closed') return 'ready';
  if (asking && state !== 'connecting' && state !== 'reconnecting') return 'asking';
  return state === 'listening' && !isOpen(mic) ? 'muted' : state;
}
