/** The voice goes by the WebSocket first and moves to WebRTC: what is said, and heard, meanwhile. */
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { clock, gets, inFirefox, openPage, silence, startGateway, startModel, test, tone } from './harness.mjs';

const RATE = 16_000;
const STEP = 0.1; // seconds of one tone; no two are alike, so that each can be found again
const STEPS = 40;
const HZ = (step) => 500 + 75 * step;
const scale = Int16Array.from({ length: RATE * STEP * STEPS }, (_, i) => 9_000 * Math.sin((2 * Math.PI * HZ(Math.floor(i / RATE / STEP)) * i) / RATE));

let gateway;
let model;
/** @type {{rate: number, pcm: Int16Array}[]} */
let up = [];
before(async () => {
  model = await startModel(({ realtimeInput }) => {
    const { mimeType, data } = realtimeInput?.audio ?? {};
    if (!data) return;
    const bytes = Buffer.from(data, 'base64');
    up.push({ rate: Number(/rate=(\d+)/.exec(mimeType)?.[1] ?? RATE), pcm: new Int16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1) });
  });
  gateway = await startGateway({ GOOGLE_GEMINI_BASE_URL: model.url });
});
after(async () => {
  await gateway?.stop();
  await model?.stop();
});

/** How many milliseconds of each step came up. */
function found() {
  const came = Array(STEPS).fill(0);
  assert.deepEqual([...new Set(up.map((c) => c.rate))], [RATE]);
  const all = up.flatMap((c) => [...c.pcm]);
  const window = RATE / 100;
  for (let at = 0; at + window <= all.length; at += window) {
    let best = -1, most = 0, energy = 0;
    for (let i = 0; i < window; i++) energy += all[at + i] ** 2;
    for (let step = 0; step < STEPS; step++) {
      let re = 0, im = 0;
      for (let i = 0; i < window; i++) {
        const turn = (2 * Math.PI * HZ(step) * i) / RATE;
        re += all[at + i] * Math.cos(turn);
        im += all[at + i] * Math.sin(turn);
      }
      const power = (re * re + im * im) / window / Math.max(1, energy);
      if (power > most) [best, most] = [step, power];
    }
    if (energy / window > 1e5) came[best] += 10;
  }
  return came;
}

/** Runs in the page: WebRTC connects so many milliseconds after it could. */
const slow = (ms) => `{
  const { setRemoteDescription } = RTCPeerConnection.prototype;
  RTCPeerConnection.prototype.setRemoteDescription = async function (...a) {
    await new Promise((resolve) => setTimeout(resolve, ${ms}));
    return setRemoteDescription.apply(this, a);
  };
}`;

/** Runs in the page: opens the session, with the microphone as it is. */
const talk = async (options) => {
  const { connect } = await import('./voxgate.js');
  const mic = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const begun = performance.now();
  window.session = await connect({ url: 'ws', mic, ...options });
  return performance.now() - begun;
};

const inPage = async (options, run) => {
  up = [];
  const page = await openPage({ url: gateway.url, ...options });
  try {
    await run(page);
    assert.deepEqual(page.complaints, []);
  } finally {
    await page.quit();
  }
};

describe('the voice moves from the WebSocket to WebRTC', () => {
  test('in the middle of what is said, and no word is lost or comes twice', { timeout: 60_000 }, (t) =>
    inPage({ sounds: [scale, silence(1)], init: { content: slow(1_500) } }, async (page) => {
      const judge = clock(t);
      const ready = await page.evaluate(talk);
      const at = await page.evaluate(() => new Promise((resolve) => session.on('state', () => session.transport === 'webrtc' && resolve(performance.now()))));
      await gets(page, 'TURN_COMPLETE');
      const came = found();
      t.diagnostic(`ready after ${Math.round(ready)} ms, WebRTC at ${Math.round(at)} ms; each step of 100 ms came for ${came} ms`);
      const first = came.findIndex((ms) => ms > 0);
      judge(() => assert.ok(first <= 8, `what was said before step ${first} is lost`)); // the microphone opens before there is anybody to hear it
      const middle = came.slice(first + 1, -1);
      const least = inFirefox ? 50 : 60; // the shortest sound of speech takes longer than what is missing; Firefox takes 30 ms to send a track
      judge(() => assert.ok(middle.every((ms) => ms >= least && ms <= 150), `each step of 100 ms came for ${came} ms`));
      const sum = middle.reduce((a, b) => a + b, 0);
      judge(() => assert.ok(Math.abs(sum - 100 * middle.length) <= 100, `${sum} ms of ${100 * middle.length}`));
    }));

  test('in the middle of an answer, which is heard without a break', { timeout: 60_000 }, (t) =>
    inPage({ init: { content: slow(1_500) } }, async (page) => {
      const judge = clock(t);
      await page.evaluate(talk, { mic: false });
      const long = 'one two three four five six seven eight nine ten '.repeat(2).trim();
      await page.evaluate((text) => session.send(text), long);
      await page.waitForFunction(() => session.transport === 'webrtc');
      const moved = await page.evaluate(() => performance.now());
      await gets(page, 'TURN_COMPLETE');
      const { frames, chunks } = await page.evaluate(() => ({ frames: heard, chunks: told.filter((m) => m.type === 'AUDIO_CHUNK').length }));
      assert.ok(chunks > 5, `${chunks} chunks by the socket`);
      const around = frames.filter((f) => Math.abs(f.at - moved) < 1_500 && f.level > 0.005).map((f) => f.at);
      assert.ok(around[0] < moved && around.at(-1) > moved + 500, 'heard before and after');
      const gaps = around.slice(1).map((at, i) => at - around[i]);
      t.diagnostic(`the longest silence around the move is ${Math.round(Math.max(...gaps))} ms`);
      judge(() => assert.ok(Math.max(...gaps) < 400, `a silence of ${Math.max(...gaps)} ms`));
    }));
});

test('a page whose policy keeps the worklets away waits for WebRTC, and is heard by it', { timeout: 60_000 }, () =>
  inPage({ sounds: [silence(1), tone(0.6)], init: () => (Worklet.prototype.addModule = () => Promise.reject(new Error('refused'))) }, async (page) => {
    await page.evaluate(talk);
    assert.deepEqual(await page.evaluate(() => [session.transport, session.mic, session.state]), ['webrtc', 'live', 'listening']);
    await gets(page, 'TURN_COMPLETE');
    const chunks = await page.evaluate(() => told.filter((m) => m.type === 'AUDIO_CHUNK').length);
    assert.equal(chunks, 0, 'nothing is sent that cannot be played');
  }));
