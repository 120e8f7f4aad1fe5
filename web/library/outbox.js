/**
 * Messages to the gateway, until they must have arrived. Each waits for a connection, goes again after one was lost, and
 * waits for its answer. Nothing here knows sockets.
 */

import { lost } from './connection.js';

/** @import { ClientMessage, ClientType } from './messages.d.ts' */
/** @import { VoxgateError } from './connection.js' */

/**
 * @typedef {ClientMessage & {sentAt?: number, answered?: boolean, resolve?: (answer?: any) => void, reject?: (error: VoxgateError) => void}} Kept
 *   `answered`: the model has begun to answer since it was sent. `resolve`: the gateway owes an answer of its own
 */

const MOST = 64; // messages; the gateway knows the newest 256 that arrived
const SETTLED = 10_000; // ms: a message has arrived if the gateway was heard as long as this after it was sent

export class Outbox {
  #send;
  /** @type {Kept[]} */ #kept; // in the order in which they were meant
  #count = 0;
  #mark = Math.random().toString(36).slice(2); // of ids: the page before a reload had others

  /**
   * @param {(message: ClientMessage) => boolean} send returns false without a connection
   * @param {Kept[]} [before] unsent messages from before a reload of the page
   */
  constructor(send, before = []) {
    this.#send = send;
    this.#kept = before;
  }

  /**
   * @param {ClientType} type
   * @param {any} [payload]
   * @param {string} [id] the same as before for what may be sent twice
   */
  post(type, payload, id) {
    const once = ['SEND_MESSAGE', 'SEND_TOOL_RESPONSE'].includes(type) || payload?.text !== undefined;
    this.#post({ type, payload, id: once ? this.#id(id) : undefined });
  }

  /**
   * Posts what is answered.
   * @param {ClientType} type
   * @param {any} [payload]
   * @returns {Promise<any>}
   */
  ask(type, payload) {
    return new Promise((resolve, reject) => this.#post({ type, payload, id: type === 'UPDATE_CONFIG' ? this.#id() : undefined, resolve, reject }));
  }

  /** The question that is answered now. @param {...ClientType} types that have this answer, which come in the questions' order */
  asked(...types) {
    const at = this.#kept.findIndex((m) => m.resolve && m.sentAt && types.includes(m.type));
    return at < 0 ? undefined : this.#kept.splice(at, 1)[0];
  }

  #id(id = String(++this.#count)) {
    return `${this.#mark} ${id}`;
  }

  /** @param {Kept} message */
  #post(message) {
    message.sentAt = this.#send(message) ? performance.now() : undefined;
    if (message.sentAt && !message.id && !message.resolve) return; // nothing is lost with it
    this.#kept.push(message);
    if (this.#kept.length > MOST) this.#drop(this.#kept.splice(0, 1), lost());
  }

  /** Sends again what may not have arrived, and then what waited. The gateway ignores what it knows. */
  again() {
    for (const message of this.#kept.splice(0)) this.#post(message);
  }

  /** The gateway was heard. */
  settle() {
    const settled = performance.now() - SETTLED;
    this.#kept = this.#kept.filter((m) => m.resolve || !m.sentAt || m.sentAt > settled);
  }

  /** The model has begun to answer what was sent so far. */
  answering() {
    for (const m of this.#kept) m.answered ||= Boolean(m.sentAt);
  }

  /** The connection is lost: messages in flight may not have arrived. */
  lost() {
    for (const m of this.#kept) m.sentAt = undefined;
  }

  /** The conversation goes on, and these ids have arrived. @param {string[]} received */
  resumed(received) {
    this.#kept = this.#kept.filter((m) => m.resolve || !received.includes(m.id ?? ''));
    this.again();
  }

  /** Another conversation has begun. */
  anew() {
    this.#kept = this.#kept.filter(worthAsking);
    this.again();
  }

  /** Texts that another conversation will be asked. */
  get texts() {
    return this.#kept.flatMap((m) => (worthAsking(m) ? m.payload?.parts?.[0]?.text ?? [] : []));
  }

  /** What is typed and may not have arrived, for the page that is loaded next. */
  get typed() {
    return this.#kept.filter((m) => m.id && !m.resolve && m.type !== 'SEND_TOOL_RESPONSE');
  }

  /** @param {VoxgateError} why what those hear who wait for an answer */
  end(why) {
    this.#drop(this.#kept.splice(0), why);
  }

  /** @param {Kept[]} messages @param {VoxgateError} why */
  #drop(messages, why) {
    for (const m of messages) m.reject?.(why);
  }
}

/**
 * Whether a message of a lost conversation is sent again in the new one: messages of the person without an answer. Tools'
 * answers belong to the old conversation.
 * @param {Kept} m
 */
const worthAsking = ({ type, answered, resolve }) => Boolean(resolve) || (!answered && type !== 'SEND_TOOL_RESPONSE');
