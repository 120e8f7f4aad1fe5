/** Pipecat's client for pages, as it is published, against the gateway's door for RTVI. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { clock, gatewayBinary, hears, openPage, silence, startGateway, test, tone } from './harness.mjs';

const folder = mkdtempSync(join(tmpdir(), 'voxgate-rtvi-'));
let open, closed; // gateways: for anybody, and for who has a token
let key, pages, clients;
before(async () => {
  const keys = { VOXGATE_KEYS: join(folder, 'keys.json') };
  const made = execFileSync(gatewayBinary, ['key', 'new', 'shop'], { env: keys, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  key = made.trim();
  pages = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><link rel="icon" href="data:,">'));
  await once(pages.listen(0, '127.0.0.1'), 'listening');
  const origins = { VOXGATE_ORIGINS: origin() };
  const script = build({
    stdin: {
      contents: `import { PipecatClient, RTVIEvent, LogLevel, logger } from '@pipecat-ai/client-js';
        import { SmallWebRTCTransport, WavMediaManager } from '@pipecat-ai/small-webrtc-transport';
        logger.setLevel(LogLevel.WARN);
        Object.assign(window, { PipecatClient, RTVIEvent, SmallWebRTCTransport, WavMediaManager });`,
      resolveDir: fileURLToPath(new URL('..', import.meta.url)),
    },
    bundle: true, write: false, format: 'iife', logLevel: 'error',
  });
  [open, closed] = await Promise.all([startGateway(origins), startGateway({ ...origins, ...keys, VOXGATE_AUTH: 'token' })]);
  clients = `(${prepare})();${(await script).outputFiles[0].text}`;
});
after(async () => {
  await open?.stop();
  await closed?.stop();
  pages?.close();
  rmSync(folder, { recursive: true, force: true });
});

const origin = () => `http://127.0.0.1:${pages.address().port}`;
const at = (gateway, path) => gateway.url.replace(/\/$/, '') + path;

/** Runs in the page: makes a client, whose events are kept with their times. */
function prepare() {
  const { RTCPeerConnection } = window;
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...a) {
      super(...a);
      // Not by trackStarted: when an old connection ends, the client forgets the new one's track of the same name.
      this.addEventListener('track', ({ track }) => {
        const audio = document.body.appendChild(document.createElement('audio')); // without one Chromium decodes nothing
        audio.autoplay = true;
        audio.srcObject = new MediaStream([track]);
      });
    }
    createDataChannel(...a) {
      return Object.getPrototypeOf(RTCPeerConnection.prototype).createDataChannel.apply(this, a); // the harness' own reads JSON alone
    }
  };
  window.events = [];
  window.makeClient = (enableMic = true) => {
    const transport = new SmallWebRTCTransport({ mediaManager: new WavMediaManager() }); // the usual one loads a script of Daily's
    window.client = new PipecatClient({ transport, enableMic, enableCam: false });
    for (const name of Object.values(RTVIEvent)) {
      if (!/AudioLevel|botTranscript/.test(name)) client.on(name, (data) => events.push({ name, data: data instanceof MediaStreamTrack ? data.kind : data, at: performance.now() }));
    }
    return client;
  };
}

/** Waits for an event; `pattern` is for its data as JSON. */
async function sees(page, name, { pattern = '', after = 0 } = {}) {
  const found = await page.waitForFunction(
    ([name, pattern, after]) => events.find((e) => e.name === name && e.at > after && new RegExp(pattern).test(JSON.stringify(e.data) ?? '')),
    [name, pattern, after],
  ).catch(async (e) => {
    throw new Error(`no ${name} ${pattern}: ${await page.evaluate(() => JSON.stringify(events.map((e) => [e.name, e.data])))}`, { cause: e });
  });
  return found.jsonValue();
}

/** A test in a page of its own, with a client. */
const inPage = (name, { sounds = [silence(1)], mic = true, gateway = () => open, quiet = true }, run) =>
  test(name, { timeout: 40_000 }, async (t) => {
    const from = gateway().log.length;
    const page = await openPage({ url: origin(), sounds });
    try {
      await page.evaluate(clients);
      await page.evaluate((mic) => void makeClient(mic), mic);
      await run(page, () => gateway().log.slice(from), clock(t));
      const complaints = page.complaints.filter((c) => !c.startsWith(`asked ${gateway().url}`));
      if (quiet) assert.deepEqual(complaints, []);
    } catch (e) {
      t.diagnostic(gateway().log.slice(from).join('\n'));
      throw e;
    } finally {
      await page.quit();
    }
  });

const startAndConnect = (page, body, gateway = open) =>
  page.evaluate(([endpoint, requestData]) => client.startBotAndConnect({ endpoint, requestData }), [at(gateway, '/start'), { enableDefaultIceServers: true, body }]);

