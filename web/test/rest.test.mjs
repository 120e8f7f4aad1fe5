/** Google's own SDKs and the Gemini CLI against the REST door of the gateway, as they are published. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startGateway, test } from './harness.mjs';

const { GoogleGenAI, FunctionCallingConfigMode } = await import('@google/genai');
const MODEL = 'gemini-3.8-flash';

let gateway, ai;
before(async () => {
  gateway = await startGateway();
  ai = new GoogleGenAI({ apiKey: 'anything', httpOptions: { baseUrl: gateway.url } });
});
after(() => gateway?.stop());

describe('@google/genai over REST', { timeout: 90_000 }, () => {
  test('generates', async () => {
    const answer = await ai.models.generateContent({ model: MODEL, contents: 'Hello there' });
    assert.equal(answer.text, 'You said: Hello there');
    assert.equal(answer.candidates[0].finishReason, 'STOP');
    assert.ok(answer.usageMetadata.totalTokenCount > 0);
  });

  test('streams', async () => {
    const pieces = [];
    for await (const piece of await ai.models.generateContentStream({ model: MODEL, contents: 'one two three four five six seven' })) pieces.push(piece);
    assert.ok(pieces.length > 2, `${pieces.length} pieces`);
    assert.equal(pieces.map((p) => p.text ?? '').join(''), 'You said: one two three four five six seven');
    assert.deepEqual(pieces.map((p) => p.candidates[0].finishReason ?? null), [...Array(pieces.length - 1).fill(null), 'STOP']);
  });

  test('calls a tool and takes its answer', async () => {
    const chat = ai.chats.create({
      model: MODEL,
      config: {
        tools: [{ functionDeclarations: [{ name: 'weather', parametersJsonSchema: { type: 'object', properties: { city: { type: 'string' } } } }] }],
        toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.AUTO } },
      },
    });
    const asked = await chat.sendMessage({ message: '/tool weather {"city":"Rome"}' });
    const [call] = asked.functionCalls;
    assert.deepEqual([call.name, call.args], ['weather', { city: 'Rome' }]);
    const told = await chat.sendMessage({ message: [{ functionResponse: { id: call.id, name: call.name, response: { output: 'sunny' } } }] });
    assert.match(told.text, /sunny/);
  });

  test('counts, embeds and lists', async () => {
    assert.ok((await ai.models.countTokens({ model: MODEL, contents: 'some words' })).totalTokens > 0);
    const { embeddings } = await ai.models.embedContent({ model: 'gemini-embedding-001', contents: ['a b', 'c'] });
    assert.deepEqual(embeddings.map((e) => e.values.length), [768, 768]);
    const names = [];
    for await (const m of await ai.models.list()) names.push(m.name);
    assert.ok(names.includes(`models/${MODEL}`));
  });

  test('is told what went wrong', async () => {
    await assert.rejects(ai.models.generateContent({ model: 'other', contents: 'x' }), (e) => e.status === 404 && /not found/.test(e.message));
    await assert.rejects(ai.models.generateContent({ model: MODEL, contents: '/status 503' }), (e) => e.status === 503);
  });
});

const run = promisify(execFile);
const local = (path) => fileURLToPath(new URL(path, import.meta.url));

test('@google/genai lists models by the page', { timeout: 90_000 }, async () => {
  const all = Array.from({ length: 120 }, (_, i) => ({ name: `models/gemini-${i}` }));
  const asked = [];
  const google = createServer((req, res) => {
    const { searchParams } = new URL(req.url, 'http://x');
    asked.push(searchParams.get('pageToken'));
    const from = Number(searchParams.get('pageToken'));
    const to = from + Number(searchParams.get('pageSize') ?? 50);
    res.setHeader('Content-Type', 'application/json');
    res.end(JSON.stringify({ models: all.slice(from, to), ...(to < all.length && { nextPageToken: String(to) }) }));
  });
  await once(google.listen(0, '127.0.0.1'), 'listening');
  const ours = await startGateway({ GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${google.address().port}` });
  try {
    const names = [];
    const theirs = new GoogleGenAI({ apiKey: 'anything', httpOptions: { baseUrl: ours.url } });
    for await (const m of await theirs.models.list({ config: { pageSize: 50 } })) names.push(m.name);
    assert.deepEqual(names, all.map((m) => m.name));
    assert.deepEqual(asked.filter((token) => token), ['50', '100']); // and what the gateway asks for itself
  } finally {
    await ours.stop();
    google.close();
  }
});

test('google-genai for Python', { timeout: 90_000 }, async () => {
  const { stdout } = await run(local('../.venv/bin/python'), [local('rest_client.py'), gateway.url]);
  const got = JSON.parse(stdout);
  assert.equal(got.generated, 'You said: Hello');
  assert.ok(got.streamed.length > 1);
  assert.equal(got.streamed.join(''), 'You said: one two three four');
  assert.ok(got.counted > 0);
  assert.deepEqual(got.embedded, [768, 768]);
  assert.match(got.called, /sunny in Rome/);
});

describe('the Gemini CLI', { timeout: 60_000 }, () => {
  const home = mkdtempSync(join(tmpdir(), 'voxgate-cli-'));
  before(() => {
    mkdirSync(join(home, '.gemini'));
    mkdirSync(join(home, 'work'));
    writeFileSync(join(home, '.gemini', 'settings.json'), '{"security":{"auth":{"selectedType":"gemini-api-key"}}}');
    writeFileSync(join(home, 'work', 'note.txt'), 'the secret word is parrot\n');
  });
  after(() => rmSync(home, { recursive: true, force: true }));
  const gemini = (...args) =>
    run(local('../node_modules/.bin/gemini'), ['--skip-trust', ...args], {
      cwd: join(home, 'work'),
      env: { PATH: process.env.PATH, HOME: home, GOOGLE_GEMINI_BASE_URL: gateway.url.replace(/\/$/, ''), GEMINI_API_KEY: 'anything' },
    });

  test('asks and prints the answer', async () => {
    assert.match((await gemini('-p', 'Hello there')).stdout, /You said: [^]*Hello there/);
    assert.match(gateway.log.join('\n'), /add to ~\/.gemini\/settings.json/);
  });

  test('runs a tool for the model', async () => {
    const { stdout } = await gemini('--approval-mode', 'yolo', '-m', MODEL, '-p', '/tool read_file {"file_path":"note.txt"}');
    assert.match(stdout, /read_file says: [^]*the secret word is parrot/);
  });
});
