/** The npm package: packed, installed, and used as its users do. */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build as bundle } from 'esbuild';
import { build } from 'vite';
import { findBarriers, gets, hears, openPage, silence, startGateway, test, tone } from './harness.mjs';

const web = fileURLToPath(new URL('..', import.meta.url));
const project = mkdtempSync(join(tmpdir(), 'voxgate-package-'));
const library = join(project, 'node_modules/voxgate');
const kinds = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
const run = (command, args, cwd = project) => execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

let gateway;
/** A site of somebody else, with a policy that lets in the gateway and nothing more. */
const site = createServer((request, response) => {
  const theirs = gateway.url.replace(/\/$/, '');
  const name = request.url.endsWith('/') ? `${request.url}index.html` : request.url;
  response.setHeader('Content-Type', kinds[extname(name)] ?? 'text/plain');
  response.setHeader('Content-Security-Policy', `default-src 'none'; img-src data:; style-src 'self'; script-src 'self' ${theirs}; frame-src ${theirs}; connect-src ${theirs} ${theirs.replace('http', 'ws')}`);
  try {
    response.end(readFileSync(join(project, name)));
  } catch {
    response.writeHead(404).end();
  }
});

before(async () => {
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  site.url = `http://127.0.0.1:${site.address().port}`;
  gateway = await startGateway({ VOXGATE_ORIGINS: site.url });
  writeFileSync(join(project, 'package.json'), '{"type": "module", "private": true}');
  // Away from this thread, in which nothing else could go on.
  await promisify(execFile)('npm', ['install', '--no-audit', '--no-fund', '--silent', `${gateway.url}voxgate.tgz`], { cwd: project });
  mkdirSync(join(project, 'node_modules/@types'));
  for (const name of ['react', 'react-dom', 'zod', '@types/react', '@types/react-dom', 'vite']) symlinkSync(join(web, 'node_modules', name), join(project, 'node_modules', name));
}, { timeout: 60_000 });
after(async () => {
  site.close();
  await gateway?.stop();
  rmSync(project, { recursive: true, force: true });
});

/** A page of the site, which may ask the gateway and nobody else. */
async function inPage(path, use) {
  const page = await openPage({ url: site.url + path, sounds: [silence(1.5), tone(0.6)] });
  try {
    await use(page);
    assert.deepEqual(page.complaints.filter((c) => !c.startsWith(`asked ${gateway.url}`) && !c.startsWith(`asked ${site.url}`)), []);
  } finally {
    await page.quit();
  }
}

test('it is small', async (t) => {
  const small = async (entry) => {
    const { outputFiles } = await bundle({
      entryPoints: [join(library, entry)], bundle: true, minify: true, format: 'esm', target: 'es2022', splitting: true, outdir: project, write: false, logLevel: 'silent',
    });
    return outputFiles.find((f) => f.path.endsWith(entry)).contents; // what is loaded when it is used is in others
  };
  const files = ['voxgate.js', 'capture-worklet.js', 'playback-worklet.js', 'orb.js'];
  const sizes = await Promise.all(files.map(async (file) => gzipSync(await small(file)).length));
  const orb = sizes.pop();
  const sum = sizes.reduce((a, b) => a + b);
  t.diagnostic(`${sum} bytes, minified and gzipped: ${sizes}; the orb ${orb}`);
  assert.ok(sum > 5_000 && sum < 14_336, `${sum} bytes`);
  assert.ok(orb < 2_304, `the orb has ${orb} bytes`);
  const packed = readdirSync(library, { recursive: true });
  assert.deepEqual(packed.filter((name) => /test|vox\/|app|settings|\.go$/.test(name)), []);
  for (const name of ['LICENSE', 'README.md', 'types.d.ts', 'looks.css', 'looks.js', 'declared/react.d.ts']) assert.ok(packed.includes(name), name);
  assert.equal(readFileSync(join(library, 'LICENSE'), 'utf8'), readFileSync(join(web, '../LICENSE'), 'utf8'));
});