inPage('a conversation by voice', { sounds: [silence(5), tone(1), silence(6)] }, async (page, log) => {
  const ready = await startAndConnect(page);
  assert.deepEqual([ready.version, ready.about], ['2.1.0', { library: 'voxgate' }]);
  await hears(page, { tone: 0.5 });
  await sees(page, 'userTranscript', { pattern: '"final":true.*seconds of speech' });
  await sees(page, 'botOutput', { pattern: '"spoken_status":"completed".*You said: .*seconds of speech' });
  await sees(page, 'botLlmStopped');
  const names = await page.evaluate(() => events.map((e) => e.name));
  const order = ['userStartedSpeaking', 'userStoppedSpeaking', 'botLlmStarted', 'botTtsStarted', 'botStartedSpeaking', 'botLlmText', 'botTtsStopped', 'botStoppedSpeaking'];
  assert.deepEqual(order.map((name) => names.indexOf(name)).filter((i, n, all) => i < 0 || i < (all[n - 1] ?? 0)), [], names.join(' '));
  assert.ok((await sees(page, 'metrics', { pattern: 'ttfb' })).data.ttfb[0].value > 0);
  assert.ok((await sees(page, 'metrics', { pattern: 'tokens' })).data.tokens[0].total_tokens > 0);
  await page.evaluate(() => client.enableMic(false));
  await page.evaluate(() => client.disconnect());
  for (const until = Date.now() + 30_000; !log().some((line) => line.includes('conversation ended')); await page.waitForTimeout(20)) {
    assert.ok(Date.now() < until, 'the conversation goes on');
  }
});

inPage('barge-in', { sounds: [silence(5), tone(1.5), silence(6)], mic: false }, async (page, log, judge) => {
  await startAndConnect(page);
  await page.evaluate(() => client.sendText('one two three four five six seven eight nine ten '.repeat(12)));
  const spoke = await sees(page, 'botStartedSpeaking');
  await page.evaluate(() => client.enableMic(true)); // its sounds begin now
  const spokenOver = await sees(page, 'userStartedSpeaking', { after: spoke.at });
  const stopped = await sees(page, 'botStoppedSpeaking', { after: spoke.at }); // before or after: Gemini and the gateway hear the person apart
  judge(() => assert.ok(stopped.at - spokenOver.at < 3_000, `${stopped.at - spokenOver.at} ms`));
  const { data } = await sees(page, 'botOutput', { pattern: 'You said: one two', after: spoke.at });
  assert.ok(data.text.length < 500, data.text);
  await sees(page, 'botOutput', { pattern: 'seconds of speech', after: stopped.at }); // of what was said over it
});

inPage('a function, and text', {}, async (page) => {
  const tools = [{ functionDeclarations: [{ name: 'get_weather', description: 'the weather', parameters: { type: 'OBJECT', properties: { location: { type: 'STRING' } } } }] }];
  await page.evaluate(() => client.registerFunctionCallHandler('get_weather', async (f) => ({ weather: `sunny in ${f.arguments.location}` })));
  await startAndConnect(page, { config: { systemInstruction: 'Be brief.', tools } });
  await page.evaluate(() => client.sendText('/tool get_weather {"location": "Rome"}'));
  await sees(page, 'llmFunctionCallInProgress', { pattern: '"arguments":{"location":"Rome"}' });
  await sees(page, 'llmFunctionCallStopped', { pattern: '"cancelled":false.*sunny in Rome' });
  await sees(page, 'botOutput', { pattern: 'sunny in Rome' });
  const after = await page.evaluate(() => (client.sendText('Hello'), performance.now()));
  await sees(page, 'botOutput', { pattern: 'You said: Hello', after });
  assert.deepEqual(await page.evaluate(() => client.sendClientRequest('interrupt', {})), { success: true });
  assert.match(await page.evaluate(() => client.sendClientRequest('dance', {}).catch((e) => JSON.stringify(e.data ?? e))), /not served/);
});

inPage('a client whose connection is lost goes on by another', {}, async (page, log) => {
  await page.evaluate((endpoint) => client.connect({ webrtcRequestParams: { endpoint } }), at(open, '/api/offer'));
  for (const anew of [false, true]) { // it negotiates again, and makes another connection
    const before = await page.evaluate(() => peers.length);
    await page.evaluate((anew) => client._transport.attemptReconnection(anew), anew);
    await page.waitForFunction(([n]) => peers.length === n && peers.at(-1).connectionState === 'connected', [before + Number(anew)]);
    await page.waitForFunction(() => client._transport.dc.readyState === 'open');
    const after = await page.evaluate(() => (client.sendText('Are you there?'), performance.now()));
    await sees(page, 'botOutput', { pattern: 'You said: Are you there', after });
    await hears(page, { sound: 0.3, after });
  }
  assert.equal(log().filter((line) => line.includes('conversation started')).length, 1);
  await page.evaluate(() => client.disconnectBot());
  await sees(page, 'botDisconnected');
  await sees(page, 'disconnected');
});

inPage('only with a token', { gateway: () => closed, quiet: false }, async (page) => {
  const refused = await page.evaluate(
    (endpoint) => client.startBotAndConnect({ endpoint }).catch((e) => `${e.status} ${e.message}`), at(closed, '/start'));
  assert.match(refused, /^401 Authentication is required/);
  const offered = await page.evaluate(
    (endpoint) => client.connect({ webrtcRequestParams: { endpoint } }).catch((e) => String(e.status)), at(closed, '/api/offer'));
  assert.equal(offered, '401');
  const minted = await fetch(at(closed, '/v1/tokens'), { method: 'POST', headers: { Authorization: `Bearer ${key}` }, body: '{"grant": {"doors": ["rtvi"]}}' });
  const { token } = await minted.json();
  const ready = await page.evaluate(
    ([endpoint, token]) => makeClient().startBotAndConnect({ endpoint, requestData: {}, headers: new Headers({ Authorization: `Bearer ${token}` }) }),
    [at(closed, '/start'), token],
  );
  assert.equal(ready.version, '2.1.0');
});
