/** The operator's page at the private address, beside a conversation in the gateway's own page. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { WebSocket } from 'ws';
import { newestOf, stateOf } from '../operator/words.js';
import { findBarriers, gatewayBinary, openPage, start, startGateway, stop, test, type, variants } from './harness.mjs';

const folder = mkdtempSync(join(tmpdir(), 'voxgate-operator-'));
const agents = join(folder, 'agents');
const browsers = new Map();
mkdirSync(agents);
writeFileSync(join(agents, 'desk.md'), '---\nvoice: Kore\n---\nYou are the front desk.\n');

const privateAddress = (gateway) => gateway.log.map((l) => /msg=private at=(\S+)/.exec(l)?.[1]).find(Boolean) + '/';

let gateway;
before(async () => {
  gateway = await startGateway({ VOXGATE_PRIVATE_ADDR: '127.0.0.1:0', VOXGATE_AGENTS: agents, VOXGATE_RECORDINGS: folder, VOXGATE_RECORD_ALL: '1' });
});
after(async () => {
  for (const browser of browsers.values()) await (await browser).close();
  await gateway?.stop();
  rmSync(folder, { recursive: true });
});

/** Somebody who talks with the gateway. */
async function caller(url, payload) {
  const socket = new WebSocket(url.replace('http', 'ws') + 'ws');
  const told = [];
  const waiting = new Set();
  socket.on('message', (data) => {
    told.push(JSON.parse(data));
    for (const look of waiting) look();
  });
  await new Promise((resolve) => socket.once('open', resolve));
  const c = {
    send: (type, payload) => socket.send(JSON.stringify({ type, payload })),
    gets: (type, fits = () => true) => new Promise((resolve) => {
      const look = () => {
        const found = told.find((m) => m.type === type && fits(m.payload));
        if (!found) return;
        waiting.delete(look);
        resolve(found.payload);
      };
      waiting.add(look);
      look();
    }),
    close: () => socket.terminate(),
  };
  c.send('CONNECT_GEMINI', { initialConfig: {}, ...payload });
  c.id = (await c.gets('SETUP_COMPLETE')).sessionId;
  return c;
}

const says = (page, selector, text) => page.locator(selector).filter({ hasText: text }).first().waitFor();