test('a server can import it, and its types are strict', () => {
  writeFileSync(join(project, 'server.js'), `
    import { connect, open, Session, VoxgateError } from 'voxgate';
    import { Canvas } from 'voxgate/canvas.js';
    import { nativeTools } from 'voxgate/native.js';
    import { VoxgateOrb } from 'voxgate/orb.js';
    import { useVoxgate } from 'voxgate/react';
    console.log([connect, open, Session, VoxgateError, Canvas, nativeTools, VoxgateOrb, useVoxgate].map((f) => typeof f).join());`);
  assert.equal(run(process.execPath, ['server.js']).trim(), Array(8).fill('function').join());
  writeFileSync(join(project, 'app.ts'), `
    import { connect, open, tool, VoxgateError, type LiveConfig, type Session, type Turn } from 'voxgate';
    import { z } from 'zod';
    import { Canvas } from 'voxgate/canvas.js';
    import { nativeTools } from 'voxgate/native.js';
    const canvas = new Canvas(document.body);
    const session: Session = open({ url: 'wss://example.com/ws', canvas, tools: nativeTools({ canvas }), resume: 'app' });
    const off: () => void = session.on('turn', (turn: Turn) => console.log(turn.heard ?? turn.text));
    session.on('closed', (why) => { if (why instanceof VoxgateError && why.fatal) console.log(why.field); });
    await using other = await connect({ url: '/ws', mic: false });
    await other.use({ video: 'camera', mic: { deviceId: 'x' } });
    const states: 'connecting' | 'listening' | 'thinking' | 'speaking' | 'reconnecting' | 'closed' = other.state;
    const config: LiveConfig = { model: 'gemini-9-live', generationConfig: { speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: 'Kore' } } } }, aFieldOfTomorrow: 1 };
    const book = tool({
      description: 'Books', parameters: { type: 'object', properties: { name: { type: 'string' }, guests: { type: 'integer' }, at: { enum: ['noon', 'eight'] } }, required: ['name'] },
      run: ({ name, guests, at }) => {
        const text: string = name;
        const count: number | undefined = guests;
        const time: 'noon' | 'eight' | undefined = at;
        // @ts-expect-error: it need not be there
        const sure: number = guests;
        return { text, count, time, sure };
      },
    });
    const pay = tool({ description: 'Pays', parameters: z.object({ cents: z.number().int() }), run: ({ cents }) => cents.toFixed() });
    session.once('turn', (turn) => turn.text);
    session.volume = 0.5;
    open({ url: '/ws', config, tools: { book, pay, clock: { description: 'The time', run: () => Date.now() } } });
    // @ts-expect-error: the url is missing
    open({});
    // @ts-expect-error: there is no such event
    session.on('nothing', () => {});
    export { off, states };`);
  for (const moduleResolution of ['bundler', 'nodenext']) {
    const module = moduleResolution === 'bundler' ? 'es2022' : moduleResolution;
    run(join(web, 'node_modules/.bin/tsc'), ['--strict', '--noEmit', '--target', 'es2022', '--lib', 'es2022,dom,esnext.disposable', '--types', '',
      '--module', module, '--moduleResolution', moduleResolution, 'app.ts']);
  }
});

/** Installs an app of the project in a folder of the site, and builds it there. */
async function built(name, fill) {
  const root = join(project, name);
  fill(root);
  run(join(web, 'node_modules/.bin/tsc'), ['--project', join(root, 'tsconfig.json')]);
  await build({ root, base: `/${name}/dist/`, logLevel: 'error', configFile: false });
}

