/**
 * What a conversation goes on with: the turns of those before it, and the cards of their tools. A tab keeps them, so that a page that is loaded again shows them.
 */

/** @import { ToolCall, Turn } from './types.d.ts' */

/** A card with the id of the turn that it follows. @typedef {{call: ToolCall, after: string|undefined}} UsedTool */
/** `at` is when the conversation began that goes on with them, in ms since 1970. @typedef {{at: number, turns: readonly Turn[], tools: readonly UsedTool[]}} Earlier */

/** Begins the ids of earlier turns: each session counts its own from 1. @internal */
export const BEFORE = 'before-';
const MOST = 200; // turns
/** @type {Earlier} */ const NOTHING = { at: 0, turns: [], tools: [] };

/**
 * The newest turns under ids that no session gives, with their cards. @internal
 * @param {readonly Turn[]} turns
 * @param {readonly UsedTool[]} tools
 */
export function renameEarlier(turns, tools) {
  const last = turns.slice(-MOST);
  const ids = new Map(last.map(({ id }, i) => [id, `${BEFORE}${i}`]));
  return {
    ids,
    turns: last.map((turn) => ({ ...turn, id: ids.get(turn.id) ?? '' })),
    tools: tools.filter(({ after = '' }) => ids.has(after)).map(({ call, after = '' }) => ({ call: { ...call, id: `${BEFORE}${call.id}` }, after: ids.get(after) })),
  };
}

/**
 * Keeps it for a page that is loaded again, in this tab. @internal
 * @param {string|undefined} name of `resume`; without one nothing is kept
 * @param {Earlier} earlier
 */
export function keepEarlier(name, { at, turns, tools }) {
  if (!name) return;
  const shown = tools.map(({ call: { id, name, title, doneTitle, where, status, declined }, after }) => ({ call: { id, name, title, doneTitle, where, status, declined }, after }));
  try {
    sessionStorage.setItem(keyOf(name), JSON.stringify({ at, turns, tools: shown }));
  } catch {
    // storage is blocked for this page, or full
  }
}

/** What was kept under a name. @internal @param {string} name @returns {Earlier} */
export function readEarlier(name) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(keyOf(name)) ?? '{}');
    return Array.isArray(kept.turns) && Array.isArray(kept.tools) ? kept : NOTHING;
  } catch {
    return NOTHING;
  }
}

const keyOf = (/** @type {string} */ name) => `voxgate-before ${name}`;
