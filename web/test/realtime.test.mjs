/** OpenAI's own clients against the gateway's door for the Realtime API, as they are published. */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { build } from 'esbuild';
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { WebSocket } from 'ws';
import { clock, gatewayBinary, openPage, silence, speech, startGateway, test } from './harness.mjs';

const limit = { timeout: 40_000 };
const run = promisify(execFile);
const local = (path) => fileURLToPath(new URL(path, import.meta.url));

const folder = mkdtempSync(join(tmpdir(), 'voxgate-realtime-'));
const [key, cert, keys] = ['key.pem', 'cert.pem', 'keys.json'].map((name) => join(folder, name));

let open, secure, closed; // gateways: for anybody, with TLS, and for who has a token
let serverKey;
let shop; // a page of another origin
before(async () => {
  await run('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key, '-out', cert,
    '-days', '1', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']);
  serverKey = execFileSync(gatewayBinary, ['key', 'new', 'shop'], { env: { VOXGATE_KEYS: keys }, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
  shop = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><link rel="icon" href="data:,"><title>A shop</title>'));
  await new Promise((resolve) => shop.listen(0, '127.0.0.1', resolve));
  shop.origin = `http://127.0.0.1:${shop.address().port}`;
  [open, secure, closed] = await Promise.all([
    startGateway(), startGateway({ VOXGATE_TLS_CERT: cert, VOXGATE_TLS_KEY: key, VOXGATE_AGENTS: local('../../examples/agents') }),
    startGateway({ VOXGATE_KEYS: keys, VOXGATE_AUTH: 'token', VOXGATE_ORIGINS: shop.origin }),
  ]);
});
after(async () => {
  for (const gateway of [open, secure, closed]) await gateway?.stop();
  shop?.close();
  rmSync(folder, { recursive: true, force: true });
});

const base = (gateway, scheme) => gateway.url.replace(/^https?/, scheme).replace(/\/$/, '');

/** An agent with a tool; `called` has what it was called with. */
const makeAgent = ({ RealtimeAgent, tool }, called) =>
  new RealtimeAgent({
    name: 'Ada', instructions: 'Be brief.',
    tools: [tool({
      name: 'weather', description: 'the weather', strict: false,
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: [], additionalProperties: true },
      execute: ({ city }) => (called.push(city), `sunny in ${city}`),
    })],
  });

describe("OpenAI's clients", { concurrency: true }, () => {
  test('openai for Python, each event by its own types', limit, async () => {
    const { stdout } = await run(local('../.venv/bin/python'), [local('realtime_client.py'), base(open, 'http')]);
    const got = JSON.parse(stdout);
    assert.deepEqual([got.created, got.updated], ['gpt-realtime-2', 'Be brief.']);
    assert.deepEqual(got.spoken.filter((kind) => !kind.endsWith('.delta')), [
      'input_audio_buffer.speech_started', 'input_audio_buffer.speech_stopped', 'input_audio_buffer.committed',
      'conversation.item.added', 'conversation.item.done', 'conversation.item.input_audio_transcription.completed',
      'response.created', 'response.output_item.added', 'conversation.item.added', 'response.content_part.added',
      'response.output_audio.done', 'response.output_audio_transcript.done', 'response.content_part.done',
      'conversation.item.done', 'response.output_item.done', 'response.done',
    ]);
    assert.ok(got.seconds > 0.9 && got.seconds < 2, `${got.seconds} s of voice for 1 s`);
    assert.match(got.heard, /seconds of speech/);
    assert.ok(got.usage > 0);
    assert.deepEqual([got.metadata, got.said], [{ a: 'b' }, 'You said: Hello']);
    assert.match(got.result, /sunny in Rome/);
    assert.deepEqual([got.cancelled, got.after], [['cancelled', 'client_cancelled'], 'You said: And now?']);
    assert.deepEqual(got.refused, ['response_cancel_not_active', 'mine']);
    assert.equal(got.greeting, 'You said: Greet me.');
    assert.match(got['push to talk'][0], /You said: .*seconds of speech/);
    assert.ok(got['push to talk'][1] > 0.8 && got['push to talk'][1] < 2);
    assert.equal(got.empty, 'input_audio_buffer_commit_empty');
    assert.deepEqual(got['own ear'].at(-1), 'conversation.item.done');
    assert.match(got.asked, /You said: .*seconds of speech/);
  });

  test('openai for JavaScript', limit, async () => {
    const client = new OpenAI({ apiKey: 'anything', baseURL: `${base(secure, 'https')}/v1` }); // which dials wss: always
    const ws = await OpenAIRealtimeWS.create(client, { model: 'gpt-realtime', options: { ca: readFileSync(cert) } });
    const next = (kind) => new Promise((resolve, reject) => (ws.once(kind, resolve), ws.once('error', reject)));
    await next('session.created');
    ws.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['text'] } });
    await next('session.updated');
    ws.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hello' }] } });
    ws.send({ type: 'response.create' });
    const [{ text }] = await Promise.all([next('response.output_text.done'), next('response.done')]);
    assert.equal(text, 'You said: Hello');
    ws.close();
  });

  test('openai for JavaScript talks with the agents of examples/agents, by their names', limit, async () => {
    for (const [id, asked, answer] of [['desk', '/tool next_step {}', /identify/], ['interpreter', 'Hello', /You said: Hello/]]) {
      const client = new OpenAI({ apiKey: 'anything', baseURL: `${base(secure, 'https')}/v1` });
      const ws = await OpenAIRealtimeWS.create(client, { model: 'gpt-realtime', options: { ca: readFileSync(cert) } });
      const next = (kind) => new Promise((resolve, reject) => (ws.once(kind, resolve), ws.once('error', reject)));
      await next('session.created');
      ws.send({ type: 'session.update', session: { type: 'realtime', prompt: { id } } });
      await next('session.updated');
      ws.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: asked }] } });
      ws.send({ type: 'response.create' });
      assert.match((await next('response.output_audio_transcript.done')).transcript, answer);
      ws.close();
    }
  });

  test("Twilio's sample: a telephone by way of somebody else's server", limit, async (t) => {
    const judge = clock(t);
    // The flow of twilio-samples/speech-assistant-openai-realtime-api-node: sound is passed on as it is, and a mark tells when it was played.
    const heard = []; // by the caller
    const at = { mark: 0, media: 0, begun: null, item: null, truncated: 0 };
    const ws = new WebSocket(`${base(open, 'ws')}/v1/realtime?model=gpt-realtime&temperature=0.8`, { headers: { Authorization: 'Bearer anything' } });
    const waiting = [];
    const event = (type) => new Promise((resolve) => waiting.push({ type, resolve }));
    const send = (message) => ws.send(JSON.stringify(message));
    ws.on('message', (data) => {
      const e = JSON.parse(data);
      assert.notEqual(e.type, 'error', String(data));
      if (e.type === 'response.output_audio.delta') {
        heard.push(Buffer.from(e.delta, 'base64'));
        at.begun ??= at.media;
        at.item = e.item_id;
        at.mark++;
      }
      if (e.type === 'input_audio_buffer.speech_started' && at.mark > 0 && at.begun !== null) {
        send({ type: 'conversation.item.truncate', item_id: at.item, content_index: 0, audio_end_ms: at.media - at.begun });
        Object.assign(at, { mark: 0, begun: null, item: null, truncated: at.truncated + 1 });
      }
      for (const w of waiting.filter((w) => w.type === e.type)) waiting.splice(waiting.indexOf(w), 1)[0].resolve(e);
    });
    await new Promise((resolve) => ws.once('open', resolve));
    send({
      type: 'session.update',
      session: {
        type: 'realtime', model: 'gpt-realtime', output_modalities: ['audio'], instructions: 'Be brief.',
        audio: { input: { format: { type: 'audio/pcmu' }, turn_detection: { type: 'server_vad' } }, output: { format: { type: 'audio/pcmu' }, voice: 'alloy' } },
      },
    });
    await event('session.updated');
    send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'many words '.repeat(40) }] } });
    send({ type: 'response.create' });
    await event('response.output_audio.delta');
    const call = async (seconds, byte) => { // frames of 20 ms, in real time
      for (let i = 0; i < seconds * 50; i++, at.media += 20) {
        send({ type: 'input_audio_buffer.append', audio: Buffer.from(Array.from({ length: 160 }, (_, n) => byte ?? (n % 16 < 8 ? 0x90 : 0x10))).toString('base64') });
        await new Promise((resolve) => setTimeout(resolve, 18));
      }
    };
    await call(0.5, 0xff);
    const [cut, truncated] = [event('response.done'), event('conversation.item.truncated')];
    const talking = call(0.7).then(() => call(1.2, 0xff));
    assert.deepEqual((await cut).response.status_details, { type: 'cancelled', reason: 'turn_detected' });
    const heardOf = (await truncated).audio_end_ms;
    judge(() => assert.ok(heardOf <= 1500, `${heardOf} ms count as heard`));
    const answer = await event('response.done');
    await talking;
    judge(() => { // sound that comes late has gaps, which end a speech
      assert.match(answer.response.output[0].content[0].transcript, /seconds of speech/);
      assert.equal(at.truncated, 1);
    });
    const bytes = heard.reduce((n, b) => n + b.length, 0);
    assert.ok(bytes > 8_000, `${bytes} bytes of voice`);
    await new Promise((resolve) => (ws.once('close', resolve), ws.close()));
  });

  test('@openai/agents-realtime over a WebSocket: speaks, runs a tool, keeps the history, is interrupted', limit, async () => {
    const called = [];
    const errors = [];
    const session = new RealtimeSession(makeAgent({ RealtimeAgent, tool }, called), { transport: 'websocket', model: 'gpt-realtime' });
    session.on('error', (e) => errors.push(JSON.stringify(e)));
    await session.connect({ apiKey: 'anything', url: `${base(open, 'ws')}/v1/realtime?model=gpt-realtime` });
    const ended = () => new Promise((resolve) => session.once('agent_end', (_context, _agent, output) => resolve(output)));
    let end = ended();
    session.sendMessage('/tool weather {"city":"Rome"}');
    await end; // the call
    assert.match(await ended(), /sunny in Rome/);
    assert.deepEqual(called, ['Rome']);
    let seconds = 0;
    session.on('audio', ({ data }) => (seconds += data.byteLength / 2 / 24_000));
    end = ended();
    for (const sound of [speech(), speech(), silence(1)]) { // a tone is no speech for semantic_vad
      const at24 = Int16Array.from({ length: sound.length * 1.5 }, (_, i) => sound[Math.floor(i / 1.5)]);
      for (let i = 0; i < at24.length; i += 2400) session.sendAudio(at24.slice(i, i + 2400).buffer);
    }
    assert.match(await end, /seconds of speech/);
    assert.ok(seconds > 1.6 && seconds < 4.5, `${seconds} s of voice for 1.8 s and a pause`);
    const interrupted = new Promise((resolve) => session.once('audio_interrupted', resolve));
    const speaks = new Promise((resolve) => session.once('audio', resolve));
    session.sendMessage('many words '.repeat(40));
    await speaks;
    session.interrupt();
    await interrupted;
    end = ended();
    session.sendMessage('And now?');
    while ((await end) !== 'You said: And now?') end = ended();
    const texts = session.history.map((i) => `${i.type} ${i.role ?? i.name}: ${i.output ?? i.content.map((c) => c.text ?? c.transcript).join('')}`);
    assert.ok(texts.includes('function_call weather: sunny in Rome'), texts.join('\n'));
    assert.ok(texts.includes('message user: And now?'), texts.join('\n'));
    // The speech came right behind this answer, so its last word may rightly be cut off.
    assert.ok(texts.some((t) => /message assistant: .*sunny/.test(t)), texts.join('\n'));
    assert.deepEqual(errors, []);
    session.close();
  });

  test('@openai/agents-realtime over WebRTC in a page of another origin, with a secret', limit, async () => {
    const minted = await fetch(`${base(closed, 'http')}/v1/realtime/client_secrets`, {
      method: 'POST', headers: { authorization: `Bearer ${serverKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ session: { type: 'realtime', model: 'gpt-realtime' } }),
    });
    const { value } = await minted.json();
    const script = await build({
      stdin: { contents: "import * as agents from '@openai/agents-realtime'; window.agents = agents;", resolveDir: local('..') },
      bundle: true, write: false, format: 'iife', logLevel: 'error',
    });
    const page = await openPage({ url: shop.origin, sounds: [silence(6), speech(), speech()] });
    try {
      await page.evaluate(script.outputFiles[0].text);
      await page.evaluate(`window.makeAgent = ${makeAgent}`);
      const got = await page.evaluate(async ({ url, value }) => {
        const called = [];
        const errors = [];
        const events = (window.events = []);
        const session = (window.session = new agents.RealtimeSession(makeAgent(agents, called), { transport: 'webrtc', model: 'gpt-realtime' }));
        session.on('error', (e) => errors.push(JSON.stringify(e)));
        session.on('transport_event', (e) => events.push(e.type));
        const until = async (is) => {
          while (!is()) await new Promise((resolve) => setTimeout(resolve, 50));
        };
        await session.connect({ apiKey: value, url });
        session.sendMessage('/tool weather {"city":"Rome"}');
        const said = () => session.history.map((i) => i.content?.map((c) => c.text ?? c.transcript).join('') ?? i.output).join('\n');
        await until(() => /The tool weather says.*sunny in Rome/.test(said()));
        await until(() => events.includes('output_audio_buffer.stopped'));
        await until(() => events.includes('input_audio_buffer.speech_stopped')); // the microphone
        await until(() => /You said: .*seconds of speech/.test(said()));
        const cleared = () => events.filter((e) => e === 'output_audio_buffer.cleared').length;
        const started = events.filter((e) => e === 'output_audio_buffer.started').length;
        session.sendMessage('many words '.repeat(40));
        await until(() => events.filter((e) => e === 'output_audio_buffer.started').length > started);
        session.interrupt();
        await until(() => cleared() > 0);
        session.close();
        return { called, errors, heard: Math.max(...heard.map((h) => h.level)) };
      }, { url: `${base(closed, 'http')}/v1/realtime/calls`, value });
      assert.deepEqual([got.called, got.errors], [['Rome'], []]);
      assert.ok(got.heard > 0.02, `the loudest sound was ${got.heard}`);
      const strange = page.complaints.filter((c) => !c.startsWith(`asked ${base(closed, 'http')}`));
      assert.deepEqual(strange, []);
    } finally {
      await page.quit();
    }
  });
});
