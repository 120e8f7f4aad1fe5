/** Google's own SDKs against the gateway's door for the Live API, as they are published. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { silence, startGateway, test, tone } from './harness.mjs';

const { GoogleGenAI } = await import('@google/genai');
const limit = { timeout: 90_000 };
const run = promisify(execFile);
const local = (path) => fileURLToPath(new URL(path, import.meta.url));

// The SDK for Python dials wss: whatever the base URL says.
const folder = mkdtempSync(join(tmpdir(), 'voxgate-live-'));
const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];

let gateway, secure;
before(async () => {
  await run('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key, '-out', cert,
    '-days', '1', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']);
  gateway = await startGateway({ VOXGATE_AGENTS: local('../../examples/agents') });
  secure = await startGateway({ VOXGATE_TLS_CERT: cert, VOXGATE_TLS_KEY: key });
});
after(async () => {
  await gateway?.stop();
  await secure?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const base64 = (pcm) => Buffer.from(pcm.buffer, pcm.byteOffset, pcm.byteLength).toString('base64');

/** A session with what is to be waited for: a turn is all that came until turnComplete. */
async function connect(config = {}, options = {}, model = 'gemini-3.8-live') {
  const client = new GoogleGenAI({ apiKey: 'anything', httpOptions: { baseUrl: gateway.url }, ...options });
  let wake = () => {};
  const waiting = [];
  const session = await client.live.connect({
    model,
    config: { responseModalities: ['AUDIO'], inputAudioTranscription: {}, outputAudioTranscription: {}, ...config },
    callbacks: { onmessage: (m) => (waiting.push(m), wake()), onerror: (e) => assert.fail(e.message) },
  });
  const until = async (is) => {
    for (const all = []; ; ) {
      while (waiting.length) {
        all.push(waiting.shift());
        assert.ok(!all.at(-1).goAway);
        if (is(all.at(-1))) return all;
      }
      await new Promise((resolve) => (wake = resolve));
    }
  };
  const turn = async () => {
    const all = await until((m) => m.serverContent?.turnComplete);
    const contents = all.map((m) => m.serverContent ?? {});
    const parts = contents.flatMap((c) => c.modelTurn?.parts ?? []);
    return {
      seconds: parts.reduce((n, p) => n + Buffer.from(p.inlineData?.data ?? '', 'base64').length, 0) / 2 / 24_000,
      heard: contents.map((c) => c.inputTranscription?.text ?? '').join(''),
      said: contents.map((c) => c.outputTranscription?.text ?? '').join(''),
      interrupted: contents.filter((c) => c.interrupted).length,
      tokens: all.at(-1).usageMetadata?.totalTokenCount,
    };
  };
  const type = (turns) => session.sendClientContent({ turns, turnComplete: true });
  return { session, until, turn, type };
}

describe('@google/genai', () => {
  test('talks with the agents of examples/agents, by their names', limit, async () => {
    for (const [agent, text, answer] of [['desk', '/tool next_step {}', /identify/], ['interpreter', 'Hello', /You said: Hello/]]) {
      const { session, type, turn } = await connect({}, {}, `models/${agent}`);
      type(text);
      let got = await turn();
      while (!answer.test(got.said)) got = await turn(); // the desk greets, and the call comes before its answer
      assert.ok(got.seconds > 0.5, `${got.seconds} s of voice`);
      session.close();
    }
  });

  test('speaks, is interrupted, and resumes', limit, async () => {
    const first = await connect({ sessionResumption: {} });
    const [{ sessionResumptionUpdate: update }] = (await first.until((m) => m.sessionResumptionUpdate)).slice(-1);
    for (const sound of [tone(1), silence(1)]) {
      for (let i = 0; i < sound.length; i += 1600) {
        first.session.sendRealtimeInput({ audio: { data: base64(sound.subarray(i, i + 1600)), mimeType: 'audio/pcm;rate=16000' } });
      }
    }
    const spoken = await first.turn();
    assert.ok(spoken.seconds > 0.9 && spoken.seconds < 2, `${spoken.seconds} s of voice for 1 s`);
    assert.match(spoken.heard, /seconds of speech/);
    assert.match(spoken.said, /^You said: .* seconds of speech\.$/);
    assert.ok(spoken.tokens > 0);

    first.type('many words '.repeat(30));
    await first.until((m) => m.serverContent?.modelTurn);
    first.type('My name is Ada.');
    assert.equal((await first.turn()).interrupted, 1);
    assert.equal((await first.turn()).said, 'You said: My name is Ada.');
    first.session.close();

    const second = await connect({ sessionResumption: { handle: update.newHandle } });
    second.type('/history');
    assert.match((await second.turn()).said, /My name is Ada/);
    second.session.close();
  });

  test('calls functions', limit, async () => {
    const weather = { name: 'weather', parameters: { type: 'OBJECT', properties: { city: { type: 'STRING' } } } };
    const { session, until, turn, type } = await connect({ tools: [{ functionDeclarations: [weather] }] });
    type('/tool weather {"city":"Rome"}');
    const [call] = (await until((m) => m.toolCall)).at(-1).toolCall.functionCalls;
    assert.deepEqual([call.name, call.args], ['weather', { city: 'Rome' }]);
    await turn(); // which is over with the call: it does not block
    session.sendToolResponse({ functionResponses: [{ id: call.id, name: call.name, response: { output: 'sunny' } }] });
    assert.match((await turn()).said, /sunny/);
    session.close();
  });

  test('talks by an ephemeral token, with what it locks', limit, async () => {
    const options = { httpOptions: { baseUrl: gateway.url, apiVersion: 'v1alpha' } };
    const backend = new GoogleGenAI({ apiKey: 'anything', ...options });
    const token = await backend.authTokens.create({ config: {
      uses: 1, liveConnectConstraints: { model: 'gemini-3.8-live', config: { responseModalities: ['TEXT'] } }, lockAdditionalFields: [],
    } });
    assert.match(token.name, /^auth_tokens\//);
    const { session, until, type } = await connect({}, { ...options, apiKey: token.name });
    type('Hello');
    const all = await until((m) => m.serverContent?.turnComplete);
    const parts = all.flatMap((m) => m.serverContent?.modelTurn?.parts ?? []);
    assert.ok(parts.length && parts.every((p) => p.text), 'the token locks TEXT');
    session.close();
    await assert.rejects(connect({}, { ...options, apiKey: token.name }), /1008.*too many times/);
  });

  test('is told what it did wrong', limit, async () => {
    await assert.rejects(connect({ temperature: 7 }), /code 1007.*setup\.generationConfig\.temperature must be/);
  });
});

test('google-genai for Python', limit, async () => {
  const { stdout } = await run(local('../.venv/bin/python'), [local('live_client.py'), secure.url, cert]);
  const got = JSON.parse(stdout);
  assert.match(got.heard, /seconds of speech/);
  assert.ok(got.seconds > 0.9 && got.seconds < 2, `${got.seconds} s of voice for 1 s`);
  assert.equal(got.typed, 'You said: Hello');
  assert.match(got.called, /sunny in Rome/);
  assert.match(got.resumed, /You said: Hello/);
  assert.equal(got.token, 'You said: by token');
});
