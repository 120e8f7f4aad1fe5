/** What a person can choose and look up: the sheets of settings and statistics, and what comes of them. */
import assert from 'node:assert/strict';
import { detail, mayPaste, playGateway, says, saves, silence, start, stop, tone, type, withGateway, variants, findBarriers } from './harness.mjs';

const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

const inPage = withGateway();

/** A test on the page with a gateway that the test plays. */
const play = (name, run, options = {}) => inPage(name, { init: playGateway, query: '?transport=websocket', ...options }, run);
const tell = (page, kind, payload) => page.evaluate((m) => links.at(-1).tell(...m), [kind, payload]);
const open = async (page) => {
  await page.click('#settings');
  await page.locator('.settings').waitFor();
};
const close = (page) => page.getByRole('button', { name: 'Done', exact: true }).click(); // not "This cannot be undone"
const asked = (page) => page.evaluate(() => links.at(-1).hello.initialConfig);
const last = async (page, kind) => (await page.waitForFunction((k) => links.at(-1).said.findLast((m) => m.type === k), kind)).jsonValue();

play('settings are loaded when they are opened, kept, and told to the gateway', async (page) => {
  const files = [];
  page.on('request', (r) => files.push(new URL(r.url()).pathname));
  await start(page);
  await says(page, 'Listening');
  const { tools, voxgate, ...rest } = await asked(page);
  assert.deepEqual([voxgate, rest], [{ canvas: true }, {}], 'nothing is asked for that nobody chose');
  assert.doesNotMatch(JSON.stringify(tools), /doneTitle|wants/, 'what is for the page alone stays there');
  assert.ok(!files.some((f) => /settings|statistics/.test(f)), String(files));
  await open(page);
  assert.ok(files.some((f) => f.endsWith('/settings.js')));
  await page.getByRole('radio', { name: /^Kore/ }).check();
  assert.deepEqual((await last(page, 'UPDATE_CONFIG')).payload, {
    generationConfig: { speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: 'Kore' } } } }, voxgate: { canvas: true }, tools,
  });
  await page.getByRole('button', { name: '25 more…' }).click();
  await page.getByRole('radio', { name: /^Sulafat/ }).check();
  await page.getByRole('combobox', { name: 'Language spoken' }).selectOption('de-DE');
  await page.getByRole('combobox', { name: 'How long to wait before answering' }).selectOption('600');
  await page.getByLabel('Interrupt by speaking').uncheck();
  await page.getByLabel('Instructions').fill('Be brief.');
  await close(page);
  const chosen = {
    generationConfig: { speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: 'Sulafat' } }, languageCode: 'de-DE' } },
    systemInstruction: 'Be brief.',
    voxgate: { canvas: true, vad: { silenceDurationMs: 600 }, interrupts: { enabled: false } },
    tools,
  };
  await page.waitForFunction(() => links[0].said.some((m) => m.payload?.systemInstruction));
  assert.deepEqual((await last(page, 'UPDATE_CONFIG')).payload, chosen);
  await page.reload();
  await start(page);
  await says(page, 'Listening');
  assert.deepEqual(await asked(page), chosen, 'after a reload');
  await open(page);
  assert.ok(await page.getByRole('radio', { name: /^Sulafat/ }).isChecked());
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  assert.deepEqual((await last(page, 'UPDATE_CONFIG')).payload, { voxgate: { canvas: true }, tools });
  await page.locator('[name=voice][value=""]:checked').waitFor({ state: 'attached' }); // the sheet asks for the devices before it is filled anew
});

