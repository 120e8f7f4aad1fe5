// A call by Chromium: node browser.mjs CALLER URL WAV. The browser's microphone hears the file, and this prints, in ms, how long after each
// sound of it the first sound of the other side is there, both as the page gets them. CALLER is how the subject is joined. The environment has
// SECONDS, how long the call lasts, and for LiveKit TOKEN and COMPARE_CACHE, where its client is installed.
import { createRequire } from 'node:module';

const { chromium } = createRequire(new URL('../../web/package.json', import.meta.url))('playwright-core');
const [caller, url, file] = process.argv.slice(2);
const { COMPARE_CACHE, SECONDS, TOKEN } = process.env;

/** Runs in the page. */
async function measure({ caller, token, seconds }) {
  const mic = await navigator.mediaDevices.getUserMedia({
    audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
  });
  const context = new AudioContext({ sampleRate: 48_000 });
  // The begin of a sound, after 100 ms below -36 dBov, as bench's other callers hear it.
  const worklet = `registerProcessor('begins', class extends AudioWorkletProcessor {
    last = [-1, -1];
    process(inputs) {
      inputs.forEach(([pcm], i) => {
        if (!pcm || Math.sqrt(pcm.reduce((sum, x) => sum + x * x, 0) / pcm.length) < 500 / 32768) return;
        if (currentTime - this.last[i] > 0.1) this.port.postMessage([i, currentTime]);
        this.last[i] = currentTime;
      });
      return true;
    }
  });`;
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([worklet], { type: 'text/javascript' })));
  const begins = new AudioWorkletNode(context, 'begins', { numberOfInputs: 2 });
  const heard = [[], []];
  begins.port.onmessage = ({ data: [input, at] }) => heard[input].push(at);
  const hear = (track) => {
    const stream = new MediaStream([track]);
    Object.assign(new Audio(), { srcObject: stream, muted: true }).play(); // or Chromium does not decode it
    context.createMediaStreamSource(stream).connect(begins, 0, 1);
  };
  /** Makes an offer with all candidates, has it answered, and returns when the connection is there. */
  const connect = async (exchange) => {
    const pc = new RTCPeerConnection();
    pc.createDataChannel('events');
    pc.addTrack(mic.getAudioTracks()[0], mic);
    pc.ontrack = ({ track }) => hear(track);
    const gathered = new Promise((resolve) => {
      pc.onicegatheringstatechange = () => pc.iceGatheringState === 'complete' && resolve();
    });
    await pc.setLocalDescription();
    await gathered;
    await exchange(pc, pc.localDescription.sdp);
    while (pc.connectionState !== 'connected') await new Promise((resolve) => setTimeout(resolve, 20));
  };
  const joins = {
    smallwebrtc: () => connect(async (pc, sdp) => {
      const response = await fetch('/api/offer', {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ sdp, type: 'offer' }),
      });
      await pc.setRemoteDescription({ type: 'answer', sdp: (await response.json()).sdp });
    }),
    voxgate: () => connect(async (pc, sdp) => {
      const ws = new WebSocket(`ws://${location.host}/ws`);
      await new Promise((resolve, reject) => Object.assign(ws, { onopen: resolve, onerror: reject }));
      const say = (type, payload) => ws.send(JSON.stringify({ type, payload }));
      say('CONNECT_GEMINI', { initialConfig: {} });
      say('WEBRTC_OFFER', { sdp });
      await new Promise((resolve) => {
        ws.onmessage = async ({ data }) => {
          const { type, payload } = JSON.parse(data);
          if (type === 'WEBRTC_ANSWER') resolve(pc.setRemoteDescription({ type: 'answer', sdp: payload.sdp }));
          if (type === 'WEBRTC_ICE_CANDIDATE' && payload.candidate) await pc.addIceCandidate(payload);
        };
      });
    }),
    async livekit() {
      const room = new LivekitClient.Room();
      const agent = new Promise((resolve) => {
        room.on('trackSubscribed', (track) => resolve(hear(track.mediaStreamTrack)));
      });
      await room.connect(`ws://${location.host}`, token);
      await room.localParticipant.publishTrack(mic.getAudioTracks()[0], { source: 'microphone' });
      await agent;
    },
  };
  await joins[caller]();
  context.createMediaStreamSource(mic).connect(begins, 0, 0);
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const [said, came] = heard;
  return said.map((at, i) => {
    const reply = came.find((t) => t > at && t < (said[i + 1] ?? at + 1.4));
    return reply && (reply - at) * 1000;
  });
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
  timeout: 180_000,
  args: ['--use-fake-device-for-media-stream', `--use-file-for-fake-audio-capture=${file}`, '--use-fake-ui-for-media-stream',
    '--allow-loopback-in-peer-connection', '--autoplay-policy=no-user-gesture-required', '--mute-audio', '--no-sandbox',
    '--disable-features=LocalNetworkAccessChecks'], // the page below comes from nowhere
});
try {
  const page = await browser.newPage();
  await page.route(`${url}/bench`, (route) => route.fulfill({ contentType: 'text/html', body: '<title>bench</title>' }));
  await page.goto(`${url}/bench`);
  if (caller === 'livekit') await page.addScriptTag({ path: `${COMPARE_CACHE}/node_modules/livekit-client/dist/livekit-client.umd.js` });
  console.log(JSON.stringify(await page.evaluate(measure, { caller, token: TOKEN, seconds: Number(SECONDS) })));
} finally {
  await browser.close();
}