test('the example for React is talked to, typed to, and ended', { timeout: 120_000 }, async () => {
  await built('example', (root) => {
    cpSync(join(web, '../examples/react'), root, { recursive: true });
    writeFileSync(join(root, '.env'), `VITE_GATEWAY=${gateway.url.replace('http', 'ws')}ws`);
  });
  await inPage('/example/dist/', async (page) => {
    assert.deepEqual(await findBarriers(page), []);
    for (const [colorScheme, lightness] of [['dark', 0.16], ['light', 0.986]]) {
      await page.emulateMedia({ colorScheme });
      const [button, ground] = await page.evaluate(() => ['.type .icon', '.app'].map((s) => getComputedStyle(document.querySelector(s)).backgroundColor));
      assert.ok(Math.abs(Number(/[\d.]+/.exec(ground)) - lightness) < 0.01 && button.startsWith('oklch('), `looks.css through the bundler, ${colorScheme}: ${button} ${ground}`);
    }
    const { width, height } = page.viewportSize();
    await page.setViewportSize({ width: 844, height: 390 });
    const [question, chip, orb, status, field] = await Promise.all(['h2', '.chip', '.orb', '.status', '.type'].map((s) => page.locator(s).first().boundingBox()));
    for (const [above, below] of [[question, chip], [chip, orb], [orb, status], [status, field]]) assert.ok(above.y > 0 && above.y + above.height <= below.y + 1, `nothing is covered on a phone on its side: ${JSON.stringify([above, below])}`);
    await page.setViewportSize({ width, height });
    assert.ok(await page.locator('voxgate-orb .microphone').first().isVisible(), 'what is to be pressed');
    await page.evaluate(() => {
      const { mediaDevices } = navigator;
      const open = mediaDevices.getUserMedia.bind(mediaDevices);
      window.refusals = 1;
      mediaDevices.getUserMedia = (o) => (refusals-- > 0 ? Promise.reject(new DOMException('', 'NotAllowedError')) : open(o));
    });
    await page.evaluate(() => {
      const { send } = WebSocket.prototype;
      WebSocket.prototype.send = function (data) { // a gateway that is away hears nothing
        if (!window.away) send.call(this, data);
      };
    });
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('The microphone is not allowed.').waitFor();
    assert.ok(await page.locator('.dock .slash').first().isHidden() && await page.getByText('How can I help?').isHidden(), 'one sentence and one button');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('Listening').waitFor();
    await hears(page, { tone: 0.2 }); // what the microphone said
    await gets(page, 'TURN_COMPLETE');
    await page.getByLabel('Message').fill('Hello **React**');
    await page.keyboard.press('Enter');
    await page.locator('[data-role=model] strong', { hasText: 'React' }).waitFor(); // light Markdown
    assert.equal(await page.locator('[data-role=user]').last().textContent(), 'Hello **React**', 'what the person typed stays as it is');
    await page.getByLabel('Message').fill('one two three four five six seven eight nine ten');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => [...(CSS.highlights.get('voxgate-unheard') ?? [])].some((range) => range.startContainer.isConnected)); // words to come are grey
    await page.locator('[data-role=model]', { hasText: 'nine ten' }).waitFor();
    await page.getByLabel('Message').fill('/ground parrots');
    await page.keyboard.press('Enter');
    const colour = (name) => page.locator('.turn.model').last().evaluate((e, name) => getComputedStyle(e).getPropertyValue(name), name);
    assert.equal(await colour('--behind'), await colour('--ground'), 'what covers the shadow of a table that scrolls');
    const source = page.locator('.turn.model small', { hasText: 'Found on wikipedia.org' }).locator('a');
    assert.equal(await source.getAttribute('href'), 'https://en.wikipedia.org/wiki/Parrot');
    await page.waitForFunction(() => document.querySelector('.turn.model .suggestions')?.offsetHeight >= 40); // Google's, which it requires to be shown
    await page.getByLabel('Message').fill('/tool opening_hours {"city":"Rome"}');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => sent.some((m) => m.type === 'SEND_TOOL_RESPONSE' && JSON.stringify(m.payload).includes('10 to 20')));
    await page.locator('.transcript .card[data-status=done]', { hasText: 'Looked up the opening hours' }).waitFor();
    assert.match(await page.locator('.clock').innerText(), /^0:\d\d$/);
    assert.match(await page.getByLabel('Microphone', { exact: true }).locator('option').first().innerText(), /^Default microphone \(.+\)$/);
    await page.getByLabel('Message').fill('Two');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('lines');
    await page.keyboard.press('Enter');
    await page.locator('[data-role=user]', { hasText: /^Two\nlines$/ }).waitFor();
    await page.locator('main').evaluate((e) => (e.scrollTop = -200));
    await page.getByRole('button', { name: 'To the newest words' }).click();
    await page.getByRole('button', { name: 'To the newest words' }).waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Mute', exact: true }).click();
    await page.getByRole('button', { name: 'Unmute', pressed: true }).waitFor();
    await page.getByText('My assistant does not hear you.').waitFor();
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.getByText('The conversation is over.').waitFor();
    assert.ok((await page.locator('[data-role=user]').count()) > 1, 'what was said stays');
    const [why, goOn, anew] = await Promise.all([page.locator('.status'), ...['Go on', 'New conversation'].map((name) => page.getByRole('button', { name, exact: true }))].map((part) => part.boundingBox()));
    assert.ok(goOn.y - why.y - why.height >= 8, 'its button is not tight under the sentence');
    assert.ok(goOn.y === anew.y && goOn.x < anew.x, 'both ways on stand side by side');
    const [known, cards] = [await page.locator('article').count(), await page.locator('.transcript .card').count()];
    for (const times of [1, 2]) { // and the first conversation is known to the third
      await page.getByRole('button', { name: 'Go on', exact: true }).click();
      await page.getByText('Listening').waitFor();
      const { history } = await page.evaluate(() => sent.filter((m) => m.type === 'CONNECT_GEMINI').at(-1).payload.initialConfig.voxgate);
      assert.ok(history.some((t) => t.role === 'user' && t.content === 'Hello **React**'), `Go on, ${times}: ${JSON.stringify(history)}`);
      assert.ok((await page.locator('article').count()) >= known, 'what was said stays in sight');
      assert.equal(await page.locator('.transcript .card').count(), cards, 'and what tools did');
      assert.match((await page.locator('.transcript > :last-child').innerText()), /^Continued, \d/);
      await page.getByRole('button', { name: 'End', exact: true }).click();
      await page.getByText('The conversation is over.').waitFor();
    }
    await page.getByLabel('Message').fill('Anybody?');
    await page.evaluate(() => (window.away = true));
    await page.keyboard.press('Enter');
    await page.locator('[data-role=user]', { hasText: 'Anybody?is sent when connected' }).waitFor();
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.locator('[data-role=user]', { hasText: 'Anybody?not sent' }).waitFor();
    await page.evaluate(() => (window.away = false));
    await page.getByRole('button', { name: 'Go on', exact: true }).click();
    await page.getByText('Listening').waitFor();
    await page.locator('[data-role=user]', { hasText: 'Anybody?not sent' }).waitFor();
    assert.doesNotMatch(JSON.stringify(await page.evaluate(() => sent.filter((m) => m.type === 'CONNECT_GEMINI').at(-1).payload.initialConfig)), /Anybody/);
    const lines = () => page.locator('.transcript > *').evaluateAll((all) => all.map((e) => e.innerText.replace(/\d.*/s, '')));
    const before = (await lines()).filter((text) => !text.startsWith('Anybody?'));
    await page.reload();
    await page.getByText('Your conversation is kept.').waitFor();
    assert.deepEqual((await lines()).filter((text) => !text.startsWith('Anybody?')), before, 'a reload loses neither what the conversation went on with nor the cards of tools');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Listening').waitFor();
    assert.deepEqual((await lines()).filter((text) => !text.startsWith('Anybody?')), before, 'and shows it once');
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.getByLabel('Message').fill('Once more');
    await page.keyboard.press('Enter'); // without a microphone
    await page.locator('[data-role=model]', { hasText: 'Once more' }).waitFor();
    await page.reload();
    await page.getByText('Your conversation is kept.').waitFor();
    assert.equal(await page.locator('[data-role=user]', { hasText: 'Once more' }).count(), 1, 'what was said is in sight before the conversation goes on');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Listening').waitFor();
    assert.equal(await page.locator('[data-role=user]', { hasText: 'Once more' }).count(), 1, 'and once');
  });
});

