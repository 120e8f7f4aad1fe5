/**
 * The names and shapes of the client protocol, version 1. PROTOCOL.md is the reference; a test compares these two
 * lists with it and with the gateway. Types only: nothing of this is served.
 */

export {}; // not all of it

declare const CLIENT_MESSAGES: readonly [
  'CONNECT_GEMINI',
  'SEND_MESSAGE',
  'SEND_REALTIME_INPUT',
  'SEND_TOOL_RESPONSE',
  'UPDATE_CONFIG',
  'GET_CONTEXT',
  'CLEAR_CONTEXT',
  'INTERRUPT',
  'PAUSE_RECORDING',
  'DISCONNECT_GEMINI',
  'WEBRTC_OFFER',
  'WEBRTC_ICE_CANDIDATE',
  'PIECE',
  'PING',
];

declare const SERVER_MESSAGES: readonly [
  'GEMINI_CONNECTED',
  'SETUP_COMPLETE',
  'GEMINI_DISCONNECTED',
  'GEMINI_ERROR',
  'CONTENT_MESSAGE',
  'TOOL_CALL',
  'TOOL_CALL_CANCELLATION',
  'TOOL_STATUS',
  'INTERRUPTED',
  'TURN_COMPLETE',
  'TURN_LATENCY',
  'ASSISTANT_SPEAKING',
  'ASSISTANT_THINKING',
  'USER_SPEAKING',
  'SESSION_STATE',
  'CONTEXT',
  'AUDIO_CHUNK',
  'groundingMetadata',
  'LOG_MESSAGE',
  'WEBRTC_ANSWER',
  'WEBRTC_ICE_CANDIDATE',
  'PIECE',
  'PONG',
  'MOVE',
  'AGENT_STEP',
];

export type ClientType = (typeof CLIENT_MESSAGES)[number];
export type ServerType = (typeof SERVER_MESSAGES)[number];

/** `payload` is the shape of its type, below. A message of the same id is acted on once. */
export interface ClientMessage {
  type: ClientType;
  id?: string;
  payload?: any;
}

/** `payload` is the shape of its type, below. */
export interface ServerMessage {
  type: ServerType;
  /** Of an event: its number on this connection. */
  seq?: number;
  /** Of what happened in the conversation: its number there, for `lastEvent`. */
  event?: number;
  /** When that was, in milliseconds since 1970. */
  time?: number;
  payload?: any;
}

/** Google's voices, as of 2026-10; others are taken, too. */
export type VoiceName =
  | 'Puck' | 'Kore' | 'Aoede' | 'Charon' | 'Leda' | 'Zephyr' | 'Fenrir' | 'Orus' | 'Callirrhoe' | 'Autonoe' | 'Enceladus'
  | 'Iapetus' | 'Umbriel' | 'Algieba' | 'Despina' | 'Erinome' | 'Algenib' | 'Rasalgethi' | 'Laomedeia' | 'Achernar' | 'Alnilam'
  | 'Schedar' | 'Gacrux' | 'Pulcherrima' | 'Achird' | 'Zubenelgenubi' | 'Vindemiatrix' | 'Sadachbia' | 'Sadaltager' | 'Sulafat' | (string & {});

/** Live models as of 2026-10, and any other model of the gateway. */
export type ModelName =
  | 'gemini-3.8-live' | 'gemini-3.8-live-extended-thinking' | 'gemini-3.5-live-translate' | 'gemini-3.1-flash-live-preview'
  | 'gemini-2.5-flash-native-audio-preview-12-2025' | (string & {});

/** Google's `setup` object. Fields without a type here are passed on unchanged. */
export interface LiveConfig {
  model?: ModelName;
  systemInstruction?: string | { parts: Part[] };
  generationConfig?: {
    speechConfig?: { voiceConfig?: { prebuiltVoiceConfig?: { voiceName?: VoiceName } }; languageCode?: string; [more: string]: any };
    [more: string]: any;
  };
  tools?: any[];
  /** The gateway's own: see PROTOCOL.md. */
  voxgate?: Record<string, any>;
  [more: string]: any;
}

/** What the person types or shows has text or inlineData; `thought` is the model's. */
export interface Part {
  text?: string;
  thought?: boolean;
  inlineData?: Blob64;
}

export interface Blob64 {
  mimeType: string;
  data: string;
}

// What the client says.

export interface ConnectGemini {
  /** Who answers: one of the operator's agents. */
  agent?: string;
  initialConfig: LiveConfig;
  resumable?: boolean;
  resumeToken?: string;
  /** The last `event` that came, after which to tell what was missed. */
  lastEvent?: number;
  /** Who the person is and what they may have, where the gateway asks. */
  token?: string;
}

export interface SendMessage {
  parts: Part[];
  turnComplete?: boolean;
}

export interface SendRealtimeInput {
  text?: string;
  audio?: Blob64;
  video?: Blob64;
  activityStart?: true | {};
  activityEnd?: true | {};
  audioStreamEnd?: true | {};
}

export interface SendToolResponse {
  toolResponse: { functionResponses: FunctionResponse[] };
}

export interface FunctionResponse {
  id: string;
  name: string;
  /** {output: "done"} if absent. */
  response?: object;
  scheduling?: 'WHEN_IDLE' | 'INTERRUPT' | 'SILENT';
  /** It is not the last answer. */
  willContinue?: boolean;
  /** Pictures that the model shall see with it. */
  parts?: { inlineData: Blob64 }[];
}