async function hasNoBarriers(page) {
  assert.deepEqual(await findBarriers(page), []);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} px sideways: ${await page.evaluate(() => [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 60)).join('\n'))}`);
}

const looks = { desktop: { viewport: { width: 1440, height: 900 } }, dark: { colorScheme: 'dark' }, phone: { viewport: { width: 390, height: 844 } } };
for (const [look, context] of variants(Object.entries(looks))) {
  test(`the operator watches, steers and ends a conversation (${look})`, { timeout: 60_000 }, async () => {
    const person = await caller(gateway.url, { agent: 'desk' });
    const page = await openPage({ url: privateAddress(gateway), mic: 'none', context, browsers });
    try {
      await says(page, '#agents li', /^desk\s*Talk to it$/);
      await says(page, '#health li', 'Emulator');
      const row = page.locator(`[data-id="${person.id}"]`);
      assert.deepEqual(await row.locator('td:nth-child(3)').evaluate((e) => [e.textContent, getComputedStyle(e, '::before').content, e.checkVisibility()]), ['Listening', '"●\u00a0\u00a0" / ""', true], 'a state has its dot');
      const colours = await page.$$eval('#health .off b, #alive', (all) => new Set(all.map((e) => getComputedStyle(e, '::before').color)).size);
      assert.equal(colours, 2, 'what is not used has another colour than what is well');
      assert.match(await row.locator('.pick').innerText(), new RegExp(` · ${person.id.slice(-4)}$`), 'who has no name is told apart');
      assert.ok(!(await page.locator('#list').innerText()).includes('$0.0000'), 'what cost nothing has a dash');
      await page.click(`[data-id="${person.id}"] button`);
      await page.locator('#end button:enabled').waitFor();
      person.send('SEND_MESSAGE', { parts: [{ text: 'one two three <b>four</b> five six seven eight nine ten eleven twelve' }] });
      await says(page, '#words .user', 'three <b>four</b> five');
      await says(page, '#words .assistant', 'You said: one two');
      await says(page, `[data-id="${person.id}"] + .said span`, /^Agent: You said: one/);
      await page.click('#interrupt');
      assert.equal((await person.gets('INTERRUPTED')).by, 'client');
      await says(page, '#words .order', 'You interrupted the answer');

      await page.fill('#text', 'Offer a call back');
      await page.press('#text', 'Enter');
      await says(page, '#words .order', 'You instructed: Offer a call back');
      await says(page, '#words .assistant', 'Offer a call back');
      const colleague = new WebSocket(`${privateAddress(gateway).replace('http', 'ws')}v1/sessions/${person.id}/events`);
      await new Promise((resolve) => colleague.once('open', resolve));
      colleague.send(JSON.stringify({ type: 'RESPOND', payload: { instruction: 'Mention the garden' } }));
      await says(page, '#words .order', /: Mention the garden$/);
      colleague.terminate();
      assert.equal(await page.locator('#words .order', { hasText: 'Offer a call back' }).count(), 1, 'my own orders are not listed twice');
      assert.equal(await page.locator('#words .order', { hasText: 'interrupted' }).count(), 1);
      await page.click('summary');
      await says(page, '#events li', 'interrupted');
      await says(page, '#words .assistant.final', 'Mention the garden'); // to its end: what is not heard is not kept
      await page.click('#close');
      await page.click(`[data-id="${person.id}"] button`);
      await page.locator('#end button:enabled').waitFor();
      await says(page, '#words .order', /: Mention the garden$/);
      const lines = await page.$$eval('#words > p', (all) => all.map((e) => e.textContent));
      const [order, answer] = [/: Mention the garden$/, /^Agent: .*Mention the garden/].map((what) => lines.findIndex((line) => what.test(line)));
      assert.ok(order >= 0 && order < answer, `an order stands before its answer: ${lines.join('\n')}`);
      await page.click('#how >> text=Say exactly');
      await page.fill('#text', 'One moment, please.');
      await page.click('#say .primary');
      await says(page, '#words .assistant', 'nothing else: One moment, please.');

      await says(page, '#what dt', 'Latency');
      await says(page, '#what dt', 'Tokens'); // which has no column beside it
      assert.equal(await page.getAttribute('#agents a', 'href'), `${gateway.url}?agent=desk`);

      await hasNoBarriers(page);
      if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${look}.png`, fullPage: true });
      await page.click('#end button'); // it asks first
      await page.click('#end >> text=Cancel');
      await page.click('#end button');
      await page.click('#end .stop');
      await person.gets('GEMINI_DISCONNECTED');
      await says(page, '#ended', 'It has ended.');
      assert.deepEqual(await page.$$eval('#say, #orders', (all) => all.map((e) => e.checkVisibility())), [false, false], 'nothing steers what has just ended');
      await page.click('#close'); // on a phone it lies over all
      await page.getByText('Nobody is talking.').waitFor();
      const past = page.locator('#past tr', { hasText: '127.0.0.1' }).first();
      await past.filter({ hasText: 'Ended' }).waitFor();
      assert.match(await past.innerText(), /127\.0\.0\.1 · \w{4}/);
      assert.match(await page.locator('#past .said').first().innerText(), /^Web page[^]*Agent: .*One moment, please\./);
      await past.locator('.pick').focus();
      await page.keyboard.press('Enter');
      await says(page, '#what', /Outcome\s*Ended by an operator/);
      assert.equal(await past.getAttribute('aria-current'), 'true');
      await says(page, '#words .user', 'one two three <b>four</b>');
      await says(page, '#words .order', 'You instructed: Offer a call back');
      await says(page, '#words .order', 'ended it');
      assert.deepEqual(await page.$$eval('#say, #orders, #log', (all) => all.map((e) => e.checkVisibility())), [false, false, false], 'nothing steers what is over');
      await page.click('#tapes button');
      await page.waitForFunction(() => document.querySelector('#tape').duration > 0.5);
      await says(page, '#tapes button', /^❚❚ Recording$/);
      if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${look}-past.png` });
      await page.click('#tapes button');
      await says(page, '#tapes button', /^▶ Recording$/);
      await hasNoBarriers(page);
      await page.keyboard.press('Escape');
      assert.ok(await past.locator('.pick').evaluate((e) => e === document.activeElement), 'the focus goes back to the row');
      assert.ok(await page.$$eval('th button', (all) => all.every((e) => !e.checkVisibility() || e.offsetHeight < 50)), 'no head has two lines');
      await page.fill('#find', 'nobody of this name');
      await page.getByText('No ended conversation fits.').waitFor();
      await page.fill('#find', 'desk web');
      await past.waitFor();
      for (const chart of ['conversations', 'latency', 'cost']) {
        await page.locator(`#${chart} rect:not(.hollow)`).waitFor();
        const plot = page.locator(`#${chart} [role=slider]`);
        await plot.focus();
        await page.keyboard.press('ArrowLeft');
        assert.match(await plot.getAttribute('aria-valuetext'), /^(0|–) at \d/, 'the hour before has none');
        await plot.hover({ position: { x: (await plot.boundingBox()).width - 2, y: 30 } });
        assert.match(await page.innerText(`#${chart} b`), /[1-9].* this hour/);
      }
      await page.click('#hours summary');
      assert.match(await page.innerText('#hours tr:nth-child(2)'), /^\d+:00[^\t]*\t[1-9]\d*\t0\t\d+.m?s\t\$/, 'the charts are a table, too');
      await hasNoBarriers(page);
      assert.deepEqual(page.complaints, []);
    } finally {
      person.close();
      await page.quit();
    }
  });
}

