/// <reference lib="esnext.disposable" />
// What voxgate.js is, takes and tells. Written by hand; surface.ts checks that voxgate.js is that.
import type { AgentStep, ClientType, ContextEntry, LiveConfig, LogMessage, SessionState, SetupComplete, TurnLatency, Usage, UserSpeaking } from './messages.d.ts';

export type * from './messages.d.ts';

/** Begins a conversation, and returns at once. Call it in a gesture (a click, a key), or the browser may hold the sound back. */
export function open(options: Options): Session;

/** `open`, and then `ready`: resolves when the person can speak, and rejects with a VoxgateError. */
export function connect(options: Options): Promise<Session>;

/** A tool whose `run` gets the type that its `parameters` describe: a JSON Schema written `as const` or in place, or a Standard Schema, as Zod's. */
export function tool<const S extends object>(declared: Tool<S>): Tool<any>;

/** What a tool returns so that the model sees a picture, a JPEG or PNG, with the answer. */
export function withPicture(result: object, picture: Blob): unknown;

/** One conversation. It is used once; `open` makes the next. */
export class Session {
  constructor(options: Options);
  /**
   * Resolves when the gateway and Gemini are connected and the person has answered the microphone prompt. After a minute without an answer
   * it resolves too, and the person can type. A refused microphone is not a failure: see `mic`. Rejects with the VoxgateError of `closed` within
   * 35 s (10 s for your `token()`, 5 s for the gateway, 20 s for Gemini), not counting the person's time.
   */
  readonly ready: Promise<void>;
  readonly state: State;
  readonly mic: Mic;
  /** The microphone while there is one, as for its name; it is the session's to stop. */
  readonly track: MediaStreamTrack | undefined;
  readonly video: Video;
  /** What was said, the newest 200 turns: another array after each change. */
  readonly turns: readonly Turn[];
  /** Loudness of both sides now, 0 to 1; for a meter that asks at every frame. */
  readonly level: { mic: number; model: number };
  /** Both voices as one stream, as for a MediaRecorder. It follows other devices and other ways, and ends with the session. */
  mix(): MediaStream;
  /** What carries the voice. */
  readonly transport: 'webrtc' | 'websocket' | undefined;
  /** SETUP_COMPLETE: sessionId, model, backend, effectiveConfig … */
  readonly setup: SetupComplete | undefined;
  /** The state of the gateway's connection to Gemini; `message` is a sentence to show to the person. */
  readonly link: SessionState;
  /** While the gateway is not reached: since when, and whether anything answered the last try. */
  readonly away: Away | undefined;
  /** Tries at once to reach the gateway, in place of waiting for the next try. */
  retry(): void;
  /** The browser holds the sound back for want of a gesture. */
  readonly blocked: boolean;
  /** Lets the sound play that was held back. Call it in a gesture. */
  unblock(): void;
  /** Calls `f` on each event until the returned function is called. Errors of `f` are logged. */
  on<K extends keyof Events>(type: K, f: (event: Events[K]) => void): () => void;
  /** Likewise, for the next one alone. */
  once<K extends keyof Events>(type: K, f: (event: Events[K]) => void): () => void;
  /** Calls this `f` no more. */
  off<K extends keyof Events>(type: K, f: (event: Events[K]) => void): void;
  /** How loud the voice is played, 0 to 1; iPhones leave that to their buttons. */
  volume: number;
  /** A typed turn. It interrupts the voice, and waits for a connection if there is none. */
  send(text: string): void;
  /** Stops the answer that is being given. The model takes it for said. */
  interrupt(): void;
  /** Mutes or unmutes; toggles without an argument. It requests the microphone if none is open yet. */
  mute(on?: boolean): void;
  /** Push to talk, where `config.voxgate.vad.enabled` is false: what is said between talk(true) and talk(false) is heard, and answered. */
  talk(on: boolean): void;
  /** Changes the devices; what is left out stays. Resolves when the browser and the person have decided: `mic` and `video` tell how. */
  use(devices: Devices): Promise<void>;
  /**
   * Changes the conversation. A new `config` replaces the whole one, new `tools` all of them; what is left out stays. Resolves when it is done; rejects if it
   * is refused, which `error` tells, too: then the old one goes on.
   */
  update(changes: Pick<Options, 'config' | 'tools'>): Promise<void>;
  /** What was said so far, as the gateway knows it. */
  context(): Promise<ContextEntry[]>;
  /** Has the model forget what was said so far. */
  clearContext(): Promise<void>;
  /** What the browser counts of the WebRTC way; undefined over the WebSocket. */
  stats(): Promise<RTCStatsReport | undefined>;
  /**
   * Sends any message of PROTOCOL.md. Without a connection it is queued. Typed messages, tools' answers and changes of the configuration arrive
   * exactly once. Tools stay registered when the configuration is changed.
   */
  post(type: ClientType, payload?: unknown): void;
  /** Says goodbye and lets go of everything. Safe to call at any time, and again. Resolves when the gateway has heard it. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * `code` is one of PROTOCOL.md's (`refused`, `busy`, `connection_failed` …) or one of the library's: `bad_options` (`field` is the option),
 * `no_token` (your `token()` failed), `no_gateway`, `origin_refused` (VOXGATE_ORIGINS lacks this page's), `timeout`, `lost`, `ended`, `replaced` (it
 * goes on elsewhere), `closed` (by `close`), `aborted`, `playback_failed`, `microphone_kept` (another one could not be
 * opened), `not_resumed` (another conversation goes on).
 */
export class VoxgateError extends Error {
  constructor(code: string, message?: string, details?: { field?: string; retryAfter?: number });
  code: string;
  /** What the gateway, or the browser, said, in English: for developers. `message` is in the language of the page. */
  told?: string;
  /** What is wrong in what was sent, as `payload.initialConfig.model`. */
  field?: string;
  /** In how many seconds to come back, where that is known. */
  retryAfter?: number;
  /** The session has not begun, or has ended, for it. */
  fatal: boolean;
}

/**
 * connecting: until `ready`. listening: the model waits for the person; see [Mic] for whether it can hear them. thinking: an answer is due.
 * reconnecting: the person is not heard; the connection is interrupted or lost.
 */
export type State = 'connecting' | 'listening' | 'thinking' | 'speaking' | 'reconnecting' | 'closed';

/**
 * off: not asked for. refused: by the person or the browser. missing: there is none. failed: in use elsewhere. lost: it was unplugged or taken away.
 * insecure: the page came over http. unheard: it is open, but its sound cannot be sent from here: WebRTC does not connect, and the page's policy or
 * server keeps capture-worklet.js away. silent: it is open, and not one sound has come from it for 8 s, or the browser or the system has kept its sound
 * for 0.5 s, as when a headset sleeps or its switch is off; back to live with the first sound. A connection that is lost does not change it.
 */
export type Mic = 'off' | 'asking' | 'live' | 'muted' | 'refused' | 'missing' | 'failed' | 'lost' | 'insecure' | 'unheard' | 'silent';

/** What the model is shown. The states are those of the microphone. */
export interface Video {
  state: 'off' | 'asking' | 'live' | 'refused' | 'missing' | 'failed' | 'insecure';
  kind?: 'camera' | 'screen' | 'track';
  /** For a view of what is shown; it is the session's to stop. */
  track?: MediaStreamTrack;
}

/** The gateway is not reached. `since` is in ms since 1970; `reachable`: the last try was not refused, or there was none yet. */
export interface Away {
  since: number;
  reachable: boolean;
}

export type Transport = 'auto' | 'webrtc' | 'websocket';

export interface Options {
  /** The gateway's WebSocket, as wss://voxgate.example.com/ws, or relative to the page. */
  url: string | URL;
  /**
   * Who the person is and what they may have, from the app's own backend; a gateway that asks for none needs none. A function is
   * called for each connection: a lost conversation may be found again when its first token has long expired.
   */
  token?: string | (() => string | Promise<string>);
  /** Who answers: one of the operator's agents, by the name of its file. What `config` says counts more than it, field by field. */
  agent?: string;
  config?: LiveConfig;
  tools?: Record<string, Tool>;
  /** Lets Gemini, and tools, show and ask something on the screen: by an object that does it, or, with `true`, by the `canvas` event. */
  canvas?: CanvasHandler | true;
  /** true if absent. A conversation without a microphone can be typed. */
  mic?: boolean | MediaTrackConstraints | MediaStreamTrack;
  /** The microphone is opened and not heard until `mute(false)` or `talk(true)`. */
  muted?: boolean;
  /** The id of the device that plays the voice, where a browser can choose; '' is its default. */
  speaker?: string;
  /** Which camera `use({ video: 'camera' })` opens, and how. */
  camera?: MediaTrackConstraints;
  transport?: Transport;
  /** 'relay': over TURN servers alone, so that the gateway does not learn the person's address by WebRTC. */
  iceTransportPolicy?: RTCIceTransportPolicy;
  /**
   * Keeps the conversation through a reload of the page, under this name in the tab's sessionStorage: the next session of the same name goes on with it, and
   * has its `turns`. After `close` there is nothing to go on with.
   */
  resume?: string;
  /** The folder with capture-worklet.js and playback-worklet.js; the gateway's own if absent, which it serves to any origin. */
  worklets?: string | URL;
  /** What people read, for the whole page, as `de`: the browser's language if absent, English where that is not shipped. */
  lang?: string;
  /** The name of who answers, which the words use in place of Gemini. */
  who?: string;
  /** Words of the app's own, which go before those of every language. */
  strings?: Strings;
  /** Ends the attempt to connect, and the session after it. */
  signal?: AbortSignal;
}

/** What people read, by section and name, as in en.js: `{ states: { listening: 'Go ahead' } }`. `{who}` and other names in braces are filled in. */
export type Strings = { [section in 'errors' | 'asks' | 'states' | 'canvas' | 'talk' | 'page' | 'settings' | 'vox']?: Record<string, string> } & Record<string, Record<string, string> | undefined>;


export interface Devices {
  /** Opens it; false lets go of it. */
  mic?: Options['mic'];
  speaker?: Options['speaker'];
  camera?: Options['camera'];
  /** Shows the model the camera, the screen, or a track; null shows nothing more. Ask for the screen in a gesture. */
  video?: 'camera' | 'screen' | MediaStreamTrack | null;
}

/** Whatever has `~standard` (standardschema.dev): Zod 4, Valibot, ArkType. It must be able to say its JSON Schema. */
export interface StandardSchema<Out = unknown> {
  readonly '~standard': { readonly validate: (value: unknown) => any; readonly types?: { readonly output: Out } | undefined };
}

type Properties<P, R> = { [K in keyof P as K extends R ? K : never]: Described<P[K]> } & { [K in keyof P as K extends R ? never : K]?: Described<P[K]> };

/** The type that a JSON Schema describes, as far as types, `enum`, `properties`, `required` and `items` say it. */
export type Described<S> = S extends { enum: readonly (infer E)[] } ? E
  : S extends { type: 'string' } ? string
  : S extends { type: 'number' | 'integer' } ? number
  : S extends { type: 'boolean' } ? boolean
  : S extends { type: 'array'; items: infer I } ? Described<I>[]
  : S extends { type: 'object'; properties: infer P; required: readonly (infer R)[] } ? Properties<P, R>
  : S extends { type: 'object'; properties: infer P } ? Properties<P, never>
  : any;

/** What `run` gets. */
export type ArgumentsOf<S> = S extends { readonly '~standard': { readonly types?: infer T } } ? NonNullable<T> extends { output: infer O } ? O : any : Described<S>;

/** A function the model may call; `tool()` gives `args` its type. */
export interface Tool<S = any> {
  description: string;
  /** The arguments, as JSON Schema, Google's Schema, or a Standard Schema, which also checks them before `run`. */
  parameters?: S;
  /** What it does, for people: "Taking photo…". */
  title?: string;
  /** What it has done, for people: "Took a photo"; `title` if absent. */
  doneTitle?: string;
  /** What stands above what it asks of the person: "Gemini wants to take a photo."; `title` if absent. */
  wants?: string;
  /** Whether the model waits for the answer; its own choice if absent. */
  behavior?: 'BLOCKING' | 'NON_BLOCKING';
  /** When the model speaks of an answer that it did not wait for; its own choice if absent, which is WHEN_IDLE. */
  scheduling?: 'WHEN_IDLE' | 'INTERRUPT' | 'SILENT';
  /** How long the gateway waits for the answer, as "20s". A tool that asks the person needs time for that. */
  timeout?: string;
  /**
   * The tool needs the person in front of the page: the canvas asks first, and pressing Allow is a user gesture that can open the camera or
   * a share sheet. In the background the person gets a notification instead, if the page may send any, and the model gets an error.
   * `timeout` defaults to a minute. `'asks'`: the same, but `run` asks the person itself.
   */
  foreground?: boolean | 'asks';
  /**
   * What it returns, or throws, goes back to the model. Without it the `tool` event's `respond` or `reject` answers. Numbers in `args`
   * above 2^53 are rounded, as JavaScript's are: declare such a one as a string.
   */
  run?(args: ArgumentsOf<S>, context: ToolContext): unknown;
}

export interface ToolContext {
  id: string;
  /** Fires when the model no longer wants the answer. */
  signal: AbortSignal;
  /** Asks the person for confirmation on the canvas. Rejects without a canvas, or if the schema is invalid. */
  confirm(text: string): Promise<boolean>;
  /**
   * Shows a question on the canvas: elements, as the canvas tools take them. `view` is shown above them, as a picture of the camera;
   * what has a `data-action` in it is a button.
   */
  ask(schema: object | string, view?: Element | DocumentFragment): Promise<CanvasAnswer>;
  /** Tells the model how far the call is. */
  progress(value: unknown): void;
}

/** The values of the inputs by their ids, and the `action` of the button; or that the person, or time, dismissed it. */
export type CanvasAnswer = Record<string, string | true>;

/** What shows the canvas, and asks; `Canvas` of canvas.js is one. */
export interface CanvasHandler {
  /** Resolves with what the person puts in, or at once if nothing can be; rejects if it cannot be shown. */
  show(call: CanvasCall): Promise<CanvasAnswer>;
  /** Nobody waits for this call any more; without an id: the conversation is over. */
  hide(id?: string): void;
}

export interface CanvasCall {
  /** Begins with `ask-` for a question of a tool, which is not one of Gemini's canvases. */
  id: string;
  name: string;
  args: { schema?: object | string };
  /** Of the tool that asks. */
  title?: string;
  /** What paths in it (`fetch`) are relative to. */
  gateway: URL;
  /** For what is pressed after the call has been answered. */
  send(answer: CanvasAnswer): void;
  view?: Element | DocumentFragment;
  /** Aborts when the answer is no longer needed. */
  signal: AbortSignal;
}

/** See PROTOCOL.md. */
export interface CanvasElement {
  type: 'text' | 'image' | 'input' | 'button' | 'list' | 'form' | 'audio' | 'video';
  id?: string;
  value?: string;
  src?: string;
  fetch?: string;
  alt?: string;
  label?: string;
  hint?: string;
  kind?: string;
  required?: boolean;
  action?: string;
  items?: string[];
  ordered?: boolean;
  elements?: CanvasElement[];
}

/** The conversation that `open` with this name of `resume` goes on with after a reload: when it was left, in ms since 1970, and what was said. */
export function resumable(name: string): { at: number; turns: Turn[] } | undefined;
/** Forgets it: the next conversation is another one. */
export function forget(name: string): void;

/** One thing said by one side. It comes again under the same id as it grows. */
export interface Turn {
  id: string;
  role: 'user' | 'model';
  text: string;
  /** It is over. What the person said may still grow: Gemini may send the end of a transcript after its answer. */
  final: boolean;
  /** The answer was stopped by the person, by `interrupt()`, or by a lost connection. */
  interrupted: boolean;
  /** Of an answer that was interrupted: what was heard of its text. */
  heard?: string;
  /** Of an answer that is being spoken: how many characters of `text` were played, to the word and as well as is known. It is absent once all of it was. */
  played?: number;
  /** What interrupted the answer: the person, or who acts for them; a lost connection; the end of the conversation. */
  cutBy?: 'person' | 'link' | 'end';
  /** Of an answer for which Google Search was asked: the pages on which it was found. */
  sources?: { title?: string; uri?: string }[];
  /** Of such an answer: the address of a page with Google's search suggestions. Google requires them to be shown; show the page in a frame. */
  chips?: string;
}

export interface ToolCall {
  id: string;
  name: string;
  /** What it does, for people. */
  title?: string;
  /** What it has done, for people. */
  doneTitle?: string;
  /** Where it runs. What runs in the gateway tells neither arguments nor results. */
  where: 'client' | 'gateway';
  args?: any;
  status: 'running' | 'done' | 'failed' | 'cancelled';
  /** What the model got; `{error}` if it failed. */
  response?: any;
  /** How long it took. */
  ms?: number;
  /** It failed because the person did not want it. */
  declined?: boolean;
  /** The page was in the background when the call needed the person, who could not be notified. Told of a call that waits, too. */
  missed?: boolean;
  /** Of a tool without `run`: answers the call. */
  respond?(result: unknown): void;
  reject?(error: unknown): void;
}

export interface Events {
  /** Something of state, mic, video, transport, setup or blocked has changed, or may have. */
  state: { state: State; mic: Mic };
  /** `session.link`, where the conversation stands with Gemini, has changed. */
  link: SessionState;
  /** A turn has begun, grown or ended. */
  turn: Turn;
  /** The person has begun to speak, or has stopped, as the gateway hears it. */
  speech: UserSpeaking;
  tool: ToolCall;
  /** With `canvas: true`: show this, and call `answer` once with what the person puts in. */
  canvas: CanvasCall & { answer(answer: CanvasAnswer): void };
  step: AgentStep;
  /** Tokens, after each turn. */
  usage: Usage;
  /** How long the last answer took, after each turn. */
  latency: TurnLatency;
  /** What Google Search was asked for an answer. `chips` is the address of a page with its suggestions, to be shown in a frame. */
  grounding: any;
  log: LogMessage;
  /** Something went wrong and the session goes on. */
  error: VoxgateError;
  /** The last event: why the session has ended. */
  closed: VoxgateError;
}
