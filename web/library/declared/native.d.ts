import type { Tool } from '../types.d.ts';
import type { Canvas } from './canvas.d.ts';

/** Tools that run in the page, for `open`: the clock, the camera, the contacts, a message. Whatever leaves the device the person allows first. */
export function nativeTools(o: { canvas: Pick<Canvas, 'keep' | 'kept'>; contacts?: HTMLElement }): Record<string, Tool>;
