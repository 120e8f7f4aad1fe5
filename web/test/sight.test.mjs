/** Camera and screen: what the model gets to see of them, and what the person does. */
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import {
  clock, gets, goesBy, hears, inFirefox, jpegSize, openPage, says, silence, speech, start, startGateway, startModel, stop, test, tone,
  type, variants,
} from './harness.mjs';

const MOST = 768;

let model, gateway;

/** What goes up. */
const pictures = [];

before(async () => {
  model = await startModel(({ realtimeInput }) => {
    const { mimeType, data } = realtimeInput?.video ?? {};
    if (!data) return;
    const jpeg = Buffer.from(data, 'base64');
    pictures.push({ at: performance.now(), mimeType, bytes: jpeg.length, ...jpegSize(jpeg) });
  });
  gateway = await startGateway({ GOOGLE_GEMINI_BASE_URL: model.url });
});
after(async () => {
  await gateway?.stop();
  await model?.stop();
});

/** Waits for so many more pictures, and returns them. */
async function shown(count) {
  const from = pictures.length;
  const until = performance.now() + 25_000; // the camera of Firefox changes slowly
  while (pictures.length < from + count) {
    assert.ok(performance.now() < until, `${pictures.length - from} of ${count} pictures in 25 s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return pictures.slice(from);
}

const sees = (page, sentence) =>
  page.waitForFunction((s) => document.querySelector('#sight').textContent === s, sentence).catch(async () => {
    throw new Error(`the page says "${await page.textContent('#sight')}", not "${sentence}"`);
  });

/** Firefox without a display has no screen to share. */
function aScreen() {
  const { mediaDevices } = navigator;
  mediaDevices.getDisplayMedia = async () => {
    const screen = Object.assign(document.createElement('canvas'), { width: 1280, height: 720 });
    const context = screen.getContext('2d');
    setInterval(() => {
      context.fillStyle = `hsl(${performance.now() / 10} 100% 50%)`;
      context.fillRect(0, 0, 1280, 720);
    }, 200);
    return screen.captureStream(5);
  };
}

function inPage(name, options, run) {
  test(name, { timeout: 60_000 }, async (t) => {
    const from = gateway.log.length;
    const page = await openPage({ url: gateway.url, ...(inFirefox && { init: aScreen }), ...options });
    try {
      await run(page, t);
      assert.deepEqual(page.complaints, []);
    } catch (e) {
      t.diagnostic(gateway.log.slice(from).join('\n'));
      throw e;
    } finally {
      await page.quit();
    }
  });
}

for (const [transport, query] of variants([['WebRTC', ''], ['WebSocket', '?transport=websocket']])) {
  describe(`over ${transport}`, () => {
    for (const what of ['camera', 'screen']) {
      inPage(`the model sees the ${what} while it is shown`, { query, sounds: [silence(60)] }, async (page) => {
        await start(page);
        await says(page, 'Listening');
        assert.ok(await page.isHidden('#view'));
        await page.click(`#${what}`);
        await sees(page, `Gemini sees your ${what}.`);
        const seen = await shown(inFirefox ? 2 : 3); // by WebRTC it sends what is new in its fake camera, every 10 s or so
        for (const { mimeType, width, height, bytes } of seen) {
          assert.equal(mimeType, 'image/jpeg');
          assert.ok(Math.max(width, height) <= MOST && Math.min(width, height) > 100, `${width}x${height}`);
          assert.ok(bytes > 500 && bytes < 200_000, `${bytes} bytes`);
        }
        const took = seen.at(-1).at - seen[0].at;
        assert.ok(took > 750 * (seen.length - 1), `${seen.length} pictures in ${took} ms`);
        assert.equal(await page.getAttribute(`#${what}`, 'aria-pressed'), 'true');
        await page.waitForFunction(() => document.querySelector('#view').videoWidth > 0);
        assert.ok(await page.isVisible('#view'), 'the person sees it, too');

        const track = await page.evaluateHandle(() => document.querySelector('#view').srcObject.getTracks()[0]);
        await page.click(`#${what}`);
        await sees(page, '');
        assert.ok(await page.isHidden('#view'));
        assert.equal(await track.evaluate((t) => t.readyState), 'ended', 'the device is let go');
        await new Promise((resolve) => setTimeout(resolve, 1_500));
        const before = pictures.length;
        await new Promise((resolve) => setTimeout(resolve, 2_500));
        assert.equal(pictures.length, before, 'nothing is seen after it');

        await page.click(`#${what}`);
        await shown(1);
        await stop(page);
        await says(page, 'The conversation is over.');
        assert.ok(await page.isHidden('#view'), 'it ends with the conversation');
        assert.ok(await page.isDisabled('#camera'));
      });
    }
  });
}

