/** Telephones in pages: JsSIP and SIP.js call the gateway by WebSocket, with the emulator behind it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { gatewayBinary, hears, hearsNothing, now, openPage, silence, startGateway, test, tone } from './harness.mjs';

const folder = mkdtempSync(join(tmpdir(), 'voxgate-sip-'));
const config = join(folder, 'sip.json');
writeFileSync(config, '{}');
writeFileSync(join(folder, 'desk.md'), '---\nnumbers: [desk]\ngreeting: ""\n---\n');
writeFileSync(join(folder, 'bye.md'), '---\nnumbers: [bye]\ngreeting: /tool end_call {}\n---\n');
const telephones = { VOXGATE_SIP: config, VOXGATE_AGENTS: folder };

let phones; // both, as one script
let open, closed; // gateways: for anybody, and for who has a token
let key;
before(async () => {
  const keys = { VOXGATE_KEYS: join(folder, 'keys.json') };
  const made = execFileSync(gatewayBinary, ['key', 'new', 'shop'], { env: keys, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  key = made.trim();
  const script = build({
    stdin: { contents: "import J from 'jssip'; import * as S from 'sip.js'; Object.assign(window, { JsSIP: J, SIP: S });", resolveDir: fileURLToPath(new URL('..', import.meta.url)) },
    bundle: true, write: false, format: 'iife', logLevel: 'error',
  });
  [open, closed] = await Promise.all([startGateway(telephones), startGateway({ ...telephones, ...keys, VOXGATE_AUTH: 'token' })]);
  phones = `(${drivers})();${(await script).outputFiles[0].text}`;
});
after(async () => {
  await open?.stop();
  await closed?.stop();
  rmSync(folder, { recursive: true });
});

/** Runs in the page: gives both telephones one way to be used. Each step resolves when the library says that it is done. */
function drivers() {
  const host = location.host;
  const audio = document.body.appendChild(document.createElement('audio')); // without one Chromium decodes nothing
  audio.autoplay = true;
  window.ways = {
    async jssip(to, token) {
      const ua = new JsSIP.UA({ sockets: [new JsSIP.WebSocketInterface(`ws://${host}/sip`)], uri: `sip:ada@${location.hostname}`, authorization_jwt: token });
      const registered = new Promise((resolve, reject) => {
        ua.once('registered', resolve);
        ua.once('registrationFailed', (e) => reject(new Error(`${e.response?.status_code} ${e.cause}`)));
      });
      ua.start();
      await registered;
      const session = ua.call(`sip:${to}@${location.hostname}`, { mediaConstraints: { audio: true, video: false } });
      session.connection.addEventListener('track', (e) => (audio.srcObject = e.streams[0]));
      const ended = new Promise((resolve) => session.once('ended', (e) => resolve(e.originator)));
      await new Promise((resolve, reject) => {
        session.once('confirmed', resolve);
        session.once('failed', (e) => reject(new Error(`${e.message?.status_code} ${e.cause}`)));
      });
      return {
        ended,
        hold: () => new Promise((resolve) => session.hold({}, resolve)),
        resume: () => new Promise((resolve) => session.unhold({}, resolve)),
        press: (digit) => session.sendDTMF(digit), // they wait for each other there
        hangUp: () => session.terminate(),
        stop: () => ua.stop(),
      };
    },
    async sipjs(to, token) {
      const extraHeaders = token ? [`Authorization: ${token}`] : [];
      const user = new SIP.Web.SimpleUser(`ws://${host}/sip`, {
        aor: `sip:ada@${location.hostname}`, media: { remote: { audio } }, userAgentOptions: { logBuiltinEnabled: false },
      });
      let over, up;
      const ended = new Promise((resolve) => (over = resolve));
      const answered = new Promise((resolve, reject) => (up = { resolve, reject }));
      let local = false;
      user.delegate = { onCallAnswered: () => up.resolve(), onCallHangup: () => over(local ? 'local' : 'remote') };
      const status = (resolve, reject) => ({
        onAccept: resolve,
        onReject: ({ message: m }) => reject(new Error(`${m.statusCode} ${m.reasonPhrase}`)),
      });
      await user.connect();
      await new Promise((resolve, reject) => user.register({ requestDelegate: status(resolve, reject), requestOptions: { extraHeaders } }).catch(reject));
      await user.call(`sip:${to}@${location.hostname}`, { extraHeaders }, { requestDelegate: { onReject: status(null, up.reject).onReject } });
      await answered;
      return {
        ended,
        hold: () => user.hold(),
        resume: () => user.unhold(),
        press: (digit) => user.sendDTMF(digit),
        hangUp: () => ((local = true), user.hangup()),
        stop: () => user.disconnect(),
      };
    },
  };
  // The harness' own reads JSON alone.
  window.WebSocket = Object.getPrototypeOf(window.WebSocket);
}

