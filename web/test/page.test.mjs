/** The page itself: words, keys, sizes, colours, safety. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { gets, openPage, says, silence, speech, start, startGateway, status, TALKS, type, withGateway } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true };

const look = withGateway();

look('the page says who answers', {}, async (page) => {
  await page.waitForSelector('#notice:not([hidden])');
  assert.match(await page.textContent('#notice'), /built-in parrot.* No Gemini key is set, so it repeats what you say/);
  assert.match(await page.textContent('#notice code'), /^GEMINI_API_KEY=… bin\/gateway serve$/);
});

look('is small and asks nobody else', {}, async (page) => {
  const sizes = await page.evaluate(async () => {
    const scripts = ['app', 'transcript', 'voxgate', 'connection', 'canvas', 'elements', 'native', 'contacts', 'audio', 'sight', 'capture-worklet', 'playback-worklet'];
    const names = ['.', 'style.css', ...scripts.map((s) => `${s}.js`)];
    return Promise.all(names.map(async (n) => (await (await fetch(n, { cache: 'reload' })).arrayBuffer()).byteLength));
  });
  // 60,000 until it had to send again what was lost on the way, and to show waits and tokens; 66,000 until it had a camera
  // and a screen to show, over both ways, which took 10,000; 78,000 until Gemini had a canvas, and tools could ask the person;
  // 110,000 until the page had tools of its own, and an address book; 135,000 until a canvas could be called back, lost nothing
  // that is typed, and called the person to the page; 141,000 until it noticed by itself that its network was gone; 145,000 until
  // an answer could be stopped, and what was missed was told; 147,000 until it had an orb and a dock; unpacked, with comments.
  assert.ok(sizes.reduce((a, b) => a + b) < 175_000, String(sizes));
});

look('can be used with keys alone', { sounds: [silence(1)] }, async (page) => {
  await page.keyboard.press('Enter');
  await says(page, 'Listening');
  await page.keyboard.press('m');
  await says(page, 'You are muted. Gemini does not hear you.');
  await page.keyboard.press('m');
  await says(page, 'Listening');
  await page.focus('#text');
  await page.keyboard.type('mmm');
  assert.equal(await status(page), 'Listening', 'letters typed are no commands');
  await page.keyboard.press('Enter');
  await says(page, 'Speaking');
  await page.keyboard.press('Escape');
  await says(page, TALKS);
  assert.notEqual(await page.evaluate(() => document.activeElement.id), 'text', 'Esc leaves the field, and not the conversation');
  await page.keyboard.press('Escape');
  await says(page, 'Ready.');
  await page.focus('#talk');
  await page.keyboard.press('Enter');
  await says(page, TALKS);
  assert.equal(await page.evaluate(() => sockets.length), 2, 'one press is one start');
});

for (const [name, context] of [
  ['desktop', {}],
  ['phone', phone],
  ['dark', { colorScheme: 'dark' }],
]) {
  look(`has no barriers (${name})`, { context }, async (page) => {
    const check = async (when) => {
      await page.evaluate(axe);
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      assert.deepEqual(found.violations.map((v) => `${when}: ${v.id} ${v.nodes.map((n) => n.html)}`), []);
    };
    await page.waitForSelector('#notice:not([hidden])');
    await check('ready');
    await start(page);
    await says(page, 'Listening');
    await type(page, '/tool get_current_time {}');
    await gets(page, 'TURN_COMPLETE');
    await page.click('#camera');
    await page.waitForFunction(() => document.querySelector('#view').videoWidth > 0);
    await type(page, 'A long answer, please, that is still being given while this page is looked at.');
    await says(page, 'Speaking');
    await page.evaluate(() => Promise.all(document.getAnimations().filter((a) => a.effect.getTiming().iterations < Infinity).map((a) => a.finished))); // colours that fade in
    await check('speaking');
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} px sideways`);
    const small = await page.$$eval('button, input', (all) =>
      all.map((e) => [e.id, e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.height, r.width) < 48),
    );
    assert.deepEqual(small, [], 'smaller than a finger');
  });
}

look('only finished turns are announced', { sounds: [silence(1), speech()] }, async (page) => {
  await page.evaluate(() => {
    const growing = (window.growing = []);
    const added = (window.added = []);
    const watch = (id, list) =>
      new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => list.push(n.textContent)))).observe(
        document.getElementById(id),
        { childList: true },
      );
    watch('log', added);
    watch('growing', growing);
  });
  await start(page);
  await gets(page, 'TURN_COMPLETE');
  await says(page, 'Listening');
  const { added, growing } = await page.evaluate(() => ({ added, growing }));
  assert.equal(added.length, 2, String(added));
  assert.match(added[1], /You said.*speech\.$/);
  assert.ok(growing.length >= 1);
});

test('goes on with a gateway that comes back', async () => {
  let mine = await startGateway();
  const { url } = mine;
  const page = await openPage({ url, query: '?transport=websocket', sounds: [silence(1)] });
  try {
    await start(page);
    await says(page, 'Listening');
    await mine.stop('SIGKILL');
    await says(page, 'Reconnecting');
    mine = await startGateway({ VOXGATE_ADDR: new URL(url).host.replace('localhost', '127.0.0.1') });
    await says(page, 'Listening');
    assert.match(await page.textContent('#log'), /could not be kept/);
    await type(page, 'Hello again');
    await says(page, 'Speaking');
  } finally {
    await page.quit();
    await mine.stop();
  }
});

test('says so when the gateway is not there', async () => {
  const gone = await startGateway();
  const page = await openPage({ url: gone.url });
  try {
    await page.waitForSelector('#notice:not([hidden])');
    await gone.stop();
    await start(page);
    await says(page, 'The gateway cannot be reached.');
    assert.equal(await page.textContent('#talk span'), 'Start');
  } finally {
    await page.quit();
    await gone.stop();
  }
});

const away = () => {
  window.Notification = class {
    static permission = 'default';
    static async requestPermission() {
      return (this.permission = 'granted');
    }
    constructor(title) {
      window.called = title;
    }
  };
  Object.defineProperty(document, 'hidden', { get: () => window.gone ?? false });
};

look('who was missed in the background can be called next time', { init: `(${away})()` }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  const asksForPhoto = async () => {
    await page.evaluate(() => (window.gone = true));
    await type(page, '/tool take_photo {}');
  };
  await asksForPhoto();
  await page.getByText('Gemini needed you while this page was in the background.').waitFor();
  await page.evaluate(() => (window.gone = false));
  await page.click('text=Notify me next time');
  await page.waitForFunction(() => !document.querySelector('.offer'));
  await asksForPhoto();
  await page.waitForFunction(() => window.called === 'Gemini: Taking photo…');
});

for (const [name, canvas] of Object.entries({
  canvas: { elements: [{ type: 'input', id: 'a' }] },
  'canvas that only shows something': { elements: [{ type: 'text', value: 'Look' }] },
})) {
  look(`a ${name}, in the background`, { init: `(${away})()` }, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await page.evaluate(() => (window.gone = true));
    await type(page, `/tool create_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForSelector('.canvas:not([hidden])');
    const waits = canvas.elements[0].type === 'input';
    assert.equal(await page.getByText('Notify me next time').count(), waits ? 1 : 0);
    if (!waits) return;
    await page.evaluate(() => (window.gone = false));
    await page.click('text=Hide');
    await page.click('text=Notify me next time');
    await page.waitForFunction(() => !document.querySelector('.offer'));
    await page.evaluate(() => (window.gone = true));
    await type(page, `/tool show_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForFunction(() => /^Gemini: .*canvas…$/.test(window.called));
    assert.equal(await page.getByText('Notify me next time').count(), 0);
  });
}
