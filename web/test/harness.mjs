/** What the tests share: the gateway, browsers with a microphone that plays a file, and ears in the page. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { WebSocket, WebSocketServer } from 'ws';
import { launchFirefox } from './firefox.mjs';

const RATE = 16_000;
export const TONE = 1_500; // far from the fundamental of any voice, and well inside what Opus and 16 kHz keep

const local = (path) => fileURLToPath(new URL(path, import.meta.url));
const temporary = mkdtempSync(join(tmpdir(), 'voxgate-'));
process.on('exit', () => rmSync(temporary, { recursive: true, force: true }));

// A gateway or a browser that a failed test has left would keep node waiting, and with it all other tests.
if (process.env.NODE_TEST_CONTEXT) {
  after(() => {
    const late = setTimeout(() => {
      console.error('something still runs 30 s after the last test');
      process.exit(1);
    }, 30_000);
    late.unref();
  });
}

export const gatewayBinary = process.env.GATEWAY ?? local('../../bin/gateway');

/** Starts the gateway with its emulator on a free port; `inside` is a command that runs it somewhere else. */
export async function startGateway(environment = {}, inside = []) {
  const { PATH, HOME } = process.env; // no key of the developer's, or the tests would talk with Google
  const [command, ...args] = [...inside, gatewayBinary, 'serve'];
  const child = spawn(command, args, {
    env: { PATH, HOME, VOXGATE_ADDR: '127.0.0.1:0', VOXGATE_DRAIN: '0', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kill = () => child.kill('SIGKILL');
  process.on('exit', kill);
  const log = [];
  const url = await new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`the gateway did not start: ${why}\n${log.join('\n')}`));
    const late = setTimeout(() => fail('no "listening" in 30 s'), 30_000);
    child.once('error', fail);
    child.once('exit', (code) => fail(`exit ${code}`));
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        log.push(line);
        const found = /msg="?listening"?.* url="?(http[^\s"]+)/.exec(line);
        if (!found) return;
        clearTimeout(late);
        resolve(found[1]);
      });
    }
  });
  return {
    url,
    log,
    pid: child.pid,
    async stop(signal = 'SIGTERM') {
      process.off('exit', kill);
      if (child.exitCode !== null || child.signalCode) return;
      const gone = once(child, 'exit');
      child.kill(signal);
      const late = setTimeout(kill, 5_000);
      await gone;
      clearTimeout(late);
    },
  };
}

/**
 * Starts an emulator for a gateway, as its GOOGLE_GEMINI_BASE_URL.
 * @param {(message: any) => void} onMessage what the gateway sends up
 */
export async function startModel(onMessage) {
  const { PATH, HOME } = process.env;
  const model = spawn(gatewayBinary, ['emulate', '--addr', '127.0.0.1:0'], { env: { PATH, HOME }, stdio: ['ignore', 'ignore', 'pipe'] });
  process.on('exit', () => model.kill('SIGKILL'));
  let upstream;
  for await (const line of createInterface({ input: model.stderr })) {
    upstream = /emulator listening" url=http(\S+)/.exec(line)?.[1];
    if (upstream) break;
  }
  model.stderr.resume();
  const tap = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(tap, 'listening');
  tap.on('connection', (near, { url }) => {
    const far = new WebSocket(`ws${upstream}${url}`);
    const early = [];
    near.on('message', (data) => {
      onMessage(JSON.parse(data));
      if (far.readyState === WebSocket.OPEN) far.send(String(data));
      else early.push(String(data));
    });
    far.on('open', () => early.splice(0).forEach((m) => far.send(m)));
    far.on('message', (data) => near.send(data));
    for (const [one, other] of [[near, far], [far, near]]) {
      one.on('close', () => other.close());
      one.on('error', () => other.terminate());
    }
  });
  return {
    url: `http://127.0.0.1:${tap.address().port}`,
    async stop() {
      tap.close();
      model.kill();
      await once(model, 'exit');
    },
  };
}

/** For how many milliseconds something on this machine could have run and waited for a processor (Linux's PSI). */
const waited = () => Number(/some.* total=(\d+)/.exec(readFileSync('/proc/pressure/cpu', 'utf8'))[1]) / 1_000;

