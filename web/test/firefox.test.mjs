/** Firefox, as Debian has it, driven by WebDriver BiDi. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { startGateway } from './harness.mjs';

const firefoxBinary = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const preferences = {
  'media.navigator.streams.fake': true, // a microphone that beeps
  'media.navigator.permission.disabled': true,
  'media.autoplay.default': 0,
  'media.autoplay.blocking_policy': 0,
  'media.cubeb.sandbox': false,
};

let gateway;
let browser;
before(async () => {
  gateway = await startGateway();
  browser = await startFirefox();
});
after(async () => {
  await browser?.stop();
  await gateway?.stop();
});

async function startFirefox() {
  const profile = mkdtempSync(join(tmpdir(), 'voxgate-firefox-'));
  const lines = Object.entries(preferences).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`);
  writeFileSync(join(profile, 'user.js'), lines.join('\n'));
  const child = spawn(firefoxBinary, ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port', '0'], {
    env: { ...process.env, HOME: profile, MOZ_HEADLESS: '1' }, stdio: ['ignore', 'ignore', 'pipe'],
  });
  const kill = () => child.kill('SIGKILL');
  process.on('exit', kill);
  const address = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`Firefox ended with ${code}`)));
    createInterface({ input: child.stderr }).on('line', (line) => {
      const found = /WebDriver BiDi listening on (ws:\S+)/.exec(line);
      if (found) resolve(found[1]);
    });
  });
  const socket = new WebSocket(`${address}/session`);
  await once(socket, 'open');
  const waiting = new Map();
  socket.on('message', (data) => {
    const { id, type, result, message } = JSON.parse(data);
    const { resolve, reject } = waiting.get(id) ?? {};
    if (type === 'success') resolve?.(result);
    else if (type === 'error') reject?.(new Error(message));
  });
  let commands = 0;
  const command = (method, params) =>
    new Promise((resolve, reject) => {
      waiting.set(++commands, { resolve, reject });
      socket.send(JSON.stringify({ id: commands, method, params }));
    });
  await command('session.new', { capabilities: {} });
  const { contexts } = await command('browsingContext.getTree', {});
  const { context } = contexts[0];
  return {
    open: (url) => command('browsingContext.navigate', { context, url, wait: 'complete' }),
    /** Runs an async function without arguments in the page, as if by a gesture; it returns JSON. */
    async run(f) {
      const expression = `(${f})().then((v) => JSON.stringify(v) ?? 'null')`;
      const { result, exceptionDetails } = await command('script.evaluate', { expression, target: { context }, awaitPromise: true, userActivation: true });
      if (exceptionDetails) throw new Error(exceptionDetails.text);
      return JSON.parse(result.value);
    },
    async stop() {
      const gone = once(child, 'exit');
      socket.close();
      child.kill();
      const late = setTimeout(kill, 5_000);
      await gone;
      clearTimeout(late);
      process.off('exit', kill);
      rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}

test('on localhost the voice comes by WebRTC, at once', { timeout: 90_000 }, async (t) => {
  await browser.open(gateway.url.replace('127.0.0.1', 'localhost'));
  const found = await browser.run(async () => {
    const peers = [];
    window.RTCPeerConnection = class extends RTCPeerConnection {
      constructor(...a) {
        super(...a);
        peers.push(this);
      }
    };
    const { connect } = await import('./voxgate.js');
    const begun = performance.now();
    const session = await connect();
    const took = performance.now() - begun;
    const { transport, mic } = session;
    session.mute(); // its beep would be spoken over each answer
    const answer = new Promise((resolve) =>
      session.on('turn', ({ role, text, final, interrupted }) => role === 'model' && final && !interrupted && text.includes('Firefox') && resolve(text)));
    session.send('Hello from Firefox.');
    const text = await answer;
    const stats = [...(await peers[0].getStats()).values()];
    const voice = stats.find((s) => s.type === 'inbound-rtp' && s.kind === 'audio'); // without a sound card nothing is played
    await session.close();
    return { took, transport, mic, text, packets: voice?.packetsReceived };
  });
  t.diagnostic(JSON.stringify(found));
  assert.equal(found.transport, 'webrtc');
  assert.equal(found.mic, 'live');
  assert.ok(found.packets > 50, `${found.packets} packets of the voice`);
  assert.ok(found.took < 4_000, `after ${found.took} ms`); // before it gives WebRTC up
});
