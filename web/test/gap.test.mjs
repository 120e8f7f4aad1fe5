/** What a person sees and hears when the gateway loses Gemini. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { clock, gets, hears, now, openPage, says, silence, start, startGateway, test, tone, type } from './harness.mjs';

const program = process.env.GATEWAY ?? fileURLToPath(new URL('../../bin/gateway', import.meta.url));
const { PATH, HOME } = process.env;

/** Gemini's stand-in, in a process that can be killed. */
async function startEmulator(address = '127.0.0.1:0') {
  const child = spawn(program, ['emulate', '--addr', address], { env: { PATH, HOME }, stdio: ['ignore', 'ignore', 'pipe'] });
  for await (const line of createInterface({ input: child.stderr })) {
    const found = /url=http:\/\/(\S+)/.exec(line);
    if (found) return { child, address: found[1] };
  }
  throw new Error('the emulator did not start');
}

const kill = async ({ child }) => {
  if (child.exitCode !== null || child.signalCode) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
};

let emulator;
let gateway;
before(async () => {
  emulator = await startEmulator();
  gateway = await startGateway({ GOOGLE_GEMINI_BASE_URL: `http://${emulator.address}` });
});
after(async () => {
  await gateway?.stop();
  if (emulator) await kill(emulator);
});

test('Gemini is gone for some seconds', { timeout: 40_000 }, async (t) => {
  const judge = clock(t);
  const page = await openPage({ url: gateway.url, sounds: [silence(1), tone(0.6)] });
  try {
    await start(page);
    await hears(page, { tone: 0.25 });
    await gets(page, 'TURN_COMPLETE');
    await kill(emulator);
    const lost = await now(page);
    await says(page, 'Reconnecting to Gemini…');
    const told = (await now(page)) - lost;
    judge(() => assert.ok(told > 700 && told < 2_500, `told after ${told} ms`));
    await hears(page, { sound: 0.15, after: lost + 500 }); // the soft tone
    await hears(page, { sound: 1.2, after: lost + 500 }); // "One moment, please."
    const spoken = (await now(page)) - lost;
    judge(() => assert.ok(spoken > 5_000 && spoken < 9_500, `spoken after ${spoken} ms`));
    if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE });
    emulator = await startEmulator(emulator.address);
    await says(page, 'Listening');
    // This Gemini has never heard of the conversation. A fresh session goes on, and the person is told.
    await page.waitForFunction(() => document.querySelector('#log').textContent.includes('had to be set up anew'));
    const back = await now(page);
    await type(page, 'hello');
    await gets(page, 'ASSISTANT_SPEAKING', { after: back });
    await gets(page, 'TURN_COMPLETE', { after: back });
    assert.deepEqual(page.complaints, []);
  } finally {
    await page.quit();
  }
});