test('the first page of the documentation works as it stands, and says why it cannot', { timeout: 120_000 }, async () => {
  const [, app] = /```tsx\n([^]*?)```/.exec(readFileSync(join(web, '../docs/javascript.md'), 'utf8'));
  await built('documented', (root) => {
    cpSync(join(web, '../examples/react'), root, { recursive: true });
    for (const name of ['App.tsx', 'tools.ts']) rmSync(join(root, 'src', name));
    writeFileSync(join(root, 'src/main.tsx'), app.replace('wss://your.gateway/ws', `${gateway.url.replace('http', 'ws')}ws`));
  });
  await inPage('/documented/dist/', async (page) => {
    await page.getByText('How can I help?').waitFor();
    const [above, below, head] = await page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => {
      const [greeting, status, field, bar] = ['.empty span', '.status', '.type', '.head'].map((s) => shadowRoot.querySelector(s).getBoundingClientRect());
      return [greeting.top - bar.bottom, field.top - status.bottom, shadowRoot.querySelector('.head b').textContent];
    });
    const { width } = await page.locator('.orb > *').boundingBox();
    assert.ok(width > 180, `the orb scales with its box: ${width} px`);
    assert.ok(above > 20 && Math.abs(above - below) < 24, `greeting, orb and status are in the middle: ${above} px above, ${below} px below`);
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Listening').waitFor();
    assert.deepEqual([head, await page.locator('.head b').textContent()], ['Nora', 'Nora'], 'it has and keeps the name of the provider');
    assert.equal(await page.locator('.log').evaluate((e) => getComputedStyle(e).fontSize), '17px', 'a wide box has large letters');
    await page.getByLabel('Or type a message').fill('| a | b |');
    await page.keyboard.press('Enter');
    await page.locator('.log .model').waitFor();
    assert.deepEqual(await findBarriers(page, 'voxgate-conversation'), []);
    await page.reload();
    await page.getByText('Your conversation is kept.').waitFor();
    assert.ok(await page.locator('.log .user').isVisible(), 'what was said is in sight before the conversation goes on');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Listening').waitFor();
    assert.deepEqual([await page.locator('.log .user').count(), await page.locator('.log .rule').count()], [1, 0], 'and once');
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByText('Listening').waitFor();
    const isKnown = () => page.evaluate(() => sent.filter((m) => m.type === 'CONNECT_GEMINI').at(-1).payload.initialConfig.voxgate.history.some((t) => t.content === '| a | b |'));
    assert.ok(await isKnown());
    await page.getByLabel('Or type a message').fill('And now?');
    await page.keyboard.press('Enter');
    await page.locator('.log .model', { hasText: 'And now?' }).waitFor();
    await page.getByText('Listening').waitFor();
    const shown = () => page.locator('.log > :not(.empty)').evaluateAll((all) => all.map((e) => e.innerText.replace(/\d.*/s, '')));
    const before = await shown();
    await page.reload();
    await page.getByText('Your conversation is kept.').waitFor();
    assert.deepEqual(await shown(), before, 'after a reload it shows what the conversation went on with, too');
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Listening').waitFor();
    assert.deepEqual([await shown(), await isKnown()], [before, true], 'once, and a conversation that could not be kept would know it');
    await page.getByRole('button', { name: 'End', exact: true }).click();
    await page.evaluate(() => (window.WebSocket = class { constructor() { throw new Error('no sockets here'); } }));
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.getByText(/no sockets here|went wrong/).waitFor();
    await page.reload();
    await page.evaluate(() => (window.WebSocket = class { constructor() { throw new Error('no sockets here'); } }));
    await page.getByRole('button', { name: 'Start' }).click();
    const retry = await page.getByRole('button', { name: 'Try again' }).boundingBox();
    const why = await page.locator('.status span').boundingBox();
    assert.ok(await page.getByText('How can I help?').isHidden(), 'no greeting invites to what cannot be done');
    assert.ok(retry.y - why.y - why.height < 40 && why.y > 200, `the sentence and its button are one group: ${JSON.stringify([why, retry])}`);
  });
});

