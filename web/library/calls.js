/** The tools of a session: each call of the model's runs and is answered once; calls that run in the gateway are reported the same way. */

import { VoxgateError } from './connection.js';
import { asks } from './en.js';
import { fill } from './strings.js';

/**
 * @import { FunctionCall, FunctionResponse, LiveConfig, ToolStatus } from './messages.d.ts'
 * @import { CanvasAnswer, CanvasCall, Options, Tool, ToolCall } from './types.d.ts'
 */

// For a tool that asks the person first, because they may have to find the page. A model that waits for its tools
// learns after 10 s that the result follows as text.
const FOREGROUND_TIMEOUT = '60s';
const REMEMBERED = 64; // calls that are over

const CANVAS_TOOLS = ['create_canvas_tool', 'append_to_canvas_tool', 'show_canvas_tool'];

/**
 * What a tool returns so that the model sees a picture with the answer.
 * @param {object} result
 * @param {Blob} picture a JPEG or PNG
 * @returns {unknown}
 */
export const withPicture = (result, picture) => new Pictured(result, picture);

class Pictured {
  /** @param {object} result @param {Blob} picture */
  constructor(result, picture) {
    this.result = result;
    this.picture = picture;
  }
}

/**
 * A tool whose `run` gets what its parameters describe: TypeScript takes the type from them.
 * @template T
 * @param {T} declared
 */
export const tool = (declared) => declared;

/** The parameters as JSON Schema, where they are a Standard Schema, as Zod's. @param {any} parameters */
function asJSON(parameters) {
  const standard = parameters?.['~standard'];
  if (!standard) return parameters;
  const { $schema: _, ...schema } = standard.jsonSchema?.input({ target: 'draft-2020-12' }) ?? parameters.toJSONSchema?.() ?? {};
  if (!schema.type) {
    const why = 'tools: this version of the schema library does not give its schemas as JSON Schema.';
    throw new VoxgateError('bad_options', why, { field: 'tools' });
  }
  return schema;
}

/**
 * The arguments as the schema makes them; the model learns what is wrong.
 * @param {any} standard
 * @param {any} args
 */
async function checked(standard, args) {
  const { issues, value } = await standard.validate(args);
  const pathOf = (/** @type {any} */ i) => (i.path ?? []).map((/** @type {any} */ p) => p.key ?? p).join('.');
  if (issues) throw new Error(issues.map((/** @type {any} */ i) => `${pathOf(i)}: ${i.message}`).join('; '));
  return value;
}

/**
 * A config with the declarations of the tools, and of the canvas.
 * @param {Options} options
 * @returns {LiveConfig}
 */
export function withTools({ config = {}, tools = {}, canvas }) {
  const functionDeclarations = Object.entries(tools).map(([name, { run, foreground, wants, doneTitle, parameters, ...rest }]) => ({
    name,
    ...(parameters && { parameters: asJSON(parameters) }),
    ...(foreground && { timeout: FOREGROUND_TIMEOUT }),
    ...rest,
  }));
  return {
    ...config,
    ...(canvas && { voxgate: { canvas: true, ...config['voxgate'] } }),
    ...(functionDeclarations.length && { tools: [...(config['tools'] ?? []), { functionDeclarations }] }),
  };
}

export class Calls {
  #o;
  /** @type {Map<string, {call: ToolCall, abort: AbortController, begun: number, answer?: FunctionResponse}>} */ #calls = new Map();
  #serial = 0; // of questions to the person, and of progress

  /**
   * @param {{options: () => Options, gateway: () => URL, titleOf: (name: string) => string|undefined,
   *   tell: (call: ToolCall) => void, show: (canvas: CanvasCall) => Promise<CanvasAnswer>,
   *   respond: (response: FunctionResponse, id: string) => void, write: (text: string) => void}} o `tell` gets each call whenever
   *   it has changed; `respond` answers the model, by a message with an id; `write` tells it what is pressed later
   */
  constructor(o) {
    this.#o = o;
  }

