/** The page of VOX, and its client in a React app, with the emulator behind the gateway. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import {
  awaitAnimations, clock, gatewayBinary, hears, hearsNothing, inFirefox, lastStatus, now, openPage, saves, says, shiftClock, silence,
  speech, start, startGateway, status, test, tone, type, variants, TALKS, findBarriers,
} from './harness.mjs';

const web = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'voxgate-vox-'));

let gateway;
const browsers = new Map();
const stops = [];

/** A gateway with an emulator of its own behind it, which repeats what is said: without a key the guide of the page answers. */
async function startParrot(scenario = {}, workspace = 'parrot') {
  const { PATH, HOME } = process.env;
  const model = spawn(gatewayBinary, ['emulate', '--addr', '127.0.0.1:0', '--scenario', JSON.stringify(scenario)], { env: { PATH, HOME }, stdio: ['ignore', 'ignore', 'pipe'] });
  let upstream;
  for await (const line of createInterface({ input: model.stderr })) if ((upstream = /emulator listening" url=(\S+)/.exec(line)?.[1])) break;
  model.stderr.resume();
  const one = await startGateway({ GOOGLE_GEMINI_BASE_URL: upstream, GEMINI_API_KEY: 'none', VOXGATE_WORKSPACE: join(folder, workspace), VOXGATE_RECORDINGS: folder, VOXGATE_RECORD_ALL: '1' });
  stops.push(async () => (await one.stop(), model.kill()));
  return one;
}
let parrot;
const theParrot = () => (parrot ??= startParrot());
before(async () => {
  gateway = await startGateway({ VOXGATE_WORKSPACE: join(folder, 'apps'), VOXGATE_RECORDINGS: folder, VOXGATE_RECORD_ALL: '1' });
});
after(async () => {
  for (const browser of browsers.values()) await (await browser).close();
  await gateway?.stop();
  for (const stop of stops) await stop();
  rmSync(folder, { recursive: true });
});

/** Runs in the page before its own scripts, and keeps what travels: `frames` [{way, at, message, or bytes}], `sockets`. */
function watch() {
  window.frames_ = [];
  window.sockets = [];
  const keep = (way, data) => {
    const text = typeof data === 'string';
    frames_.push({ way, at: performance.now(), ...(text ? { message: JSON.parse(data) } : { bytes: data.byteLength }) });
  };
  const Plain = Object.getPrototypeOf(window.WebSocket); // the harness' own reads text alone
  window.WebSocket = class extends Plain {
    constructor(...a) {
      super(...a);
      sockets.push(this);
      this.addEventListener('message', (e) => {
        keep('down', e.data);
        if (window.twice && e.isTrusted && typeof e.data !== 'string') this.dispatchEvent(new MessageEvent('message', { data: e.data.slice(0) }));
      });
    }
    send(data) {
      keep('up', data);
      super.send(data);
    }
  };
  window.got = (kind, after = 0) => frames_.find((f) => f.way === 'down' && f.message?.type === kind && f.at > after);
}

/** A test in a page of its own, which fails as well if anything was complained about in the page's console. */
const look = (name, { init = '', repeats = false, ...options }, run) =>
  test(name, { timeout: 90_000 }, async (t) => {
    const { url, log } = repeats ? await theParrot() : gateway;
    const page = await openPage({ url, query: 'vox/', browsers, init: `(${watch})();(${init || (() => {})})()`, ...options });
    try {
      await run(page, t);
      assert.deepEqual(page.complaints, []);
    } catch (e) {
      t.diagnostic(`the page says: ${await lastStatus(page)}\n${log.slice(-20).join('\n')}`);
      throw e;
    } finally {
      await page.quit();
    }
  });

/** Waits for a message of the gateway. */
const gets = async (page, kind, after = 0) => (await page.waitForFunction(([kind, after]) => got(kind, after), [kind, after])).jsonValue();

/** Has the model call a tool, and returns its card. */
async function call(page, name, args = {}) {
  const cards = page.locator(`.card[data-tool="${name}"]`);
  const before = await cards.count();
  await type(page, `/tool ${name} ${JSON.stringify(args)}`);
  const card = cards.nth(before);
  await card.and(page.locator(':is([data-status=done], [data-status=failed])')).waitFor({ state: 'attached' });
  return card;
}

/** The tab of the project that is shown. */
const tab = (page) => page.getAttribute('.tabs [aria-selected=true]', 'aria-controls');

look('each tool is called, and does what it says', {}, async (page) => {
  await start(page);
  await says(page, 'Listening');
  assert.equal(await page.innerText('#recording'), 'Recording');
  const hello = await page.evaluate(() => frames_.find((f) => f.way === 'up').message);
  assert.deepEqual([hello.type, hello.theme, hello.projectContext], ['start', 'expert', undefined]);

  const found = await call(page, 'search_tools', { query: 'card payments' });
  assert.match(await found.innerText(), /^(✓ )?Found \d tools for “card payments”/);
  assert.match(await found.innerText(), /Stripe/);
  assert.doesNotMatch(await found.innerText(), /[{}]/, 'for people, not JSON');
  assert.ok(await found.locator('a[href^="https://"][target=_blank][rel="noopener noreferrer"]').count() > 0);

  const fits = await call(page, 'recommend_tools', { project_summary: 'music with synthesizers' });
  assert.match(await fits.innerText(), /Recommended for your project/);

  assert.match(await (await call(page, 'add_tool', { tool_id: 'stripe' })).innerText(), /Added Stripe/);
  assert.match(await page.innerText('#added'), /Stripe\s*Takes card payments/);
  assert.match(await page.textContent('#added'), /npm install stripe/, 'behind a tap');
  assert.equal(await found.locator('.tool:has(b:text-is("Stripe")) button').innerText(), 'Added ✓');
  assert.equal(await (await call(page, 'add_tool', { tool_id: 'strip' })).innerText(), 'VOX knows no tool “strip”');

  await type(page, '/tool navigate_ui {"target":"files"}');
  await page.waitForSelector('#tab-files[aria-selected=true]');
  await type(page, '/tool navigate_ui {"target":"kitchen"}');
  await page.waitForFunction(() => frames_.some((f) => f.message?.type === 'log' && f.message.message.includes('navigate_ui')));
  assert.doesNotMatch(await page.innerText('#log'), /args/, 'that is for developers');
  assert.equal(await tab(page), 'files');
  await page.click('#tab-studio');
  await type(page, '/tool navigate_ui {"target":"files"}');
  await page.waitForSelector('#tab-files[aria-selected=true]'); // again
  await type(page, '/tool navigate_ui {"target":"settings"}');
  await page.waitForSelector('#setup[open]');
  await page.keyboard.press('Escape');

  assert.match(await (await call(page, 'get_project_status')).innerText(), /Looked at your project/);
});

/** Says something by typing, and waits for the card of the call that it leads to. */
async function leads(page, words, name) {
  const cards = page.locator(`.card[data-tool="${name}"]:is([data-status=done], [data-status=failed])`);
  const before = await cards.count();
  await type(page, words);
  await cards.nth(before).waitFor({ state: 'attached' });
  return cards.nth(before);
}

look('a project goes on over the end, a reload, and another conversation', {}, async (page) => {
  await page.click('text=A list for my family');
  await page.locator('.cards .tool button').first().click();
  await page.locator('.card[data-tool=add_tool][data-status=done]').waitFor();
  await type(page, 'Build it');
  await page.locator('#questions .question').waitFor();
  assert.equal(await page.locator('.card[data-tool=generate_app]').count(), 0, 'nothing is announced before the person has agreed');
  assert.match(await page.innerText('.question'), /A list for my family\s+Takes a moment and costs nothing/);
  await page.click('.question >> text=Build it');
  await page.locator('#preview iframe').waitFor();
  assert.equal(await page.innerText('#project-title'), 'Family list');
  assert.equal(await page.locator('.turn.user', { hasText: 'Build it' }).count(), 1, 'the answer of who has just said it is not a second turn');
  const thread = await page.$$eval('#log > *', (all) => all.slice(-4).map((e) => e.dataset.tool ?? e.innerText));
  assert.ok(thread.lastIndexOf('Build it') < thread.indexOf('generate_app'), `the app stands below what led to it: ${thread}`);
  await page.frameLocator('#log .shot iframe').getByText('This week').waitFor();
  assert.match(await page.innerText('#log .shot'), /Family list\s+Uses none of your tools yet/, 'what is open is not offered');
  assert.match(await page.innerText('.card[data-tool=recommend_tools] .cards'), /Added ✓\s+\d more$/, 'what was not taken is one line');
  await page.locator('.turn.vox', { hasText: 'The example apps use none of your tools' }).waitFor();
  assert.deepEqual(await page.$$eval('#log .card', (all) => all.map((e) => e.dataset.kind)), ['offer', 'add', 'app'], 'each has its picture');
  const left = (selector) => page.$eval(selector, (e) => Math.round(e.getBoundingClientRect().left));
  assert.deepEqual([await left('#log .turn.vox'), await left('#log .shot')], [await left('#text'), await left('#text')], 'the words and the field are one column');
  const maps = await leads(page, 'Find maps', 'search_tools');
  await maps.locator('summary').last().click();
  assert.match(await maps.locator('.tool').last().innerText(), /npm install/, 'the command is below the name');
  await maps.locator('summary').last().click();
  await leads(page, 'How is my project?', 'get_project_status'); // the app stands above what is seen
  assert.match(await (await leads(page, 'Make the button green', 'change_app')).innerText(), /Version 2 of Family list · Make the button green/);
  const green = await page.getAttribute('#preview iframe', 'src');
  assert.deepEqual(await page.$$eval('#log .shot iframe', (all) => all.map((e) => e.src)), [green], 'the newest version alone is shown as it looks');
  await page.waitForFunction(() => {
    const main = document.querySelector('main');
    return !document.querySelector('#newest').checkVisibility() && main.scrollHeight - main.clientHeight - main.scrollTop < 48;
  }, null, { timeout: 5_000 }).catch(() => assert.fail('the end stays in sight when a picture above goes away'));
  await page.click('#tab-versions');
  assert.equal(await page.locator('#versions .thumb').count(), 2, 'each version has its picture');
  assert.match(await page.innerText('#versions'), /Version 2 Make the button green\s+from version 1 · index\.html \+1 −1/);
  await page.click('#tab-files');
  await page.getByText('<title>Family list</title>').waitFor();
  const other = (id) => page.click('#other summary').then(() => page.click(id));
  const [zip] = await Promise.all([page.waitForEvent('download'), other('#download')]);
  assert.equal(zip.suggestedFilename(), 'Family list.zip');
  const listed = execFileSync('python3', ['-c', 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.testzip(), z.namelist(), len(z.read("index.html")) > 500)', await zip.path()]);
  assert.equal(String(listed).trim(), "None ['index.html'] True");
  const [tab] = await Promise.all([page.context().waitForEvent('page'), other('#tab')]);
  await tab.getByText('This week').waitFor();
  await tab.close();
  await page.click('#tab-preview');
  await other('#narrow');
  assert.equal(Math.round((await page.locator('#preview iframe').boundingBox()).width), 390, 'as wide as a phone');
  await other('#narrow');
  await page.frameLocator('#preview iframe').locator('[type=text]').fill('Tea');
  await other('#reload');
  await page.waitForFunction(() => document.querySelector('#preview iframe'));
  assert.equal(await page.frameLocator('#preview iframe').locator('[type=text]').inputValue(), '', 'loaded again');
  await page.evaluate(() => {
    navigator.share = undefined;
    navigator.clipboard.writeText = async (text) => (window.copied = text);
  });
  await other('#share');
  await page.getByText('The address of the app is copied.').waitFor();
  assert.equal(await page.evaluate(() => copied), green);
  await says(page, 'Type, or use the microphone.');
  assert.deepEqual([await page.getAttribute('#orb', 'state'), await page.getAttribute('#mute', 'data-on')], ['ready', null], 'who types has nothing switched off');
  const shows = async (same, head, why) => {
    await page.waitForFunction(([green, same]) => (document.querySelector('#preview iframe').src === green) === same, [green, same]);
    await page.locator('#log > :last-child', { hasText: head }).waitFor();
    assert.deepEqual(await page.$$eval('#log .shot iframe', (all) => all.map((e) => e.src)), [await page.getAttribute('#preview iframe', 'src')], why);
  };
  await page.click('#undo');
  await shows(false, 'Family list is as it was in version 1', 'the card shows the version that its head names');
  await page.click('#tab-versions');
  await page.click('.version >> text=Show');
  await shows(true, 'Family list is as it was in version 2');
  assert.equal(await page.locator('.card[data-tool=undo_change]').count(), 1, 'one after the other is one card');
  await page.click('#end');
  await says(page, 'Press the microphone to go on.');
  const turns = await page.locator('.turn').count();
  await page.click('#undo');
  await shows(false, 'Family list is as it was in version 1', 'also after the end');

  await page.click('#tab-preview'); // as after a reload
  const cards = await page.$$eval('#log .card', (all) => all.map((e) => e.innerText));

  await page.click('#close');
  await page.reload();
  await page.locator('#preview iframe').waitFor({ state: 'attached' });
  assert.ok(await page.isHidden('#project'), 'who has put the project away does not get it back by a reload');
  await page.click('#open');
  assert.notEqual(await page.getAttribute('#preview iframe', 'src'), green);
  assert.deepEqual(await page.$$eval('#log .card', (all) => all.map((e) => e.innerText)), cards, 'cards survive');
  await page.click('#tab-versions');
  await page.click('.version >> text=Show');
  await shows(true, 'version 2', 'and after a reload');
  await page.click('#tab-preview');
  assert.deepEqual([await page.locator('.turn').count(), await page.locator('#added .tool').count()], [turns, 1]);
  await says(page, 'Your conversation is kept. Press the microphone to go on.');
  await start(page);
  await says(page, 'Listening');
  const hello = await page.evaluate(() => frames_.find((f) => f.way === 'up').message);
  assert.match(hello.project, /^[A-Z2-7]{26}$/);
  assert.equal(hello.projectContext.earlier[0].text, 'A list for my family');
  const undone = await leads(page, 'Undo', 'undo_change'); // of the version that was chosen without a conversation
  assert.match(await undone.innerText(), /Family list is as it was in version 1/);
  const renamed = await leads(page, 'Call it Our week', 'change_app');
  assert.match(await renamed.innerText(), /Version 3 of Our week · Call it Our week\s+Our week\s+Uses none/);
  assert.deepEqual([await page.innerText('#name'), await page.innerText('#project-title')], ['Our week', 'Our week'], 'each place has the new name');
  assert.equal(await page.locator('#added .tool').count(), 1);
  await page.click('#name');
  await page.click('#new');
  await page.getByRole('heading', { name: 'What are you building?' }).waitFor();
  await says(page, 'Ready. Press the microphone and speak.');
  assert.equal(await page.locator('#project').isVisible(), false);
  await page.frameLocator('#recent .shot iframe').getByText('Our week').waitFor();
  assert.ok(await page.$eval('#send', (e) => e.getBoundingClientRect().bottom <= innerHeight), 'the projects leave room for the field');
  assert.match(await page.innerText('#recent'), /Our week\s+Today, \d/);
  await type(page, 'A drum machine');
  await page.locator('.cards .tool').first().waitFor();
  await page.click('#name');
  assert.deepEqual(await page.$$eval('#kept b', (all) => all.map((e) => e.innerText)), ['A drum machine', 'Our week']);
  await page.click('#kept .shot >> text=Our week');
  await page.waitForFunction(() => document.querySelector('#name').textContent === 'Our week');
  assert.deepEqual(await page.$$eval('#log .card', (all) => all.map((e) => e.dataset.tool)), ['recommend_tools', 'add_tool', 'generate_app', 'search_tools', 'get_project_status', 'change_app', 'undo_change', 'undo_change', 'change_app']);
  await page.click('#name');
  await page.click('#kept .drop[aria-label="Remove: A drum machine"]');
  assert.equal(await page.locator('#kept li').count(), 2);
  assert.ok(await page.isVisible('#kept b >> text=A drum machine'), 'the name stays');
  for (const width of [390, 1280]) { // where the other buttons are must not depend on the question, which goes when one of them is pressed
    await page.setViewportSize({ width, height: 800 });
    const newAt = () => page.$eval('#new', (e) => e.getBoundingClientRect().top);
    await page.click('#kept .drop[aria-label$="Our week"]');
    const asked = await newAt();
    await page.focus('#new');
    assert.equal(await newAt(), asked, `${width} px`);
  }
  await page.click('#kept .drop[aria-label="Remove: A drum machine"]');
  await page.click('#kept .stop >> text=Really remove?');
  assert.equal(await page.locator('#kept li').count(), 1);
});

look('the orb is large until there are words, and the project stands beside them once there is an app', {}, async (page) => {
  assert.match(await page.innerText('.lead'), /^Tell VOX, and it builds a small web app/, 'what it is');
  assert.match(await page.innerText('.leaves:visible'), /costs nothing; voice and apps stay/, 'what it costs, and what is kept');
  assert.equal(await page.$eval('#status', (e) => getComputedStyle(e).clipPath), 'inset(50%)', 'the orb says to who sees it that it is ready');
  await start(page);
  await says(page, 'Listening');
  const orb = () => page.$eval('#orb', (e) => e.getBoundingClientRect().width);
  assert.ok(await orb() > 180, `${await orb()} px`);
  await page.evaluate(() => {
    window.shifts = [];
    new PerformanceObserver((list) => shifts.push(...list.getEntries().filter((e) => !e.hadRecentInput).map((e) => e.value))).observe({ type: 'layout-shift' });
  });
  await call(page, 'add_tool', { tool_id: 'stripe' });
  assert.ok(await orb() > 130, 'there is room for it and the words');
  assert.equal(await page.isVisible('#project'), false, 'one tool is no reason for half of the window');
  const shift = await page.evaluate(() => shifts.reduce((a, b) => a + b, 0));
  assert.ok(shift <= 0.02, `layout shift ${shift}`);
  await call(page, 'recommend_tools', { project_summary: 'a list for my family with a map' });
  await page.waitForFunction(() => document.querySelector('#orb').getBoundingClientRect().width < 100); // the words need its room
  await page.click('#open');
  await page.locator('#added .tool').waitFor();
  await page.locator('#added .place', { hasText: 'The app appears here.' }).waitFor();
  await page.click('#close');
  await page.locator('#project').waitFor({ state: 'hidden' });
  assert.equal(await page.evaluate(() => document.activeElement.id), 'open');
  await type(page, `/tool generate_app ${JSON.stringify({ prompt: 'an HTML page with a counter' })}`);
  await page.click('.question >> text=Build it');
  await page.locator('#preview iframe').waitFor();
  await page.click('#name');
  const [button, sheet] = await page.$$eval('#name, #shelf', (all) => all.map((e) => e.getBoundingClientRect().toJSON()));
  assert.ok(Math.abs(sheet.left - button.left) < 100 && sheet.top >= button.bottom - 12, 'the projects open below their button');
  await page.click('#shelved');
  const place = () => page.$eval('#project', (e) => e.getBoundingClientRect().toJSON());
  const before = await place();
  await page.click('#settings');
  assert.deepEqual(await place(), before, 'nothing moves under the settings');
  await page.click('dialog[open] #mute');
  await says(page, 'You are muted.');
  await page.click('dialog[open] #end');
  await says(page, 'The conversation is over.');
  await page.click('#done');
  await page.locator('body > footer #talk').waitFor();
});

const apps = [['Ein Drumcomputer', 'Drumcomputer', 'Klatschen', 'Da ist sie.'], ['A map of restaurants', 'Restaurants', 'Osteria Nove'], ['A drum machine', 'Drum machine', 'Hi-hat']];
for (const [wish, name, part, words = 'Here it is.'] of variants(apps)) {
  const german = words !== 'Here it is.';
  look(`the guided example builds what "${wish}" says`, { query: `vox/${german ? '?lang=de' : ''}` }, async (page) => {
    await page.click(`text=${wish}`);
    await page.locator('.cards .tool').first().waitFor();
    if (german) assert.match(await page.innerText('.cards'), /Macht Musik im Browser[^]*Hinzufügen/);
    await type(page, german ? 'Baue es' : 'Build it');
    await page.click('.question .yes');
    await page.frameLocator('#preview iframe').getByText(part, { exact: true }).first().waitFor();
    assert.equal(await page.innerText('#name'), name);
    await page.locator('.turn.vox', { hasText: words }).waitFor();
  });
}

for (const [lang, heard, unknown, wish] of variants([
  ['de', 'kann Gesprochenes nicht verstehen', 'Ich kenne: eine Liste für die Familie', 'Eine Familienliste'],
  ['en', 'cannot make out speech', 'I know: a list for my family', 'A list for my family'],
])) look(`the guided example says what it understands (${lang})`, { query: `vox/?lang=${lang}`, sounds: [silence(1), tone(0.8), silence(60)] }, async (page) => {
  await start(page);
  await says(page, lang === 'de' ? 'Ich höre zu\u00a0· drücken Sie auf einen Vorschlag' : 'Listening\u00a0· press a proposal, or type');
  assert.equal(await page.locator('#tries button:visible').count(), 3, 'the proposals stay');
  await page.locator('.turn.vox', { hasText: heard }).waitFor();
  assert.equal(await page.locator('.turn.user').count(), 0, 'nothing was understood');
  assert.match(await page.innerText('#name'), lang === 'de' ? /^Neues Projekt/ : /^New project/);
  await page.click(`#tries >> text=${wish}`);
  await page.locator('.cards .tool').first().waitFor();
  assert.equal(await page.locator('#tries button:visible').count(), 0);
  assert.match(await page.innerText('#name'), new RegExp(`^${wish}`));
  await type(page, 'One two three');
  await page.locator('.turn.vox', { hasText: unknown }).waitFor();
});

look('on a phone the dock stays in sight over each sheet', { context: { viewport: { width: 390, height: 844 } } }, async (page) => {
  assert.equal(await page.$$eval('#tries button', (all) => new Set(all.map((e) => e.getBoundingClientRect().top)).size), 1, 'the proposals stand in one row');
  await page.click('text=A list for my family');
  await page.locator('.cards .tool button').first().click();
  await page.locator('.card[data-tool=add_tool][data-status=done]').waitFor({ state: 'attached' });
  await page.locator('.turn.vox', { hasText: 'Added.' }).waitFor();
  await says(page, 'Type, or use the microphone.');
  const typed = await page.$$eval('.dock > *', (all) => all.filter((e) => e.checkVisibility()).map((e) => [e.id, e.getBoundingClientRect()]).map(([id, { x, width }]) => [id, Math.round(x + width / 2) - 195]));
  const [[, orb], [, keyboard], [, end]] = typed;
  assert.deepEqual(typed.map(([id]) => id), ['talk', 'keyboard', 'end'], 'one microphone');
  assert.ok(Math.abs(keyboard + end) <= 1 && end > 40 && Math.abs(orb) <= 1, `one button on either side of the orb: ${typed}`);
  await page.click('#talk');
  await page.locator('#mute').waitFor();
  await awaitAnimations(page);
  const dock = () => page.$$eval('#talk, #mute, #end, #status', (all) => all.filter((e) => {
    const { x, y, width, height } = e.getBoundingClientRect();
    return e.contains(document.elementFromPoint(x + width / 2, y + height / 2)) && y + height <= innerHeight;
  }).map((e) => e.id).sort());
  const middle = await page.$eval('#talk', (e) => e.getBoundingClientRect().x + e.offsetWidth / 2);
  assert.ok(Math.abs(middle - 195) <= 1, `the orb is in the middle of the phone, not at ${middle}`);
  // The orb stands among them, or large above them.
  const gaps = await page.$$eval('.dock > :is(.icon, .orb)', (all) => {
    const boxes = all.map((e) => e.getBoundingClientRect());
    return boxes.filter((r) => r.bottom > boxes[0].top).map((r, i, row) => (i ? r.left - row[i - 1].right : 0)).slice(1);
  });
  assert.ok(gaps.length >= 3 && gaps.every((gap) => Math.abs(gap - gaps[0]) < 1 && gap > 8), `equal gaps: ${gaps}`);
  for (const [open, close] of [['#open', '#close'], ['#settings', '#done'], ['.dock > .more', '#read'], ['#name', '#shelved']]) {
    await page.click(open);
    assert.deepEqual(await dock(), ['end', 'mute', 'status', 'talk'], open);
    assert.ok(await page.$$eval('dialog[open]', (all) => all.every((e) => e.offsetWidth === innerWidth)), `${open} is as wide as the phone`);
    await page.click('#mute');
    await page.click(close);
  }
  await page.click('.dock > .more');
  await page.click('#statistics');
  await page.locator('.statistics details').waitFor();
  assert.deepEqual(await dock(), ['end', 'mute', 'status', 'talk'], 'statistics');
  await page.keyboard.press('Escape');
  await page.locator('.statistics').waitFor({ state: 'detached' });
  assert.doesNotMatch(await page.innerText('#status'), /Esc/, 'that has closed the sheet alone');
  assert.deepEqual(await dock(), ['end', 'mute', 'status', 'talk']);
});

look('begins anew where what the browser has kept cannot be read', { init: () => localStorage.setItem('voxgate.vox', '{"project":{"apps":7},"theme":"none"}') }, async (page) => {
  await page.getByRole('heading', { name: 'What are you building?' }).waitFor();
  await start(page);
  await says(page, 'Listening');
});

look('an app is written when the person agrees, and cannot leave its frame', {}, async (page) => {
  await start(page);
  await says(page, TALKS);
  const make = { prompt: 'an HTML page with a counter' };
  await type(page, `/tool generate_app ${JSON.stringify(make)}`);
  await page.locator('.question', { hasText: 'New app' }).waitFor();
  await says(page, 'Waiting for your answer');
  assert.match(await status(page), /answer\u00a0· say it/, 'no line begins with a dot');
  await page.click('.question >> text=Not now');
  await page.locator('.card', { hasText: 'Not built' }).waitFor();
  await page.locator('.turn.user >> text=Not now').waitFor();
  assert.equal(await page.locator('iframe').count(), 0);
  await type(page, `/tool generate_app ${JSON.stringify(make)}`);
  await page.click('.question >> text=Build it');
  await page.locator('#preview iframe').waitFor({ state: 'attached' });
  const frame = await (await page.locator('#preview iframe').elementHandle()).contentFrame();
  await frame.waitForSelector('button');
  assert.deepEqual(page.complaints, [], 'the browser understands how the app is served');
  assert.match(await page.innerText('.card[data-tool=generate_app] >> nth=1'), /Wrote an HTML page with/);

  const { href } = new URL('.', page.url());
  const tried = await frame.evaluate(async (page) => {
    const attempt = async (f) => {
      try {
        return `done: ${await f()}`;
      } catch (e) {
        return e.name;
      }
    };
    const socket = (url) => new Promise((resolve, reject) => {
      const s = new WebSocket(url);
      s.onopen = () => resolve('open');
      s.onerror = () => reject(new DOMException('', 'NetworkError'));
    });
    return {
      origin,
      page: await attempt(() => parent.document.title),
      storage: await attempt(() => localStorage.length),
      cookies: await attempt(() => document.cookie),
      status: await attempt(() => fetch(new URL('/status', page)).then((r) => r.text())),
      models: await attempt(() => fetch(new URL('/v1beta/models', page)).then((r) => r.text())),
      talk: await attempt(() => socket(new URL('/api/vox/live', page).href.replace('http', 'ws'))),
      microphone: await attempt(() => navigator.mediaDevices.getUserMedia({ audio: true })),
      top: await attempt(() => { top.location = 'about:blank'; }),
    };
  }, href);
  assert.deepEqual(tried, {
    origin: 'null', page: 'SecurityError', storage: 'SecurityError', cookies: 'SecurityError', status: 'TypeError', models: 'TypeError',
    talk: 'NetworkError', microphone: 'SecurityError', top: 'SecurityError',
  });
  assert.equal(await page.getAttribute('#preview iframe', 'sandbox'), 'allow-scripts allow-forms allow-modals');
  await says(page, TALKS);
  page.complaints.length = 0; // of the attempts
});

const over = [silence(1), speech(), speech(), speech(), silence(1.8), tone(0.6)];
look('is spoken to, interrupted and muted', { sounds: over, repeats: true }, async (page, t) => {
  const judge = clock(t);
  await page.evaluate(() => (window.twice = true)); // more is queued than the gateway sends ahead, or silence came by itself
  assert.equal(await status(page), 'Ready. Press the microphone and speak.');
  await start(page);
  await says(page, 'Speaking');
  const { at } = await gets(page, 'interrupted');
  const last = await hearsNothing(page, at);
  const spoke = await page.evaluate((at) => heard.some((f) => f.level > 0.005 && f.at > at - 1_000 && f.at < at), at);
  judge(() => assert.ok(spoke, 'heard until then')); // a busy page hears late
  judge(() => assert.ok(last - at < 200, `heard for ${last - at} ms after interrupted`));
  await page.evaluate(() => (window.twice = false));
  assert.match(await page.textContent('.turn.vox'), /^You/);
  await says(page, 'Speaking'); // it answers the interruption

  await page.keyboard.press('m');
  await says(page, 'You are muted.', 10_000);
  const muted = await now(page);
  await page.waitForTimeout(500); // a dozen frames, were it not so
  const sent = await page.evaluate((muted) => frames_.filter((f) => f.way === 'up' && f.at > muted).length, muted);
  assert.equal(sent, 0, 'no sound goes up');
  const said = await page.evaluate(() => frames_.filter((f) => f.message?.type === 'mute').map((f) => f.message.muted));
  assert.deepEqual(said, [true]);
  await page.click('#mute');
  await page.waitForFunction((muted) => frames_.some((f) => f.way === 'up' && f.bytes === 1280 && f.at > muted), muted);
});

look('the end of an answer that is cut off stands above what cut it off', { repeats: true }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, 'One sentence is said. Another one follows. A third one comes. A fourth one ends it.');
  await says(page, 'Speaking');
  await page.locator('.turn.vox').waitFor();
  await type(page, 'And now?');
  await page.locator('.turn.vox', { hasText: 'And now?' }).waitFor();
  const turns = await page.$$eval('.turn', (all) => all.map((e) => e.className.replace('turn ', '')));
  assert.deepEqual(turns, ['user', 'vox', 'user', 'vox']);
});

/** Runs in the page before its own scripts: a gateway that says what `gate.tell` is given. */
function scripted() {
  window.WebSocket = class extends EventTarget {
    static OPEN = 1;
    readyState = 1;
    bufferedAmount = 0;
    constructor() {
      super();
      window.gate = this;
      setTimeout(() => this.onopen());
    }
    tell(...messages) {
      for (const message of messages) this.onmessage({ data: JSON.stringify(message) });
    }
    send(data) {
      if (typeof data === 'string' && JSON.parse(data).type === 'start') setTimeout(() => this.tell({ type: 'ready', sessionId: 's', mode: 'live' }));
    }
    close() {}
  };
}
look('a button that is pressed at once repeats nothing, and only what ends in the middle of a sentence was interrupted', { init: scripted }, async (page) => {
  const tell = (...messages) => page.evaluate((messages) => gate.tell(...messages), messages);
  const vox = (text, newTurn) => ({ type: 'transcript', role: 'vox', text, newTurn });
  const turns = () => page.$$eval('.turn', (all) => all.filter((e) => e.checkVisibility()).map((e) => e.innerText.replace(/\s+/g, ' ')));
  await start(page);
  await says(page, 'Listening');
  await type(page, 'Build it!');
  const args = { prompt: 'A list' };
  const asked = [{ type: 'tool_call', id: 'c', name: 'generate_app', args }, { type: 'question', id: 'q', text: 'Build A list?' }];
  await tell(...asked);
  await page.click('.question >> text=Build it');
  await tell(vox('Shall I build it'), { type: 'interrupted' });
  assert.deepEqual(await turns(), ['Build it!'], 'what was asked and said stands there once');
  await tell(vox('It is written. Now say', true), { type: 'interrupted' }, vox(' what', false));
  await type(page, 'Green');
  await tell(vox('Done.', true), { type: 'interrupted' });
  await type(page, 'Undo');
  await tell(vox('Fine. It is as', true), { type: 'interrupted' });
  const said = ['Build it!', 'It is written. Now say what…', 'Green', 'Done.', 'Undo'];
  assert.deepEqual(await turns(), [...said, 'Fine. It is as…'], 'who has typed knows it');
  await tell(vox(' before.'));
  assert.deepEqual((await turns()).at(-1), 'Fine. It is as before.', 'the end came after the interruption');
  await type(page, 'Bigger');
  await tell(vox('Added. When', true), { type: 'interrupted' });
  assert.deepEqual((await turns()).slice(-2), ['Bigger', 'Added.'], 'one or two words of a sentence are not shown');
  await type(page, 'Smaller');
  await tell(vox('These would', true), { type: 'interrupted' });
  assert.deepEqual((await turns()).at(-1), 'Smaller');
  await tell(...asked, vox('Shall I build it?', true));
  await page.click('.question >> text=Not now');
  assert.deepEqual((await turns()).slice(-2), ['Shall I build it?', 'Not now']);
  await tell({ ...asked[0], id: 'd' }, { ...asked[1], id: 'r' });
  await page.click('.question >> text=Build it');
  await tell({ type: 'question', id: 'r', withdrawn: true }, { type: 'ui_action', action: 'app_progress', app: 'List' });
  const thread = await page.$$eval('#log > *', (all) => all.map((e) => e.dataset.tool ?? e.innerText));
  await tell({ type: 'tool_result', id: 'd', name: 'generate_app', data: { status: 'writing', app: 'List' } }); // it comes after 10 s
  assert.deepEqual(thread.slice(-2), ['Build it', 'generate_app'], 'what is being written stands below the answer');
  const outline = () => page.innerText('#preview').then((text) => text.split('\n')[1]);
  assert.match(await page.innerText('#preview'), /^List\nThinking it through…\nIt takes a moment/, 'the outline of the app has its name');
  for (const [part, words] of [['style', 'Choosing colours and shapes…'], ['page', 'Writing the page…'], ['script', 'Writing what it does…']]) {
    await tell({ type: 'ui_action', action: 'app_progress', app: 'List', bytes: 2_048, part });
    assert.equal(await outline(), words);
  }
  await says(page, 'Listening'); // the outline says what is written
  assert.equal(await page.isVisible('#log .outline'), false, 'and is shown once');
  await page.setViewportSize({ width: 390, height: 844 });
  assert.match(await page.innerText('#log .shot'), /List\s+Open\s+Writing what it does…/, 'where the project is a sheet, the thread has it');
});

look('goes on after its socket was cut, with its project, and ends', {}, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await call(page, 'add_tool', { tool_id: 'stripe' });
  const first = await gets(page, 'ready');
  const cut = await now(page);
  await page.evaluate(() => {
    Math.random = () => 1_000; // no other socket until there is a network again
    sockets.at(-1).close();
  });
  await says(page, 'Reconnecting…');
  assert.equal(await page.getAttribute('body', 'data-state'), 'reconnecting');
  await type(page, '/tool get_project_status {}'); // waits
  await page.locator('.turn.waiting', { hasText: 'is sent when we are back' }).waitFor();
  await page.locator('#since', { hasText: /\d s/ }).waitFor();
  await page.click('#retry');
  const again = await gets(page, 'ready', cut);
  assert.deepEqual([again.message.resumed, again.message.sessionId], [true, first.message.sessionId]);
  await page.getByText('Looked at your project').waitFor();
  assert.equal(await page.locator('.turn.waiting').count(), 0);
  assert.equal(await page.isVisible('#absence'), false);
  assert.match(await page.innerText('#log'), /Added Stripe[^]*Looked at your project/);
  assert.equal(await page.locator('#added .tool').count(), 1);

  await page.evaluate(() => {
    window.tracks = [];
    const stop = MediaStreamTrack.prototype.stop;
    MediaStreamTrack.prototype.stop = function () { tracks.push(this); stop.call(this); };
  });
  await page.click('#end');
  await says(page, 'The conversation is over. Press the microphone to go on.');
  assert.deepEqual(await page.evaluate(() => tracks.map((t) => t.readyState)), ['ended'], 'nobody listens');
  await page.waitForFunction(() => sockets.at(-1).readyState === WebSocket.CLOSED);
  assert.equal(await page.evaluate(() => frames_.findLast((f) => f.way === 'up').message.type), 'end');
});

