/** The README's page: its script is taken as it stands, for a gateway here. The shell blocks are run by gateway/readme_test.go. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before } from 'node:test';
import { openPage, silence, startGateway, test } from './harness.mjs';

const [, script] = /```js\n([^`]*voxgate\.js[^`]*)```/.exec(readFileSync(new URL('../../README.md', import.meta.url), 'utf8'));

let gateway;
let app;
before(async () => {
  app = createServer((_, response) => {
    const here = new URL(gateway.url);
    const filled = script.replaceAll('https://your.gateway', here.origin).replaceAll('wss://your.gateway', `ws://${here.host}`);
    assert.ok(!filled.includes('your.gateway'));
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end(`<!doctype html><title>An app</title><link rel="icon" href="data:,"><button>Talk</button><script type="module">${filled}</script>`);
  });
  await new Promise((resolve) => app.listen(0, '127.0.0.1', resolve));
  gateway = await startGateway({ VOXGATE_ORIGINS: `http://127.0.0.1:${app.address().port}` });
});
after(async () => {
  app?.close();
  await gateway?.stop();
});

test('the page of the README connects after a click, and is answered', { timeout: 40_000 }, async () => {
  const page = await openPage({ url: `http://127.0.0.1:${app.address().port}/`, sounds: [silence(1)] });
  try {
    const asked = page.waitForEvent('console', (message) => message.text().startsWith('user What time is it?'));
    const answered = page.waitForEvent('console', (message) => message.text().startsWith('model '));
    await page.click('button');
    await asked;
    await answered;
  } finally {
    await page.quit();
  }
});