play('a link brings settings along, and nothing private', async (page) => {
  await mayPaste(page);
  await open(page);
  await page.getByRole('radio', { name: /^Kore/ }).check();
  await page.getByLabel('Push to talk').check();
  await page.getByLabel('Instructions').fill('My secret');
  await page.getByRole('button', { name: 'Copy link' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(new URL(link).hash, '#voice=Kore&push=true');
  await page.evaluate(() => localStorage.clear());
  await page.goto('about:blank');
  page.complaints.length = 0; // about:blank is not of the gateway
  await page.goto(link);
  await start(page);
  await says(page, 'Hold Space or the orb to talk.');
  const { generationConfig, voxgate, systemInstruction } = await asked(page);
  assert.deepEqual([generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName, voxgate.vad, systemInstruction], ['Kore', { enabled: false }, undefined]);
});

play('push to talk: what is said while Space or the orb is held', async (page) => {
  await page.evaluate(() => localStorage.setItem('voxgate.settings', '{"push":true,"keys":false}'));
  await page.reload();
  await start(page);
  await says(page, 'Hold Space or the orb to talk.');
  const sounds = () => page.evaluate(() => links[0].said.filter((m) => m.payload?.audio).length);
  const marks = () => page.evaluate(() => links[0].said.flatMap((m) => Object.keys(m.payload ?? {})).filter((k) => k !== 'audio'));
  assert.equal(await sounds(), 0, 'nothing leaves before');
  await page.keyboard.down(' ');
  await says(page, 'Listening');
  await page.waitForFunction(() => links[0].said.some((m) => m.payload?.audio));
  await page.keyboard.up(' ');
  await says(page, 'Hold Space or the orb to talk.');
  assert.deepEqual(await marks(), ['activityStart', 'activityEnd']);
  const before = await sounds();
  await page.hover('#talk'); // when it has come to rest
  await page.mouse.down();
  await says(page, 'Listening');
  await page.waitForFunction((n) => links[0].said.filter((m) => m.payload?.audio).length > n, before);
  await page.mouse.up();
  await says(page, 'Hold Space or the orb to talk.');
  assert.deepEqual(await marks(), ['activityStart', 'activityEnd', 'activityStart', 'activityEnd']);
  await page.focus('#text');
  await page.keyboard.type('a b');
  assert.equal(await page.inputValue('#text'), 'a b', 'in the field it is a space');
});

play('nothing in the settings opens a microphone, or unmutes one', async (page) => {
  const mic = async () => (await page.textContent('#mute span')) ?? '';
  await type(page, 'who types first is not asked for a microphone');
  await says(page, 'Gemini answers aloud what you type.');
  await open(page);
  await page.getByLabel('Push to talk').check();
  await page.getByLabel('Push to talk').uncheck();
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  await close(page);
  await says(page, 'Gemini answers aloud what you type.');
  await page.click('#mute');
  await says(page, 'Listening');
  await page.click('#mute');
  await says(page, 'You are muted.');
  await open(page);
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  await page.getByRole('button', { name: 'Reset', exact: true }).click();
  await page.evaluate(() => setups.push({}));
  await page.getByRole('button', { name: 'Hear Puck' }).click();
  await page.waitForFunction(() => links.length === 2);
  await page.locator('.sample[aria-busy]').click(); // stops it
  await page.waitForFunction(() => !document.querySelector('.sample[aria-busy]'));
  await close(page);
  await says(page, 'You are muted.');
  assert.equal(await mic(), 'Unmute');
});

play('nothing is called recorded that is not', async (page) => {
  await page.evaluate(() => {
    localStorage.setItem('voxgate.settings', '{"record":true}');
    MediaRecorder.prototype.start = () => {
      throw new DOMException('no', 'NotSupportedError');
    };
  });
  await open(page);
  await page.getByRole('switch', { name: /^Record/ }).check();
  await close(page);
  await start(page);
  await says(page, 'Listening');
  await page.locator('.note', { hasText: 'This browser cannot record' }).waitFor();
  assert.equal(await page.textContent('#recording'), '');
});

play('single keys can be switched off', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await open(page);
  await page.getByLabel('Keyboard shortcuts').uncheck();
  await page.keyboard.press('Escape');
  await page.locator('.settings').waitFor({ state: 'detached' });
  for (const key of ['m', 'Escape']) await page.keyboard.press(key);
  await says(page, 'Listening');
  assert.equal(await page.textContent('#mute span'), 'Mute');
});

const devices = () => {
  window.wishes = [];
  window.sinks = [];
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = (wish) => (wishes.push(wish), real(wish));
  HTMLMediaElement.prototype.setSinkId = async (id) => void sinks.push(id);
};
play('another microphone, speaker and camera', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#camera');
  await page.waitForFunction(() => document.querySelector('#view').videoWidth > 0);
  await open(page);
  const choose = async (name) => {
    const select = page.getByRole('combobox', { name });
    const [, id] = await select.locator('option').evaluateAll((all) => all.map((o) => o.value));
    await select.selectOption(id);
    return id;
  };
  const [microphone, speaker, camera] = [await choose('Microphone'), await choose('Speaker'), await choose('Camera')];
  await page.waitForFunction(() => wishes.length === 4);
  const ids = await page.evaluate(() => wishes.slice(2).map((w) => (w.audio || w.video).deviceId.ideal));
  assert.deepEqual(ids.sort(), [microphone, camera].sort());
  assert.equal(await page.evaluate(() => sinks.at(-1)), speaker);
  assert.ok(await page.evaluate(() => wishes[0].audio.echoCancellation));
  await page.getByLabel('Remove echo').uncheck();
  await page.waitForFunction(() => wishes.length === 5 && wishes[4].audio.echoCancellation === false);
  await close(page);
  await says(page, 'Listening');
}, { init: { content: `(${playGateway})(); (${devices})();` } });