look('what was typed while the gateway was away, and never sent, is in the field again', {}, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => {
    Math.random = () => 1_000;
    sockets.at(-1).close();
  });
  await says(page, 'Reconnecting…');
  await type(page, 'Hello?');
  await page.locator('.turn.waiting', { hasText: 'Hello?' }).waitFor();
  await page.click('#end');
  await page.getByText('Not sent. It is in the field again.').waitFor();
  assert.deepEqual([await page.inputValue('#text'), await page.locator('.turn').count()], ['Hello?', 0]);
});

function readAloud() {
  window.spoken = [];
  speechSynthesis.speak = (u) => void (spoken.push(u.text), u.onstart?.(), setTimeout(() => u.onend?.(), 50));
  const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = (o) => ((window.asked = true), ask(o));
}
look('a model that writes is typed to and read aloud', { init: readAloud, repeats: true }, async (page) => {
  await page.click('#settings');
  await page.waitForFunction(() => document.querySelector('#model').options.length > 1);
  const models = await page.$$eval('#model option', (all) => all.map((o) => o.value));
  assert.ok(models.includes('gemini-3.8-flash') && !models.some((m) => m.includes('live')), String(models));
  await page.selectOption('#model', 'gemini-3.8-flash');
  await page.click('#done');
  await type(page, 'Hello there');
  await page.locator('.turn.vox').waitFor();
  await says(page, 'Type to VOX.');
  const { message } = await gets(page, 'ready');
  assert.deepEqual([message.mode, message.model], ['text', 'gemini-3.8-flash']);
  assert.equal(await page.innerText('#recording'), 'Recording');
  const answer = await page.textContent('.turn.vox');
  assert.match(answer, /Hello there/);
  assert.equal(await page.evaluate(() => spoken.join('')), answer);
  assert.match(await (await call(page, 'search_tools', { query: 'payments' })).innerText(), /Found \d tools/);
  await says(page, 'Type to VOX.'); // which is over
  await type(page, '/status 503'); // there is no answer
  await says(page, 'Type to VOX.');
  await page.click('#settings');
  await page.uncheck('#speak');
  await page.click('#done');
  const before = await page.evaluate(() => spoken.length);
  await type(page, 'And now be silent');
  await page.getByText('And now be silent').nth(1).waitFor();
  assert.equal(await page.evaluate(() => spoken.length), before);
  assert.equal(await page.evaluate(() => window.asked), undefined, 'nobody asked for the microphone');
});

