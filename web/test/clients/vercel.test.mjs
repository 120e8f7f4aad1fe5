/** Vercel's AI SDK, as a page uses it for Google: a token from the backend, and a socket by that. `make test-clients`. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createGoogle } from '@ai-sdk/google';
import WebSocket from 'ws';
import { startGateway } from '../harness.mjs';

let gateway;
before(async () => void (gateway = await startGateway()));
after(() => gateway?.stop());

test("Vercel's realtime session for Google, by token", { timeout: 60_000 }, async () => {
  const google = createGoogle({ apiKey: 'anything', baseURL: `${gateway.url}v1beta` });
  const sessionConfig = { instructions: 'Be kind.', outputAudioTranscription: {} };
  const secret = await google.experimental_realtime.getToken({ model: 'gemini-3.8-live', sessionConfig });
  assert.match(secret.token, /^auth_tokens\//);
  assert.ok(secret.expiresAt > Date.now() / 1_000);

  const model = google.experimental_realtime('gemini-3.8-live');
  const socket = new WebSocket(model.getWebSocketConfig(secret).url);
  const send = async (event) => socket.send(JSON.stringify(await model.serializeClientEvent(event)));
  const events = [];
  await new Promise((resolve, reject) => {
    socket.on('open', () => send({ type: 'session-update', config: { instructions: 'Be rude.' } }));
    socket.on('close', (code, reason) => reject(new Error(`closed with ${code} ${reason}`)));
    socket.on('message', async (data) => {
      const message = JSON.parse(data);
      const seen = [await model.parseServerEvent(message)].flat();
      events.push(...seen);
      if (message.setupComplete) socket.send(JSON.stringify({ realtimeInput: { text: 'Hello' } }));
      if (message.serverContent?.turnComplete) resolve();
    });
  });
  socket.removeAllListeners('close');
  socket.close();
  const said = events.filter((e) => e.type === 'audio-transcript-delta').map((e) => e.delta).join('');
  assert.equal(said, 'You said: Hello', JSON.stringify(events.map((e) => e.type)));
  assert.ok(events.some((e) => e.type === 'audio-delta'));
  assert.deepEqual(events.filter((e) => e.type === 'error'), []);
});