play('the transcript can be saved', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, 'Tell me a story');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Once upon a time' } } });
  await tell(page, 'INTERRUPTED', { generation: 1, heard: 'Once upon', playedMs: 500, turn: 1, by: 'voice' });
  await open(page);
  const save = async (name) => {
    const { content } = await saves(page, () => page.getByRole('button', { name }).click());
    return String(content);
  };
  assert.equal(await save('Save as text'), '**You:** Tell me a story\n\n**Gemini:** Once upon … *(you interrupted)*');
  const lines = JSON.parse(await save('Save with all details'));
  assert.deepEqual(lines.map(({ at, ...l }) => [!Number.isNaN(Date.parse(at)), l]), [
    [true, { role: 'user', text: 'Tell me a story' }], [true, { role: 'model', text: 'Once upon', interrupted: true, cutBy: 'person' }],
  ]);
});

for (const transport of variants(['webrtc', 'websocket'])) {
  inPage(`statistics of a conversation (${transport})`, { query: `?transport=${transport}` }, async (page) => {
    await mayPaste(page);
    await start(page);
    await says(page, 'Listening');
    for (const said of ['one', 'two']) {
      const { length } = await page.evaluate(() => told.filter((m) => m.type === 'TURN_LATENCY'));
      await type(page, said);
      await page.waitForFunction((n) => told.filter((m) => m.type === 'TURN_LATENCY').length > n, length);
    }
    assert.match(await detail(page), /answered in/);
    await page.click('#detail');
    const rows = page.locator('.statistics details dt');
    await rows.first().waitFor({ state: 'attached' });
    assert.ok(await rows.first().isHidden(), 'what engineers ask comes last');
    await page.getByText('For developers').click();
    const names = await rows.allTextContents();
    assert.equal(names.includes('Jitter'), transport === 'webrtc', String(names));
    assert.match(await page.textContent('.statistics .number'), /^[\d.]+ m?s$/);
    assert.match(await page.getAttribute('.statistics .chart svg', 'aria-label'), /^The last 2 answers: /);
    const scale = await page.locator('.statistics .scale span').allTextContents();
    assert.ok(scale.length === 3 && parseFloat(scale[0]) > 0 && scale[2] === '0 s', String(scale));
    if (transport === 'webrtc') await page.waitForFunction(() => /[1-9]\d* \/ \d+ kb\/s/.test(document.querySelector('.statistics details dl').textContent));
    await page.getByRole('button', { name: 'Copy JSON' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    await page.$eval('.statistics details dl', (e) => (e.style.minHeight = '200vh'));
    assert.ok(await page.$eval('.statistics', (e) => e.getBoundingClientRect().bottom <= innerHeight), 'all of it can be reached');
    const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.deepEqual([copied.transport, copied.answers.length, copied.usage.total.totalTokens > 0], [transport, 2, true]);
    await page.keyboard.press('Escape');
    await page.locator('.statistics').waitFor({ state: 'detached' });
    await says(page, 'Listening'); // and not the end
    await stop(page);
    await says(page, 'The conversation is over.');
  });
}

for (const [name, context] of variants(Object.entries({ desktop: {}, phone, dark: { ...phone, colorScheme: 'dark' } }))) {
  play(`the sheets have no barriers (${name})`, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await tell(page, 'TURN_LATENCY', { modelMs: 370, gatewayMs: 20, roundTripMs: 130, totalMs: 520 });
    await tell(page, 'TURN_LATENCY', { modelMs: 570, gatewayMs: 20, roundTripMs: 130, totalMs: 720 });
    for (const [button, sheet] of [['#settings', '.settings'], ['#detail', '.statistics']]) {
      await page.click(button);
      await page.locator(`${sheet} h2`).waitFor();
      await page.locator(`${sheet} :is(.number, section)`).first().waitFor();
      assert.deepEqual(await findBarriers(page), []);
      const small = await page.$$eval(`${sheet} :is(button, input, select, textarea)`, (all) =>
        all.map((e) => [e.outerHTML, e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.height, r.width) < 48));
      assert.deepEqual(small, [], 'smaller than a finger');
      const wide = await page.$eval(sheet, (e) => e.scrollWidth - e.clientWidth);
      assert.ok(wide <= 0, `${wide} px sideways`);
      await page.keyboard.press('Escape');
      await page.locator(sheet).waitFor({ state: 'detached' });
      assert.equal(await page.evaluate(() => `#${document.activeElement.id}`), button, 'the focus goes back');
    }
  }, { context });
}

inPage('a chosen voice is the one that answers', {}, async (page) => {
  await open(page);
  await page.getByRole('radio', { name: /^Charon/ }).check();
  await close(page);
  await start(page);
  await says(page, 'Listening');
  const config = await page.evaluate(() => told.find((m) => m.type === 'SETUP_COMPLETE').payload.effectiveConfig);
  assert.equal(config.generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName, 'Charon');
});

play('the models of the gateway can be chosen', async (page) => {
  await open(page);
  const model = page.getByRole('combobox', { name: 'Model' });
  const names = await model.locator('option').allTextContents();
  assert.deepEqual([names[0], names.includes('gemini-3.8-live-extended-thinking')], ['Default: gemini-3.8-live', true], String(names));
  const standards = await page.$$eval('.settings select', (all) => Object.fromEntries(all.map((e) => [e.name, e.options[0].text])));
  assert.deepEqual([standards.microphone, standards.lang, standards.transport], ['Fake Default Audio Input (default)', 'Default: English', 'Automatic'], 'what the default is');
  await model.selectOption('gemini-3.8-live-extended-thinking');
  await close(page);
  await start(page);
  await says(page, 'Listening');
  assert.equal((await asked(page)).model, 'gemini-3.8-live-extended-thinking');
});

play('a voice can be heard before it is chosen', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await open(page);
  await page.getByRole('combobox', { name: 'Language spoken' }).selectOption('de-DE');
  const hear = page.getByRole('button', { name: 'Hear Kore' });
  await hear.click();
  await page.waitForFunction(() => links.length === 2 && links[1].said.length);
  const { hello, said } = await page.evaluate(() => ({ hello: links[1].hello.initialConfig, said: texts(links[1]) }));
  assert.equal(hello.generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName, 'Kore');
  assert.match(said[0], /one short sentence in German.* Your name is Kore\./);
  assert.equal(await page.textContent('#mute span'), 'Unmute', 'the conversation does not hear it');
  await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  await page.waitForFunction(() => !document.querySelector('.sample[aria-busy]'));
  assert.equal(await page.textContent('#mute span'), 'Mute');
  assert.ok(await page.evaluate(() => links[1].said.some((m) => m.type === 'DISCONNECT_GEMINI')));
  await hear.click();
  await page.waitForFunction(() => links.length === 3);
  assert.ok(!(await page.getByRole('radio', { name: /^Kore/ }).isChecked()), 'it is not chosen by that');
  await close(page);
  await page.waitForFunction(() => document.querySelector('#mute span').textContent === 'Mute', null, 'with the sheet it stops');
});