// Firefox captures at the device's rate alone.
function device() {
  const create = AudioContext.prototype.createMediaStreamSource;
  AudioContext.prototype.createMediaStreamSource = function (stream) {
    if (this.sampleRate === 16_000) throw new DOMException('', 'NotSupportedError');
    return create.call(this, stream);
  };
}
look('a browser that captures at another rate is understood', { init: device, sounds: [silence(1), tone(0.6)], repeats: true }, async (page) => {
  await start(page);
  await hears(page, { tone: 0.25 });
});

for (const [why, name, sentence] of [
  ['refused', 'NotAllowedError', 'The microphone is not allowed.'],
  ['not there', 'NotFoundError', 'No microphone was found.'],
  ['in use', 'NotReadableError', 'The microphone is in use by another program.'],
]) {
  const init = `() => { navigator.mediaDevices.getUserMedia = () => ((window.asked = (window.asked ?? 0) + 1), Promise.reject(new DOMException('', '${name}'))); }`;
  look(`says that the microphone is ${why}`, { init }, async (page) => {
    await start(page);
    await says(page, sentence);
    await page.waitForFunction(() => document.body.dataset.state === 'typed'); // not: listening
    if (why !== 'refused') return;
    const middles = await page.$$eval('#orb, #end', (all) => all.map((e) => e.getBoundingClientRect()).map(({ x, width }) => Math.round(x + width / 2)));
    assert.deepEqual(middles, [640, 640], 'without the button for the microphone End stands below the orb');
    await page.getByText('You can also type.').waitFor();
    assert.equal(await page.locator('#tries button:visible').count(), 3, 'and the proposals stay');
    await page.click('#tryagain');
    await page.waitForFunction(() => window.asked === 2);
    await page.locator('#tryagain').waitFor();
    await type(page, 'Hello');
    await says(page, 'Speaking');
    await hears(page, { sound: 0.3 });
    await says(page, 'No microphone. Try again'); // who types has read the rest
    assert.equal(await page.$eval('#talk', (e) => Math.round(e.getBoundingClientRect().x + e.offsetWidth / 2)), 640, 'the orb stays in the middle');
  });
}

