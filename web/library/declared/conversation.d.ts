import type { Devices, Options, Session, Strings, Turn } from '../types.d.ts';

/**
 * `<voxgate-conversation>`: a whole conversation in one element, with a style of its own. Attributes: `url`, `token`, `agent`, `voice`, `prompt`, `lang`, `resume`;
 * `who`, `picture` and `greeting` are of who answers; `closable` adds buttons that minimise and close. Events: `state`, `turn`, `error`, `minimise`, `close`.
 */
export class VoxgateConversation extends HTMLElement {
  token: Options['token'];
  strings: Strings | undefined;
  /** As for `open`. */
  options: Partial<Options>;
  /** An app's own conversations, which begin and end there; without `goOn`, `start` gets what was said in its options. */
  source: { start(options?: Partial<Options>): Session; goOn?(): Session; end(): void; use?(devices: Devices): Promise<void> } | undefined;
  /** The conversation that it shows. */
  session: Session | undefined;
  /** Its words are loaded. */
  readonly ready: Promise<void>;
  /** Starts a conversation, as pressing the orb does; `said` is a typed first message, `known` what it goes on with. */
  start(said?: string, known?: readonly Turn[]): Promise<void>;
  /** Ends it; what was said stays. */
  stop(): void;
  /** Empties the transcript. */
  clear(): void;
}

declare global {
  interface HTMLElementTagNameMap {
    'voxgate-conversation': VoxgateConversation;
  }
}
