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

/** A page of the gateway, on localhost. Its peers and sockets are kept, and `begin` opens a session that is muted: the microphone beeps. */
async function open() {
  await browser.open(gateway.url.replace('127.0.0.1', 'localhost'));
  await browser.run(async () => {
    for (const name of ['RTCPeerConnection', 'WebSocket']) {
      const all = (window[`all${name}`] = []);
      window[name] = class extends window[name] {
        constructor(...a) {
          super(...a);
          all.push(this);
        }
      };
    }
    window.until = (event, is) =>
      new Promise((resolve) => {
        const look = (e) => is(e) && resolve(e);
        session.on(event, look);
        if (event === 'state') look(session);
      });
    window.begin = async (options) => {
      const { connect } = await import('./voxgate.js');
      window.session = await connect({ url: 'ws', muted: true, ...options });
      window.errors = [];
      session.on('error', (e) => errors.push(e.code));
    };
    window.ask = async (text) => {
      const answer = until('turn', (t) => t.role === 'model' && t.final && !t.interrupted && t.text.includes(text));
      session.send(text);
      return (await answer).text;
    };
  });
}

const inFirefox = (name, run) => test(name, { timeout: 60_000 }, async (t) => {
  await open();
  await run(t);
  await browser.run(() => session.close());
});

inFirefox('on localhost the voice comes by WebRTC, at once', async (t) => {
  const found = await browser.run(async () => {
    const from = performance.now();
    await begin({ muted: false });
    const ready = performance.now() - from;
    await until('state', () => session.transport === 'webrtc');
    const took = performance.now() - from;
    const { transport, mic } = session;
    session.mute(); // its beep would be spoken over each answer
    const text = await ask('Hello from Firefox.');
    const stats = [...(await session.stats()).values()];
    const voice = stats.find((s) => s.type === 'inbound-rtp' && s.kind === 'audio'); // without a sound card nothing is played
    return { ready, took, transport, mic, text, packets: voice?.packetsReceived };
  });
  t.diagnostic(JSON.stringify(found));
  assert.equal(found.transport, 'webrtc');
  assert.equal(found.mic, 'live');
  assert.ok(found.packets > 50, `${found.packets} packets of the voice`);
  assert.ok(found.took < 4_000, `after ${found.took} ms`); // before it gives WebRTC up
});

// Over WebRTC alone: without a sound card Firefox runs no AudioContext, which is what reads a microphone for the WebSocket.
inFirefox('who is muted is not heard, and then is again', async () => {
  const mics = await browser.run(async () => {
    await begin({ transport: 'webrtc' });
    const mics = [session.mic];
    for (const on of [false, true, false]) {
      const heard = until('speech', ({ speaking }) => speaking === !on);
      session.mute(on);
      await heard;
      mics.push(session.mic);
    }
    return mics;
  });
  assert.deepEqual(mics, ['muted', 'live', 'muted', 'live']);
});

inFirefox('an answer is interrupted, and what was heard of it is known', async () => {
  const [turn, state, next] = await browser.run(async () => {
    await begin();
    const long = 'one two three four five six seven eight nine ten '.repeat(3).trim();
    const cut = until('turn', (t) => t.interrupted);
    session.send(long);
    await until('state', () => session.state === 'speaking');
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    session.interrupt();
    const turn = await cut;
    await until('state', () => session.state === 'listening');
    return [turn, session.state, await ask('and now')];
  });
  assert.equal(state, 'listening');
  assert.ok(turn.heard.length > 0 && turn.heard.length < 80 && turn.text.startsWith(turn.heard), JSON.stringify(turn));
  assert.equal(next, 'You said: and now');
});

inFirefox('a page that is loaded again goes on', async () => {
  const before = await browser.run(async () => {
    await begin({ resume: 'mine' });
    await ask('my word is parrot');
    return session.setup.sessionId;
  });
  await open();
  const [id, turns, said] = await browser.run(async () => {
    await begin({ resume: 'mine' });
    await ask('and now');
    return [session.setup.sessionId, session.turns.map((t) => t.text), (await session.context()).map((e) => e.content.trim())];
  });
  assert.equal(id, before);
  assert.deepEqual(turns, ['my word is parrot', 'You said: my word is parrot', 'and now', 'You said: and now']);
  assert.deepEqual(said, turns);
});

inFirefox('a lost network is got over, and nothing typed is lost', async () => {
  const found = await browser.run(async () => {
    await begin();
    await ask('before');
    await until('state', () => session.transport === 'webrtc');
    const lost = until('state', () => session.state === 'reconnecting');
    for (const one of [...allRTCPeerConnection, ...allWebSocket]) one.close();
    await lost;
    const text = await ask('meanwhile');
    return [text, session.setup.resumed, errors, session.state];
  });
  assert.deepEqual(found.slice(0, 3), ['You said: meanwhile', true, []]);
});

inFirefox('a restarted gateway goes on, and the model knows what was said', async () => {
  await browser.run(async () => {
    await begin();
    await ask('my word is parrot');
  });
  const { port } = new URL(gateway.url);
  await gateway.stop('SIGKILL');
  gateway = await startGateway({ VOXGATE_ADDR: `127.0.0.1:${port}` });
  const [text, errors, said] = await browser.run(async () => [await ask('and now'), errors, (await session.context()).map((e) => e.content.trim())]);
  assert.equal(text, 'You said: and now');
  assert.ok(errors.includes('not_resumed'), String(errors));
  assert.deepEqual(said.slice(0, 2), ['my word is parrot', 'You said: my word is parrot']);
});