/** Runs in the page before its own scripts: a door that does what `window.door` says. */
function refuse() {
  window.WebSocket = class extends EventTarget {
    static OPEN = 1;
    readyState = 0;
    bufferedAmount = 0;
    constructor() {
      super();
      setTimeout(() => {
        if (!window.door) return this.close();
        this.readyState = 1;
        this.onopen();
      });
    }
    send(data) {
      window.hello = JSON.parse(data);
      for (const message of window.door) this.onmessage({ data: JSON.stringify(message) });
      this.close();
    }
    close() {
      if (this.readyState !== 3) setTimeout(() => this.onclose({ code: 1006 }));
      this.readyState = 3;
    }
  };
}
look('says why it was refused, and hears nobody', { init: refuse }, async (page) => {
  const error = (code, message, retryAfterMs) => [{ type: 'error', code, message, retryAfterMs }, { type: 'session_end', reason: 'error', message }];
  for (const [door, sentence] of [
    [undefined, 'There is no connection. Press the microphone to try again.'],
    [error('unauthorized', 'no'), 'You are not signed in here, or no longer. Open this page again from where you came.'],
    [error('forbidden', 'This token does not grant the model.'), 'This token does not grant the model.'],
    [error('busy', 'full', 11_200), 'Busy just now. Try again in a minute.'],
    [error('busy', 'full'), 'Busy just now. Try again in a minute.'],
    [[{ type: 'error', code: 'bad_message', message: 'targets[0] must be a name.' }], 'targets[0] must be a name.'],
    [[], 'The connection was lost. Press the microphone to try again.'],
    [[{ type: 'ready', sessionId: 's', mode: 'live' }], 'The connection was lost. Press the microphone to try again.'],
    [[{ type: 'ready', sessionId: 's' }, { type: 'session_end', reason: 'timeout', message: 'The hour is over.' }], 'The hour is over.'],
  ]) {
    await page.evaluate((door) => (window.door = door), door ?? null);
    await page.keyboard.press('Enter');
    await says(page, sentence);
    assert.equal(await page.getAttribute('body', 'data-state'), 'ready', sentence);
    assert.equal(await page.textContent('#talk .unseen'), 'Talk');
  }
});

