/** A conversation in a browser, and the gateways that carry it: one dies, one is drained. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { clock, gets, hears, now, openPage, silence, start, startGateway, startModel, test, tone, type } from './harness.mjs';

const folder = mkdtempSync(join(tmpdir(), 'voxgate-nodes-'));
const socket = join(folder, 'redis');
let redis;
let model;
let gateways = []; // those that live

/** A load balancer: new connections go to the gateway that is the first in the list. */
const balancer = createServer((near) => {
  const far = connect(Number(new URL(gateways[0].url).port), '127.0.0.1');
  for (const [one, other] of [[near, far], [far, near]]) {
    one.on('error', () => other.destroy());
    one.on('close', () => other.destroy());
    one.pipe(other);
  }
});

const begin = () =>
  startGateway({
    GOOGLE_GEMINI_BASE_URL: model.url,
    VOXGATE_PRIVATE_ADDR: '127.0.0.1:0',
    VOXGATE_REDIS: `unix://${socket}`,
    VOXGATE_REDIS_SECRET: 'a secret of these gateways',
  });

before(async () => {
  redis = spawn('redis-server', ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', folder], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of redis.stdout) if (String(line).includes('ready to accept')) break;
  redis.stdout.resume();
  model = await startModel(() => {});
  await once(balancer.listen(0, '127.0.0.1'), 'listening');
});
after(async () => {
  balancer.close();
  await model?.stop();
  redis?.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

const url = () => `http://127.0.0.1:${balancer.address().port}/`;

/** Waits for the conversation to go on elsewhere. */
async function goesOn(page, since) {
  const { payload, at } = await gets(page, 'SETUP_COMPLETE', { after: since });
  assert.equal(payload.resumed, true);
  return at;
}

test('a gateway dies in the middle of an answer, and another is drained', { timeout: 60_000 }, async (t) => {
  const judge = clock(t);
  const begun = await Promise.all([begin(), begin(), begin()]);
  gateways = [...begun];
  let page;
  try {
    page = await openPage({ url: url(), sounds: [silence(3), tone(0.6), silence(30)] });
    await start(page);
    await hears(page, { tone: 0.25 }); // the voice is that of the person
    await gets(page, 'TURN_COMPLETE');
    const { payload: first } = await gets(page, 'SETUP_COMPLETE');

    await type(page, 'one two three four five six seven eight nine ten');
    const asked = await now(page);
    await hears(page, { sound: 0.8, after: asked });
    const died = await now(page);
    const dead = gateways.shift();
    await dead.stop('SIGKILL');
    await type(page, 'still there?'); // to nobody; it arrives once all the same
    const back = await goesOn(page, died);
    const { payload: cut } = await gets(page, 'INTERRUPTED', { after: died });
    assert.equal(cut.by, 'link');
    const { at: answered } = await gets(page, 'ASSISTANT_SPEAKING', { after: back });
    await hears(page, { sound: 0.5, after: back });
    await gets(page, 'TURN_COMPLETE', { after: answered });
    judge(() => assert.ok(answered - died < 5_000, `answered after ${answered - died} ms`));
    t.diagnostic(`killed: resumed after ${Math.round(back - died)} ms, answered after ${Math.round(answered - died)} ms`);

    await type(page, 'red green blue yellow');
    const typed = await now(page);
    await hears(page, { sound: 0.5, after: typed });
    const [drained] = gateways.splice(0, 1);
    const address = drained.log.map((l) => /msg=private at=(\S+)/.exec(l)?.[1]).find(Boolean);
    assert.equal((await fetch(address + '/v1/drain', { method: 'POST' })).status, 200);
    const { at: heardOut } = await gets(page, 'TURN_COMPLETE', { after: typed });
    const { at: move } = await gets(page, 'MOVE', { after: typed });
    assert.ok(move >= heardOut, 'asked to move in the middle of an answer');
    const moved = await goesOn(page, move);
    await page.waitForFunction((since) => peers.at(-1).connectionState === 'connected' && peers.length > since, 2);
    t.diagnostic(`drained: resumed after ${Math.round(moved - move)} ms, with its voice after ${Math.round((await now(page)) - move)} ms`);
    await type(page, 'and here?');
    const last = await now(page);
    await gets(page, 'TURN_COMPLETE', { after: last });
    await hears(page, { sound: 0.5, after: last });
    await drained.stop();

    const all = await page.evaluate(() => told.filter((m) => m.type === 'SETUP_COMPLETE').map((m) => m.payload.sessionId));
    assert.deepEqual(new Set(all), new Set([first.sessionId]));
    const log = await page.textContent('#log');
    for (const words of ['You said: still there?', 'You said: red green blue yellow', 'You said: and here?']) {
      assert.equal(log.split(words).length, 2, `"${words}" stands ${log.split(words).length - 1} times in: ${log}`);
    }
    assert.ok(gateways[0].log.some((l) => l.includes('connection resumed')), gateways[0].log.join('\n'));
  } catch (e) {
    t.diagnostic([...gateways.flatMap((g) => g.log)].join('\n'));
    throw e;
  } finally {
    await page?.quit();
    await Promise.all(begun.map((g) => g.stop('SIGKILL')));
  }
});