/** A test in a page of its own. */
const dial = (name, options, run) =>
  test(name, { timeout: 90_000 }, async (t) => {
    const { at, ...rest } = options;
    const gateway = at?.() ?? open;
    const from = gateway.log.length;
    const page = await openPage({ url: gateway.url, ...rest });
    try {
      await page.evaluate(phones);
      await run(page, () => gateway.log.slice(from));
      assert.deepEqual(page.complaints, []);
    } catch (e) {
      t.diagnostic(gateway.log.slice(from).join('\n'));
      throw e;
    } finally {
      await page.quit();
    }
  });

/** Waits until the gateway has logged what fits, in as many lines as enough(fitting) wants. */
async function logged(log, pattern, enough = (fitting) => fitting.length > 0) {
  const until = Date.now() + 30_000;
  for (;;) {
    if (enough(log().filter((line) => pattern.test(line)))) return;
    assert.ok(Date.now() < until, `${pattern} is not logged`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const once = [silence(1), tone(0.6), silence(1.4)];
const said = Array(8).fill(once).flat();

for (const library of ['jssip', 'sipjs']) {
  dial(`${library} calls, is answered, holds, presses keys and hangs up`, { sounds: said }, async (page, log) => {
    await page.evaluate(async (library) => (window.call = await ways[library]('desk')), library);
    await hears(page, { tone: 0.25 }); // the emulator repeats what was said
    await page.evaluate(() => call.hold());
    await logged(log, /msg="on hold"/);
    const silent = await hearsNothing(page, await now(page));
    await page.evaluate(() => call.resume());
    await logged(log, /msg="off hold"/);
    await hears(page, { tone: 0.25, after: silent + 300 });
    for (const digit of '42#') await page.evaluate((digit) => call.press(digit), digit);
    // On a busy machine more than the 1.2 s of a pause may pass between two keys: they are two numbers then.
    const keys = (lines) => lines.reduce((sum, line) => sum + Number(/count=(\d+)/.exec(line)[1]), 0);
    await logged(log, /msg="keys pressed"/, (lines) => keys(lines) === 3);
    await page.evaluate(() => call.hangUp());
    assert.equal(await page.evaluate(() => call.ended), 'local');
    await logged(log, /msg="call ended".*reason="the other side has hung up"/);
    await page.evaluate(() => call.stop());
  });

  dial(`${library} is refused without a token, let in with one, and hung up on by the model`, { at: () => closed }, async (page, log) => {
    const attempt = (token) => page.evaluate(([library, token]) => ways[library]('bye', token).then((c) => c.ended, (e) => e.message), [library, token]);
    assert.match(await attempt(), /^401/);
    assert.match(await attempt('Bearer nonsense'), /^401/);
    const minted = await fetch(`${closed.url}/v1/tokens`, { method: 'POST', headers: { Authorization: `Bearer ${key}` }, body: '{"identity":"ada"}' });
    const { token } = await minted.json();
    assert.equal(await attempt(`Bearer ${token}`), 'remote');
    await logged(log, /msg="call ended"/);
    assert.equal(log().filter((line) => line.includes('conversation started')).length, 1);
  });
}