look('waits for a token, but not for ever', { init: refuse }, async (page) => {
  await page.clock.install();
  await page.evaluate(async () => {
    const { VoxLive } = await import('./vox.js');
    window.door = [{ type: 'ready', sessionId: 's', resume: 'r' }];
    const never = () => new Promise(() => {});
    const talk = (token) => {
      const vox = new VoxLive({ url: '/api/vox/live', mic: false, token });
      return { vox, began: vox.startSession().then(() => 'ready', (e) => e.code) };
    };
    window.late = talk(never);
    window.none = talk(() => Promise.reject(new Error('no backend')));
    window.asked = 0;
    window.lost = talk(() => (++asked === 2 ? never() : 'secret')); // what is late for one connection may come for the next
  });
  assert.equal(await page.evaluate(() => none.began), 'no_token');
  await page.clock.runFor(9_000);
  assert.deepEqual(await page.evaluate(() => [late.vox.state, lost.vox.state, asked]), ['connecting', 'reconnecting', 2]);
  await page.clock.runFor(9_000);
  assert.equal(await page.evaluate(() => late.began), 'no_token');
  assert.deepEqual(await page.evaluate(() => [late.vox.state, late.vox.message]), ['failed', 'You could not be signed in. Press the microphone to try again.']);
  assert.ok((await page.evaluate(() => asked)) > 2);
});

