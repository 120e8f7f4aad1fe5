/** Programs that speak the beta of OpenAI's Realtime API: what OpenAI's two sample applications do, step by step, with the packages they use. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { openPage, silence, startGateway, tone } from '../harness.mjs';

const limit = { timeout: 60_000 };
const folder = mkdtempSync(join(tmpdir(), 'voxgate-beta-'));
let gateway, shop, at;
before(async () => {
  await promisify(execFile)('npm', ['install', '--silent', '--no-fund', '--no-audit', '--prefix', folder,
    '@openai/agents-realtime@0.0.5', 'openai-realtime-api@1.0.8']);
  shop = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><link rel="icon" href="data:,"><title>A shop</title>'));
  await new Promise((resolve) => shop.listen(0, '127.0.0.1', resolve));
  shop.origin = `http://127.0.0.1:${shop.address().port}`;
  gateway = await startGateway({ VOXGATE_ORIGINS: shop.origin });
  at = gateway.url.replace(/\/$/, '');
});
after(async () => {
  await gateway?.stop();
  shop?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** What the server of both samples asks for, and hands its page: api/session/route.ts, server.js. */
async function session() {
  const response = await fetch(`${at}/v1/realtime/sessions`, {
    method: 'POST', headers: { authorization: 'Bearer anything', 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'gpt-4o-realtime-preview-2025-06-03', voice: 'verse' }),
  });
  return (await response.json()).client_secret.value;
}

test("openai-realtime-agents: connects, runs a tool, and hears what was said while the button was pressed", limit, async () => {
  const secret = await session();
  const script = await build({
    stdin: { contents: "import * as agents from '@openai/agents-realtime'; import { tool } from '@openai/agents-core'; window.agents = { ...agents, tool };", resolveDir: folder },
    bundle: true, write: false, format: 'iife', logLevel: 'error',
  });
  const page = await openPage({ url: shop.origin, sounds: [silence(6), tone(30)] });
  try {
    await page.evaluate(script.outputFiles[0].text);
    const got = await page.evaluate(async ({ url, secret }) => {
      const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebRTC, tool } = agents;
      const [called, errors, events] = [[], [], []];
      const agent = new RealtimeAgent({
        name: 'Ada', instructions: 'Be brief.',
        tools: [tool({
          name: 'weather', description: 'the weather', strict: false,
          parameters: { type: 'object', properties: { city: { type: 'string' } }, required: [], additionalProperties: true },
          execute: ({ city }) => (called.push(city), `sunny in ${city}`),
        })],
      });
      const audioElement = document.createElement('audio');
      const session = new RealtimeSession(agent, {
        transport: new OpenAIRealtimeWebRTC({ audioElement, baseUrl: url }), model: 'gpt-4o-realtime-preview-2025-06-03',
        config: { inputAudioFormat: 'pcm16', outputAudioFormat: 'pcm16', inputAudioTranscription: { model: 'gpt-4o-mini-transcribe' } },
      });
      session.on('error', (e) => errors.push(JSON.stringify(e)));
      session.transport.on('*', (e) => events.push(e));
      const until = async (what, is) => {
        for (const began = Date.now(); !is(); await new Promise((resolve) => setTimeout(resolve, 50))) {
          if (Date.now() - began > 15_000) throw new Error(`${what}: ${JSON.stringify([errors, events.map((e) => e.type).slice(-30)])}`);
        }
      };
      const done = () => events.filter((e) => e.type === 'response.done').length;
      await session.connect({ apiKey: secret });
      const send = (e) => session.transport.sendEvent(e);
      send({ type: 'session.update', session: { turn_detection: null } }); // the sample's push to talk
      const said = () => session.history.map((i) => i.content?.map((c) => c.text ?? c.transcript).join('') ?? i.output).join('\n');
      session.sendMessage('/tool weather {"city":"Rome"}');
      await until('the tool', () => /The tool weather says.*sunny in Rome/.test(said()));
      await until('its end', () => done() === 2);
      const heard = [];
      for (let presses = 0; presses < 2; presses++) {
        await new Promise((resolve) => setTimeout(resolve, 2_000)); // nobody presses the button
        const [answers, began] = [done(), Date.now()];
        send({ type: 'input_audio_buffer.clear' });
        await new Promise((resolve) => setTimeout(resolve, 1_000));
        send({ type: 'input_audio_buffer.commit' });
        send({ type: 'response.create' });
        const pressed = (Date.now() - began) / 1_000;
        await until('an answer', () => done() > answers);
        const [item] = events.findLast((e) => e.type === 'response.done').response.output;
        heard.push([Number(/You said: ([\d.]+) seconds/.exec(item.content[0].transcript)[1]), pressed]);
      }
      session.close();
      const modes = events.filter((e) => e.type === 'session.updated').map((e) => JSON.stringify(e.session.audio.input.turn_detection));
      return { called, errors, heard, modes };
    }, { url: `${at}/v1/realtime`, secret });
    assert.deepEqual([got.called, got.errors], [['Rome'], []]);
    assert.ok(got.modes.includes('null'), got.modes.join());
    for (const [heard, pressed] of got.heard) assert.ok(Math.abs(heard - pressed) < 0.5, `${heard} s were heard of ${pressed} s`);
  } finally {
    await page.quit();
  }
});