inPage('a key frame is asked for once a second', { sounds: [silence(60)] }, async (page, t) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#camera');
  await shown(1);
  const asked = () =>
    page.evaluate(async () => {
      const stats = [...(await peers[0].getStats()).values()].find((s) => s.type === 'outbound-rtp' && s.kind === 'video');
      const { pliCount, framesEncoded, keyFramesEncoded, frameWidth, frameHeight, bytesSent } = stats;
      return { at: performance.now(), pliCount, framesEncoded, keyFramesEncoded, frameWidth, frameHeight, bytesSent };
    });
  const [judge, from] = [clock(t), await asked()];
  let to = from;
  while (to.pliCount < from.pliCount + 5) { // a busy machine asks later, so the limit is the test's
    await page.waitForTimeout(200);
    to = await asked();
  }
  const seconds = (to.at - from.at) / 1_000;
  const rate = (to.pliCount - from.pliCount) / seconds;
  judge(() => assert.ok(rate < 1.3, `${rate} a second`));
  const frames = (to.framesEncoded - from.framesEncoded) / seconds;
  judge(() => assert.ok(frames < 8, `${frames} frames a second`));
  const bits = (8 * (to.bytesSent - from.bytesSent)) / seconds;
  assert.ok(bits < 700_000, `${bits} bits a second`);
  assert.ok(Math.max(to.frameWidth, to.frameHeight) <= MOST, `${to.frameWidth}x${to.frameHeight}`);
});

