/** Clients that are too heavy for every run, against the gateway with its emulator: `make test-clients`. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startGateway } from '../harness.mjs';

const run = promisify(execFile);
const local = (path) => fileURLToPath(new URL(path, import.meta.url));
const python = local('../../.venv-clients/bin/python');
const limit = { timeout: 120_000 };

const folder = mkdtempSync(join(tmpdir(), 'voxgate-clients-'));
const [key, cert] = ['key.pem', 'cert.pem'].map((name) => join(folder, name));

let open, secure;
before(async () => {
  await run('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key, '-out', cert,
    '-days', '1', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']);
  [open, secure] = await Promise.all([startGateway(), startGateway({ VOXGATE_TLS_CERT: cert, VOXGATE_TLS_KEY: key })]);
});
after(async () => {
  await open?.stop();
  await secure?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const at = (gateway) => gateway.url.replace(/\/$/, '');
const json = async (script, ...args) => JSON.parse((await run(python, ['-W', 'ignore', local(script), ...args])).stdout.trim().split('\n').at(-1));

test('openai for Go', { timeout: 600_000 }, async () => { // most of it compiles the SDK
  const { stdout } = await run('go', ['run', '.', at(open)], { cwd: local('openai_go'), env: { ...process.env, GOFLAGS: '' } });
  assert.equal(stdout.trim(), 'You said: Hello');
});

test('openai-agents for Python', limit, async () => {
  const got = await json('agents_client.py', at(open));
  assert.deepEqual([got.called, got.errors], [['Rome'], []]);
  const calls = got.history.filter((i) => i.type === 'function_call').map((i) => i.output);
  assert.deepEqual(calls, ['sunny in Rome']);
  assert.match(got.history.at(-1).content[0].transcript, /^You said: .* seconds of speech\.$/);
});

test("Pipecat's service for OpenAI", limit, async () => {
  const got = await json('pipecat_client.py', at(open));
  assert.deepEqual(got.errors, []);
  assert.equal(got.text.match(/seconds of speech\./g).length, 9, got.text);
  assert.ok(got.seconds > 5);
});

describe('LiveKit', () => {
  for (const plugin of ['openai', 'google']) {
    test(`its plugin for ${plugin}`, limit, async () => {
      const got = await json('livekit_client.py', plugin, at(open), at(secure), cert);
      assert.match(got.greeting, /Greet me/);
      assert.match(got.voice[0], /seconds of speech/);
      assert.ok(got.voice[1] > 0.9 && got.voice[1] < 4.5, `${got.voice[1]} s of voice for 1.8 s and pauses`);
      if (plugin === 'openai') {
        assert.match(got.tool, /sunny in Rome/);
        assert.match(got.history, /user: My name is Ada\..*model: Hello Ada\./s);
      }
      assert.ok(got.interrupted.length < 200, got.interrupted);
      assert.match(got.after, /And now\?/);
      assert.deepEqual(got.errors, []);
    });
  }
});
