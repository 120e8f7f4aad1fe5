import type { ButtonHTMLAttributes, HTMLAttributes, ReactElement, ReactNode, SelectHTMLAttributes } from 'react';
import type { Devices, Mic, Options, Session, State, Turn, VoxgateError } from '../types.d.ts';

/** What a component sees of the conversation. */
export interface Seen {
  /** `closed` before the first conversation, and after each. */
  state: State;
  mic: Mic;
  /** What was said: another array after each change. It stays after the end. */
  turns: readonly Turn[];
  /** The state in words, in the language of the page, and why a conversation failed; '' without one. */
  sentence: string;
  /** Why the conversation did not begin, or has ended; or what went wrong in it. The next start clears it. */
  error?: VoxgateError;
  /** All the rest: tools, pictures, statistics. */
  session?: Session;
}

export interface Voxgate extends Seen {
  /** Starts a conversation, or returns the current one. Call it in a user gesture, as `onClick={start}` does. `more` overrides the provider's options. */
  start(more?: Partial<Options> | object): Session;
  /**
   * Starts a conversation that knows what was said before, which stays in `turns`; the new turns follow it. Where nothing was said it is `start()`, without options.
   */
  goOn(): Session;
  end(): Promise<void>;
  /** Types. Without a conversation one begins, which is not asked for a microphone. */
  send(text: string): void;
  /** The other state if absent. */
  mute(on?: boolean): void;
  interrupt(): void;
  /** Other devices, now and in the next conversation. */
  use(devices: Devices): Promise<void>;
}

/** One conversation at a time for what is in it. The props are the options of `open`; a change of them counts from the next conversation on. It ends with the component. */
export function VoxgateProvider(props: Options & { children?: ReactNode }): ReactElement;

/** The conversation of the provider around. */
export function useVoxgate(): Voxgate;

/** Loudness of both sides, 0 to 1: renders at every frame in which it has changed, so use it in a small component. */
export function useLevel(): { mic: number; model: number };

/** The orb, as large as its box. It is a picture: put it into a button if it shall be pressed. */
export function Orb(props: HTMLAttributes<HTMLElement>): ReactElement;

/** The whole conversation with a style of its own: who answers (`who`, `picture`, `greeting`), transcript, field, orb, Mute and End. It fills its box. */
export function Conversation(props: HTMLAttributes<HTMLElement> & { who?: string; picture?: string; greeting?: string }): ReactElement;

/**
 * Where the conversation stands, in a sentence or two, with "Try again" for a microphone that cannot be used, "Try now" for a lost connection, and "Go on" or
 * "Try again" after the end, and your own buttons beside it as children. `offers` are the controls of the app: no sentence mentions others. None if absent.
 * With `onChooseMicrophone` the advice to choose another microphone is a button, which calls it.
 */
export function Status(props: HTMLAttributes<HTMLElement> & { offers?: ('orb' | 'type' | 'microphone' | 'devices' | 'goOn')[]; onChooseMicrophone?: () => void }): ReactElement;

/** Starts, mutes and unmutes, and asks again for a microphone that was refused. Its words are the library's, and its label if it has children. */
export function MicButton(props: ButtonHTMLAttributes<HTMLButtonElement>): ReactElement;

/** The devices of a kind, by name once the person has allowed a microphone. `standard` names the first, which is the browser's own choice; its device stands behind it. */
export function DeviceSelect(props: SelectHTMLAttributes<HTMLSelectElement> & { kind?: 'microphone' | 'speaker' | 'camera'; standard?: string }): ReactElement;

/** What was said: a `card` for each tool with a title that has run, and an `article` for each turn, with `data-role` user or model, answers in light Markdown, with the words that are still to be heard in grey (looks.css), where Google Search found them, and its suggestions. It says where a conversation goes on. `children` shows a turn otherwise. */
export function Transcript(props: Omit<HTMLAttributes<HTMLElement>, 'children'> & { children?: (turn: Turn) => ReactNode }): ReactElement;