// One page alone has a processor wait for 15 to 45 % of the time; three at once, or two busy loops beside one, for 60 to 95 %.
const BUSY = 0.5;

/** Measures from now on, and returns what says for which share of the time something waited. */
function pressure() {
  const [since, before] = [performance.now(), waited()];
  return () => (waited() - before) / (performance.now() - since);
}

const percent = (share) => `something waited for a processor for ${Math.round(100 * share)} % of the time`;

/**
 * Measures from now on how busy this machine is, and returns what judges milliseconds, or sound in real time: on a machine
 * that could not have kept them the test is skipped, and says why, where it would have failed. It waits for a promise.
 */
export function clock(t) {
  const busy = pressure();
  const excuse = (e) => {
    const share = busy();
    if (share < BUSY) throw e;
    t.skip(`not judged: ${percent(share)}: ${e.message}`);
  };
  return (judge) => {
    try {
      return judge()?.catch(excuse);
    } catch (e) {
      excuse(e);
    }
  };
}

const ATTEMPTS = 3;

/**
 * A test as node's. On a busy machine one that fails is tried again, and says so: a browser that gets no processor fails in more ways than a
 * clock can tell. What is wrong fails each time.
 */
export function test(name, options, run = options) {
  const { timeout = 90_000, ...others } = options;
  return nodeTest(name, { timeout: ATTEMPTS * timeout, ...others }, async (t) => {
    for (let left = ATTEMPTS - 1; ; left--) {
      const busy = pressure();
      try {
        return await run(t);
      } catch (e) {
        const share = busy();
        if (!left || share < BUSY || t.signal.aborted) throw e;
        t.diagnostic(`tried again: ${percent(share)}: ${e.message}`);
      }
    }
  });
}

/** The size that a JPEG says it has. */
export function jpegSize(jpeg) {
  assert.equal(jpeg.readUInt16BE(0), 0xffd8, 'not a JPEG');
  for (let at = 2; ; at += 2 + jpeg.readUInt16BE(at + 2)) {
    const marker = jpeg[at + 1];
    if (marker >= 0xc0 && marker <= 0xc2) return { height: jpeg.readUInt16BE(at + 5), width: jpeg.readUInt16BE(at + 7) };
  }
}

// --- sounds

export const silence = (seconds) => new Int16Array(Math.round(seconds * RATE));

/** Bursts, because a noise suppressor takes a steady tone for noise. */
export const tone = (seconds, hz = TONE) =>
  Int16Array.from({ length: Math.round(seconds * RATE) }, (_, i) =>
    (i / RATE) % 0.2 < 0.14 ? 9_000 * Math.sin((2 * Math.PI * hz * i) / RATE) : 0,
  );

const spoken = readFileSync(local('speech.wav'));
export const speech = () => new Int16Array(spoken.buffer, spoken.byteOffset + 44, (spoken.length - 44) >> 1);

let files = 0;

/** Writes a WAV file and returns its path. */
function wav(sounds) {
  // At its end Chromium's microphone stands still, and a model never hears that the person has finished.
  const all = [...sounds, silence(2)];
  const data = Buffer.concat(all.map((s) => Buffer.from(s.buffer, s.byteOffset, s.byteLength)));
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + data.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE, 24);
  head.writeUInt32LE(2 * RATE, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write('data', 36);
  head.writeUInt32LE(data.length, 40);
  const path = join(temporary, `${++files}.wav`);
  writeFileSync(path, Buffer.concat([head, data]));
  return path;
}

// --- browsers

/** Which browser is tested: TEST_BROWSER=firefox, else Chromium. */
export const inFirefox = process.env.TEST_BROWSER === 'firefox';

/** The variants of a test: the first alone in make test, all of them in make test-all. */
export const variants = (list) => process.env.TEST_ALL ? list : list.slice(0, 1);

// A page costs a quarter of the time in the shell (0.2 against 0.85 s of CPU). It lacks what asks a person for permission, and
// the flag that trusts an address without https: pages that need those have the whole browser.
const chromiumBinary = process.env.CHROMIUM ?? '/usr/bin/chromium';
const shellBinary = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell';

