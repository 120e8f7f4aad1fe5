/** What people read: one table a language, in the page, the button, VOX and the library. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { findBarriers, playGateway, says, start, status, stop, test, type, withGateway } from './harness.mjs';

const inPage = withGateway();
const german = { context: { locale: 'de-DE' }, chromiumOnly: 'its locale' };

const table = async (...files) => Object.assign({}, ...(await Promise.all(files.map((f) => import(`../${f}.js`)))));
const braces = (text) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();

test('each language has every word of the table, with the same names in braces', async () => {
  const english = await table('library/en', 'page/page.en', 'page/settings.en', 'page/check.en', 'vox/en');
  const other = await table('library/de', 'page/page.de', 'page/settings.de', 'page/check.de', 'vox/de');
  assert.deepEqual(Object.keys(other).sort(), Object.keys(english).sort());
  for (const [section, words] of Object.entries(english)) {
    const known = section === 'errors' ? Object.keys(words).filter((name) => name in other.errors) : Object.keys(other[section]); // the gateway has its own
    assert.deepEqual(known.sort(), Object.keys(words).sort(), section);
    for (const [name, text] of Object.entries(words)) assert.deepEqual(braces(other[section][name]), braces(text), `${section}: ${name}`);
  }
});

test('each tool of VOX has a short reason in English and German', async () => {
  const { tools } = await import('../vox/tools.de.js');
  const { tools: english } = await import('../vox/tools.en.js');
  const json = (name) => JSON.parse(readFileSync(new URL(`../../vox/assistant/${name}.json`, import.meta.url), 'utf8'));
  const wanted = json('registry').flatMap((e) => [e.id, `role ${e.role}`]);
  assert.deepEqual(wanted.filter((name) => !tools[name]), []);
  assert.deepEqual(json('registry').filter(({ id }) => !english[id]).map(({ id }) => id), []);
  assert.deepEqual([...Object.entries(tools), ...Object.entries(english)].filter(([, reason]) => reason.length > 45), [], 'two lines of a card');
});

test('each error that VOX says in words of its own is one that the assistant sends', async () => {
  const { vox } = await import('../vox/en.js');
  const sources = ['desk', 'generate'].map((name) => readFileSync(new URL(`../../vox/assistant/${name}.go`, import.meta.url), 'utf8')).join('');
  const errors = Object.keys(vox).filter((key) => key.startsWith('error ')).map((key) => key.slice('error '.length));
  assert.equal(errors.length, 2);
  assert.deepEqual(errors.filter((text) => !sources.includes(`errors.New("${text}")`)), []);
});

for (const [file, ...tables] of [['page/index.html', 'library/en', 'page/page.en'], ['vox/index.html', 'library/en', 'vox/en']]) {
  test(`${file} reads before its scripts are there as it does after them`, async () => {
    const { states, page, vox } = await table(...tables);
    const words = { ...states, ...page, ...vox };
    const html = readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');
    const marks = [...html.matchAll(/data-text="([^"]+)"[^>]*>([^<]*)</g), ...[...html.matchAll(/(?:title|aria-label|placeholder)="([^"]*)" data-(?:title|label|hint)="([^"]+)"/g)].map(([all, text, name]) => [all, name, text])];
    assert.ok(marks.length > 20);
    for (const [, name, text] of marks) {
      assert.equal(text.trim(), words[name]?.replace('{who}', 'Gemini'), name);
    }
  });
}

/** Everything that can be seen or heard, but for what is a name or the person's own. */
const visible = (page) => page.evaluate(() => document.body.innerText);

inPage('the page reads German where the browser does, without a word of English', german, async (page) => {
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'de');
  assert.equal(await page.textContent('h2'), 'Mit Voxgate sprechen');
  assert.equal(await page.getAttribute('#text', 'placeholder'), 'Oder eine Nachricht tippen');
  assert.equal(await page.getAttribute('#settings', 'title'), 'Einstellungen');
  await start(page);
  await says(page, 'Ich höre zu');
  assert.equal(await page.getAttribute('#mute', 'title'), 'Stummschalten');
  await page.click('#settings');
  await page.getByRole('heading', { name: 'Einstellungen', exact: true }).waitFor();
  for (const label of ['Echo entfernen', 'Rauschen entfernen', 'Tastenkürzel']) assert.ok((await visible(page)).includes(label), label);
  assert.doesNotMatch(await page.textContent('.settings'), /\b(the|your|Language|Microphone|firm|upbeat)\b/);
  assert.deepEqual(await findBarriers(page), []);
  await page.keyboard.press('Escape');
  await page.locator('.settings').waitFor({ state: 'detached' }); // which has the dock
  await type(page, 'Hallo');
  await page.click('#detail'); // there is an answer, whose time it tells
  await page.getByText('Für Entwickler').click();
  await page.getByText('Art der Verbindung').waitFor();
  assert.doesNotMatch(await page.textContent('.statistics'), /\b(the|your|answer|took|connected)\b/);
  await page.keyboard.press('Escape');
  await stop(page);
});

inPage('an address can ask for another language than the browser', { ...german, query: '?lang=en' }, async (page) => {
  await says(page, 'Ready. Press the microphone and speak.');
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'en');
});

inPage('the language can be chosen in the settings', {}, async (page) => {
  await page.click('#settings');
  await page.getByRole('combobox', { name: 'Page language' }).selectOption('de');
  await page.getByRole('heading', { name: 'Mit Voxgate sprechen' }).waitFor();
});

inPage('VOX reads German, too', { ...german, query: 'vox/' }, async (page) => {
  await page.getByRole('heading', { name: 'Was bauen Sie?' }).waitFor();
  await says(page, 'Bereit. Drücken Sie auf das Mikrofon und sprechen Sie.');
  await page.click('#talk');
  await says(page, 'Ich höre zu');
});

inPage('the library says why in the language of the page, and in words of the app', { query: '?transport=websocket', init: playGateway }, async (page) => {
  const why = await page.evaluate(async () => {
    const { open } = await import('./voxgate.js');
    setups = [{ success: false, error: { code: 401, message: 'Gemini does not accept the gateway’s key.', details: { code: 'authentication_failed' } } }];
    const refused = await open({ url: 'ws', mic: false, lang: 'de-AT' }).ready.catch((e) => e);
    setups = [{}];
    const session = open({ url: 'ws', mic: false, lang: 'de', strings: { errors: { waiting: 'Moment …' } } });
    await session.ready;
    links.at(-1).tell('SESSION_STATE', { state: 'live', message: 'Waiting for Gemini’s answer…' });
    const { message } = session.link;
    await session.close();
    return [refused.message, refused.told, message];
  });
  assert.deepEqual(why, ['Gemini ist hier nicht verfügbar.', 'Gemini does not accept the gateway’s key.', 'Moment …']);
});

inPage('the talk button has the language and the words that its page gives it', {}, async (page) => {
  await page.evaluate(async () => {
    document.body.append(Object.assign(document.createElement('voxgate-talk'), { lang: 'de' }));
    await import('./embed.js');
    document.querySelector('voxgate-talk').strings = { states: { listening: 'Nur zu!' } };
  });
  await page.getByRole('button', { name: 'Sprechen', exact: true }).click();
  await page.locator('voxgate-talk .status', { hasText: 'Nur zu!' }).waitFor();
  await page.getByRole('button', { name: 'Stummschalten' }).click();
  await page.locator('voxgate-talk .status', { hasText: 'Mikrofon stumm.' }).waitFor();
  assert.match(await status(page), /^Ready/);
});
