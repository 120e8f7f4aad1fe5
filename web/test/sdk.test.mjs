/** Other people's clients against the emulator, as they are published: what they send is theirs, what they expect as well. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { after, before, describe } from 'node:test';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';
import { silence, test, tone } from './harness.mjs';

const MODEL = 'gemini-3.8-live';
const limit = { timeout: 90_000 };

/** Both packages want Node 22. They work with 18, which is Debian 12's; when they no longer do, this says so. */
async function load(name) {
  try {
    return { module: await import(name) };
  } catch (e) {
    const major = Number(process.versions.node.split('.')[0]);
    if (major >= 22) throw e;
    return { skip: `${name} wants Node 22, this is ${process.version}: ${e.message}` };
  }
}

const { module: genai, skip: noGenai } = await load('@google/genai');
const { module: mastra, skip: noMastra } = await load('@mastra/voice-google-gemini-live');

let emulator, url;
before(async () => {
  const { PATH, HOME } = process.env;
  const gateway = process.env.GATEWAY ?? fileURLToPath(new URL('../../bin/gateway', import.meta.url));
  emulator = spawn(gateway, ['emulate', '--addr', '127.0.0.1:0'], { env: { PATH, HOME }, stdio: ['ignore', 'ignore', 'pipe'] });
  process.on('exit', () => emulator.kill('SIGKILL'));
  for await (const line of createInterface({ input: emulator.stderr })) {
    url = /emulator listening" url=(\S+)/.exec(line)?.[1];
    if (url) break;
  }
  assert.ok(url, 'the emulator did not start');
  emulator.stderr.resume();
});
after(async () => {
  emulator.kill();
  await once(emulator, 'exit');
});

/** The test's tone in pieces of 100 ms, and enough silence for the model to know that it was all. */
const pieces = [];
for (const sound of [tone(1), silence(1)]) {
  for (let i = 0; i < sound.length; i += 1600) pieces.push(sound.subarray(i, i + 1600));
}
const base64 = (pcm) => Buffer.from(pcm.buffer, pcm.byteOffset, pcm.byteLength).toString('base64');

describe('@google/genai', { skip: noGenai }, () => {
  // It dials //ws/… with two slashes, and the API's version is v1 unless told otherwise.
  /** A session with what is to be waited for: a turn is all that came until turnComplete. */
  async function connect(config = {}) {
    const client = new genai.GoogleGenAI({ apiKey: 'key', httpOptions: { baseUrl: url } });
    let wake = () => {};
    const waiting = [];
    const session = await client.live.connect({
      model: MODEL,
      config: { responseModalities: ['AUDIO'], inputAudioTranscription: {}, outputAudioTranscription: {}, sessionResumption: {}, ...config },
      callbacks: { onmessage: (m) => (waiting.push(m), wake()), onerror: (e) => assert.fail(e.message) },
    });
    const until = async (is) => {
      for (const all = []; ; ) {
        while (waiting.length) {
          all.push(waiting.shift());
          if (is(all.at(-1))) return all;
        }
        await new Promise((resolve) => (wake = resolve));
      }
    };
    const turn = async () => {
      const contents = (await until((m) => m.serverContent?.turnComplete)).map((m) => m.serverContent ?? {});
      const parts = contents.flatMap((c) => c.modelTurn?.parts ?? []);
      return {
        seconds: parts.reduce((n, p) => n + Buffer.from(p.inlineData?.data ?? '', 'base64').length, 0) / 2 / 24_000,
        heard: contents.map((c) => c.inputTranscription?.text ?? '').join(''),
        said: contents.map((c) => c.outputTranscription?.text ?? '').join(''),
      };
    };
    const call = async () => (await until((m) => m.toolCall)).at(-1).toolCall.functionCalls[0];
    const handle = async () => (await until((m) => m.sessionResumptionUpdate?.newHandle)).at(-1).sessionResumptionUpdate;
    return { session, turn, call, handle };
  }

  test('speaks and resumes', limit, async () => {
    const first = await connect();
    for (const pcm of pieces) first.session.sendRealtimeInput({ audio: { data: base64(pcm), mimeType: 'audio/pcm;rate=16000' } });
    const spoken = await first.turn();
    assert.ok(spoken.seconds > 0.9 && spoken.seconds < 2, `${spoken.seconds} s of voice for 1 s`);
    assert.match(spoken.heard, /seconds of speech/);
    assert.match(spoken.said, /^You said: .* seconds of speech\.$/);
    first.session.sendClientContent({ turns: 'My name is Ada.', turnComplete: true });
    assert.equal((await first.turn()).said, 'You said: My name is Ada.');
    const { newHandle, resumable } = await first.handle();
    assert.ok(resumable);
    first.session.close();

    const second = await connect({ sessionResumption: { handle: newHandle } });
    second.session.sendRealtimeInput({ text: '/history' });
    assert.match((await second.turn()).said, /My name is Ada/);
    second.session.close();
  });

  test('calls functions', limit, async () => {
    const weather = { name: 'weather', parameters: { type: 'OBJECT', properties: { city: { type: 'STRING' } } } };
    const { session, turn, call } = await connect({ tools: [{ functionDeclarations: [weather] }] });
    session.sendClientContent({ turns: '/tool weather {"city":"Rome"}', turnComplete: true });
    const { id, name, args } = await call();
    assert.deepEqual([name, args], ['weather', { city: 'Rome' }]);
    await turn(); // which is over with the call: it does not block
    session.sendToolResponse({ functionResponses: [{ id, name, response: { output: 'sunny' } }] });
    assert.match((await turn()).said, /sunny/);
    session.close();
  });

  test('is told what it did wrong', limit, async () => {
    const client = new genai.GoogleGenAI({ apiKey: 'key', httpOptions: { baseUrl: url } });
    const closed = new Promise((resolve) => {
      client.live
        .connect({ model: 'gemini-2.0-flash-live-001', callbacks: { onmessage() {}, onclose: resolve } })
        .catch((e) => resolve({ reason: e.message }));
    });
    assert.match((await closed).reason, /is not found for API version v1/);
  });
});