/** A program that runs Chromium inside of something. */
function chromiumInside(inside) {
  const path = join(temporary, 'chromium');
  writeFileSync(path, `#!/bin/sh\nexec ${inside.join(' ')} ${chromiumBinary} "$@"\n`);
  chmodSync(path, 0o755);
  return path;
}

/** Starts a browser. The first on a machine comes from a cold disk, which has taken more than 30 s. */
function launch({ url, sounds, mic, context, args = [], inside }) {
  if (inFirefox) return launchFirefox({ mic, context });
  return chromium.launch({
    timeout: 180_000,
    executablePath: inside ? chromiumInside(inside) : mic === 'denied' ? chromiumBinary : shellBinary,
    args: [
      ...(mic === 'none' ? [] : ['--use-fake-device-for-media-stream']),
      `--use-file-for-fake-audio-capture=${wav(sounds ?? [silence(1)])}%noloop`,
      mic === 'denied' ? '--deny-permission-prompts' : '--use-fake-ui-for-media-stream',
      '--allow-loopback-in-peer-connection',
      ...(inside ? [`--unsafely-treat-insecure-origin-as-secure=${url}`] : []), // or there is no microphone
      '--autoplay-policy=no-user-gesture-required',
      '--disable-background-networking',
      '--disable-component-update',
      '--mute-audio',
      '--no-sandbox',
      ...args,
    ],
  });
}

/** A script for Firefox, which takes one expression, and runs it in an empty page as well. */
const alone = (script) => `(() => { if (location.host) { ${typeof script === 'function' ? `(${script})()` : script.content ?? script} } })()`;

/** One of `browsers`, which is started when it is first wanted. */
function browserFor(browsers, { mic, context }) {
  const { colorScheme, forcedColors, reducedMotion } = inFirefox ? context : {}; // of the whole browser there
  const kind = [mic, colorScheme, forcedColors, reducedMotion].filter(Boolean).join();
  if (!browsers.has(kind)) browsers.set(kind, launch({ mic, context }));
  return browsers.get(kind);
}

// A conversation in a page that moves takes a third more CPU. page.test.mjs looks at one that does.
const moves = process.env.NODE_TEST_CONTEXT ? { reducedMotion: 'reduce' } : {};

/**
 * A page of the gateway in a browser of its own.
 * @param {{url: string, sounds?: Int16Array[], mic?: 'granted'|'denied'|'none', query?: string, init?: Function,
 *   context?: object, args?: string[], inside?: string[], browsers?: Map<string, Promise<Browser>>}} o `sounds` is what the microphone hears from the
 *   moment it is opened; `inside` is a command that runs the browser somewhere else; `browsers` are shared by pages whose
 *   microphone hears nothing, and whoever gives them closes them
 */
export async function openPage({ url, sounds, mic = 'granted', query = '', init, context: wanted = {}, args = [], inside, browsers }) {
  const context = { ...moves, ...wanted };
  const shared = browsers && (!sounds || inFirefox) && !inside && !args.length; // Firefox's microphone is told what it hears
  const browser = await (shared ? browserFor(browsers, { mic, context }) : launch({ url, sounds, mic, context, args, inside }));
  const own = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...context });
  const page = await own.newPage();
  page.setDefaultTimeout(15_000);
  const complaints = [];
  page.on('console', (m) => {
    // The ear is ours. Whoever ends a call while its socket is not open yet, or dials anew, closes it, which the console calls a failure.
    const expected = /ScriptProcessorNode|WebSocket is closed before the connection is established/.test(m.text());
    if (['error', 'warning'].includes(m.type()) && !expected) complaints.push(m.text());
  });
  page.on('pageerror', (e) => complaints.push(String(e)));
  page.on('request', (r) => {
    if (!/^(data|blob):/.test(r.url()) && !r.url().startsWith(url)) complaints.push(`asked ${r.url()}`);
  });
  if (inFirefox && sounds) {
    const file = wav(sounds);
    await page.exposeFunction('microphoneOpened', () => browser.hears(file));
  }
  await page.addInitScript(listen, { tone: TONE });
  if (init) await page.addInitScript(alone(init));
  const quit = () => (shared ? own : browser).close();
  try {
    await page.goto(url + query);
    // The load event does not wait for what a module awaits, such as the words of another language.
    await page.evaluate(() => Promise.all([...document.querySelectorAll('script[type=module][src]')].map((s) => import(s.src))));
  } catch (e) {
    await quit(); // nobody else would: the tests would wait for the browser for ever
    throw e;
  }
  return Object.assign(page, { complaints, quit });
}

