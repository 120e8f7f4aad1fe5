/** What a gateway takes while nobody talks. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { startGateway } from './harness.mjs';

const MOST = 12; // MB

test(`a gateway at rest takes less than ${MOST} MB beside its program`, { timeout: 60_000 }, async () => {
  const gateway = await startGateway({ VOXGATE_PRIVATE_ADDR: '127.0.0.1:0' });
  const anonymous = () => Number(/RssAnon:\s+(\d+) kB/.exec(readFileSync(`/proc/${gateway.pid}/status`, 'utf8'))[1]) / 1024;
  try {
    const until = performance.now() + 20_000; // its start ends a moment after it listens
    while (anonymous() >= MOST) {
      assert.ok(performance.now() < until, `${anonymous()} MB`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  } finally {
    await gateway.stop();
  }
});
