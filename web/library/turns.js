/** What both sides say, as it grows: the transcript of a session. */

/** @import { Turn } from './types.d.ts' */

const MOST = 200; // turns that are kept
const VOICE = { first: 15, least: 4, most: 30 }; // characters that are spoken in a second
const LAG = 150; // ms from a piece of the transcript to its voice, which is ahead of what is played
const WORD = 16; // characters: longer ones are of a script without spaces
const HISTORY = { turns: 100, characters: 100_000 }; // that another conversation gets; the gateway takes twice the characters

export class Turns {
  #tell;
  #begun;
  /** @type {Turn|undefined} */ #said; // what the person is saying, or has said to the open answer
  /** @type {Turn|undefined} */ #answer;
  /** @type {Pick<Turn, 'sources'|'chips'>} of the answer that is open, or comes next */ #found = {};
  #piece = { from: 0, at: 0 }; // the newest of the answer's transcript, in characters, and when its voice began
  #rate = VOICE.first;
  /** @type {ReturnType<typeof setTimeout>|undefined} the next word is played */ #next;
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

  /**
   * The model says more.
   * @param {string} more
   * @param {boolean} [spoken] its voice is played from now on
   */
  answers(more, spoken = false) {
    this.#saidAll();
    const answer = this.#answer ?? this.#begin('model');
    const from = answer.text.length;
    const now = performance.now() + LAG;
    const { from: before, at } = this.#piece;
    if (from - before > WORD) this.#rate = Math.min(VOICE.most, Math.max(VOICE.least, (this.#rate + (1_000 * (from - before)) / (now - at)) / 2));
    this.#piece = { from, at: now };
    const { played, ...rest } = answer;
    this.#answer = this.#grow({ ...rest, ...(spoken && { played: from }) }, more);
    this.#play(spoken);
  }

  /**
   * Counts the words of the answer that were played. A piece of its transcript comes when its voice begins, and Gemini does not say when a word of it is spoken: the
   * time is divided by the letters, at the rate of the pieces before.
   * @param {boolean} on
   */
  #play(on) {
    clearTimeout(this.#next);
    const { text, played = text.length } = this.#answer ?? { text: '' };
    if (!on || played >= text.length || !this.#answer) return;
    this.#next = setTimeout(() => {
      if (!this.#answer) return;
      const word = text.slice(played + 1).search(/\s/);
      const until = played + 1 + Math.min(word < 0 ? text.length : word, WORD);
      const { played: _, ...rest } = this.#answer;
      this.#answer = this.#put({ ...rest, ...(until < text.length && { played: until }) });
      this.#play(true);
    }, this.#piece.at + (1_000 * (played - this.#piece.from)) / this.#rate - performance.now());
  }

  /** The connection is lost in the middle of an answer. It ends when the gateway says how. */
  cut() {
    this.#saidAll();
    this.#play(false);
    if (!this.#answer) return;
    const { played, ...rest } = this.#answer;
    this.#answer = this.#put({ ...rest, interrupted: true, cutBy: 'link' });
  }

  /**
   * Both sides have finished.
   * @param {Turn['cutBy']} [cutBy] what interrupted the answer
   * @param {string} [heard] what the person heard of it
   */
  finish(cutBy, heard) {
    this.#saidAll();
    const answer = this.#answer;
    this.#play(false);
    this.#said = this.#answer = undefined;
    this.#piece = { from: 0, at: 0 };
    if (!answer) return;
    const text = heard && !answer.text.startsWith(heard) ? heard : answer.text;
    const { cutBy: before, played, ...rest } = answer;
    const found = this.#found;
    this.#found = {};
    this.#put({ ...rest, text, final: true, interrupted: Boolean(cutBy), ...found, ...(cutBy && { heard: heard ?? text, cutBy: before ?? cutBy }) });
  }

  /** Google Search has found something for the answer. @param {any} grounding */
  found({ groundingChunks, chips }) {
    if (groundingChunks) this.#found.sources = groundingChunks.flatMap((/** @type {any} */ { web }) => web ?? []);
    if (chips) this.#found.chips = chips;
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
