// What vox.js takes and tells. Types only: nothing of this is served.

import type { TurnLatency } from '../library/messages.d.ts';
import type { Strings } from '../library/types.d.ts';

/**
 * listening: VOX hears the person. ready: the person can type, but there is no microphone. reconnecting: the person is not heard.
 * ended and failed: the conversation has ended; `message` says why.
 */
export type State = 'idle' | 'connecting' | 'listening' | 'ready' | 'speaking' | 'reconnecting' | 'ended' | 'failed';

/** off: not asked for. refused: by the person or the browser. failed: in use elsewhere. insecure: the page came over http. silent: as in voxgate.js. */
export type Mic = 'off' | 'asking' | 'live' | 'refused' | 'missing' | 'failed' | 'insecure' | 'silent';

export interface Options {
  /** The gateway's endpoint, as `wss://voxgate.example.com/api/vox/live`. No session begins without it. */
  url?: string | URL;
  /** Who the person is, from the app's own backend; a gateway that asks for none needs none. A function is called for each connection, and has 10 s. */
  token?: string | (() => string | Promise<string>);
  /** The voice: expert if absent. */
  theme?: string;
  /** A Live model talks, any other is typed to. The gateway's default if absent. */
  model?: string;
  /** A JSON object of at most 64 KB, which the model gets. */
  projectContext?: object | null;
  /** Where navigate_ui may go; the gateway's six if absent. */
  targets?: string[];
  /** Goes on with a lost conversation: true if absent. A string is the `resumeToken` of an earlier one. */
  resume?: boolean | string;
  /** The language of the voice, as `de-DE`: as the person speaks if absent. */
  language?: string;
  /** true if absent. A conversation without a microphone can be typed. Constraints choose a microphone. */
  mic?: boolean | MediaTrackConstraints | MediaStreamTrack;
  /** Push to talk: VOX hears what is said between `talk(true)` and `talk(false)`, and pauses end no turn. */
  pushToTalk?: boolean;
  /** The id of an output device; the browser's default if absent. */
  speaker?: string;
  /** The page shows `questions` and calls `answer`; true if absent. Else VOX asks aloud. */
  questions?: boolean;
  /** Reads aloud, by the browser's speech synthesis, what a model that only writes answers; true if absent. */
  speak?: boolean;
  /** What people read, for the whole page, as in voxgate.js: the language, and words of the app's own. */
  lang?: string;
  strings?: Strings;
}

export interface TranscriptEntry {
  role: 'user' | 'vox';
  text: string;
  /** What cut an answer off in the middle of a sentence: the person by speaking, what they typed or pressed (`answer`), or a lost connection. */
  cutBy?: 'person' | 'answer' | 'link';
  /** It waits for the connection. */
  isUnsent?: boolean;
}

/** `data` is null until there is a result, and what `generate_app` says first is replaced by what it says last. */
export interface ToolAction {
  id: string;
  name: string;
  /** What it does, for people: "Searching tools…". */
  title?: string;
  args: Record<string, any>;
  data: Record<string, any> | null;
  status: 'running' | 'done' | 'failed';
  /** How many turns of the transcript stand above it. An app stands where its writing began, then where it was ready; everything else stands where it began. */
  at: number;
}

export interface Question {
  id: string;
  text: string;
}

export interface AddedTool {
  id: string;
  name: string;
  /** What to tell a coding assistant that adds it. */
  prompt: string;
}

export interface App {
  /** By which the gateway and the model know it. */
  name: string;
  /** What to call it before people, if a change has renamed it. */
  title?: string;
  /** Written so far of a version that comes; absent while none does. */
  bytes?: number;
  /** The part of it that is being written, once that is known. */
  part?: 'page' | 'style' | 'script';
  /** Where it is served, once it is complete. It is foreign code: show it in a sandboxed frame without allow-same-origin. */
  url?: string;
  files: string[];
  /** The version that is shown, counted from 1. */
  version: number;
  versions: AppVersion[];
  /** The version was chosen without a connection; it is sent to the gateway with the next one. */
  isUnsent?: boolean;
}

/** A version of an app. */
export interface AppVersion {
  url: string;
  files: string[];
  /** What to call the app before people in this version, if a change has renamed it. */
  title?: string;
  /** What was asked for. */
  wish: string;
  /** The version that it was made of. */
  from?: number;
  /** Names of the project's tools that its files load; null if that is not known. */
  uses?: string[] | null;
  /** How many lines were added to a file since, and removed from it. */
  changes?: { file: string; added: number; removed: number }[];
}

/** The complete state to show. It is immutable: each change creates a new one. */
export interface Snapshot {
  state: State;
  /** One sentence for people: what is going on, or why nothing is. */
  message: string;
  /** The names of the sentences in `message`, as `states listening`. */
  sentences: string[];
  /** The microphone cannot be used, and the person may have mended that: `toggleMute` tries it again. */
  canRetryMic: boolean;
  mic: Mic;
  isMuted: boolean;
  /** The conversation is with push to talk; `isMuted` is false while it is pushed. */
  isPushToTalk: boolean;
  isConnected: boolean;
  isVoxSpeaking: boolean;
  /** The turns of the conversation; the last may still grow. */
  transcript: TranscriptEntry[];
  lastToolAction: ToolAction | null;
  /** All calls, in the order in which they began. */
  actions: ToolAction[];
  questions: Question[];
  /** What was added and generated. It goes on with the next conversation. */
  project: { tools: AddedTool[]; apps: App[] };
  /** Where navigate_ui went last; '' before that. */
  place: string;
  /** What the gateway has taken, when it is ready. */
  theme: string;
  model: string;
  mode: 'live' | 'text' | '';
  sessionId: string;
  resumeToken: string;
  /** How long the person has waited for each of the last answers, oldest first. */
  latencies: TurnLatency[];
  /** The tokens of the conversation so far. */
  usage?: Usage;
  /** What the gateway keeps the project under; '' if it keeps none. Whoever knows it has the project. */
  projectId: string;
  /** The gateway keeps the conversation as a file. Tell the person. */
  isRecorded: boolean;
  /** The text model that writes apps and costs money; '' if apps cost nothing, or cannot be written. */
  appModel: string;
  /** Since when, in ms, the gateway has been away, and false if the last attempt to reach it was refused. */
  away?: { since: number; reachable: boolean };
  /** Typed texts that were never sent. The transcript does not have them. */
  unsent: string[];
}

export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cachedTokens?: number;
  /** US dollars; absent if the gateway knows no price of the model. */
  dollars?: number;
}

/** A message of the gateway; vox/PROTOCOL.md has them all. */
export interface VoxMessage {
  type: string;
  [field: string]: any;
}
