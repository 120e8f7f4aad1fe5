/** What both sides say, as it grows: the transcript of a session. */

/** @import { Turn } from './types.d.ts' */

const MOST = 200; // turns that are kept
const HISTORY = { turns: 100, characters: 100_000 }; // that another conversation gets; the gateway takes twice the characters

export class Turns {
  #tell;
  #begun;
  /** @type {Turn|undefined} */ #said; // what the person is saying, or has said to the open answer
  /** @type {Turn|undefined} */ #answer;
  /** @type {readonly Turn[]} the newest, another array after each change */ list;

  /**
   * @param {(turn: Turn) => void} tell gets each turn whenever it has changed
   * @param {Turn[]} [before] turns of the same conversation
   */
  constructor(tell, before = []) {
    this.#tell = tell;
    this.list = before;
    const last = before.at(-1);
    if (last?.role === 'model' && !last.final) { // the page was left in the midst of it
      this.#answer = { ...last, interrupted: true, cutBy: 'end' };
      this.list = [...before.slice(0, -1), this.#answer];
    }
    this.#begun = Number(before.at(-1)?.id.split('-')[1] ?? 0); // the oldest are not there any more
  }

  /** The person has typed. @param {string} text */
  typed(text) {
    this.#saidAll();
    this.#said = undefined;
    this.#put({ ...this.#begin('user'), text, final: true });
  }

  /**
   * The person says more. Gemini does not promise that the end of a transcript comes before the answer to it, so a turn may grow
   * after it was final.
   * @param {string} more
   */
  said(more) {
    this.#said = this.#grow(this.#said ?? this.#begin('user'), more);
  }

  /** The model says more. @param {string} more */
  answers(more) {
    this.#saidAll();
    this.#answer = this.#grow(this.#answer ?? this.#begin('model'), more);
  }

  /** The connection is lost in the middle of an answer. It ends when the gateway says how. */
  cut() {
    this.#saidAll();
    if (this.#answer) this.#answer = this.#put({ ...this.#answer, interrupted: true, cutBy: 'link' });
  }

  /**
   * Both sides have finished.
   * @param {Turn['cutBy']} [cutBy] what interrupted the answer
   * @param {string} [heard] what the person heard of it
   */
  finish(cutBy, heard) {
    this.#saidAll();
    const answer = this.#answer;
    this.#said = this.#answer = undefined;
    if (!answer) return;
    const text = heard && !answer.text.startsWith(heard) ? heard : answer.text;
    const { cutBy: before, ...rest } = answer;
    this.#put({ ...rest, text, final: true, interrupted: Boolean(cutBy), ...(cutBy && { heard: heard ?? text, cutBy: before ?? cutBy }) });
  }

  /**
   * What another conversation gets of this one, as `voxgate.history` of its config.
   * @param {string[]} asked again, so that it is left out
   */
  history(asked) {
    const told = [];
    let characters = 0;
    for (const { role, text, heard, final, cutBy } of [...this.list].reverse()) {
      const content = heard ?? text;
      characters += content.length;
      if (told.length === HISTORY.turns || characters > HISTORY.characters) break;
      if ((final || cutBy) && content && !(role === 'user' && asked.includes(text))) told.push({ role, content });
    }
    return told.reverse();
  }

  #saidAll() {
    if (this.#said && !this.#said.final) this.#said = this.#put({ ...this.#said, final: true });
  }

  /**
   * @param {'user'|'model'} role
   * @returns {Turn}
   */
  #begin(role) {
    return { id: `${role}-${++this.#begun}`, role, text: '', final: false, interrupted: false };
  }

  /** @param {Turn} turn @param {string} more */
  #grow(turn, more) {
    return this.#put({ ...turn, text: turn.text + more });
  }

  /** @param {Turn} turn */
  #put(turn) {
    const known = this.list.some((t) => t.id === turn.id);
    this.list = known ? this.list.map((t) => (t.id === turn.id ? turn : t)) : [...this.list, turn].slice(-MOST);
    this.#tell(turn);
    return turn;
  }
}
