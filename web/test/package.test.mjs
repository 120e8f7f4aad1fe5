/** The npm package: packed, installed, and used as its users do. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build as bundle } from 'esbuild';
import { build } from 'vite';
import { gets, hears, openPage, silence, startGateway, tone } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const web = fileURLToPath(new URL('..', import.meta.url));
const project = mkdtempSync(join(tmpdir(), 'voxgate-package-'));
const library = join(project, 'node_modules/voxgate');
const kinds = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
const run = (command, args, cwd = project) => execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

let gateway;
let packed;
/** A site of somebody else, with a policy that lets in the gateway and nothing more. */
const site = createServer((request, response) => {
  const theirs = gateway.url.replace(/\/$/, '');
  const name = request.url.endsWith('/') ? `${request.url}index.html` : request.url;
  response.setHeader('Content-Type', kinds[extname(name)] ?? 'text/plain');
  response.setHeader('Content-Security-Policy', `default-src 'none'; img-src data:; style-src 'self'; script-src 'self' ${theirs}; connect-src ${theirs} ${theirs.replace('http', 'ws')}`);
  try {
    response.end(readFileSync(join(project, name)));
  } catch {
    response.writeHead(404).end();
  }
});

before(async () => {
  [packed] = JSON.parse(run('npm', ['pack', '--json', '--silent', '--pack-destination', project], join(web, 'library')));
  writeFileSync(join(project, 'package.json'), '{"type": "module", "private": true}');
  run('npm', ['install', '--offline', '--no-audit', '--no-fund', '--silent', `./${packed.filename}`]);
  for (const name of ['react', 'react-dom']) symlinkSync(join(web, 'node_modules', name), join(project, 'node_modules', name));
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  site.url = `http://127.0.0.1:${site.address().port}`;
  gateway = await startGateway({ VOXGATE_ORIGINS: site.url });
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
  const files = ['voxgate.js', 'capture-worklet.js', 'playback-worklet.js'];
  const sizes = await Promise.all(files.map(async (file) => gzipSync(await small(file)).length));
  const sum = sizes.reduce((a, b) => a + b);
  t.diagnostic(`${sum} bytes, minified and gzipped: ${sizes}; the package has ${packed.unpackedSize}`);
  assert.ok(sum > 5_000 && sum < 14_000, `${sum} bytes`);
  assert.deepEqual(packed.files.map((f) => f.path).filter((name) => /test|vox\/|app|settings|\.go$/.test(name)), []);
});

test('a server can import it, and its types are strict', () => {
  writeFileSync(join(project, 'server.js'), `
    import { connect, open, Session, VoxgateError } from 'voxgate';
    import { Canvas } from 'voxgate/canvas.js';
    import { nativeTools } from 'voxgate/native.js';
    console.log([connect, open, Session, VoxgateError, Canvas, nativeTools].map((f) => typeof f).join());`);
  assert.equal(run(process.execPath, ['server.js']).trim(), Array(6).fill('function').join());
  writeFileSync(join(project, 'app.ts'), `
    import { connect, open, VoxgateError, type Session, type Turn } from 'voxgate';
    import { Canvas } from 'voxgate/canvas.js';
    import { nativeTools } from 'voxgate/native.js';
    const canvas = new Canvas(document.body);
    const session: Session = open({ url: 'wss://example.com/ws', canvas, tools: nativeTools({ canvas }), resume: 'app' });
    const off: () => void = session.on('turn', (turn: Turn) => console.log(turn.heard ?? turn.text));
    session.on('closed', (why) => { if (why instanceof VoxgateError && why.fatal) console.log(why.field); });
    await using other = await connect({ url: '/ws', mic: false });
    await other.use({ video: 'camera', mic: { deviceId: 'x' } });
    const states: 'connecting' | 'listening' | 'thinking' | 'speaking' | 'reconnecting' | 'closed' = other.state;
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

test('the hook of the documentation speaks and hears in a React app that Vite has built', { timeout: 90_000 }, async () => {
  const [, hook] = /```jsx\n([^]*?)```/.exec(readFileSync(join(web, '../docs/javascript.md'), 'utf8'));
  const root = join(project, 'react');
  mkdirSync(root);
  writeFileSync(join(root, 'useVoice.jsx'), hook);
  writeFileSync(join(root, 'index.html'), '<!doctype html><link rel="icon" href="data:,"><p id="status"></p><div id="root"></div><script type="module" src="/main.jsx"></script>');
  writeFileSync(join(root, 'main.jsx'), `
    import { StrictMode } from 'react';
    import { createRoot } from 'react-dom/client';
    import { useVoice } from './useVoice.jsx';
    function App() {
      const { state, mic, turns, start, session } = useVoice({ url: '${gateway.url}ws' });
      return <>
        <button onClick={state === 'closed' ? start : () => session.current.close()}>{state === 'closed' ? 'Talk' : 'End'}</button>
        <button onClick={() => session.current.send('Hello React')}>Say hello</button>
        <p id="state">{state} {mic}</p>
        {turns.map(({ id, role, text }) => <p key={id} className={role}>{text}</p>)}
      </>;
    }
    createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>);`);
  await build({ root, base: '/react/dist/', logLevel: 'error', configFile: false, oxc: { jsx: { runtime: 'automatic' } } });
  await inPage('/react/dist/', async (page) => {
    await page.click('text=Talk');
    await page.getByText('listening live').waitFor();
    await hears(page, { tone: 0.2 }); // what the microphone said
    await gets(page, 'TURN_COMPLETE');
    await page.click('text=Say hello');
    await page.locator('.model', { hasText: 'You said: Hello React' }).waitFor();
    assert.equal(await page.locator('.user').last().textContent(), 'Hello React');
    await page.click('text=End');
    await page.getByText('closed off').waitFor();
  });
});

test('a plain page on another origin speaks and hears', { timeout: 60_000 }, async () => {
  mkdirSync(join(project, 'plain'));
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
  mkdirSync(root);
  writeFileSync(join(root, 'index.html'), '<!doctype html><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><div></div><script type="module" src="main.js"></script>');
  writeFileSync(join(root, 'main.js'), `
    import { connect } from 'voxgate';
    import { Canvas } from 'voxgate/canvas.js';
    import 'voxgate/voxgate.css';
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
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run('.canvas'));
      assert.deepEqual(violations.map((v) => v.id), [], colorScheme);
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