test('a tool with a schema of Zod gets what it describes, and the model what is wrong', { timeout: 60_000 }, async () => {
  const root = join(project, 'zod');
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, 'index.html'), '<!doctype html><link rel="icon" href="data:,"><p id="status"></p><script type="module" src="main.js"></script>');
  writeFileSync(join(root, 'main.js'), `
    import { connect, tool } from 'voxgate';
    import { z } from 'zod';
    z.config({ jitless: true }); // the site's policy forbids eval
    const pay = tool({ description: 'Pays', parameters: z.object({ cents: z.number().int().refine((n) => n !== 13, 'unlucky') }), run: ({ cents }) => ({ paid: cents + 1 }) });
    window.session = await connect({ url: '${gateway.url}ws', mic: false, transport: 'websocket', tools: { pay } });
    session.volume = 0;`);
  await build({ root, base: '/zod/dist/', logLevel: 'error', configFile: false, build: { target: 'es2022' } });
  await inPage('/zod/dist/', async (page) => {
    await page.waitForFunction(() => window.session);
    await page.evaluate(() => {
      window.calls = [];
      const never = () => calls.push('never');
      session.on('tool', never);
      session.off('tool', never);
      session.once('tool', ({ status }) => calls.push(status));
    });
    const answered = (said) => page.evaluate((said) => new Promise((resolve) => {
      const off = session.on('tool', (call) => call.status !== 'running' && resolve([off(), call.status, call.response].slice(1)));
      session.send(said);
    }), said);
    assert.deepEqual(await answered('/tool pay {"cents":41}'), ['done', { paid: 42 }]);
    const [status, { error }] = await answered('/tool pay {"cents":13}');
    assert.deepEqual(await page.evaluate(() => calls), ['running'], 'once, and no more');
    assert.deepEqual([status, /cents: unlucky/.test(error)], ['failed', true], error);
    const declared = await page.evaluate(() => sent.find((m) => m.type === 'CONNECT_GEMINI').payload.initialConfig.tools[0].functionDeclarations[0]);
    assert.deepEqual([declared.parameters.type, declared.parameters.properties.cents.type], ['object', 'integer']);
    await gets(page, 'ASSISTANT_SPEAKING');
    await page.evaluate(() => session.close());
    assert.deepEqual(await page.evaluate(() => heard.filter((f) => f.level > 0.001).length), 0, 'the volume is 0');
  });
});