test('openai-realtime-console: its page begins, types, and has its function called', limit, async () => {
  const secret = await session();
  const page = await openPage({ url: shop.origin, sounds: [silence(2)] });
  try {
    const got = await page.evaluate(async ({ url, secret }) => {
      const pc = new RTCPeerConnection();
      pc.addTrack((await navigator.mediaDevices.getUserMedia({ audio: true })).getTracks()[0]);
      const dc = pc.createDataChannel('oai-events');
      const events = [];
      const event = (is) => new Promise((resolve) => dc.addEventListener('message', ({ data }) => is(JSON.parse(data)) && resolve(JSON.parse(data))));
      dc.addEventListener('message', ({ data }) => events.push(JSON.parse(data).type));
      const created = event((e) => e.type === 'session.created');
      await pc.setLocalDescription(await pc.createOffer());
      const response = await fetch(`${url}?model=gpt-4o-realtime-preview-2025-06-03`, {
        method: 'POST', body: pc.localDescription.sdp, headers: { Authorization: `Bearer ${secret}`, 'Content-Type': 'application/sdp' },
      });
      await pc.setRemoteDescription({ type: 'answer', sdp: await response.text() });
      await created;
      const send = (e) => dc.send(JSON.stringify({ event_id: crypto.randomUUID(), ...e }));
      const parameters = { type: 'object', strict: true, properties: { theme: { type: 'string' } }, required: ['theme'] };
      send({ type: 'session.update', session: { tools: [{ type: 'function', name: 'display_color_palette', description: 'Shows colours.', parameters }], tool_choice: 'auto' } });
      const done = event((e) => e.type === 'response.done');
      send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: '/tool display_color_palette {"theme":"sea"}' }] } });
      send({ type: 'response.create' });
      const call = (await done).response.output.find((o) => o.type === 'function_call' && o.name === 'display_color_palette');
      const next = event((e) => e.type === 'response.done');
      send({ type: 'response.create', response: { instructions: 'ask for feedback about the color palette' } });
      const answer = await next;
      pc.close();
      return { arguments: call.arguments, status: answer.response.status, errors: events.filter((e) => e === 'error') };
    }, { url: `${at}/v1/realtime`, secret });
    assert.deepEqual(got, { arguments: '{"theme":"sea"}', status: 'completed', errors: [] });
  } finally {
    await page.quit();
  }
});

test("openai-realtime-api, a fork of OpenAI's reference client of the beta", limit, async () => {
  const { RealtimeClient } = await import(join(folder, 'node_modules/openai-realtime-api/dist/index.js'));
  const errors = [];
  const client = new RealtimeClient({ apiKey: 'anything', url: `${at.replace('http', 'ws')}/v1/realtime`, sessionConfig: { instructions: 'Be brief.', voice: 'echo', turn_detection: null } });
  client.on('error', (e) => errors.push(e));
  await client.connect();
  await client.waitForSessionCreated();
  const completed = client.waitForNextCompletedItem();
  client.sendUserMessageContent([{ type: 'input_text', text: 'Hello' }]);
  await completed;
  let item = client.conversation.getItems().at(-1);
  while (!(item.role === 'assistant' && item.status === 'completed')) item = await client.waitForNextCompletedItem();
  assert.equal(item.formatted.transcript || item.formatted.text, 'You said: Hello');
  assert.ok(item.formatted.audio.length > 10_000, `${item.formatted.audio.length} samples of voice`);
  assert.deepEqual(errors, []);
  client.disconnect();
});