look('a token behind the # goes to the gateway and out of sight', { init: refuse, query: 'vox/#token=secret' }, async (page) => {
  assert.doesNotMatch(page.url(), /secret/);
  await page.evaluate(() => (window.door = []));
  await start(page);
  await page.waitForFunction(() => window.hello?.token === 'secret');
});

look('says so when a microphone gives nothing', { init: shiftClock }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => void (later += 10_000));
  await says(page, 'We hear nothing from your microphone.');
  assert.equal(await page.getAttribute('#orb', 'state'), 'listening', 'the microphone is open, only silent');
  await page.click('#other-microphone');
  await page.locator('[name=microphone]').waitFor();
  await page.click('#done');
  await page.click('#mute');
  await says(page, 'You are muted.');
  await page.click('#mute');
  await says(page, 'Listening');
});

look('the settings have the microphone, the language and samples of the voices', { init: () => {
  const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  window.wishes = [];
  navigator.mediaDevices.getUserMedia = (wish) => (wishes.push(wish.audio), ask(wish));
} }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#settings');
  await page.locator('[name=microphone]').waitFor();
  const id = await page.$eval('[name=microphone]', (e) => e.options[2].value);
  await page.selectOption('[name=microphone]', id);
  await page.waitForFunction((id) => wishes.at(-1)?.deviceId?.ideal === id, id);
  await page.selectOption('[name=language]', 'de-DE');
  await page.click('.sample[title*=Aoede]');
  await says(page, 'You are muted.'); // the sample is not taken for the person
  await page.waitForFunction(() => document.querySelectorAll('[aria-busy]').length === 0);
  await says(page, 'Listening');
  await page.keyboard.press('Escape');
  await page.click('#end');
  await start(page);
  await page.waitForFunction(() => frames_.filter((f) => f.message?.type === 'start').at(-1).message.language === 'de-DE');
  assert.equal(await page.evaluate(() => wishes.at(-1).deviceId.ideal), id);
});

look('push to talk: what is said while Space or the orb is held is heard', { init: () => localStorage.setItem('voxgate.settings', '{"push":true}') }, async (page) => {
  await start(page);
  await says(page, 'Hold Space or the orb to talk.');
  assert.equal(await page.evaluate(() => frames_.find((f) => f.way === 'up').message.pushToTalk), true);
  const up = () => page.evaluate(() => frames_.filter((f) => f.way === 'up' && f.message?.type !== 'start').map((f) => f.message?.talking ?? 'sound').filter((x, i, all) => x !== all[i - 1]));
  assert.deepEqual(await up(), [], 'nothing is sent before');
  await page.keyboard.down('Space');
  await says(page, 'Listening');
  await page.waitForFunction(() => frames_.some((f) => f.way === 'up' && f.bytes));
  await page.keyboard.up('Space');
  await says(page, 'Hold Space or the orb to talk.');
  assert.deepEqual(await up(), [true, 'sound', false]);
  const { x, y, width, height } = await page.locator('#talk').boundingBox();
  await page.mouse.move(x + width / 2, y + height / 2);
  await page.mouse.down();
  await says(page, 'Listening');
  await page.mouse.up();
  await says(page, 'Hold Space or the orb to talk.');
  assert.ok(await page.isDisabled('#mute'));
  await page.click('#settings');
  await page.locator('[name=push]').uncheck();
  await page.click('#done');
  await page.click('#end');
  await start(page);
  await says(page, 'Listening');
});