/** The file that something done to the page saves. */
export async function saves(page, act) {
  const saved = inFirefox ? page.context().browser().saved() : page.waitForEvent('download');
  await act();
  const file = await saved;
  return inFirefox ? file : { name: file.suggestedFilename(), content: readFileSync(await file.path()) };
}

/** Lets the test see what is copied; Firefox's preferences do. */
export const mayPaste = (page) => inFirefox || page.context().grantPermissions(['clipboard-read', 'clipboard-write']);

/**
 * Runs in the page before its own scripts. Puts an ear at everything that is played, and keeps what travels:
 * heard   [{at, level, tone}] every 21 ms; tone is the share of the energy at TONE
 * told    [{way, type, payload, at}] messages from the gateway
 * sent    likewise, to the gateway
 * sockets, peers
 */
function listen({ tone }) {
  document.addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective, e.blockedURI));
  const heard = (window.heard = []);
  const told = (window.told = []);
  const sent = (window.sent = []);
  const sockets = (window.sockets = []);
  const peers = (window.peers = []);
  const { connect } = AudioNode.prototype;

  const { mediaDevices } = navigator;
  const getUserMedia = mediaDevices?.getUserMedia.bind(mediaDevices);
  if (mediaDevices && window.microphoneOpened) {
    mediaDevices.getUserMedia = async (wish) => {
      const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false }; // or much of the tone is taken away
      const audio = wish.audio && { ...wish.audio, ...plain };
      const stream = await getUserMedia({ ...wish, audio });
      if (audio) microphoneOpened();
      return stream;
    };
  }

  const ear = (context, source) => {
    const node = context.createScriptProcessor(512, 1, 1);
    const step = (2 * Math.PI * tone) / context.sampleRate;
    node.onaudioprocess = ({ inputBuffer }) => {
      const x = inputBuffer.getChannelData(0);
      let energy = 0, re = 0, im = 0;
      for (let i = 0; i < x.length; i++) {
        energy += x[i] * x[i];
        re += x[i] * Math.cos(step * i);
        im += x[i] * Math.sin(step * i);
      }
      const share = energy > 1e-9 ? (2 * (re * re + im * im)) / x.length / energy : 0;
      heard.push({ at: performance.now(), level: Math.sqrt(energy / x.length), tone: share });
    };
    connect.call(source, node);
    connect.call(node, context.destination);
    (window.ears ??= []).push(node);
  };
  AudioNode.prototype.connect = function (to, ...rest) {
    if (to instanceof AudioDestinationNode && this.numberOfInputs === 0) ear(this.context, this);
    return connect.call(this, to, ...rest);
  };

  const keep = (list, way, data) => {
    if (typeof data !== 'string') return; // VOX's sound
    const { type, payload, seq, event } = JSON.parse(data);
    list.push({ way, type, payload, seq, event, at: performance.now() });
  };
  window.WebSocket = class extends WebSocket {
    constructor(...a) {
      super(...a);
      sockets.push(this);
      this.addEventListener('message', (e) => keep(told, 'socket', e.data));
    }
    send(data) {
      keep(sent, 'socket', data);
      super.send(data);
    }
  };
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...a) {
      super(...a);
      peers.push(this);
      this.addEventListener('track', ({ track }) => {
        const context = new AudioContext({ sampleRate: 24_000 });
        ear(context, context.createMediaStreamSource(new MediaStream([track])));
      });
    }
    createDataChannel(...a) {
      const channel = super.createDataChannel(...a);
      const send = channel.send.bind(channel);
      channel.addEventListener('message', (e) => keep(told, 'channel', e.data));
      channel.send = (data) => (keep(sent, 'channel', data), send(data));
      return (window.channel = channel);
    }
  };
}

/** Runs in the page before its own scripts: its clock goes ahead by `later`. */
export function shiftClock() {
  const now = performance.now.bind(performance);
  window.later = 0; // ms
  performance.now = () => now() + later;
}

