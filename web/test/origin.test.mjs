/** An app of its own, on another origin, with a backend that knows its people: the page of somebody who uses the library. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { gatewayBinary, openPage, silence, startGateway, test, tone } from './harness.mjs';

const folder = mkdtempSync(join(tmpdir(), 'voxgate-keys-'));
const keys = join(folder, 'keys.json');

let gateway;
let app;
let minted = 0;
let expiresIn = 300;
before(async () => {
  const made = spawnSync(gatewayBinary, ['key', 'new', '--keys', keys, 'app'], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const key = made.stdout.trim();
  app = createServer(async (request, response) => {
    if (request.url === '/') {
      response.setHeader('Content-Type', 'text/html');
      return response.end(`<!doctype html><title>An app</title><link rel="icon" href="data:,"><p id="status"></p><script type="module">
        import { connect } from '${gateway.url}voxgate.js';
        window.connect = (options) => connect({ url: '${gateway.url}ws', ...options });
        window.ready = true;
      </script>`);
    }
    minted++;
    const answer = await fetch(new URL('/v1/tokens', gateway.url), {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}` },
      body: JSON.stringify({ identity: 'ada', expiresIn, grant: { maxSeconds: 600 } }),
    });
    response.end((await answer.json()).token);
  });
  await new Promise((resolve) => app.listen(0, '127.0.0.1', resolve));
  app.origin = `http://127.0.0.1:${app.address().port}`;
  gateway = await startGateway({ VOXGATE_KEYS: keys, VOXGATE_ORIGINS: app.origin });
});
after(async () => {
  app?.close();
  await gateway?.stop();
  rmSync(folder, { recursive: true });
});

async function inApp(run) {
  const page = await openPage({ url: `${app.origin}/`, sounds: [silence(1), tone(0.6)] });
  try {
    await page.waitForFunction(() => window.ready);
    await run(page);
  } finally {
    await page.quit();
  }
}

test('an app on another origin talks with a token of its backend', { timeout: 40_000 }, () =>
  inApp(async (page) => {
    await page.evaluate(async () => {
      window.fresh = () => fetch('/voice-token').then((r) => r.text());
      window.session = await connect({ token: window.fresh });
    });
    await page.waitForFunction(() => session.transport === 'webrtc');
    await page.waitForFunction(() => told.some((m) => m.type === 'TURN_COMPLETE')); // what the microphone said was answered

    // The first token is good for this conversation alone, and each connection gets one of its own.
    const before = minted;
    await page.evaluate(() => {
      for (const p of peers) p.close();
      for (const s of sockets) s.close();
    });
    await page.waitForFunction(() => session.setup.resumed && session.state === 'listening');
    assert.ok(minted > before, 'no new token was fetched');
    await page.evaluate(() => session.close());
  }));

test('who has none is told so', { timeout: 40_000 }, () =>
  inApp(async (page) => {
    const refused = (token) =>
      page.evaluate((token) => connect({ token }).then(() => 'let in', (e) => `${e.code}: ${e.told}`), token);
    assert.match(await refused(undefined), /^unauthorized: Authentication is required/);
    assert.match(await refused('stolen'), /^unauthorized: This token is not good/);
    const used = await page.evaluate(async () => {
      const token = await (await fetch('/voice-token')).text();
      await (await connect({ token })).close();
      return token;
    });
    assert.match(await refused(used), /^unauthorized: .*one conversation/);
    assert.doesNotMatch(gateway.log.join('\n'), new RegExp(used.slice(-20)), 'a token is in the log');
  }));