inPage('a voice says its sentence', {}, async (page) => {
  await open(page);
  const hear = page.getByRole('button', { name: 'Hear Puck' });
  await hear.click();
  await page.waitForFunction(() => document.querySelector('.sample[aria-busy]'));
  await page.waitForFunction(() => !document.querySelector('.sample[aria-busy]'));
  assert.equal(await hear.getAttribute('title'), 'Hear Puck', 'else it says why not');
  assert.ok(await page.evaluate(() => told.some((m) => m.type === 'TURN_COMPLETE')));
});

inPage('how to set a key is told until it is put away', {}, async (page) => {
  await page.click('#dismiss');
  assert.equal(await page.isVisible('#notice'), false);
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#tries button'));
  assert.equal(await page.isVisible('#notice'), false);
  await open(page);
  await page.getByLabel('Show the hint about the Gemini key').check();
  await close(page);
  assert.equal(await page.isVisible('#notice'), true);
});

play('what a conversation costs', async (page) => {
  const total = { inputTokens: 1_100, outputTokens: 1_000, totalTokens: 2_200 };
  await page.evaluate(() => void (setups = [{ model: 'gemini-3.8-live' }]));
  await start(page);
  await says(page, 'Listening');
  await tell(page, 'LOG_MESSAGE', { type: 'info', message: 'tokens', details: { usage: { turn: total, total, dollars: 0.015075 } } });
  await tell(page, 'TURN_LATENCY', { modelMs: 370, gatewayMs: 20, totalMs: 390 });
  await page.click('#detail');
  await page.locator('.statistics dd').first().waitFor();
  assert.match(await page.textContent('.statistics dl'), /Cost\$0\.0151/);
});