look('the statistics, and a file of what was said and done', {}, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await call(page, 'search_tools', { query: 'payments' });
  await type(page, 'Hello');
  await page.locator('.turn.vox').first().waitFor();
  await page.waitForFunction(() => got('latency') && got('usage'));
  await call(page, 'add_tool', { tool_id: 'stripe' });
  await page.click('header > .more');
  assert.match(await page.innerText('#about'), /Voice\s+Orus[^]*Stripe\s+Takes card payments and subscriptions\s+stripe.com\s+npm install stripe/);
  const { name, content } = await saves(page, () => page.click('#keep'));
  assert.match(name, /\.md$/);
  assert.match(String(content), /^\*\*You:\*\* \/tool search_tools[^]*\n\n\*Tool:\* Found \d tools for “payments”/);
  assert.match(String(content), /\*\*VOX:\*\* /);
  await page.click('#statistics');
  assert.match(await page.innerText('.statistics .number'), /^\d+(\.\d+)? (s|ms)$/);
  await page.click('.statistics summary');
  assert.match(await page.innerText('.statistics details dl'), /WebSocket[^]*\d+ \/ \d+/);
});

look('can be used with keys alone', {}, async (page) => {
  await page.keyboard.press('Enter');
  await says(page, 'Listening');
  await page.keyboard.press('m');
  await says(page, 'You are muted. VOX does not hear you.');
  await page.keyboard.press('m');
  await says(page, 'Listening');
  await page.focus('#text');
  await page.keyboard.type('mmm');
  assert.match(await status(page), /^Listening/, 'letters typed are no commands');
  await page.keyboard.press('Enter');
  await says(page, 'Speaking');
  await page.keyboard.press('Escape');
  assert.notEqual(await page.evaluate(() => document.activeElement.id), 'text', 'Esc leaves the field first');
  await page.keyboard.press('Escape');
  await says(page, 'Press Esc again to end the conversation.');
  await page.keyboard.press('Escape');
  await says(page, 'The conversation is over. Press the microphone to go on.');
  assert.equal(await page.evaluate(() => sockets.length), 1, 'one press is one start');
});

for (const px of [24, 32]) {
  const large = { args: [`--blink-settings=defaultFontSize=${px}`], context: { viewport: { width: 390, height: 844 } } };
  if (!inFirefox) look(`fits on a phone with letters of ${px} px`, large, async (page) => {
    const wide = () => page.evaluate(() => [getComputedStyle(document.documentElement).fontSize, document.documentElement.scrollWidth,
      ...['main', 'footer'].map((e) => document.querySelector(e)).filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.id)]);
    assert.deepEqual(await wide(), [`${px}px`, 390]);
    await start(page);
    await says(page, 'Listening');
    assert.deepEqual(await wide(), [`${px}px`, 390]);
    await awaitAnimations(page);
    const places = await page.$$eval('.dock > .icon', (all) => all.map((e) => e.getBoundingClientRect()));
    assert.ok(places.every((r, i) => !i || r.left > places[i - 1].right), `the buttons keep their order beside the large orb: ${places.map((r) => r.left)}`);
    await call(page, 'search_tools', { query: 'payments' });
    await call(page, 'add_tool', { tool_id: 'stripe' });
    assert.deepEqual(await wide(), [`${px}px`, 390]);
    await page.click('#open');
    assert.deepEqual(await wide(), [`${px}px`, 390]);
    await page.click('#tab-versions');
    const tabs = await page.$$eval('.tabs button', (all) => all.map((e) => [e.scrollWidth <= e.clientWidth, e.getBoundingClientRect().right <= innerWidth]));
    await page.click('#close');
    await page.click('#name');
    const name = await page.$eval('#kept .shot > :last-child', (e) => e.offsetWidth / innerWidth);
    assert.ok(name > 0.5, `the name of a project has ${name} of the screen`);
    assert.ok(tabs.every(([whole]) => whole) && tabs.at(-1)[1], `the tabs are whole, and the one that is shown is in sight: ${tabs}`);
  });
}

look('a phone on its side keeps the dock beside the conversation', { context: { viewport: { width: 844, height: 390 } } }, async (page) => {
  const beside = () => page.evaluate(() => {
    const [main, footer] = ['main', 'footer'].map((e) => document.querySelector(e).getBoundingClientRect());
    return footer.left >= main.right && main.height > 300;
  });
  assert.ok(await page.$eval('#send', (e) => e.getBoundingClientRect().bottom <= innerHeight), 'the field is in sight');
  await start(page);
  await says(page, 'Listening');
  assert.ok(await page.isVisible('#empty h2'), 'the room is not empty');
  assert.ok(await beside());
  await call(page, 'add_tool', { tool_id: 'stripe' }); // now there is a project
  await page.locator('#open').waitFor();
  assert.ok(await beside());
  await page.setViewportSize({ width: 740, height: 360 });
  const covered = await page.$$eval('body > header > :is(#name, #open, #settings), #status, .dock > *', (all) =>
    all.filter((e) => e.checkVisibility()).filter((e) => {
      const { x, y, width, height, bottom } = e.getBoundingClientRect();
      return bottom > innerHeight || !e.contains(document.elementFromPoint(x + width / 2, y + height / 2));
    }).map((e) => e.id));
  assert.deepEqual(covered, [], 'the bar lies over the dock, or the dock is cut');
  await page.click('#open');
  const { y, height } = await page.locator('#project').boundingBox();
  assert.deepEqual([y, height], [0, 360], 'the project has the height of the screen');
});

const sizes = { phone: [360, 740], 'phone on its side': [740, 360], desktop: [1280, 800] };
for (const [name, [width, height]] of variants(Object.entries(sizes))) {
  const context = { viewport: { width, height }, colorScheme: width === 740 ? 'dark' : 'light', ...(width < 1000 && { hasTouch: true, isMobile: true }) };
  look(`has no barriers (${name}, ${context.colorScheme})`, { context }, async (page) => {
    const check = async (when) => {
      await awaitAnimations(page); // colours that fade in
      assert.deepEqual(await findBarriers(page, undefined, { iframes: false }), [], when);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${when}: ${wide} px sideways`);
      const small = await page.$$eval('button, label, select, summary, #text', (all) =>
        all.filter((e) => !e.matches('.unseen, .link')).map((e) => [e.outerHTML, e.getBoundingClientRect(), matchMedia('(pointer: coarse)').matches || !e.matches('.chip, .tabs *, .tool *') ? 48 : 36])
          .filter(([, r, least]) => r.width && Math.min(r.height, r.width) < least - 0.01));
      assert.deepEqual(small, [], `${when}: smaller than a finger`);
      const covered = await page.$$eval('#talk, #mute, .question button', (all) =>
        all.filter((e) => e.checkVisibility({ visibilityProperty: true }) && !document.querySelector('dialog[open], .showing')).filter((e) => {
          const { x, y, width, height } = e.getBoundingClientRect();
          return !e.contains(document.elementFromPoint(x + width / 2, y + height / 2));
        }).map((e) => e.outerHTML));
      assert.deepEqual(covered, [], when);
    };
    await check('empty');
    await page.click('#settings');
    await page.waitForFunction(() => document.querySelector('#model').options.length > 1);
    await page.selectOption('#model', 'gemini-3.8-flash');
    await check('settings');
    await page.selectOption('#model', '');
    await page.click('#done');
    await start(page);
    await says(page, 'Listening');
    await call(page, 'add_tool', { tool_id: 'stripe' });
    await call(page, 'search_tools', { query: 'payments' });
    await check('talking');
    await page.click('.more:visible:not(summary)');
    await check('more');
    await page.click('#statistics');
    await page.locator('.statistics details').waitFor();
    await check('statistics');
    await page.keyboard.press('Escape');
    const project = async (on) => (width < 960 ? page.click(on ? '#open' : '#close') : undefined);
    await project(true);
    await check('tools');
    await project(false);
    await type(page, `/tool generate_app ${JSON.stringify({ prompt: 'an HTML page with a counter. '.repeat(30) })}`);
    await page.locator('div.question').waitFor();
    await page.waitForFunction(() => { // it comes into sight of itself: a click that came first would scroll
      const { scrollHeight, clientHeight, scrollTop } = document.querySelector('main');
      return scrollHeight - clientHeight - scrollTop < 2;
    });
    await check('question');
    await page.click('.question >> text=Build it');
    await page.locator('#preview iframe').waitFor({ state: 'attached' });
    await project(true);
    for (const name of ['preview', 'files', 'versions']) {
      await page.click(`#tab-${name}`);
      await check(name);
    }
  });
}

