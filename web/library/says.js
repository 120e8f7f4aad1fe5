/** One sentence that is true of the gateway, the voice and the microphone together. The page, the talk button and React say it; VOX has its microphone's. */
import { states } from './en.js';
import { fill, speak } from './strings.js';

/** @import { Mic, Session } from './types.d.ts' */

speak({ states });

/** A microphone is open, whether or not a sound comes from it. @param {Mic} [mic] */
export const isOpen = (mic) => mic === 'live' || mic === 'silent';

/** Explains why the person is not heard; '' if they are. @param {Mic} mic @param {string} [label] of the microphone @param {string} [who] does not hear */
export const unheard = (mic, label, who) => fill(states[`mic ${mic}`], { name: label ? `“${label}”` : states['microphone'], ...(who && { who }) });

/**
 * @param {Session} session
 * @param {{doing?: string, push?: boolean}} [more] an activity to mention, such as a tool or a question; push to talk
 */
export function sentenceOf(session, { doing, push } = {}) {
  const { state, mic } = session;
  if (state === 'closed') return fill(states['closed']);
  if (state === 'connecting') return fill(states[mic === 'asking' && session.setup ? 'mic asking' : 'connecting']);
  if (session.link.message) return session.link.message; // it makes the person wait
  if (state === 'reconnecting') {
    if (session.away?.reachable === false) return fill(states['unreachable']);
    return fill(states[session.setup?.resumeToken ? 'reconnecting' : 'interrupted']);
  }
  if (session.blocked) return fill(states['blocked']);
  if (doing) return doing;
  if (state === 'speaking') return fill(states[mic === 'live' ? 'speaking' : mic === 'muted' && !push ? 'speaking muted' : 'speaking alone']);
  if (state === 'thinking') return fill(states['thinking']);
  if (push && mic === 'muted') return fill(states['push']);
  return unheard(mic, session.track?.label) || fill(states['listening']);
}

/** What the button of the microphone does. @param {Mic} mic */
export const muteOf = (mic) => states[isOpen(mic) || mic === 'asking' ? 'mute' : mic === 'muted' ? 'unmute' : 'use'] ?? '';
