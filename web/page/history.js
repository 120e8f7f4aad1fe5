/** Where earlier conversations are kept: in this browser. It is loaded with the first conversation; historysheet.js shows them. */

/** @import { Line } from './transcript.js' */

/** @typedef {{id: string, at: number, ms: number, lines: Line[]}} Kept `at`: when it began, in ms since 1970; `ms`: how long it was */

const KEY = 'voxgate.history';
const MOST = 30; // conversations
const LARGEST = 1_500_000; // characters of all; browsers keep 5 million
const LARGEST_CALL = 30_000; // characters: of a larger canvas the words are kept alone

/** @returns {Kept[]} the newest first */
export function list() {
  try {
    const all = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(all) ? all.filter((c) => c?.id && Array.isArray(c.lines)) : [];
  } catch {
    return []; // storage is blocked for this page, or holds foreign data
  }
}

/** @param {Kept[]} all */
export function write(all) {
  let kept = all.slice(0, MOST);
  try {
    while (kept.length > 1 && JSON.stringify(kept).length > LARGEST) kept = kept.slice(0, -1);
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // the browser keeps nothing for this page
  }
}

/**
 * Keeps a conversation, in place of what is kept of it already.
 * @param {Kept} conversation
 */
export function keep(conversation) {
  if (!conversation.lines.some((l) => l.role === 'user' || l.role === 'model')) return;
  const all = list();
  const before = all.find((c) => c.id === conversation.id);
  const lines = conversation.lines.map(({ call, ...line }) => (call && JSON.stringify(call).length <= LARGEST_CALL ? { ...line, call } : line));
  write([{ ...conversation, lines, at: before?.at ?? conversation.at, ms: conversation.ms + (before?.ms ?? 0) }, ...all.filter((c) => c !== before)]);
}