inPage('from the camera to the screen and back, and the voice goes on', { sounds: [silence(6), speech(), tone(0.6)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  for (const what of ['camera', 'screen', 'camera']) {
    await page.click(`#${what}`);
    await sees(page, `Gemini sees your ${what}.`);
    await shown(1);
  }
  await hears(page, { sound: 1 });
  assert.equal(await page.evaluate(() => peers.length), 1, 'all on one peer');
  const lines = await page.evaluate(() => peers[0].remoteDescription.sdp.match(/m=video/g).length);
  assert.equal(lines, 1, 'in one section');
});

inPage('is seen again after the connection was lost', { sounds: [silence(60)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#camera');
  await shown(1);
  await page.evaluate(() => {
    peers[0].close();
    sockets[0].close(4000);
  });
  await says(page, 'Reconnecting');
  await says(page, 'Listening');
  await shown(2);
  assert.equal(await page.textContent('#sight'), 'Gemini sees your camera.');
  await goesBy(page, 'WebRTC');
});

inPage('a track of its own, and the newest of many wishes', {}, async (page) => {
  const { states, ended } = await page.evaluate(async () => {
    const { connect } = await import('./voxgate.js');
    const session = await connect({ url: 'ws', mic: false });
    const states = [];
    session.on('state', () => {
      const { state, kind } = session.video;
      if (states.at(-1) !== `${kind} ${state}`) states.push(`${kind} ${state}`);
    });
    const [mine] = document.createElement('canvas').captureStream(5).getTracks();
    await Promise.all([session.use({ video: 'camera' }), session.use({ video: 'screen' }), session.use({ video: mine })]);
    const shown = session.video.track;
    await session.use({ video: null });
    mine.stop();
    await session.use({ video: mine });
    await session.close();
    return { states, ended: [shown.readyState, shown === mine] };
  });
  assert.deepEqual(ended, ['ended', false], 'a copy, which is let go');
  assert.deepEqual(states.slice(-5), ['track live', 'undefined off', 'track asking', 'track missing', 'undefined off']);
  assert.ok(!states.includes('camera live') && !states.includes('screen live'), String(states));
});

inPage('who thinks better of the screen twice goes on with the camera', {}, async (page) => {
  const got = await page.evaluate(async () => {
    const { connect } = await import('./voxgate.js');
    const session = await connect({ url: 'ws', mic: false, transport: 'websocket' });
    await session.use({ video: 'camera' });
    navigator.mediaDevices.getDisplayMedia = () => new Promise((_, reject) => setTimeout(reject, 50, new DOMException('no', 'NotAllowedError')));
    await Promise.all([session.use({ video: 'screen' }), session.use({ video: 'screen' })]);
    const { state, kind } = session.video;
    await session.close();
    return [state, kind];
  });
  assert.deepEqual(got, ['live', 'camera']);
});

inPage('what shows pictures and cannot be loaded has failed', {}, async (page) => {
  await page.route('**/sight.js', (route) => route.abort());
  const got = await page.evaluate(async () => {
    const { open } = await import('./voxgate.js');
    const session = open({ url: 'ws', mic: false, transport: 'websocket' });
    await session.ready; // Chromium complains of a socket that is closed before it is open
    await session.use({ video: 'camera' });
    const { state } = session.video;
    await session.close();
    return state;
  });
  page.complaints.splice(0, page.complaints.length, ...page.complaints.filter((c) => !/ERR_FAILED/.test(c)));
  assert.equal(got, 'failed');
});

inPage('a camera that is wanted no more is not opened', {}, async (page) => {
  const seen = await page.evaluate(async () => {
    const { connect } = await import('./voxgate.js');
    const session = await connect({ url: 'ws', mic: false });
    const opened = [];
    const devices = navigator.mediaDevices;
    const getUserMedia = devices.getUserMedia.bind(devices);
    devices.getUserMedia = async (wish) => opened.push(wish) && getUserMedia(wish);
    await Promise.all([session.use({ video: 'camera' }), session.use({ video: null })]);
    return [opened.length, session.video];
  });
  assert.deepEqual(seen, [0, { state: 'off' }]);
});

inPage('says so when the camera is refused', { mic: 'denied' }, async (page) => {
  await start(page);
  await says(page, 'The microphone is not allowed.');
  await page.click('#camera');
  await sees(page, 'The camera is not allowed. Allow it in the browser and press Camera again.');
  assert.equal(await page.getAttribute('#camera', 'aria-pressed'), 'false');
  assert.ok(await page.isEnabled('#camera'));
  assert.ok(await page.isHidden('#view'));
  await type(page, 'Hello there');
  await says(page, 'Speaking');
});

for (const [name, sentence] of Object.entries({
  NotAllowedError: 'The screen is not shared.',
  NotFoundError: 'No screen was found to share, or the system does not allow it.',
  NotReadableError: 'The screen cannot be shared.',
})) {
  inPage(`says so when there is no screen (${name})`, {}, async (page) => {
    await page.evaluate((name) => (navigator.mediaDevices.getDisplayMedia = () => Promise.reject(new DOMException('no', name))), name);
    await start(page);
    await says(page, 'Listening');
    await page.click('#screen');
    await sees(page, sentence);
    assert.equal(await page.getAttribute('#screen', 'aria-pressed'), 'false');
  });
}

inPage('who thinks better of the screen goes on with the camera', { sounds: [silence(30)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#camera');
  await shown(1);
  await page.evaluate(() => {
    navigator.mediaDevices.getDisplayMedia = () => Promise.reject(new DOMException('no', 'NotAllowedError'));
  });
  await page.click('#screen');
  await sees(page, 'Gemini sees your camera.');
  await shown(2);
});

const onlyH264 = () => {
  const { addTransceiver } = RTCPeerConnection.prototype;
  RTCPeerConnection.prototype.addTransceiver = function (what, ...rest) {
    const transceiver = addTransceiver.call(this, what, ...rest);
    const { codecs } = RTCRtpReceiver.getCapabilities('video');
    const h264 = codecs.filter((c) => c.mimeType === 'video/H264');
    if (what.kind === 'video') transceiver.setCodecPreferences(h264);
    window.hasH264 = h264.length > 0;
    return transceiver;
  };
};
inPage('H.264 alone is refused in words, and the voice goes on', { init: onlyH264, sounds: [silence(4), speech()] }, async (page, t) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#camera');
  if (!(await page.evaluate(() => window.hasH264))) return t.skip('this Chromium has no H.264');
  await page.waitForFunction(() => told.some((m) => m.type === 'LOG_MESSAGE' && /H264: its video section is rejected/.test(m.payload.message)));
  await gets(page, 'ASSISTANT_SPEAKING');
  await hears(page, { sound: 0.5 });
  assert.equal(await page.evaluate(() => peers[0].connectionState), 'connected');
});

inPage('a conversation that is recorded is marked', {}, async (page) => {
  await page.routeWebSocket(/\/ws$/, (near) => {
    const far = near.connectToServer();
    far.onMessage((m) => near.send(String(m).replace('"recording":false', '"recording":true')));
  });
  await page.reload();
  assert.ok(await page.isHidden('#recording'));
  await start(page);
  await says(page, 'Listening');
  assert.equal(await page.textContent('#recording'), 'Recording');
  assert.ok(await page.isVisible('#recording'));
  await stop(page);
  await says(page, 'The conversation is over.');
  assert.ok(await page.isHidden('#recording'));
});
