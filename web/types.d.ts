// What voxgate.js takes and tells. Types only: nothing of this is served.
import type { LiveConfig, LogMessage, SessionState, TurnLatency, Usage } from './messages.d.ts';
import type { LiveError } from './voxgate.js';

/** reconnecting: nobody hears, also while it is not yet known whether the connection is lost or only interrupted. */
export type State = 'connecting' | 'listening' | 'speaking' | 'reconnecting' | 'closed';

/**
 * off: not asked for. refused: by the person or the browser. failed: in use elsewhere.
 * insecure: the page came over http. unheard: it is open, but this page cannot read it for the WebSocket (a policy or a bundler
 * keeps capture-worklet.js away).
 */
export type Mic = 'off' | 'asking' | 'live' | 'muted' | 'refused' | 'missing' | 'failed' | 'insecure' | 'unheard';

/** What the model is shown. The states are those of the microphone. */
export interface Look {
  state: 'off' | 'asking' | 'live' | 'refused' | 'missing' | 'failed' | 'insecure';
  kind?: 'camera' | 'screen' | 'track';
  /** For a view of what is shown; it is the session's to stop. */
  track?: MediaStreamTrack;
}

export type Transport = 'auto' | 'webrtc' | 'websocket';

export interface Options {
  /** The gateway's WebSocket; `ws` beside the module if absent. */
  url?: string | URL;
  /**
   * Who the person is and what they may have, from the app's own backend; a gateway that asks for none needs none. A function is
   * called for each connection: a lost conversation may be found again when its first token has long expired.
   */
  token?: string | (() => string | Promise<string>);
  config?: LiveConfig;
  tools?: Record<string, Tool>;
  /** Lets Gemini, and tools, show and ask something on the screen. */
  canvas?: CanvasHandler;
  /** true if absent. A conversation without a microphone can be typed. */
  mic?: boolean | MediaTrackConstraints | MediaStreamTrack;
  /** The microphone is opened and not heard until `mute(false)` or `talk(true)`. */
  muted?: boolean;
  /** The id of the device that plays the voice, where a browser can choose; '' is its default. */
  speaker?: string;
  /** Which camera `look('camera')` opens, and how. */
  camera?: MediaTrackConstraints;
  transport?: Transport;
  /** 'relay': over TURN servers alone, so that the gateway does not learn the person's address by WebRTC. */
  iceTransportPolicy?: RTCIceTransportPolicy;
  /** Ends the attempt to connect, and the session after it. */
  signal?: AbortSignal;
}

/** A function the model may call. */
export interface Tool {
  description: string;
  /** The arguments, as JSON Schema or Google's Schema. */
  parameters?: object;
  /** What it does, for people: "Taking photo…". */
  title?: string;
  /** Whether the model waits for the answer; its own choice if absent. */
  behavior?: 'BLOCKING' | 'NON_BLOCKING';
  /** When the model speaks of an answer that it did not wait for; its own choice if absent, which is WHEN_IDLE. */
  scheduling?: 'WHEN_IDLE' | 'INTERRUPT' | 'SILENT';
  /** How long the gateway waits for the answer, as "20s"; for one that asks the person, leave time for that. */
  timeout?: string;
  /**
   * It needs the person in front of the page: the canvas asks first, and pressing Allow is a gesture that opens the camera or a
   * share sheet. In the background the person gets a notification instead, if the page may send any, and the model an error.
   * `timeout` is a minute if absent. `'asks'`: likewise, but `run` asks the person itself.
   */
  foreground?: boolean | 'asks';
  /**
   * What it returns, or throws, goes back to the model. Without it the `tool` event's `respond` or `reject` answers. Numbers in `args`
   * above 2^53 are rounded, as JavaScript's are: declare such a one as a string.
   */
  run?(args: any, context: ToolContext): unknown;
}

export interface ToolContext {
  id: string;
  /** Fires when the model no longer wants the answer. */
  signal: AbortSignal;
  /** Asks the person on the canvas for a yes. Rejects if there is no canvas, or the schema is none. */
  confirm(text: string): Promise<boolean>;
  /**
   * Shows a question on the canvas: elements, as the canvas tools take them. `view` is shown above them, as a picture of the camera;
   * what has a `data-action` in it is a button.
   */
  ask(schema: object | string, view?: Element): Promise<CanvasAnswer>;
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
  /** Begins with `ask-` if a tool asks the person, and is no canvas of Gemini's. */
  id: string;
  name: string;
  args: { schema?: object | string };
  /** Of the tool that asks. */
  title?: string;
  /** What paths in it (`fetch`) are relative to. */
  gateway: URL;
  /** For what is pressed after the call has been answered. */
  send(answer: CanvasAnswer): void;
  view?: Element;
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

/** One thing said by one side. It is told again under the same id as it grows. */
export interface Turn {
  id: string;
  role: 'user' | 'model';
  /** Of an answer that was interrupted: what was heard of it. */
  text: string;
  /** It is over. What the person said may still grow: Gemini may send the end of a transcript after its answer. */
  final: boolean;
  /** The answer was stopped by the person, by `interrupt()`, or by a lost connection. */
  interrupted: boolean;
}

export interface ToolCall {
  id: string;
  name: string;
  /** What it does, for people. */
  title?: string;
  /** Where it runs. What runs in the gateway tells neither arguments nor results. */
  where: 'client' | 'gateway';
  args?: any;
  status: 'running' | 'done' | 'failed' | 'cancelled';
  /** What the model was told; `{error}` if it failed. */
  response?: any;
  /** How long it took. */
  ms?: number;
  /** The page was in the background when the call needed the person, who could not be notified. Told of a call that waits, too. */
  missed?: boolean;
  /** Of a tool without `run`: answers the call. */
  respond?(result: unknown): void;
  reject?(error: unknown): void;
}

export interface Events {
  /** Something of state, thinking, mic, looks, transport or blocked has changed. */
  state: { state: State; mic: Mic };
  /** `session.link`, where the conversation stands with Gemini, has changed. */
  link: SessionState;
  turn: Turn;
  tool: ToolCall;
  /** Tokens, after each turn. */
  usage: Usage;
  /** How long the last answer took, after each turn. */
  latency: TurnLatency;
  /** What Google Search was asked for an answer. `chips` is the address of a page with its suggestions, to be shown in a frame. */
  grounding: any;
  log: LogMessage;
  /** Something went wrong and the session goes on. */
  error: LiveError;
  /** The last event: why the session has ended. */
  closed: LiveError;
}