test('it says in words why Gemini was not reached, and keeps what is over after a restart', { timeout: 60_000 }, async () => {
  const calls = join(folder, 'calls');
  mkdirSync(calls);
  const settings = { VOXGATE_PRIVATE_ADDR: '127.0.0.1:0', VOXGATE_CALLS: calls, GEMINI_API_KEY: 'none', GOOGLE_GEMINI_BASE_URL: 'http://127.0.0.1:1' };
  let alone = await startGateway(settings);
  const socket = new WebSocket(alone.url.replace('http', 'ws') + 'ws', { headers: { 'User-Agent': 'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/605.1' } });
  await new Promise((resolve) => socket.once('open', resolve));
  socket.send(JSON.stringify({ type: 'CONNECT_GEMINI', payload: { initialConfig: {} } }));
  const page = await openPage({ url: privateAddress(alone), mic: 'none', browsers });
  try {
    await says(page, '#health .bad', /failed: \d+\s× connection refused/);
    await says(page, '#alive.bad', /^Gemini cannot be reached: connection refused$/);
    const [failed, ...reasons] = await page.$eval('#health .bad span', (e) => [.../(\d+) of \d+ dials failed: (.*)/.exec(e.textContent)].slice(1).flatMap((s) => [...s.matchAll(/(\d+)(?=\s×|$)/g)].map(([n]) => Number(n))));
    assert.equal(failed, reasons.reduce((all, n) => all + n, 0), 'the reasons add up');
    await says(page, '#past tr', /Safari, iPhone · \w{4}.*Failed/);
    await says(page, '#past .said', '127.0.0.1 · Web page');
    await page.click('#only >> text=Failed');
    await says(page, '#past .said', 'connection refused');
    await page.click('#past .said');
    await says(page, '#what .wrong', 'connection refused');
    await says(page, '#words', '');
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/failed.png`, fullPage: true });
  } finally {
    socket.terminate();
    await page.quit();
    await alone.stop();
  }
  alone = await startGateway(settings);
  const again = await openPage({ url: privateAddress(alone), mic: 'none', browsers });
  try {
    await says(again, '#past tr', 'Gemini');
  } finally {
    await again.quit();
    await alone.stop();
  }
});

test('a row says who speaks, and all of the reason of a failure', { timeout: 60_000 }, async () => {
  for (const [state, speaker, words] of [
    ['live', 'user', 'Person speaks'], ['live', 'assistant', 'Agent speaks'], ['live', undefined, 'Listening'], ['draining', 'assistant', 'Agent speaks'],
    ['tool', 'user', 'Using a tool'], ['parked', undefined, 'Away'], ['resuming', 'assistant', 'Reconnecting'], ['of a newer gateway', undefined, 'Of a newer gateway'],
  ]) assert.equal(stateOf({ state, speaker }), words);
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', browsers });
  try {
    const at = new Date().toISOString();
    const one = { door: 'web', agent: 'desk', startedAt: at, turns: 2, tokens: 900, dollars: 0.02, latencyMs: 700 };
    const reason = 'Gemini does not accept the gateway’s key or token. It says: “API key not valid. Please pass a valid API key.” Look at GEMINI_API_KEY.';
    await page.route('**/v1/sessions', (route) => route.fulfill({ json: { sessions: [{ ...one, id: 'RUNS', state: 'live', speaker: 'assistant', loss: { up: 0.01, down: 0.02 } }] } }));
    await page.route('**/ended', (route) => route.fulfill({ json: { conversations: [
      { ...one, id: 'FAILED', endedAt: at, outcome: 'auth', failed: true, reason, turns: 0, recordings: ['silence.ogg'] },
      { ...one, id: 'PLAYED', endedAt: at, outcome: 'goodbye', words: true, recordings: ['talk.ogg'] },
    ], steered: {}, hours: [] } }));
    await says(page, '#list td:nth-child(3)', 'Agent speaks');
    await says(page, '#past td:nth-child(3)', 'Failed');
    await says(page, '#past .said', reason);
    assert.deepEqual(await page.$$eval('.play', (all) => all.map((e) => e.dataset.of)), ['PLAYED 0'], 'where nobody spoke, nothing is played');
    const shown = (id) => page.$$eval(`#${id} thead th`, (all) => all.filter((e) => e.checkVisibility()).map((e) => e.innerText));
    for (const [width, running, ended] of [
      [1920, 'Person Agent State Duration Answers Tokens Cost Latency Packet loss', 'Person Agent Outcome Ended Duration Answers Cost Latency Recording'],
      [1440, 'Person Agent State Duration Answers Tokens Cost Latency', 'Person Agent Outcome Ended Duration Cost Latency Recording'],
      [1280, 'Person State Duration Cost Latency', 'Person Outcome Ended Duration Cost Latency Recording'],
      [390, '', ''],
    ]) {
      await page.setViewportSize({ width, height: 844 });
      assert.deepEqual([(await shown('list')).join(' '), (await shown('past')).join(' ')], [running, ended], `columns at ${width} px`);
      assert.deepEqual(await page.$eval('#past .said p', (e) => [e, ...e.children].map((x) => x.scrollWidth <= x.clientWidth + 1 || !x.clientWidth)), [true, true, true], `the reason is whole at ${width} px`);
      if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/rows-${width}.png` });
    }
    assert.match(await page.innerText('#list .said'), /desk · 0:0\d · \$0\.0200/, 'a phone shows the length and the cost under the name');
  } finally {
    await page.quit();
  }
});

test('one or two hours do not flatten the others in a chart', { timeout: 60_000 }, async () => {
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', browsers });
  try {
    for (const [values, top] of [[[], 0], [[0, 0], 0], [[3], 3], [[17], 20], [[500, 9000], 10000], [[420, 380, 510, 440, 400, 9000], 600], [[1, 1, 2, 40, 1, 90], 2], [[0.0123, 0.02, 0.031, 0.04, 0.05, 0.06], 0.06]]) {
      const scale = await page.evaluate(async (values) => (await import('./charts.js')).scaleOf(values), values);
      assert.ok(Math.abs(scale - top) < 1e-9, `${values}: ${scale}`);
    }
    const at = (ago) => new Date(Date.now() - ago * 3_600_000).toISOString();
    const hours = [9000, 500, 400, 450, 420, 480].map((latencyMs, i) => ({ at: at(6 - i), begun: 1, failed: 0, latencyMs, dollars: 0 }));
    const long = (month) => new Date(2025, month, 28, 22, 44).toISOString(); // as long as a time can be, whatever the time is now
    const over = Array.from({ length: 12 }, (_, month) => ({ id: `OVER${month}`, door: 'sip', outcome: 'goodbye', startedAt: long(month), endedAt: long(month), turns: 1, tokens: 1 }));
    await page.route('**/ended', (route) => route.fulfill({ json: { conversations: over, steered: {}, hours } }));
    await page.click('#rest');
    await says(page, '#latency .beyond', /^Above the scale: 9\.0\ss at \d/);
    assert.equal(await page.innerText('#latency .most'), '500\u00a0ms');
    for (const width of [1920, 1440, 1280, 1024]) {
      await page.setViewportSize({ width, height: 900 });
      assert.deepEqual(await page.$$eval('#past tr:not(.said) td.number', (all) => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)), [], `each time fits its column at ${width} px`);
    }
  } finally {
    await page.quit();
  }
});

test('what cannot be drawn is said, does not look like a dead gateway, and stops nothing else', { timeout: 60_000 }, async () => {
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', browsers });
  const wrong = { 'v1/sessions': { sessions: [{ id: 'BROKEN' }] }, ended: { conversations: [{ id: 'BROKEN' }], hours: null }, status: { agents: null } };
  try {
    for (const [path, json] of Object.entries(wrong)) {
      await page.route(`**/${path}`, (route) => route.fulfill({ json }));
      await says(page, '#faults', 'The gateway answers, but not all of it can be shown here');
      assert.equal(await page.getAttribute('body', 'class'), 'voxgate');
      if (path !== 'status') await says(page, '#alive', 'The gateway is up.');
      const person = await caller(gateway.url); // what is right goes on changing
      if (path !== 'status') await says(page, '#now', String((await (await fetch(`${privateAddress(gateway)}status`)).json()).now));
      if (path !== 'v1/sessions') await page.locator(`[data-id="${person.id}"]`).waitFor();
      person.close();
      await page.unroute(`**/${path}`);
      await page.locator('#faults').waitFor({ state: 'hidden' });
    }
    const well = { ...await (await fetch(`${privateAddress(gateway)}status`)).json(), agents: [], disks: [] };
    const alarms = [[{ agents: [{ name: 'desk', problem: 'desk.md:1' }] }, 'bad', 'The agent desk cannot be loaded'], [{ redis: 'down' }, 'bad', 'Redis does not answer'], [{ ready: false }, 'warn', 'The gateway takes no new calls'], [{ unrecorded: 1, redis: 'down' }, 'bad', 'Redis does not answer · 1 recording could not be written'],
      [{ disks: [{ folder, free: 1, total: 100 }] }, 'warn', 'A disk is nearly full'], [{ keyRefused: true }, 'bad', "Google does not accept the gateway's key"],
      [{ closed: { 'gemini-live': 6_200 }, refusals: { quota: 5 } }, 'bad', "Google's quota for gemini-live is used up: no new conversations for 7 s"], [{ dials: { ok: 7 }, dialErrors: { refused: 1 } }, '', 'The gateway is up.']];
    for (const [change, kind, text] of alarms) {
      await page.route('**/status', (route) => route.fulfill({ json: { ...well, ...change } }));
      await says(page, '#alive', new RegExp(`^${text}$`));
      assert.equal(await page.getAttribute('#alive', 'class'), kind);
      const rows = await page.$$eval('.states li', (all) => all.map((e) => e.className).filter((kind) => kind && kind !== 'off'));
      assert.equal(rows.includes('bad') ? 'bad' : rows[0] ?? '', kind, `the head is as bad as the worst row: ${text}`);
    }
    await page.route('**/status', (route) => route.fulfill({ status: 500, json: { error: { message: 'The metrics cannot be read.' } } }));
    await says(page, '#faults', 'The metrics cannot be read.');
    assert.ok(!(await page.title()).includes('No answer'));
  } finally {
    await page.quit();
  }
});

const long = Array.from({ length: 40 }, () => 'word').join(' '); // Chromium plays nothing before some seconds of speech have come

test('both lists are sorted by a column', { timeout: 60_000 }, async () => {
  const people = [await caller(gateway.url, { agent: 'desk' }), await caller(gateway.url)];
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', browsers });
  const column = (table, i) => page.$$eval(`${table} tbody tr:not(.said)`, (all, i) => all.map((tr) => tr.cells[i].textContent), i);
  try {
    await page.locator('#list tr[data-id]').nth(1).waitFor();
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.click('#list th >> text=Agent');
    assert.deepEqual((await column('#list', 1)).slice(-2), ['desk', '–'], 'what has none comes last');
    assert.equal(await page.getAttribute('#list th:has-text("Agent")', 'aria-sort'), 'ascending');
    await page.click('#list th >> text=Duration');
    assert.equal(await page.getAttribute('#list th:has-text("Agent")', 'aria-sort'), null);
    assert.equal(await page.getAttribute('#list th:has-text("Duration")', 'aria-sort'), 'descending');
    for (const person of people) {
      person.send('SEND_MESSAGE', { parts: [{ text: 'Hello' }] });
      await person.gets('TURN_COMPLETE');
      person.send('DISCONNECT_GEMINI');
    }
    for (const { id } of people) await page.locator('#past tr', { hasText: id.slice(-4) }).first().waitFor();
    const table = 'Our tours: | Tour | Price | | --- | --- | | Old mill | €12 | We are **open** today.';
    assert.equal(newestOf({ role: 'model', text: table }), 'Agent: Our tours: (a table) We are open today.');
    const crowd = await Promise.all(Array.from({ length: 9 }, () => caller(gateway.url)));
    await page.click('#whole >> text=Show all 9');
    await page.locator('#list tr[data-id]').nth(8).waitFor();
    await page.setViewportSize({ width: 1440, height: 600 });
    assert.ok(await page.evaluate(() => document.scrollingElement.scrollHeight <= innerHeight), 'only the lists scroll');
    await page.setViewportSize({ width: 1440, height: 900 });
    assert.equal(await page.innerText('#list tr[data-id] td:nth-child(3)'), 'Listening', 'nothing was said yet');
    const numbers = await page.$eval('#words', (e) => getComputedStyle(e.appendChild(document.createElement('ol'))).listStyleType);
    assert.equal(numbers, 'decimal', 'numbered lists keep their numbers');
    for (const one of crowd) one.send('DISCONNECT_GEMINI');
    await page.click('#rest');
    assert.ok((await column('#past', 1)).length > 8, 'all are shown');
    await page.click('#rest >> text=Show fewer');
    assert.equal((await column('#past', 1)).length, 8);
    await page.click('#rest');
    assert.ok(await page.$eval('#over', (e) => e.scrollHeight <= e.clientHeight), 'no row is cut');
    for (const [width, height] of [[1440, 900], [1280, 720], [1280, 500], [390, 844], [320, 568]]) {
      await page.setViewportSize({ width, height });
      await page.evaluate(() => document.querySelector('#past tr:last-child').scrollIntoView());
      await page.locator('#past .pick').last().click();
      const hidden = await page.$$eval('#close, #tapes button', (all) => all.filter((e) => e.getBoundingClientRect().bottom > innerHeight || e.getBoundingClientRect().top < 0).map((e) => e.textContent));
      assert.deepEqual(hidden, [], `all is in sight at ${width}x${height}`);
      await page.click('#close');
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.click('#past th >> text=Agent');
    const up = await column('#past', 1);
    await page.click('#past th >> text=Agent');
    const down = await column('#past', 1);
    assert.deepEqual([up[0], up.at(-1), down[0], down.at(-1)], ['desk', '–', 'desk', '–']);
    for (const width of [390, 195]) { // the second one is as many letters wide as a phone with letters of twice the size
      await page.setViewportSize({ width, height: 844 });
      const [who, outcome, play] = await page.$$eval('#past tr:has(.play) :is(td:nth-child(1), td:nth-child(3), .play)', (all) => all.map((e) => e.getBoundingClientRect().toJSON()));
      assert.ok(who.width > width / 3 && who.bottom <= outcome.top + 1 && play.left >= who.right, `one block at ${width} px: ${JSON.stringify([who, outcome, play])}`);
      assert.deepEqual(await page.$$eval('.wide', (all) => all.flatMap((e) => (e.scrollWidth > e.clientWidth ? [...e.querySelectorAll('*')].filter((x) => x.getBoundingClientRect().right > e.getBoundingClientRect().right).map((x) => x.outerHTML.slice(0, 90)) : []))), [], `nothing runs out of its card at ${width} px`);
      await hasNoBarriers(page);
    }
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/narrow.png`, fullPage: true });
    assert.deepEqual(page.complaints, []);
  } finally {
    for (const person of people) person.close();
    await page.quit();
  }
});