for (const transport of variants(['webrtc', 'websocket'])) {
  inPage(`a recording has both sides (${transport})`, { query: `?transport=${transport}`, sounds: [silence(1), tone(2)] }, async (page) => {
    await page.evaluate(() => localStorage.setItem('voxgate.settings', '{"record":true}'));
    await page.reload();
    await start(page);
    await page.waitForFunction(() => document.querySelector('#recording').textContent === 'Recording');
    await page.waitForFunction(() => told.some((m) => m.type === 'TURN_COMPLETE'));
    await stop(page);
    await says(page, 'The conversation is over.');
    await open(page);
    const { name, content } = await saves(page, () => page.getByRole('button', { name: 'Save the recording' }).click());
    assert.deepEqual([name, content.subarray(0, 4).toString('hex')], ['recording.webm', '1a45dfa3']); // which such files begin with
    // The parrot repeats the tone: twice 2 s of it, one side after the other.
    const loud = await page.evaluate(async (base64) => {
      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
      const sound = await new OfflineAudioContext(1, 1, 16_000).decodeAudioData(bytes.buffer);
      const [pcm, step] = [sound.getChannelData(0), 3_200];
      const steps = Array.from({ length: Math.floor(pcm.length / step) }, (_, i) => pcm.subarray(i * step, (i + 1) * step));
      return steps.map((s) => s.reduce((a, x) => Math.max(a, Math.abs(x)), 0) > 0.05);
    }, content.toString('base64'));
    const parts = loud.map((l) => (l ? '#' : ' ')).join('').trim().split(/ {2,}/).map((p) => p.length / 5);
    assert.ok(parts.length >= 2 && parts[0] > 1.4 && parts[1] > 1.2, `seconds of sound: ${parts}`);
  });
}