test('a plain page on another origin speaks and hears', { timeout: 60_000 }, async () => {
  mkdirSync(join(project, 'plain'), { recursive: true });
  writeFileSync(join(project, 'plain/index.html'), '<!doctype html><link rel="icon" href="data:,"><p id="status"></p><button>Talk</button><script type="module" src="/plain/main.js"></script>');
  writeFileSync(join(project, 'plain/main.js'), `
    import { open } from '/node_modules/voxgate/voxgate.js';
    document.querySelector('button').onclick = () => (window.session = open({ url: '${gateway.url}ws', transport: 'websocket' }));`);
  await inPage('/plain/', async (page) => {
    await page.click('text=Talk');
    await hears(page, { tone: 0.2 });
    assert.equal(await page.evaluate(() => session.mic), 'live');
    await page.evaluate(() => session.close());
  });
});

test('a canvas looks as it should where there is only the package', { timeout: 60_000 }, async () => {
  const root = join(project, 'canvas');
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, 'index.html'), '<!doctype html><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><div></div><script type="module" src="main.js"></script>');
  writeFileSync(join(root, 'main.js'), `
    import { connect } from 'voxgate';
    import { Canvas } from 'voxgate/canvas.js';
    import 'voxgate/looks.css';
    const canvas = new Canvas(document.querySelector('div'));
    window.session = await connect({ url: '${gateway.url}ws', mic: false, transport: 'websocket', canvas });`);
  await build({ root, base: '/canvas/dist/', logLevel: 'error', configFile: false, build: { target: 'es2022' } });
  await inPage('/canvas/dist/', async (page) => {
    await page.waitForFunction(() => window.session);
    const elements = [{ type: 'text', value: 'Who are you?' }, { type: 'input', id: 'name', label: 'Your name' }, { type: 'button', action: 'submit', label: 'Send' }];
    await page.evaluate((s) => session.send(s), `/tool create_canvas_tool ${JSON.stringify({ schema: JSON.stringify({ type: 'canvas', elements }) })}`);
    await page.getByLabel('Your name').fill('Ada');
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await findBarriers(page, '.canvas'), [], colorScheme);
    }
    const button = page.getByRole('button', { name: 'Send' });
    const { height } = await button.boundingBox();
    assert.ok(height >= 44, `the button is ${height} px high`);
    await page.evaluate(() => document.documentElement.style.setProperty('--voxgate-accent', 'rgb(1, 2, 3)'));
    assert.equal(await button.evaluate((e) => getComputedStyle(e).backgroundColor), 'rgb(1, 2, 3)');
    await button.click();
    await page.waitForFunction(() => session.turns.some((t) => t.text.includes('"name":"Ada"')));
  });
});