test('both sides can be heard', { timeout: 60_000 }, async () => {
  const person = await caller(gateway.url);
  const init = () => {
    window.shift = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((e) => (window.shift += e.value))).observe({ type: 'layout-shift', buffered: true });
  };
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', init, browsers });
  try {
    await page.locator(`[data-id="${person.id}"]`).waitFor();
    await page.locator('#conversations rect:not(.hollow)').waitFor();
    assert.ok(await page.evaluate(() => window.shift) < 0.01, 'nothing moves while the page loads');
    await page.click(`[data-id="${person.id}"] button`);
    await page.locator('#listen:enabled').click();
    person.send('SEND_MESSAGE', { parts: [{ text: long }] });
    await says(page, '#ended', 'You hear both sides');
    for (const [width, height] of [[1440, 900], [1280, 720], [1280, 500], [390, 844], [320, 568], [195, 284]]) { // the last one is a phone with letters of twice the size
      await page.setViewportSize({ width, height });
      const hidden = await page.$$eval('#orders button', (all) => all.filter((e) => e.getBoundingClientRect().bottom > innerHeight || e.getBoundingClientRect().top < 0).map((e) => e.textContent));
      assert.deepEqual(hidden, [], `what steers it is in sight at ${width}x${height}`);
    }
    await page.click('#listen');
    assert.equal(await page.getAttribute('#listen', 'aria-pressed'), 'false');
    await page.click('#close');
    await page.click(`[data-id="${person.id}"] button`);
    await says(page, '#words .assistant:not(.final)', 'You said: word'); // opened in mid-answer
    await says(page, '#words .assistant.final', 'You said: word');
    assert.deepEqual(await page.$$eval('#words .assistant', (all) => all.map((e) => e.textContent.trim())), [`Agent: You said: ${long}`], 'the answer is one line');
    assert.deepEqual(page.complaints, []);
  } finally {
    person.close();
    await page.quit();
  }
});