play('the sheet fits with large letters in German', async (page) => {
  await page.click('#settings');
  await page.locator('.settings section').last().waitFor();
  const wide = await page.$$eval('.settings :is(h2, button)', (all) => all.filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth).map((e) => e.textContent));
  assert.deepEqual(wide, []);
  assert.equal(await page.$eval('.settings meter', (e) => e.offsetHeight), 8);
}, { chromiumOnly: 'its flag', query: '?lang=de', args: ['--blink-settings=defaultFontSize=32'], context: { viewport: { width: 390, height: 844 } } });

play('sixty turns are shown, saved and measured, the newest in sight', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => {
    const tell = (type, payload) => links[0].tell(type, payload);
    for (let turn = 1; turn <= 60; turn++) {
      tell('CONTENT_MESSAGE', { serverContent: { inputTranscription: { text: `Question ${turn}` } } });
      tell('ASSISTANT_SPEAKING', { speaking: true, turn });
      for (const text of ['Answer ', String(turn)]) tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
      tell('TURN_COMPLETE', { turn });
      tell('TURN_LATENCY', { modelMs: 300 + turn, gatewayMs: 20, roundTripMs: 100, totalMs: 420 + turn });
    }
  });
  await says(page, 'Listening');
  const turns = await page.$$eval('#log article', (all) => all.map((e) => e.querySelector('span').textContent));
  assert.deepEqual([turns.length, turns[0], turns.at(-1)], [120, 'Question 1', 'Answer 60']);
  const seen = await page.locator('#log article').last().evaluate((e) => e.getBoundingClientRect().bottom <= document.querySelector('footer').getBoundingClientRect().top + 1);
  assert.ok(seen, 'the newest turn is below the fold');
  await page.click('#detail');
  await page.locator('.statistics .chart').waitFor();
  assert.equal(await page.$$eval('.statistics .chart rect', (all) => all.length), 60, 'the last 20 answers in three parts');
  assert.match(await page.getAttribute('.statistics .chart svg', 'aria-label'), /^The last 20 answers: 0\.46 s,.* 0\.48 s$/);
});

play('two quick presses open one sheet, and one that cannot be loaded is told of', async (page) => {
  await page.evaluate(() => ['settings', 'settings'].forEach((id) => document.getElementById(id).click()));
  await page.locator('.settings').waitFor();
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
  assert.equal(await page.locator('.settings').count(), 1);
  await close(page);
  await page.route('**/statistics.js', (route) => route.abort());
  await start(page);
  await says(page, 'Listening');
  assert.ok(await page.isHidden('#detail'), 'there is nothing to tell yet');
  await tell(page, 'TURN_LATENCY', { modelMs: 370, gatewayMs: 20, totalMs: 390 });
  await page.click('#detail');
  await page.getByText('This cannot be opened').waitFor();
  page.complaints.length = 0; // the file that was kept away
});

inPage('both sides are one stream, however often it is asked for, and none after the end', {}, async (page) => {
  const got = await page.evaluate(async () => {
    const { connect } = await import('./voxgate.js');
    const session = await connect({ url: 'ws', mic: false, transport: 'websocket' });
    const [one, other] = [session.mix(), session.mix()];
    await session.close();
    return [one === other, one.getTracks().length, session.mix().getTracks().length];
  });
  assert.deepEqual(got, [true, 1, 0]);
});

