/** Published encoders by WHIP and players by WHEP, against the gateway with its emulator: `make test-clients`. */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { hears, openPage, silence, startGateway, tone } from '../harness.mjs';

const run = promisify(execFile);
const local = (path) => fileURLToPath(new URL(path, import.meta.url));
const limit = { timeout: 60_000 };

const folder = mkdtempSync(join(tmpdir(), 'voxgate-whip-'));
writeFileSync(join(folder, 'desk.md'), '');

let gateway, pages, clients;
before(async () => {
  pages = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><link rel="icon" href="data:,">'));
  await once(pages.listen(0, '127.0.0.1'), 'listening');
  const origin = `http://127.0.0.1:${pages.address().port}`;
  gateway = await startGateway({ VOXGATE_AGENTS: folder, VOXGATE_ORIGINS: origin });
  const { outputFiles } = await build({
    stdin: {
      contents: `import { WHIPClient } from '@eyevinn/whip-web-client'; import { WHIPClient as Medooze } from 'whip-whep/whip.js';
        import { WHEPClient } from 'whip-whep/whep.js'; Object.assign(window, { WHIPClient, Medooze, WHEPClient });`,
      resolveDir: local('../..'),
    },
    bundle: true, write: false, format: 'iife', logLevel: 'error',
  });
  clients = outputFiles[0].text;
});
after(async () => {
  await gateway?.stop();
  pages?.close();
  rmSync(folder, { recursive: true, force: true });
});

const at = (path) => gateway.url.replace(/\/$/, '') + path;

/** Waits until the conversation that begins after `from` lines of the log has ended, and returns how many turns it had. */
async function turns(from) {
  for (;;) {
    const ended = gateway.log.slice(from).find((line) => line.includes('conversation ended'));
    if (ended) return Number(/ turns=(\d+)/.exec(ended)[1]);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

for (const [what, video] of [
  ['sound', []],
  ['H.264 beside it', ['-f', 'lavfi', '-i', 'testsrc=size=320x240:rate=15:duration=7', '-c:v', 'libx264', '-profile:v', 'baseline', '-bf', '0', '-pix_fmt', 'yuv420p']],
]) {
  test(`FFmpeg's muxer, ${what}`, limit, async () => {
    const ffmpeg = execFileSync(local('../../.venv-clients/bin/python'), ['-c', 'import imageio_ffmpeg as f; print(f.get_ffmpeg_exe())'], { encoding: 'utf8' });
    const from = gateway.log.length;
    const { stderr } = await run(ffmpeg.trim(), [
      '-hide_banner', '-nostats', '-re', ...video.slice(0, 4), '-f', 'lavfi', '-i', 'sine=440:duration=1,apad=pad_dur=6', ...video.slice(4),
      '-c:a', 'libopus', '-ar', '48000', '-ac', '2', '-f', 'whip', at('/whip/desk'),
    ]);
    const faults = stderr.split('\n').filter((line) => /fail|error/i.test(line) && !/DELETE|dispose/.test(line)); // it cannot read any answer to DELETE
    assert.deepEqual(faults, []);
    assert.equal(await turns(from), 1);
  });
}

test('aiortc', limit, async () => {
  const from = gateway.log.length;
  const { stdout } = await run(local('../../.venv-clients/bin/python'), [local('aiortc_client.py'), at('/whip/desk')]);
  const got = JSON.parse(stdout);
  assert.deepEqual([got.status, got.ended], [201, 200]);
  assert.ok(got.seconds > 0.9 && got.seconds < 2, `${got.seconds} s of sound for 1 s`);
  assert.equal(await turns(from), 1);
});

/** A page of another origin, whose microphone hears something. */
async function openClient() {
  const page = await openPage({ url: `http://127.0.0.1:${pages.address().port}`, sounds: [silence(4), tone(1), silence(6)] });
  await page.evaluate(clients);
  return page;
}

/** Nothing but the calls to the gateway. */
const complaints = (page) => page.complaints.filter((c) => !c.startsWith(`asked ${gateway.url}`));

test("Eyevinn's page", limit, async () => {
  const from = gateway.log.length;
  const page = await openClient();
  try {
    await page.evaluate(async (endpoint) => {
      window.client = new WHIPClient({ endpoint, opts: { authkey: 'any', iceServers: [] } });
      await client.setIceServersFromEndpoint();
      await client.ingest(await navigator.mediaDevices.getUserMedia({ audio: true }));
      await client.getResourceUrl();
    }, at('/whip/desk'));
    await page.waitForFunction(() => peers.at(-1).connectionState === 'connected');
    await page.waitForTimeout(9_000);
    await page.evaluate(() => client.destroy());
    assert.equal(await turns(from), 1);
    assert.deepEqual(complaints(page), []);
  } finally {
    await page.quit();
  }
});

test("Medooze's pages, one that speaks and one that listens", limit, async () => {
  const from = gateway.log.length;
  const page = await openClient();
  try {
    await page.evaluate(async ([whip, whep]) => {
      const audio = document.body.appendChild(document.createElement('audio')); // without one Chromium decodes nothing
      audio.autoplay = true;
      const pc = new RTCPeerConnection();
      const [track] = (await navigator.mediaDevices.getUserMedia({ audio: true })).getTracks();
      pc.addTransceiver(track, { direction: 'sendonly' });
      window.encoder = new Medooze();
      await encoder.publish(pc, whip, 'any');
      const ear = new RTCPeerConnection();
      ear.ontrack = (e) => (audio.srcObject = e.streams[0]);
      ear.addTransceiver('audio', { direction: 'recvonly' });
      window.player = new WHEPClient();
      await player.view(ear, `${whep}?session=${encoder.resourceURL.pathname.split('/').at(-1)}`);
    }, [at('/whip/desk'), at('/whep/desk')]);
    await hears(page, { tone: 0.5 });
    await page.evaluate(async () => {
      await player.stop();
      await encoder.stop(); // which closes the connection first
    });
    await turns(from);
    assert.deepEqual(complaints(page), []);
  } finally {
    await page.quit();
  }
});