test('of a conversation by WebRTC the loss is shown while it runs', { timeout: 60_000 }, async () => {
  const talker = await openPage({ url: gateway.url, browsers });
  const page = await openPage({ url: privateAddress(gateway), mic: 'none', context: { viewport: { width: 1920, height: 900 } }, browsers });
  try {
    await start(talker);
    await type(talker, long);
    const loss = page.locator('#list td').filter({ hasText: /^\d\S*\s% \/ \d\S*\s%$/ });
    await loss.waitFor({ timeout: 45_000 }); // of the voice it is known once the browser has reported twice, which it does every few seconds
    await says(page, '#list td', /^(\d+\sms|\d\.\d\ss)$/);
    await page.click('#list .pick');
    await says(page, '#what dd', /% of the person’s voice, \S+\s% of the agent’s/);
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/list.png`, fullPage: true });
    await stop(talker);
    assert.deepEqual(page.complaints, []);
  } finally {
    await talker.quit();
    await page.quit();
  }
});

test('with keys it wants one, an agent’s file may be wrong, and the gateway may go', { timeout: 60_000 }, async () => {
  const keys = join(folder, 'keys.json');
  const key = (may) => execFileSync(gatewayBinary, ['key', 'new', '--keys', keys, '--may', may, may.split(':')[0] + may.length], { encoding: 'utf8' })
    .trim().split(/\s+/).find((word) => word.length > 30);
  const all = key('sessions:all,listen');
  const locked = await startGateway({ VOXGATE_PRIVATE_ADDR: '127.0.0.1:0', VOXGATE_AGENTS: agents, VOXGATE_KEYS: keys, VOXGATE_AUTH: 'off' });
  const person = await caller(locked.url);
  const page = await openPage({ url: privateAddress(locked), mic: 'none', browsers });
  try {
    await says(page, '#now', '1'); // numbers, without anybody's name
    assert.equal(await page.locator('#list tbody tr').count(), 0);
    await page.fill('#key', 'wrong');
    await page.press('#key', 'Enter');
    await says(page, '#why', /./); // the answer to that key
    await page.fill('#key', all);
    await page.press('#key', 'Enter');
    await page.click(`[data-id="${person.id}"] button`);
    await page.locator('#listen:enabled').click();
    person.send('SEND_MESSAGE', { parts: [{ text: long }] });
    await says(page, '#words .assistant', 'You said: word');
    await says(page, '#ended', 'You hear both sides');

    await page.click('#close');
    writeFileSync(join(agents, 'desk.md'), '---\nvoice: [\n---\n');
    await says(page, '#agents .bad', /desk\.md:\d+:/);
    assert.equal(await page.isVisible('#agents a'), false, 'nobody can talk to a broken agent');
    await locked.stop('SIGKILL');
    await says(page, '#alive', 'has not answered since');
    assert.match(await page.title(), /No answer/);
  } finally {
    person.close();
    await page.quit();
    await locked.stop();
  }
});