  /** Runs a call, and answers it. @param {FunctionCall} asked */
  async run({ id, name, args = {}, title }) {
    const known = this.#calls.get(id);
    if (known) {
      // Asked again after a lost connection: an answer given meanwhile may not have arrived. It goes under the same id.
      if (known.answer) this.#respond(known.answer, known.begun);
      return;
    }
    const { canvas, tools = {} } = this.#o.options();
    const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
    const shows = canvas && (CANVAS_TOOLS.includes(name) || id.startsWith('ask-'));
    /** @type {ToolCall} */
    const call = { id, name, title: title ?? tool?.title ?? this.#o.titleOf(name), where: 'client', args, status: 'running', ...(tool?.doneTitle && { doneTitle: tool.doneTitle }) };
    const { abort: { signal }, begun } = this.#track(call);
    const answered = new Promise((respond, reject) => tool && !tool.run && Object.assign(call, { respond, reject }));
    answered.catch(() => {}); // the promise may have no listener
    this.#o.tell(call);
    /** @type {Partial<ToolCall>} */
    let outcome;
    /** @type {FunctionResponse['parts']} */
    let parts;
    try {
      if (!shows && !tool) throw new Error(`there is no tool ${name}`);
      const shown = shows && this.#show({ ...call, args }, signal, call);
      let value = await (shown || this.#carryOut(/** @type {Tool} */ (tool), call, answered, signal));
      if (value instanceof Pictured) {
        const [, mimeType = '', data = ''] = /^data:([^;,]*).*?,(.*)$/.exec(await dataURL(value.picture)) ?? [];
        parts = [{ inlineData: { mimeType, data } }];
        value = value.result;
      }
      outcome = { status: 'done', response: asObject(value) };
    } catch (e) {
      const { declined } = /** @type {any} */ (e ?? {});
      outcome = { status: 'failed', response: { error: e instanceof Error ? e.message : String(e) }, ...(declined && { declined }) };
    }
    if (signal.aborted) return;
    const answer = { id, name, response: outcome.response, parts };
    const { respond: _, reject: __, ...rest } = call;
    this.#o.tell(this.#track({ ...rest, ...outcome, ms: since(begun) }, answer).call);
    this.#respond(answer, begun);
  }

  /** Reports the status of a tool that runs in the gateway. @param {ToolStatus} status */
  runsInGateway({ id, name, title = this.#o.titleOf(name), status, ms, error }) {
    this.#o.tell(this.#track({ id, name, title, where: 'gateway', status, ms, ...(error && { response: { error } }) }).call);
  }

  /** Nobody wants the answers any more. @param {string[]} [ids] all if absent */
  drop(ids) {
    for (const [id, { call, abort }] of [...this.#calls]) {
      if (ids && !ids.includes(id)) continue;
      this.#calls.delete(id); // it may be used again
      if (call.status === 'running') abort.abort();
    }
  }

  /**
   * @param {Tool} tool
   * @param {ToolCall} call
   * @param {Promise<unknown>} answered the answer of a `toolcall` listener
   * @param {AbortSignal} signal
   */
  async #carryOut(tool, call, answered, signal) {
    const { id, name, args, title } = call;
    /** @type {(schema: object|string, title?: string, view?: Element | DocumentFragment) => Promise<CanvasAnswer>} */
    const ask = (schema, title, view) =>
      this.#show({ id: `ask-${id}-${++this.#serial}`, name: 'show_canvas_tool', args: { schema }, title, view }, signal, call);
    const confirm = async (/** @type {string} */ text, yes = asks['yes'], no = asks['no'], about = title) => {
      const elements = [
        { type: 'text', value: text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`) },
        { type: 'button', label: yes, action: 'submit' },
        { type: 'button', label: no, action: 'dismiss' },
      ];
      return (await ask({ type: 'canvas', elements }, about))['action'] === 'submit';
    };
    if (tool.foreground) {
      const what = title ?? name;
      if (document.hidden) {
        call.missed = !notify(what);
        const told = call.missed ? 'could not be notified' : 'was sent a notification';
        throw new Error(`The page is in the background; the person ${told}. Ask again when they are back.`);
      }
      const may = tool.foreground === 'asks' || (await confirm(fill(asks['wants'], { what }), asks['allow'], asks['not now'], ''));
      if (!may) throw declinedError('the person did not allow it');
    }
    const progress = (/** @type {unknown} */ value) => {
      if (signal.aborted || this.#calls.get(id)?.answer) return;
      this.#respond({ id, name, response: asObject(value), willContinue: true });
    };
    if (!tool.run) return answered;
    const standard = tool.parameters?.['~standard'];
    const wanted = standard ? await checked(standard, args) : args;
    const asked = tool.wants ?? title;
    return tool.run(wanted, { id, signal, progress, confirm: (text) => confirm(text), ask: (schema, view) => ask(schema, asked, view) });
  }

  /**
   * @param {Omit<CanvasCall, 'gateway'|'send'|'signal'>} call
   * @param {AbortSignal} signal
   * @param {ToolCall} by
   */
  async #show(call, signal, by) {
    if (!this.#o.options().canvas) throw new Error('there is no canvas to ask the person on');
    if (signal.aborted) return { dismissed: /** @type {const} */ (true) };
    const send = (/** @type {object} */ answer) => this.#o.write(JSON.stringify(answer));
    const answer = this.#o.show({ ...call, gateway: this.#o.gateway(), send, signal });
    if (document.hidden && !(await Promise.race([answer, undefined])) && !notify(by.title ?? asks['question'] ?? '')) {
      this.#o.tell({ ...by, missed: true });
    }
    return answer;
  }

  /**
   * @param {ToolCall} call
   * @param {FunctionResponse} [answer]
   */
  #track(call, answer) {
    let entry = this.#calls.get(call.id);
    if (!entry) {
      const over = [...this.#calls.values()].filter((e) => e.call.status !== 'running');
      for (const e of over.slice(0, -REMEMBERED)) this.#calls.delete(e.call.id);
      const fresh = (entry = { call, abort: new AbortController(), begun: performance.now() });
      const cancel = () => this.#o.tell((fresh.call = { ...fresh.call, status: 'cancelled', ms: since(fresh.begun) }));
      entry.abort.signal.addEventListener('abort', cancel);
      this.#calls.set(call.id, entry);
    }
    return Object.assign(entry, { call, answer });
  }

  /** @param {FunctionResponse} answer */
  #respond(answer, key = ++this.#serial) {
    this.#o.respond(answer, `tool ${key} ${answer.id}`.slice(0, 100));
  }
}

/** An error that tells the model, and the page, that the person did not want it. @param {string} message */
export const declinedError = (message) => Object.assign(new Error(message), { declined: true });

/** @param {number} then */
const since = (then) => Math.round(performance.now() - then);

/**
 * Answers are objects.
 * @param {unknown} value
 */
function asObject(value = null) {
  const plain = typeof value === 'object' && value !== null && !Array.isArray(value);
  return JSON.parse(JSON.stringify(plain ? value : { output: value }));
}

/**
 * Calls the person back to the page, if that was allowed before.
 * @param {string} what
 * @returns {boolean} false: it was not, or cannot be
 */
function notify(what) {
  try {
    if (Notification.permission !== 'granted') throw new Error('not allowed');
    const n = new Notification(fill(`{who}: ${what}`), { body: fill(asks['needs']), tag: 'voxgate' });
    n.onclick = () => {
      window.focus();
      n.close();
    };
    return true;
  } catch {
    return false; // Android has notifications only for service workers, old iPhones have none
  }
}

/**
 * A blob as a data: URL, where the page's policy has no blob:.
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
export function dataURL(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
