// What voxgate.js takes and tells. Types only: nothing of this is served.
import type { LiveConfig, LogMessage, SessionState, Usage } from './messages.d.ts';
import type { LiveError } from './voxgate.js';

export type State = 'connecting' | 'listening' | 'speaking' | 'reconnecting' | 'closed';

/**
 * off: not asked for. refused: by the person or the browser. failed: in use elsewhere.
 * insecure: the page came over http.
 */
export type Mic = 'off' | 'asking' | 'live' | 'muted' | 'refused' | 'missing' | 'failed' | 'insecure';

export type Transport = 'auto' | 'webrtc' | 'websocket';

export interface Options {
  /** The gateway's WebSocket; `ws` beside the module if absent. */
  url?: string | URL;
  config?: LiveConfig;
  tools?: Record<string, Tool>;
  /** true if absent. A conversation without a microphone can be typed. */
  mic?: boolean | MediaTrackConstraints | MediaStreamTrack;
  transport?: Transport;
  /** Ends the attempt to connect, and the session after it. */
  signal?: AbortSignal;
}

/** A function the model may call. What `run` returns, or throws, goes back to the model. */
export interface Tool {
  description: string;
  /** The arguments, as JSON Schema or Google's Schema. */
  parameters?: object;
  /** Whether the model waits for the answer; its own choice if absent. */
  behavior?: 'BLOCKING' | 'NON_BLOCKING';
  /** `signal` fires when the model no longer wants the answer. */
  run(args: any, context: { id: string; signal: AbortSignal }): unknown;
}

/** One thing said by one side. It is told again under the same id as it grows. */
export interface Turn {
  id: string;
  role: 'user' | 'model';
  text: string;
  final: boolean;
  interrupted: boolean;
}

export interface ToolCall {
  id: string;
  name: string;
  args: any;
  status: 'running' | 'done' | 'failed' | 'cancelled';
  response?: any;
  /** How long it took. */
  ms?: number;
}

export interface Events {
  /** Something of state, mic, transport or blocked has changed. */
  state: { state: State; mic: Mic };
  /** `session.link`, where the conversation stands with Gemini, has changed. */
  link: SessionState;
  turn: Turn;
  tool: ToolCall;
  /** Tokens, after each turn. */
  usage: Usage;
  /** What Google Search was asked for an answer. */
  grounding: any;
  log: LogMessage;
  /** Something went wrong and the session goes on. */
  error: LiveError;
  /** The last event: why the session has ended. */
  closed: LiveError;
}
