// What an AudioWorklet's global scope has and TypeScript's DOM library leaves out. Not served.
declare const sampleRate: number;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;