/**
 * Runs in the page before its own scripts: instead of sockets there are `links`. Each answers CONNECT_GEMINI with the
 * next of `setups`, keeps in `said` what came after it, and tells or drops what the test wants.
 */
export function playGateway() {
  const links = (window.links = []);
  window.setups = [{}];
  const now = performance.now.bind(performance);
  window.later = 0; // ms
  performance.now = () => now() + later;
  window.WebSocket = class {
    static CONNECTING = 0;
    static OPEN = 1;
    readyState = 0;
    bufferedAmount = 0;
    said = [];
    deaf = false; // loses what it is sent, as a dying connection does
    constructor() {
      links.push(this);
      setTimeout(() => window.unreachable || this.open());
    }
    /** Opens a link that was dialed while the gateway was unreachable. */
    open() {
      if (this.readyState) return;
      this.readyState = 1;
      this.onopen?.();
    }
    send(text) {
      const message = JSON.parse(text);
      if (message.type === 'PING') return void (this.deaf || this.tell('PONG'));
      if (message.type !== 'CONNECT_GEMINI') {
        if (!this.deaf) this.said.push(message);
        return;
      }
      this.hello = message.payload;
      setTimeout(() => {
        this.tell('GEMINI_CONNECTED', { protocol: 1, iceServers: [] });
        const fresh = { success: true, sessionId: 's', model: 'm', resumed: false, resumeToken: 't', backend: 'gemini' };
        this.tell('SETUP_COMPLETE', { ...fresh, effectiveConfig: {}, ...setups.shift() });
      });
    }
    tell(type, payload) {
      this.onmessage?.({ data: JSON.stringify({ type, payload }) });
    }
    /** What tools were answered with. */
    get answers() {
      return this.said.flatMap((m) => m.payload?.toolResponse?.functionResponses ?? []);
    }
    drop(code = 1006) {
      this.readyState = 3;
      this.onclose?.({ code });
    }
    close() {
      this.readyState = 3;
    }
  };
  /** Opens a session and keeps what it tells. */
  window.talk = async (options) => {
    const { connect } = await import('./voxgate.js');
    window.session = await connect({ url: 'ws', mic: false, transport: 'websocket', ...options });
    window.events = [];
    for (const type of ['error', 'closed', 'link', 'usage', 'latency', 'tool']) {
      session.on(type, (e) => events.push([type, e instanceof Error ? `${e.code}: ${e.message}` : e]));
    }
    return session;
  };
  /** Loses the newest link and waits for the next to be set up. */
  window.reconnect = async (setup) => {
    setups.push(setup);
    const back = new Promise((resolve) => {
      const off = session.on('state', ({ state }) => state === 'listening' && resolve(off()));
    });
    links.at(-1).drop();
    return back;
  };
  window.texts = ({ said }) =>
    said.filter((m) => !m.payload?.audio).map((m) => m.payload?.parts?.[0].text ?? m.payload?.text ?? m.type);
}

/**
 * Gives a test file its gateway. Returns what makes a test in a page of its own, which fails as well if anything was
 * complained about in the page's console, against its Content-Security-Policy, or a third party was asked. `chromiumOnly` says why.
 * @param {object} context of each page
 */
export function withGateway(context = {}) {
  const gateway = {};
  const browsers = new Map();
  before(async () => {
    Object.assign(gateway, await startGateway());
    const browser = await browserFor(browsers, { mic: 'granted', context: { ...moves, ...context } });
    const page = await browser.newPage(); // or the first test would pay for the cold disk
    await page.goto(gateway.url, { timeout: 180_000 });
    await page.close();
  });
  after(async () => {
    for (const browser of browsers.values()) await (await browser).close();
    await gateway.stop?.();
  });
  const inPage = (name, { chromiumOnly, ...options }, run) =>
    test(name, { timeout: 90_000, skip: inFirefox && chromiumOnly }, async (t) => {
      const from = gateway.log.length;
      const page = await openPage({ url: gateway.url, browsers, ...options, context: { ...context, ...options.context } });
      try {
        await run(page, gateway, t);
        assert.deepEqual(page.complaints, []);
      } catch (e) {
        t.diagnostic([`the page says: ${await lastStatus(page)}`, ...gateway.log.slice(from)].join('\n'));
        throw e;
      } finally {
        await page.quit();
      }
    });
  return inPage;
}

