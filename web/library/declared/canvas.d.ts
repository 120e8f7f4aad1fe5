import type { CanvasAnswer, CanvasCall, CanvasHandler } from '../types.d.ts';

/** What Gemini shows on the screen, and asks there, in an element of the page. Its looks are the page's: `.canvas` and what is in it. */
export class Canvas implements CanvasHandler {
  /** The element is there from the start, or nothing is announced; it is empty. */
  constructor(container: Element);
  /** A question, or a form, waits for the person. */
  readonly waiting: boolean;
  /** Whether a call waits for what the person does here, by itself or by the tool that it runs. */
  waitsFor(id: string): boolean;
  /** What a question that waits is about, in a sentence. */
  readonly title: string | undefined;
  /** `waiting` may have changed. */
  onWaiting: () => void;
  /** `showsCall` may have changed. */
  onShown: () => void;
  /** Whether the person sees here what a call has shown. */
  showsCall(id: string): boolean;
  /** Why a call got no answer, though the person declined nothing: another one took its place, or they took too long. */
  whyUnanswered(id: string): 'replaced' | 'late' | undefined;
  /** Whether what was shown and hidden is offered again; true if not set. */
  offersAgain: boolean;
  show(call: CanvasCall): Promise<CanvasAnswer>;
  hide(id?: string): void;
  /** Puts it away, as the person does. */
  dismiss(): void;
  /** Keeps a picture that the canvas can show under a reference, as photo:1. */
  keep(ref: string, blob: Blob): void;
  kept(ref: string): Blob | undefined;
}