describe('@mastra/voice-google-gemini-live', { skip: noMastra }, () => {
  // The package knows Google's address only. Its TLS is taken away under it; all that it sends goes to the emulator.
  const { connect } = tls;
  const { setTimeout } = globalThis;
  before(() => {
    tls.connect = () => net.connect(Number(new URL(url).port), '127.0.0.1');
    // It leaves its timer for the setup behind, for which the process would wait 30 s.
    globalThis.setTimeout = (f, ms, ...rest) => {
      const timer = setTimeout(f, ms, ...rest);
      return ms === 30_000 ? timer.unref() : timer;
    };
  });
  after(() => {
    tls.connect = connect;
    globalThis.setTimeout = setTimeout;
  });

  test('speaks, is spoken to, and may say session.update', limit, async () => {
    const voice = new mastra.GeminiLiveVoice({ apiKey: 'key', model: MODEL, instructions: 'Be brief.' });
    let samples = 0;
    const errors = [];
    voice.on('speaking', ({ audioData }) => (samples += audioData.length));
    voice.on('error', (e) => errors.push(e));
    const turn = () => new Promise((resolve) => voice.on('turnComplete', resolve));
    await voice.connect();
    let done = turn();
    for (const pcm of pieces) await voice.send(pcm);
    await done;
    assert.ok(samples > 0.9 * 24_000 && samples < 2 * 24_000, `${samples} samples of voice for 1 s`);
    samples = 0;
    done = turn();
    await voice.speak('Hello there', { speaker: 'Kore' }); // which it announces by a session.update
    await done;
    assert.ok(samples > 0.3 * 24_000, `${samples} samples of voice for a sentence`);
    assert.deepEqual(errors, []);
    await voice.disconnect();
  });

  test('sets up a tool and runs it', limit, async () => {
    const voice = new mastra.GeminiLiveVoice({ apiKey: 'key', model: MODEL });
    const errors = [];
    voice.on('error', (e) => errors.push(e));
    const asked = [];
    const inputSchema = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'array', items: { type: 'integer' } } }, required: ['city'] };
    voice.addTools({
      weather: { description: 'Tells the weather', inputSchema, execute: (args) => (asked.push(args), { output: 'sunny' }) },
    });
    await voice.connect();
    const turns = (n) => new Promise((resolve) => voice.on('turnComplete', () => --n || resolve()));
    const done = turns(2); // that of the call, which does not block, and that of the answer
    await voice.speak('/tool weather {"city":"Rome","days":[1]}');
    await done;
    assert.deepEqual(asked, [{ city: 'Rome', days: [1] }]);
    assert.deepEqual(errors, []);
    await voice.disconnect();
  });
});