// --- what people do and notice

export const start = (page) => page.click('#talk');
export const stop = (page) => page.click('#end');
export const status = (page) => page.textContent('#status');
/** The same for a message about a failure, which may be that there is no page. */
export const lastStatus = (page) => page.textContent('#status', { timeout: 1_000 }).catch(() => 'nothing');
/** What carries the voice, how long the last answer took, how many tokens there were. */
export const detail = (page) => page.getAttribute('#detail', 'title');

/** Waits until the voice goes by WebRTC or WebSocket. */
export const goesBy = (page, way) => page.waitForFunction((way) => document.querySelector('#detail').title.startsWith(way), way);

/** The field is behind a button where there is little room. */
export async function type(page, text) {
  await page.locator('#text:visible, #keyboard:visible').first().waitFor(); // a sheet may be closing
  if (!(await page.isVisible('#text'))) await page.click('#keyboard');
  await page.fill('#text', text);
  await page.press('#text', 'Enter');
}

/** What the page says while the conversation goes on. The microphone of a test is dead quiet when its sounds are over, which the page says after 8 s. */
export const TALKS = /^(Listening|Thinking|Speaking|We hear nothing)/;

/**
 * Waits for the sentence on the page, or one like it, and says which one stands there if it does not come. A page that listens to a dead
 * microphone for 8 s says so, which a late machine may be the first to see.
 */
export async function says(page, sentence, timeout) {
  const like = sentence === 'Listening' ? '^(Listening|We hear nothing)' : sentence.source ?? sentence.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  try {
    await page.waitForFunction((s) => new RegExp(s).test(document.querySelector('#status').textContent), like, { timeout });
  } catch {
    throw new Error(`the page says "${await lastStatus(page)}", not "${sentence}"`);
  }
}

/** Waits for a message of the gateway. */
export async function gets(page, type, { way, after = 0 } = {}) {
  const h = await page.waitForFunction(
    ([type, way, after]) => told.find((m) => m.type === type && (!way || m.way === way) && m.at > after),
    [type, way, after],
  );
  return h.jsonValue();
}

/** Waits until so many seconds of sound were heard since `after`, and of the test's tone if asked. */
export const hears = (page, { sound = 0, tone = 0, after = 0 }) =>
  page.waitForFunction(
    ([sound, tone, after]) => {
      const frames = heard.filter((f) => f.at > after && f.level > 0.005);
      const seconds = (list) => (list.length * 512) / 24_000;
      return seconds(frames) >= sound && seconds(frames.filter((f) => f.tone > 0.6)) >= tone;
    },
    [sound, tone, after],
  );

/** Waits for the first 300 ms without a sound after `after`, and returns when the last sound before them was. */
export async function hearsNothing(page, after) {
  const found = await page.waitForFunction((after) => {
    let last = after;
    for (const f of heard) {
      if (f.at - last > 300) return { last };
      if (f.at > after && f.level > 0.005) last = f.at;
    }
    return null;
  }, after);
  return (await found.jsonValue()).last;
}

/** Waits until no animation or transition runs but the endless ones. One that another replaces rejects its promise `finished`: the loop then waits for the new one. */
export const awaitAnimations = (page) => page.evaluate(async () => {
  const running = () => document.getAnimations().filter((a) => a.playState === 'running' && a.effect.getTiming().iterations < Infinity);
  for (let all = running(); all.length; all = running()) await Promise.allSettled(all.map((a) => a.finished));
});

let axe; // half a megabyte, which few tests need

/**
 * What axe finds in the page, or in the part that a selector or a context of axe names: one line for each rule that is broken.
 * @param {object} [options] of axe.run
 */
export async function findBarriers(page, within, options) {
  axe ??= readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const found = await page.evaluate(([within, options]) => window.axe.run(within ?? document, { resultTypes: ['violations'], ...options }), [within, options]);
  return found.violations.map((v) => `${v.id} ${v.nodes.map((n) => n.html)}`);
}

export const now = (page) => page.evaluate(() => performance.now());