play('keeps earlier conversations in the browser, reads them, goes on with one, and deletes them', async (page) => {
  assert.ok(await page.locator('#empty .earlier').isHidden(), 'there is none yet');
  await start(page);
  await type(page, 'Where can I eat?');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'At **Osteria** Nove.' } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  await page.waitForFunction(() => performance.getEntriesByType('resource').some((r) => /history\.js/.test(r.name)));
  await stop(page);
  await page.locator('#after .earlier').click();
  assert.match(await page.innerText('.entry small'), / · \d+ sec$/, 'as the page itself says it');
  await page.locator('.entry', { hasText: 'Where can I eat?' }).click();
  await page.locator('.lines .model', { hasText: 'At Osteria Nove.' }).waitFor();
  assert.equal(await page.$eval('.lines > .turn', (e) => getComputedStyle(e, '::before').display), 'none', 'the title says the time');
  assert.deepEqual(await findBarriers(page, '.sheet'), []);
  await page.locator('.history').getByRole('button', { name: 'Go on' }).click();
  await page.waitForFunction(() => links.length === 2 && links[1].hello);
  const { history } = await page.evaluate(() => links[1].hello.initialConfig.voxgate);
  assert.deepEqual(history, [{ role: 'user', content: 'Where can I eat?' }, { role: 'model', content: 'At **Osteria** Nove.' }]);
  await stop(page);
  await page.locator('#after .earlier').click();
  await page.locator('.history nav').getByRole('button', { name: 'Delete all' }).click();
  await page.getByText('This cannot be undone.').waitFor();
  const confirm = page.locator('.history nav .stop');
  assert.notEqual(await confirm.evaluate((e) => getComputedStyle(e).backgroundColor), 'rgba(0, 0, 0, 0)', 'it is seen');
  const [box, sheet] = await Promise.all([confirm.boundingBox(), page.locator('.history').boundingBox()]);
  assert.ok(box.y + box.height <= sheet.y + sheet.height, 'and whole');
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await page.locator('.entry').count(), 1, 'nothing is gone yet');
  assert.equal(await page.innerText('.days h3'), 'Today');
  assert.ok(await page.locator('.history .lines').isVisible(), 'the newest is read beside the list');
  await page.fill('.history [type=search]', 'osteria');
  assert.equal(await page.innerText('.entry span'), 'At Osteria Nove.', 'without Markdown');
  assert.equal(await page.innerText('.entry span b'), 'Osteria');
  await page.fill('.history [type=search]', 'Prague');
  await page.getByText('Nothing found for “Prague”').waitFor();
  await page.fill('.history [type=search]', '');
  for (let i = 0; i < 2; i++) await page.locator('.history nav').getByRole('button', { name: 'Delete all' }).click();
  await page.getByText('No conversation is kept yet.').waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem('voxgate.history')), '[]');
});

play('lists the sections of the settings where there is room, and leads to them', async (page) => {
  await page.click('#settings');
  const nav = page.locator('.settings nav');
  await nav.getByRole('button', { name: 'Network' }).click();
  await page.waitForFunction(() => document.querySelector('.settings nav [aria-current]')?.textContent === 'Network');
  const inSight = () => page.evaluate(() => {
    const [pane, section] = ['.settings .pane', '.settings section[aria-label=Network]'].map((s) => document.querySelector(s).getBoundingClientRect());
    return section.top >= pane.top - 1 && section.bottom <= pane.bottom + 1;
  });
  assert.ok(await inSight());
  await page.setViewportSize({ width: 390, height: 844 });
  assert.ok(await nav.isHidden(), 'on a phone there is one column');
});

play('leaves the page where it is when a sheet takes the dock', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#settings');
  for (const id of ['mute', 'end']) await page.locator(`.settings #${id}`).waitFor(); // an open microphone stays in sight on a desk, too
  const height = () => page.$eval('main', (e) => e.clientHeight);
  const under = await height();
  await page.keyboard.press('Escape');
  await page.locator('.settings').waitFor({ state: 'detached' });
  assert.equal(await height(), under);
});

play('tries the microphone and the speaker before a conversation', async (page) => {
  await page.click('#settings');
  await page.getByRole('button', { name: 'Try it' }).click();
  await page.getByText('We hear you.').waitFor();
  await page.waitForFunction(() => document.querySelector('.settings meter').value > 0.02);
  await page.getByRole('button', { name: 'Play a tone' }).click();
  await page.keyboard.press('Escape');
  await page.click('#settings');
  await page.getByRole('button', { name: 'Try it' }).waitFor();
}, { sounds: [tone(20)] });
