/** What matters most of the other files, in Firefox. `make test-firefox` runs all of it. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const some = {
  voice: ['says back what was spoken'],
  connection: ['is resumed when all is lost', 'goes on where it was when it is loaded again'],
  page: ['can be used with keys alone', 'has no barriers (desktop)', 'goes on with a gateway that comes back', 'takes the microphone up again that was unplugged'],
  canvas: ['what the person types reaches the model'],
  native: ['one after the other, when the person presses'],
  settings: ['settings are loaded when they are opened, kept, and told to the gateway', 'statistics of a conversation (webrtc)'],
  embed: ['one line of HTML lets a person talk'],
};

for (const [name, tests] of Object.entries(some)) {
  test(`${name} in Firefox`, { timeout: 240_000 }, async (t) => {
    const file = fileURLToPath(new URL(`${name}.test.mjs`, import.meta.url));
    const patterns = tests.map((s) => `--test-name-pattern=${s.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
    const { NODE_TEST_CONTEXT, ...env } = process.env; // or it would report to this run, in pieces
    const output = await new Promise((resolve) => {
      execFile(process.execPath, [...patterns, '--test-reporter=tap', file], { env: { ...env, TEST_BROWSER: 'firefox' }, maxBuffer: 1e8 }, (_, out, err) => resolve(out + err));
    });
    const [, passed] = /^# pass (\d+)$/m.exec(output) ?? [];
    const [, failed] = /^# fail (\d+)$/m.exec(output) ?? [];
    const found = Number(passed) + (output.match(/# SKIP not judged/g) ?? []).length;
    if (failed !== '0' || found < tests.length) t.diagnostic(output); // one that takes too long is cancelled, and has not failed
    assert.equal(failed, '0');
    assert.ok(found >= tests.length, `${found} of ${tests.length} were found`);
  });
}