/** A microphone that hears what `window.speak` is given. */
function mouth() {
  navigator.mediaDevices.getUserMedia = async () => {
    const context = new AudioContext();
    const out = context.createMediaStreamDestination();
    window.speak = (samples) => {
      const sound = context.createBuffer(1, samples.length, 16_000);
      sound.copyToChannel(Float32Array.from(samples, (x) => x / 32_768), 0);
      const source = context.createBufferSource();
      source.buffer = sound;
      source.connect(out);
      source.start();
    };
    return out.stream;
  };
}

test('a wish, cards, a tool, an app, a change and an undo, by voice and without the mouse', { timeout: 90_000 }, async () => {
  const spoken = ['I want a list for my family', 'Add Supabase', 'Build it', 'Yes please', 'Make the button green', 'Undo that'];
  const heard = await startParrot({ hears: spoken }, 'spoken');
  const page = await openPage({ url: heard.url, query: 'vox/', browsers, init: `(${watch})();(${mouth})()` });
  try {
    const words = [...tone(0.8)];
    const say = async (i, then) => {
      await page.evaluate((words) => speak(words), words);
      await page.locator('.turn.user', { hasText: spoken[i] }).waitFor();
      await page.locator(then).first().waitFor({ state: 'attached', timeout: 20_000 });
    };
    await page.keyboard.press('Enter');
    await says(page, 'Listening');
    await page.waitForFunction(() => window.speak);
    await say(0, '.card[data-tool=recommend_tools] .tool');
    const order = await page.$$eval('.turn.user, .card', (all) => all.map((e) => e.className));
    assert.deepEqual(order, ['turn user', 'card'], 'the card stands below the sentence');
    await say(1, '.card[data-tool=add_tool][data-status=done]');
    assert.match(await page.innerText('#added'), /Supabase/);
    await say(2, '#questions .question');
    await say(3, '#preview iframe');
    await page.locator('#questions .question').waitFor({ state: 'detached' }); // it was answered aloud
    const first = await page.getAttribute('#preview iframe', 'src');
    await say(4, '.card[data-tool=change_app][data-status=done]');
    assert.notEqual(await page.getAttribute('#preview iframe', 'src'), first);
    await say(5, '.card[data-tool=undo_change][data-status=done]');
    assert.equal(await page.getAttribute('#preview iframe', 'src'), first);
    const phrases = await page.evaluate(() => frames_.filter((f) => f.message?.type === 'transcript' && f.message.role === 'user').map((f) => f.message.text));
    assert.deepEqual(phrases, spoken, 'gemini-3.8-live writes down each sentence in one piece');
    assert.deepEqual(page.complaints, []);
  } finally {
    await page.quit();
  }
});

/** The server of somebody's app, with the gateway behind it. */
async function serveApp(bundle) {
  const { url: back } = await theParrot();
  const html = '<!doctype html><link rel="icon" href="data:,"><div id="root"></div><script type="module" src="main.js"></script>';
  const server = createServer(({ url }, response) => {
    response.setHeader('Content-Type', url === '/' ? 'text/html' : 'text/javascript');
    response.end(url === '/' ? html : url === '/main.js' ? bundle : readFileSync(join(web, 'library', url)));
  });
  server.on('upgrade', ({ method, url, rawHeaders }, near) => {
    const head = rawHeaders.map((h, i) => h + (i % 2 ? '\r\n' : ': ')).join('');
    const far = connect(new URL(back).port, '127.0.0.1', () => far.write(`${method} ${url} HTTP/1.1\r\n${head}\r\n`));
    near.on('error', () => far.destroy()).pipe(far).on('error', () => near.destroy()).pipe(near);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

look('without the gateway’s address it says so, in a bundle as well', {}, async (page) => {
  const got = await page.evaluate(async () => {
    const { VoxLive } = await import('./vox.js');
    const list = [];
    for (const options of [{}, { url: 'http://' }]) {
      const vox = new VoxLive(options);
      const { code, message } = await vox.startSession({ mic: false }).catch((e) => e);
      list.push([code, message.split(':')[0], vox.state]);
    }
    return list;
  });
  assert.deepEqual(got, [['bad_options', 'url is missing', 'failed'], ['bad_options', 'url cannot be read', 'failed']]);
});

test('the hook of the documentation works in a real React app', { timeout: 30_000 }, async () => {
  const doc = readFileSync(join(web, '../docs/vox.md'), 'utf8');
  const [, hook] = /```jsx\n([^]*?)```/.exec(doc);
  assert.ok(hook.trim().split('\n').length <= 10, 'ten lines');
  const app = join(folder, 'app');
  mkdirSync(app, { recursive: true });
  for (const [from, to] of [['library', ''], ['vox', 'vox']]) cpSync(join(web, from), join(app, 'voxgate', to), { recursive: true });
  writeFileSync(join(app, 'useVoxLive.jsx'), hook);
  writeFileSync(join(app, 'main.jsx'), `
    import { StrictMode } from 'react';
    import { createRoot } from 'react-dom/client';
    import { useVoxLive } from './useVoxLive.jsx';
    function App() {
      const { startSession, endSession, toggleMute, isMuted, sendText, isConnected, transcript, message } = useVoxLive();
      return <>
        <button id="talk" onClick={isConnected ? endSession : startSession}>{isConnected ? 'End' : 'Talk'}</button>
        <button id="mute" onClick={toggleMute}>{isMuted ? 'Unmute' : 'Mute'}</button>
        <button id="say" onClick={() => sendText('Hello React')}>Say hello</button>
        <p id="status">{message}</p>
        {transcript.map(({ role, text }, i) => <p key={i} className={role}>{text}</p>)}
      </>;
    }
    createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>);`);
  const built = await build({
    entryPoints: [join(app, 'main.jsx')], bundle: true, format: 'esm', jsx: 'automatic', write: false, nodePaths: [join(web, 'node_modules')],
    define: { 'process.env.NODE_ENV': '"production"' }, logLevel: 'silent',
  });
  const server = await serveApp(built.outputFiles[0].text);
  const page = await openPage({ url: `http://127.0.0.1:${server.address().port}/`, browsers, init: watch });
  try {
    await page.click('text=Talk');
    await says(page, 'Listening');
    await page.click('text=Mute');
    await says(page, 'You are muted.');
    await page.click('text=Say hello');
    await page.waitForFunction(() => document.querySelector('.vox')?.textContent === 'You said: Hello React');
    await hears(page, { sound: 0.3 });
    assert.equal(await page.textContent('.user'), 'Hello React');
    await page.click('text=End');
    await says(page, 'The conversation is over. Press the microphone to go on.');
    assert.deepEqual(page.complaints, []);
  } finally {
    await page.quit();
    server.close();
  }
});