// What both say.

export interface Sdp {
  sdp: string;
}

export interface Candidate {
  candidate: string | null;
  sdpMid: string | null;
  sdpMLineIndex: number | null;
}

export interface Piece {
  id: string;
  index: number;
  count: number;
  data: string;
}

// What the gateway says.

export interface GeminiConnected {
  protocol: number;
  iceServers: RTCIceServer[];
}

export interface SetupComplete {
  success: true;
  sessionId: string;
  /** When the conversation began, in milliseconds since 1970. */
  startedAt?: number;
  /** Of the agent, in which the conversation is, if it has steps. */
  step?: string;
  model: string;
  resumed: boolean;
  resumeToken?: string;
  backend: 'gemini' | 'vertex' | 'emulator';
  effectiveConfig: LiveConfig;
  /** After a resume: the ids of messages that have arrived, the newest 256. */
  received?: string[];
  /** The conversation is recorded. */
  recording?: boolean;
  tools?: DeclaredTool[];
}

export interface DeclaredTool {
  name: string;
  title?: string;
  behavior: 'BLOCKING' | 'NON_BLOCKING';
  scheduling?: 'WHEN_IDLE' | 'INTERRUPT' | 'SILENT';
  where: 'client' | 'gateway';
}

export interface SetupRefused {
  success: false;
  error: GeminiError & { code?: number };
}

export interface GeminiError {
  message: string;
  /** `retryAfter` is in seconds. */
  details?: { code: string; field?: string; retryAfter?: number };
}

export interface SessionState {
  state: 'dialing' | 'setup' | 'live' | 'tool' | 'draining' | 'resuming' | 'reseeding';
  /** A sentence to show to the person meanwhile. */
  message?: string;
  /** There will be no answer to what was said last. */
  unanswered?: boolean;
}

export interface Context {
  entries: ContextEntry[];
}

export interface ContextEntry {
  role: 'user' | 'assistant';
  content: string;
  /** When it began, in milliseconds since 1970. */
  timestamp: number;
  playedMs?: number;
  cut?: boolean;
}

/** Tokens. `input` and `output` split by modality: AUDIO, TEXT, IMAGE, VIDEO. */
export interface Tokens {
  inputTokens: number;
  outputTokens: number;
  totalTokens: number;
  cachedTokens?: number;
  toolUseTokens?: number;
  thoughtsTokens?: number;
  input?: Record<string, number>;
  output?: Record<string, number>;
}

export interface Usage {
  /** Of the turn that has ended. */
  turn: Tokens;
  /** Of the conversation so far. */
  total: Tokens;
  /** What the conversation has cost so far, in US dollars; absent: its model has no price that the gateway knows. */
  dollars?: number;
}

export interface ServerContent {
  modelTurn?: { parts?: Part[] };
  inputTranscription?: Transcription;
  outputTranscription?: Transcription;
  turnComplete?: boolean;
  interrupted?: boolean;
  usageMetadata?: object;
  voiceActivity?: object;
  groundingMetadata?: object;
}

export interface Transcription {
  text?: string;
  finished?: boolean;
}

export interface FunctionCall {
  id: string;
  name: string;
  args?: any;
  /** Of the tool, or of the tool that asks a question. */
  title?: string;
}

/** Of a tool that runs in the gateway. */
export interface ToolStatus {
  id: string;
  name: string;
  title?: string;
  status: 'running' | 'done' | 'failed' | 'cancelled';
  ms?: number;
  error?: string;
}

/** The agent has gone on to another step. */
export interface AgentStep {
  step: string;
  /** What was found out so far. */
  fields?: Record<string, string | number>;
}

/** Milliseconds from the end of what was said to the answer. */
export interface TurnLatency {
  /** To the model's first audio. */
  modelMs: number;
  /** From there to the first frame sent. */
  gatewayMs: number;
  /** To the client and back, if it is known. */
  roundTripMs?: number;
  /** The sum: what the person waited. */
  totalMs: number;
}

export interface Interrupted {
  /** AUDIO_CHUNKs of an older one are void. */
  generation: number;
  /** What was heard of the answer's text. */
  heard: string;
  /** How much was heard of its voice. */
  playedMs: number;
  /** Number of the turn. */
  turn: number;
  /** The person spoke over it or typed, INTERRUPT or a lost client, CLEAR_CONTEXT, or a lost connection to Gemini. */
  by: 'voice' | 'text' | 'client' | 'clear' | 'link';
}

/** USER_SPEAKING. `details` comes only where the gateway decides about turns. */
export interface UserSpeaking {
  speaking: boolean;
  /** A sound holds the answer; the answer goes on after it; the person continues the turn that had counted as ended. */
  details?: { held?: true; resumed?: true; retracted?: true };
}

/** ASSISTANT_SPEAKING: the turn's first sound follows. */
export interface AssistantSpeaking {
  speaking: true;
  turn: number;
}

/** ASSISTANT_THINKING: whether an answer is due that is not audible yet. */
export interface AssistantThinking {
  thinking: boolean;
}

export interface TurnComplete {
  turn: number;
}

export interface LogMessage {
  type: 'info' | 'warn' | 'error';
  message: string;
  details?: { usage?: Usage; recording?: boolean; [more: string]: any };
}
