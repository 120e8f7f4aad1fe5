import type { Session } from '../types.d.ts';

/** `<voxgate-orb>`: the model is the sphere, the person the ring and the bars. */
export class VoxgateOrb extends HTMLElement {
  /** The conversation that it shows. */
  session: Session | undefined;
  /** Without a session: how loud both sides are, 0 to 1. The attribute `state` says the rest. */
  show(mic: number, model: number): void;
}

/** The values of the orb's attribute `state` in a session. `asking`: a question to the person is pending. */
export function lookOf(session: Session | undefined, asking?: boolean): 'ready' | 'connecting' | 'listening' | 'thinking' | 'speaking' | 'muted' | 'asking' | 'reconnecting';

declare global {
  interface HTMLElementTagNameMap {
    'voxgate-orb': VoxgateOrb;
  }
}
