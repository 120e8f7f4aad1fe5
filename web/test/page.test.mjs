/** The page itself: words, keys, sizes, colours, safety. */
import assert from 'node:assert/strict';
import {
  awaitAnimations, clock, gets, goesBy, inFirefox, openPage, playGateway, saves, says, silence, speech, start, startGateway, status, stop,
  TALKS, test, tone, type, withGateway, variants, findBarriers,
} from './harness.mjs';

const phone = { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true };

const look = withGateway();
const moves = { reducedMotion: 'no-preference' }; // the harness asks for little motion, which saves a third of the processor

look('the page says who answers', {}, async (page) => {
  await page.waitForSelector('#notice:not([hidden])');
  assert.match(await page.textContent('#notice'), /No Gemini key is set: a parrot repeats what you say\. Set a key/);
  assert.ok((await page.$eval('#notice', (e) => e.offsetHeight)) < 60, 'one line');
  assert.equal(await page.isVisible('#notice code'), false);
  await page.click('#notice summary');
  assert.ok(await page.isVisible('#notice code'), 'which opens');
  assert.match(await page.textContent('#notice code'), /^GEMINI_API_KEY=… bin\/gateway serve$/);
});

look('shows no command to the emulator as the person’s words', {}, async (page) => {
  await page.getByRole('button', { name: 'Search the web' }).click();
  await page.waitForFunction(() => document.querySelector('#log .turn.user') && document.querySelector('#log .note'));
  assert.deepEqual(await page.$$eval('.turn.user span', (all) => all.map((e) => e.textContent)), ['Search the web']);
  await page.waitForFunction(() => document.querySelector('#log .turn.model'));
  assert.doesNotMatch(await page.innerText('#log'), /\/ground/);
});

look('moves nothing while it loads', { context: moves, chromiumOnly: 'Firefox measures no layout shift' }, async (page, _gateway, t) => {
  await page.addInitScript(() => {
    window.shifts = [];
    new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((e) => e.value))).observe({ type: 'layout-shift', buffered: true });
    localStorage.setItem('voxgate.history', JSON.stringify([{ id: 'a', at: 1, ms: 1_000, lines: [{ role: 'user', text: 'Hi', at: '2026-01-01T00:00:00Z' }] }])); // which has a button
  });
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 }); // it paints before all is there
  for (let i = 0; i < 4; i++) {
    await page.reload({ waitUntil: 'networkidle' });
    await page.locator('#empty .earlier').waitFor();
    const sum = await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(shifts.reduce((all, value) => all + value, 0))))));
    t.diagnostic(`layout shift ${sum.toFixed(4)}`);
    assert.ok(sum <= 0.001, `${sum} at load ${i}`);
  }
});

for (const [name, query] of [['is small and asks nobody else', ''], ['as is VOX', 'vox/']]) {
  look(name, { query }, async (page, _gateway, t) => {
    const travelled = async () => {
      await page.waitForLoadState('networkidle');
      return page.evaluate(() => {
        const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
        return all.map(({ name, transferSize }) => [name, transferSize]);
      });
    };
    const sum = (all) => all.filter(([name]) => !/icon\.\w+$/.test(name)).reduce((a, [, size]) => a + size, 0); // which a browser with tabs fetches
    const first = await travelled();
    t.diagnostic(`${sum(first)} bytes`);
    assert.ok(sum(first) > 20_000 && sum(first) < 61_440, `${sum(first)} bytes: ${first}`);
    assert.ok(first.length <= 10, `${first.length} requests: ${first}`);
    assert.ok(!first.some(([name]) => /canvas|elements|device|contacts|settings|statistics/.test(name)), `not needed yet: ${first}`);
    await page.reload();
    const again = await travelled();
    assert.ok(sum(again) < 3_500, `${sum(again)} bytes again: ${again}`);
  });
}

look('can be used with keys alone', { sounds: [silence(1)] }, async (page) => {
  await page.keyboard.press('Enter');
  await says(page, 'Listening');
  await page.keyboard.press('m');
  await says(page, 'You are muted. Voxgate does not hear you.');
  await page.keyboard.press('m');
  await says(page, 'Listening');
  await page.focus('#text');
  await page.keyboard.type('mmm');
  assert.equal(await status(page), 'Listening', 'letters typed are no commands');
  await page.keyboard.press('Enter');
  await says(page, 'Speaking');
  await page.keyboard.press('Escape');
  await says(page, TALKS);
  assert.notEqual(await page.evaluate(() => document.activeElement.id), 'text', 'Esc leaves the field, and not the conversation');
  await says(page, 'Listening');
  await page.keyboard.press('Escape');
  await says(page, 'Press Esc again to end the conversation.');
  await page.keyboard.press('Escape');
  await says(page, 'The conversation is over.');
  await page.focus('#talk');
  await page.keyboard.press('Enter');
  await says(page, TALKS);
  assert.equal(await page.evaluate(() => sockets.length), 2, 'one press is one start');
});

look('Esc interrupts an answer, and F6 goes from part to part', { init: playGateway, query: '?transport=websocket' }, async (page) => {
  const focused = () => page.evaluate(() => document.activeElement.closest('main, .canvas, footer')?.className || document.activeElement.closest('main, footer')?.tagName);
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => links[0].tell('ASSISTANT_SPEAKING', { speaking: true, turn: 1 }));
  await says(page, 'Speaking');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => links[0].said.some((m) => m.type === 'INTERRUPT'));
  assert.equal(await page.evaluate(() => document.body.dataset.state), 'live', 'the conversation goes on');
  await page.evaluate(() => links[0].tell('INTERRUPTED', { generation: 1 }));
  await says(page, 'Listening');
  await page.keyboard.press('F6');
  assert.equal(await focused(), 'MAIN');
  await page.evaluate(() => links[0].tell('TOOL_CALL', { toolCall: { functionCalls: [{ id: 'a', name: 'create_canvas_tool', args: { schema:
    JSON.stringify({ elements: [{ type: 'input', id: 'name', label: 'Name' }] }) } }] } }));
  await page.waitForFunction(() => document.activeElement.matches('.canvas-sheet'));
  await page.waitForSelector('.canvas-waits:has-text("waits for you")');
  for (const part of ['FOOTER', 'MAIN', 'canvas']) {
    await page.keyboard.press('F6');
    assert.equal(await focused(), part);
  }
  await page.keyboard.press('Shift+F6');
  assert.equal(await focused(), 'MAIN');
  await page.focus('#text');
  await page.keyboard.press('Escape');
  assert.deepEqual(await page.evaluate(() => links[0].answers), [], 'Esc in the field answers nothing');
  await page.focus('.canvas input');
  await page.keyboard.type('Ada');
  await page.keyboard.press('Escape');
  assert.equal(await page.inputValue('.canvas input'), 'Ada', 'the first Esc leaves the field');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => links[0].answers.length);
  assert.ok(await page.evaluate(() => document.activeElement.matches('#text, main')), 'the focus is back');
});

for (const lang of ['en', 'de']) {
  look(`is all in sight on a small phone (${lang})`, { query: `?lang=${lang}`, context: { viewport: { width: 320, height: 568 }, hasTouch: true, isMobile: true } }, async (page) => {
    await page.waitForSelector('#notice:not([hidden])');
    const [height, ...tops] = await page.evaluate(() => [document.documentElement.scrollHeight, ...[...document.querySelectorAll('.tries button')].filter((e) => e.checkVisibility()).map((e) => e.offsetTop)]);
    assert.deepEqual([height, new Set(tops).size], [568, 1]);
  });
}

for (const [px, width] of [[32, 320], ...variants([[32, 390], [24, 390]])]) {
  for (const colorScheme of variants(['light', 'dark'])) {
    const large = { chromiumOnly: 'its flag', args: [`--blink-settings=defaultFontSize=${px}`], context: { viewport: { width, height: width === 320 ? 568 : 844 }, colorScheme } };
    look(`fits on a phone of ${width} px with letters of ${px} px (${colorScheme})`, large, async (page) => {
      const outside = () => page.evaluate(() => {
        const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.unseen, .canvas-live, .tries, svg');
        const wide = [...document.querySelectorAll('body *')].filter((e) => seen(e) && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1));
        return [getComputedStyle(document.documentElement).fontSize, document.documentElement.scrollWidth, ...wide.map((e) => e.id || e.className || e.tagName)];
      });
      const fits = async (what) => assert.deepEqual(await outside(), [`${px}px`, width], what);
      await fits('at the start');
      await start(page);
      await says(page, 'Listening');
      await fits('in a conversation');
      const small = () => page.$$eval('.dock > button', (all) => all.filter((e) => e.checkVisibility() && Math.min(e.offsetWidth, e.offsetHeight) < 44).map((e) => e.id));
      assert.deepEqual(await small(), []);
      const places = await page.$$eval('.dock > .icon', (all) => all.filter((e) => e.checkVisibility()).map((e) => e.getBoundingClientRect()).map((r) => [r.left, r.right]));
      assert.ok(await page.$eval('#talk', (e) => e.offsetWidth === e.offsetHeight), 'the orb is round');
      places.slice(1).forEach(([left], i) => assert.ok(left >= places[i][1] - 1, `they lie upon each other: ${places}`));
      await type(page, 'How large is the largest animal that has ever lived?');
      await says(page, 'Speaking');
      await page.click('#keyboard');
      await fits('with the field');
      await page.keyboard.press('Escape');
      const form = [{ type: 'text', value: '<h3>Reservation</h3><p>Questions before I reserve:</p>' }, { type: 'input', id: 'n', label: 'Name on the reservation' },
        { type: 'button', label: 'Book it now', action: 'submit' }, { type: 'button', label: 'Perhaps later', action: 'dismiss' }];
      await type(page, `/tool create_canvas_tool ${JSON.stringify({ schema: JSON.stringify(form) })}`);
      await page.waitForSelector('.canvas input');
      await fits('with a form');
      await page.getByRole('button', { name: 'Perhaps later' }).click(); // it can be reached and pressed
      await page.waitForFunction(() => document.querySelector('main').scrollHeight - document.querySelector('main').clientHeight - document.querySelector('main').scrollTop < 48); // the form took the screen, and the end is in sight again
      await page.click('#settings');
      await page.locator('.settings section').last().waitFor();
      await fits('in the settings');
      await page.keyboard.press('Escape');
      await page.click('#detail');
      await page.locator('.statistics details').waitFor();
      await fits('in the statistics');
      await page.keyboard.press('Escape');
      await stop(page);
      await page.waitForSelector('#after:not([hidden])');
      await fits('at the end');
      assert.deepEqual(await page.$$eval('#after button', (all) => all.filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth).map((e) => e.id)), []);
    });
  }
}

look('shows a whole form on a desk with letters of 32 px', { chromiumOnly: 'its flag', args: ['--blink-settings=defaultFontSize=32'] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  const form = [{ type: 'text', value: '<h3>Your table</h3>' }, { type: 'input', id: 'name', label: 'Name' }, { type: 'button', label: 'Book it', action: 'submit' },
    { type: 'button', label: 'Not now', action: 'dismiss' }];
  await type(page, `/tool create_canvas_tool ${JSON.stringify({ schema: JSON.stringify(form) })}`);
  await page.waitForSelector('.canvas input');
  await awaitAnimations(page);
  const hidden = await page.$$eval('.canvas :is(h3, input, button), .dock > :is(#mute, #talk, #end)', (all) => all.filter((e) => e.checkVisibility()).filter((e) => {
    const { x, y, width, height } = e.getBoundingClientRect();
    return y < 0 || y + height > innerHeight || !e.contains(document.elementFromPoint(x + width / 2, y + height / 2));
  }).map((e) => e.outerHTML));
  assert.deepEqual(hidden, []);
});

for (const [name, context] of variants([
  ['desktop', {}],
  ['phone', phone],
  ['dark', { colorScheme: 'dark' }],
])) {
  look(`has no barriers (${name})`, { context }, async (page) => {
    const check = async (when) => assert.deepEqual(await findBarriers(page), [], when);
    await page.waitForSelector('#notice:not([hidden])');
    await check('ready');
    await start(page);
    await says(page, 'Listening');
    await type(page, '/tool get_current_time {}');
    await gets(page, 'TURN_COMPLETE');
    await page.click('#camera');
    await page.waitForFunction(() => document.querySelector('#view').videoWidth > 0);
    await type(page, 'A long answer, please, that is still being given while this page is looked at.');
    await says(page, 'Speaking');
    await awaitAnimations(page); // colours that fade in
    await check('speaking');
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} px sideways`);
    const small = await page.$$eval('button:not(.copy), input', (all) =>
      all.map((e) => [e.id, e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.height, r.width) < 48),
    );
    assert.deepEqual(small, [], 'smaller than a finger');
  });
}

look('only finished turns are announced', { sounds: [silence(1), speech()] }, async (page) => {
  await page.evaluate(() => {
    const growing = (window.growing = []);
    const added = (window.added = []);
    const watch = (id, list) =>
      new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => list.push(n.textContent)))).observe(
        document.getElementById(id),
        { childList: true },
      );
    watch('log', added);
    watch('growing', growing);
  });
  await start(page);
  await gets(page, 'TURN_COMPLETE');
  await says(page, 'Listening');
  const { added, growing } = await page.evaluate(() => ({ added, growing }));
  assert.equal(added.length, 2, String(added));
  assert.match(added[1], /You said.*speech\.$/);
  assert.ok(growing.length >= 1);
});

look('comes to the orb with the first Tab, and mutes by M over the settings as well', { init: playGateway, query: '?transport=websocket', sounds: [tone(20)] }, async (page) => {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'talk');
  await page.keyboard.press('Enter');
  await says(page, 'Listening');
  await page.click('#settings');
  await page.locator('.settings section').last().waitFor();
  await page.keyboard.press('m');
  await says(page, 'You are muted.');
  await page.focus('.settings textarea');
  await page.keyboard.type('mm');
  await page.focus('.settings select');
  await page.keyboard.type('m');
  await says(page, 'You are muted.');
  await page.focus('.settings .switch');
  await page.keyboard.press('m');
  await says(page, 'Listening');
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 390, height: 844 }); // there a sheet covers the dock
  await page.click('#settings');
  await page.locator('.settings section').last().waitFor();
  await page.click('.settings #mute');
  await says(page, 'You are muted.');
  assert.equal((await page.innerText('.settings #mute')).trim(), 'Unmute');
  await page.click('.settings #end');
  await says(page, 'The conversation is over.');
  await page.keyboard.press('Escape');
  await page.locator('body > footer #talk').waitFor(); // the dock is back
});

/** The words that stand in grey, because they are still to be heard. */
const unheard = () => [...(CSS.highlights.get('voxgate-unheard') ?? [])].map(({ startContainer, startOffset, endContainer, endOffset }) => {
  const range = new Range();
  range.setStart(startContainer, startOffset);
  range.setEnd(endContainer, endOffset);
  return String(range);
}).join('|');

look('words to come stand in grey until they are heard', { init: { content: `window.unheard = ${unheard}; (${playGateway})();` }, query: '?transport=websocket' }, async (page) => {
  const tell = (type, payload) => page.evaluate(([type, payload]) => links[0].tell(type, payload), [type, payload]);
  const sayMore = (text) => tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
  await start(page);
  await says(page, 'Listening');
  await tell('ASSISTANT_SPEAKING', { turn: 1 });
  await sayMore('The **river** walk takes twenty minutes, and each of the seven bridges is lit until long after midnight.');
  await page.waitForFunction(() => / walk takes .* midnight\.$/.test(unheard()));
  const [grey, black, quiet] = await page.$eval('.turn.model span', (e) => [getComputedStyle(e, '::highlight(voxgate-unheard)').color, getComputedStyle(e).color,
    getComputedStyle(document.querySelector('.turn.user small, #status')).color]);
  assert.equal(grey, quiet);
  assert.notEqual(grey, black);
  await page.waitForFunction(() => /^ ?minutes, and each/.test(unheard())); // word by word
  await sayMore(' Go there before it rains, or take the tram that leaves in front of the station.');
  await page.waitForFunction(() => / before it rains, .* station\.$/.test(unheard()) && !/midnight/.test(unheard())); // that piece is over
  await page.waitForFunction(() => /^ ?rains/.test(unheard()));
  await tell('INTERRUPTED', { generation: 1, by: 'voice', heard: 'The **river** walk takes twenty minutes, and each of the seven bridges is lit until long after midnight. Go there before' });
  await page.waitForFunction(() => unheard() === '');
  assert.equal((await page.textContent('.turn.model s')).slice(0, 8), 'it rains', 'the line through it begins with a word');
  assert.match(await page.textContent('.turn.model'), /before it rains/);

  await tell('ASSISTANT_SPEAKING', { turn: 2 });
  await sayMore('Shall I look up when the last tram leaves tonight?');
  await page.waitForFunction(() => /tonight\?$/.test(unheard()));
  await tell('TURN_COMPLETE');
  await page.waitForFunction(() => unheard() === '');
  await tell('CONTENT_MESSAGE', { serverContent: { modelTurn: { parts: [{ text: 'What is written is not heard.' }] } } });
  await page.getByText('What is written is not heard.').waitFor();
  assert.equal(await page.evaluate(() => unheard()), '');
});

look('a silent model is one wait, and what ends it is told', { init: playGateway, query: '?transport=websocket' }, async (page) => {
  const tell = (type, payload) => page.evaluate(([type, payload]) => links[0].tell(type, payload), [type, payload]);
  await start(page);
  await says(page, 'Listening');
  await tell('ASSISTANT_THINKING', { thinking: true });
  await says(page, 'Thinking…');
  await tell('SESSION_STATE', { state: 'live', message: 'Waiting for Gemini’s answer…' });
  await tell('ASSISTANT_THINKING', { thinking: false });
  await says(page, 'Waiting for Gemini’s answer…');
  await tell('USER_SPEAKING', { speaking: true });
  await page.waitForSelector('[data-orb=listening]');
  await tell('USER_SPEAKING', { speaking: false });
  await page.waitForSelector('[data-orb=thinking]');
  await tell('SESSION_STATE', { state: 'live', message: 'Gemini did not answer.', unanswered: true });
  await says(page, 'Gemini did not answer.');
  await page.waitForSelector('[data-orb=listening]'); // who is to say it again is heard
});

test('goes on with a gateway that comes back', async () => {
  let mine = await startGateway();
  const { url } = mine;
  const page = await openPage({ url, query: '?transport=websocket', sounds: [silence(1)] });
  const other = await openPage({ url, sounds: [silence(1)] });
  try {
    for (const p of [page, other]) {
      await start(p);
      await says(p, 'Listening');
    }
    await goesBy(other, 'WebRTC');
    await mine.stop('SIGKILL');
    await says(page, /Reconnecting|No connection/);
    await says(other, 'No connection. Trying again…', 8_000); // once a socket is refused, though the voice might still come back
    await other.quit();
    mine = await startGateway({ VOXGATE_ADDR: new URL(url).host.replace('localhost', '127.0.0.1') });
    await says(page, 'Listening');
    assert.match(await page.textContent('#log'), /could not be kept/);
    await type(page, 'Hello again');
    await says(page, 'Speaking');
  } finally {
    await page.quit();
    await mine.stop();
  }
});

test('says so when the gateway is not there', async () => {
  const gone = await startGateway();
  const page = await openPage({ url: gone.url });
  try {
    await page.waitForSelector('#notice:not([hidden])');
    await gone.stop();
    await start(page);
    await says(page, 'There is no connection.');
    assert.equal(await page.textContent('#talk span'), 'Start');
  } finally {
    await page.quit();
    await gone.stop();
  }
});

const away = () => {
  window.Notification = class {
    static permission = 'default';
    static async requestPermission() {
      return (this.permission = 'granted');
    }
    constructor(title) {
      window.called = title;
    }
  };
  Object.defineProperty(document, 'hidden', { get: () => window.gone ?? false });
};

look('who was missed in the background can be called next time', { init: `(${away})()` }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  const asksForPhoto = async () => {
    await page.evaluate(() => (window.gone = true));
    await type(page, '/tool take_photo {}');
  };
  await asksForPhoto();
  await page.getByText('Voxgate needed you while this page was in the background.').waitFor();
  await page.evaluate(() => (window.gone = false));
  await page.click('text=Notify me next time');
  await page.waitForFunction(() => !document.querySelector('.offer'));
  await asksForPhoto();
  await page.waitForFunction(() => window.called === 'Voxgate: Taking photo…');
});

for (const [name, canvas] of Object.entries({
  canvas: { elements: [{ type: 'input', id: 'a' }] },
  'canvas that only shows something': { elements: [{ type: 'text', value: 'Look' }] },
})) {
  look(`a ${name}, in the background`, { init: `(${away})()` }, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await page.evaluate(() => (window.gone = true));
    await type(page, `/tool create_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForSelector('.canvas:not([hidden])');
    const waits = canvas.elements[0].type === 'input';
    assert.equal(await page.getByText('Notify me next time').count(), waits ? 1 : 0);
    if (!waits) return;
    await page.evaluate(() => (window.gone = false));
    await page.click('text=Hide');
    await page.click('text=Notify me next time');
    await page.waitForFunction(() => !document.querySelector('.offer'));
    await page.evaluate(() => (window.gone = true));
    await type(page, `/tool show_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForFunction(() => /^Voxgate: .*canvas…$/.test(window.called));
    assert.equal(await page.getByText('Notify me next time').count(), 0);
  });
}

// --- with a gateway that the test plays

/** A test on the page with such a gateway; `init` runs before it. */
const play = (name, run, { init = () => {}, ...options } = {}) =>
  look(name, { init: { content: `(${playGateway})(); (${init})();` }, query: '?transport=websocket', ...options }, run);
const tell = (page, kind, payload) => page.evaluate((m) => links.at(-1).tell(...m), [kind, payload]);
const orb = (page) => page.getAttribute('body', 'data-orb');

play('sends what was typed while it was connecting', async (page) => {
  await page.evaluate(() => (window.unreachable = true));
  await type(page, 'one');
  await type(page, 'two');
  await says(page, 'Connecting…');
  assert.deepEqual(await page.$$eval('.turn.waiting span', (all) => all.map((e) => e.textContent)), ['one', 'two']);
  await page.evaluate(() => links[0].open());
  await page.waitForFunction(() => texts(links[0]).length === 2);
  assert.deepEqual(await page.evaluate(() => texts(links[0])), ['one', 'two']);
  assert.equal(await page.locator('.turn').count(), 2, 'each stands there once');
});

play('loses nothing that was typed when it cannot connect', async (page) => {
  await page.evaluate(() => (window.unreachable = true));
  await type(page, 'one');
  await page.evaluate(() => links[0].drop());
  await says(page, 'There is no connection.');
  assert.equal(await page.inputValue('#text'), 'one');
  assert.equal(await page.locator('.turn').count(), 0);
});

play('gives back what was typed while the gateway was away, and says that it was not sent', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => {
    window.unreachable = true; // or it would be back before the test has typed
    setups.unshift({ success: false, error: { message: 'No.', details: { code: 'unauthorized' } } });
    links[0].drop();
  });
  await says(page, 'Reconnecting');
  await type(page, 'Hello?');
  await page.evaluate(() => ((window.unreachable = false), links.at(-1).open())); // one that was dialed already, or the next
  await says(page, 'You are not signed in here, or no longer.');
  assert.deepEqual([await page.inputValue('#text'), await page.locator('.turn').count()], ['Hello?', 0]);
  assert.equal(await page.innerText('#unsent'), 'Not sent. It is in the field again.');
  await page.fill('#text', 'Hello');
  assert.ok(await page.isHidden('#unsent'));
});

for (const [how, act, sentence, mark] of [
  ['the other side', () => links[0].tell('GEMINI_DISCONNECTED', { reason: 'goodbye' }), 'The conversation was ended from the other side.', ''],
  ['a limit', () => links[0].tell('GEMINI_DISCONNECTED', { reason: 'This conversation has reached its time limit.', code: 'time_limit' }), 'The conversation has reached its time limit.', ''],
  ['the person', () => document.querySelector('#end').click(), 'The conversation is over.', ''],
  ['a gateway that is gone', () => (setups.unshift({ success: false, error: { message: 'No.', details: { code: 'forbidden' } } }), links[0].drop()), 'No.', 'the connection was lost here'],
]) {
  play(`tells an end by ${how} as what it is`, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Once upon a time' } } });
    await page.evaluate(act);
    await says(page, sentence);
    assert.doesNotMatch(await status(page), /goodbye|try again/);
    assert.deepEqual(await page.$$eval('.turn small', (all) => all.map((e) => e.textContent)), mark ? [mark] : []);
  });
}

play('listens when it asks to say it again', async (page) => {
  await start(page);
  await tell(page, 'ASSISTANT_THINKING', { thinking: true });
  await says(page, 'Thinking…');
  await tell(page, 'SESSION_STATE', { state: 'live', message: 'No answer.', unanswered: true });
  await says(page, 'did not answer. Please say it again.');
  assert.notEqual(await page.evaluate(() => document.body.dataset.orb), 'thinking');
});

play('goes on after a reload in the midst of an answer, which stands there once, or begins anew', async (page) => {
  await start(page);
  await type(page, 'Tell me a story');
  await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Once upon a time' } } });
  await page.reload();
  await says(page, 'Your conversation is kept. Press the microphone to go on.');
  assert.match(await page.innerText('#lasted'), /^You were talking \d+ seconds? ago\.$/);
  await page.evaluate(() => (setups = [{ resumed: true, received: [] }]));
  await page.click('#goon');
  await says(page, 'Listening');
  await tell(page, 'INTERRUPTED', { generation: 1, heard: 'Once upon', playedMs: 500, turn: 1, by: 'client' });
  const said = () => page.$$eval('.turn', (all) => all.map((e) => e.innerText.split('\n').slice(1).join('|')));
  assert.deepEqual(await said(), ['Tell me a story', 'Once upon a time'], 'once, and by nobody interrupted');
  await page.reload();
  await page.click('#anew');
  await says(page, 'Listening');
  assert.equal(await page.evaluate(() => links[0].hello.resumeToken), undefined);
  assert.match(await page.innerText('#log .rule'), /New conversation/);
});

play('keeps the screen on while a conversation runs', async (page) => {
  await page.evaluate(() => {
    window.locks = [];
    Object.defineProperty(navigator, 'wakeLock', { value: { request: async (type) => (locks.push(type), { release: async () => locks.push('released') }) } });
  });
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.waitForFunction(() => locks.length === 2);
  await stop(page);
  await page.waitForFunction(() => locks.length === 4);
  assert.deepEqual(await page.evaluate(() => locks), ['screen', 'screen', 'released', 'released']);
}, { chromiumOnly: 'Firefox has no getter to replace' });

play('shows an open microphone, with Mute and End, while one types on a phone', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.click('#keyboard');
  for (const part of ['#talk', '#mute', '#end', '#text', '#send']) assert.ok(await page.isVisible(part), part);
  const boxes = await page.$$eval('#talk, #mute, #end', (all) => all.map((e) => Math.min(e.offsetWidth, e.offsetHeight)));
  assert.ok(boxes.every((size) => size >= 24), String(boxes));
}, { context: { viewport: { width: 390, height: 844 } } });

play('says how long the gateway has been away, tries at once when asked to, and keeps the order', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, 'Tell me a story');
  await tell(page, 'ASSISTANT_SPEAKING', {});
  const said = (text) => tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
  await said('Once upon a time');
  await page.evaluate(() => ((window.unreachable = true), links.at(-1).drop()));
  await says(page, 'Reconnecting…');
  await type(page, 'Are you still there?');
  const dock = () => page.$eval('#talk', (e) => e.getBoundingClientRect().top);
  const stood = await dock();
  const words = () => page.$$eval('.turn', (all) => all.map((e) => [...e.childNodes].slice(1).map((n) => n.textContent).filter(Boolean).join('|')));
  assert.deepEqual(await words(), ['Tell me a story', 'Once upon a time|the connection was lost here', 'Are you still there?|is sent when we are back']);
  await page.waitForFunction(() => /^Lost [3-5] s ago$/.test(since.textContent) && absence.checkVisibility());
  assert.equal(await dock(), stood, 'nothing moves');
  await page.waitForFunction(() => [...document.querySelectorAll('.turn')].at(-1).getBoundingClientRect().bottom <= absence.getBoundingClientRect().top); // nor is anything covered

  await page.evaluate(() => { // and the next try by itself is far away
    const { setTimeout } = window;
    window.setTimeout = (f, ms, ...a) => setTimeout(f, ms > 100 ? 60_000 : ms, ...a);
    links.at(-1).drop();
  });
  await says(page, 'No connection. Trying again…');
  const dials = await page.evaluate(() => (setups.push({ resumed: true }), (window.unreachable = false), links.length));
  await page.click('#retry');
  await page.waitForFunction((dials) => links.length > dials, dials);
  await says(page, 'Listening');
  assert.equal(await page.isVisible('#absence'), false);
  await page.waitForFunction(() => texts(links.at(-1)).includes('Are you still there?'));
  assert.deepEqual(await words(), ['Tell me a story', 'Once upon a time|the connection was lost here', 'Are you still there?']);

  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: ', far away' } } }); // it was said all the same
  await tell(page, 'TURN_COMPLETE');
  assert.deepEqual(await words(), ['Tell me a story', 'Once upon a time, far away', 'Are you still there?']);
});

play('draws a line between two conversations', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, 'one');
  await stop(page);
  await says(page, 'The conversation is over.');
  assert.equal(await page.locator('.rule').count(), 0);
  await start(page);
  await says(page, 'Listening');
  await type(page, 'two');
  const log = await page.$$eval('#log > *', (all) => all.map((e) => e.textContent.replace(/\d+:\d+.*/, 'T')));
  assert.deepEqual(log, ['Youone', 'New conversation, T', 'Youtwo']);
  await page.evaluate(() => setups.push({ resumed: false }));
  await page.evaluate(() => links.at(-1).drop());
  await page.getByText('could not be kept').waitFor();
  assert.equal(await page.locator('.rule').count(), 2, 'nor without being asked');
  await stop(page);
  for (let i = 0; i < 2; i++) {
    await says(page, 'The conversation is over.');
    await start(page);
    await says(page, 'Listening');
    await stop(page);
  }
  assert.equal(await page.locator('.rule').count(), 3, 'nothing was said in between');
  assert.deepEqual(await page.$$eval('.turn', (all) => all.map((e) => e.dir)), ['auto', 'auto']);
});

play('tells who reads what was said earlier that there is more', async (page) => {
  await start(page);
  await says(page, 'Listening');
  const answer = async (text) => {
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
    await tell(page, 'TURN_COMPLETE', { turn: 1 });
  };
  for (let i = 0; i < 40; i++) await answer(`Line ${i}`);
  const endIsInSight = () => page.waitForFunction(() => { const e = document.querySelector('main'); return e.scrollHeight - e.scrollTop - e.clientHeight < 2; });
  await endIsInSight(); // scrolling is smooth
  assert.ok(await page.isHidden('#newest'));
  await page.$eval('main', (e) => (e.scrollTop -= 400));
  await page.locator('#newest').waitFor();
  assert.ok(await page.locator('#newest span').last().isHidden(), 'a way down, and nothing new');
  await answer('The news');
  await page.locator('#newest', { hasText: 'New' }).waitFor();
  assert.deepEqual(await findBarriers(page), []);
  await page.click('#newest');
  await endIsInSight();
  await page.locator('#newest').waitFor({ state: 'hidden' });
});

for (const [name, viewport] of variants([['desk', { width: 1440, height: 900 }], ['phone', { width: 390, height: 844 }]])) {
  play(`moves nothing while it talks and shows (${name})`, async (page, _gateway, t) => {
    const schemas = {
      2: [{ type: 'text', value: '<h3>Vienna, this week</h3><table><tr><th>Day</th><th>High</th></tr><tr><td>Mon</td><td>21°</td></tr></table>' }],
      5: [{ type: 'text', value: '<h3>A table</h3>' }, { type: 'input', id: 'name', label: 'Name' }, { type: 'button', label: 'Book it', action: 'submit' }],
      7: [{ type: 'list', items: ['One', 'Two', 'Three'] }],
      9: [{ type: 'text', value: '<h3>The bridge</h3>' }, { type: 'image', src: 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', alt: 'A bridge' }],
      12: [{ type: 'text', value: 'Which one?' }, { type: 'button', label: 'This', action: 'submit' }],
    };
    await page.evaluate(() => {
      window.shifts = [];
      new PerformanceObserver((list) => shifts.push(...list.getEntries().filter((e) => !e.hadRecentInput).map((e) => ({ value: e.value, what: e.sources.map(({ node: n }) => n?.id || n?.className || n?.nodeName) })))).observe({ type: 'layout-shift', buffered: true });
    });
    await start(page);
    await says(page, 'Listening');
    for (let i = 0; i < 14; i++) {
      await tell(page, 'CONTENT_MESSAGE', { serverContent: { inputTranscription: { text: `Question ${i}, which is long enough for two lines on a phone?` } } });
      const schema = schemas[i];
      if (schema) await tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id: `c${i}`, name: 'show_canvas_tool', args: { schema: JSON.stringify(schema) } }] } });
      if (schema) await page.waitForTimeout(300); // what is drawn counts, so it needs frames
      if (!i) await page.evaluate(() => void (later += 10_000)); // the microphone gives nothing, which has advice and a button
      await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: i });
      for (const piece of ['It is rather warm until Tuesday, ', 'and then it rains, ', 'as it often does in spring. ', 'On Friday the sun comes back, ', 'and it will be 24 degrees.']) {
        await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: piece } } });
        await page.waitForTimeout(40);
      }
      if (i === 3) await tell(page, 'groundingMetadata', { groundingMetadata: { webSearchQueries: ['weather'], groundingChunks: [{ web: { title: 'orf.at', uri: 'https://orf.at/' } }] } });
      await tell(page, 'TURN_COMPLETE', { turn: i });
      if (schema?.some((e) => e.type === 'button')) await page.evaluate(() => document.querySelector('.canvas [data-action="submit"]').click());
      await page.waitForTimeout(60);
      if (!i) await page.locator('#other-microphone').waitFor();
    }
    const shifts = await page.evaluate(() => shifts);
    const sum = shifts.reduce((all, { value }) => all + value, 0);
    t.diagnostic(`layout shift ${sum.toFixed(4)}`);
    assert.ok(sum <= 0.02, `${sum}: ${JSON.stringify(shifts)}`);
    assert.equal(await page.locator('#log .card').count(), 5);
  }, { context: { viewport, ...moves }, chromiumOnly: 'Firefox measures no layout shift' });
}

/** How long the browser computes styles in `act`, in ms for each of its `count` steps. Chromium alone says so. */
async function styleTime(page, count, act) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const total = async () => (await cdp.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'RecalcStyleDuration').value * 1000;
  const before = await total();
  await act();
  return ((await total()) - before) / count;
}

play('paints and reacts at once, with 120 turns', async (page, _gateway, t) => {
  const paint = await page.evaluate(() => new Promise((resolve) => {
    new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime)).observe({ type: 'largest-contentful-paint', buffered: true });
  }));
  await start(page);
  await says(page, 'Listening');
  for (let i = 0; i < 120; i++) {
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { inputTranscription: { text: `Question ${i}` } } });
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: `Answer ${i}, **with** a list:\n\n- one\n- two` } } });
    await tell(page, 'TURN_COMPLETE', { turn: i });
  }
  const styles = await styleTime(page, 20, () => page.evaluate(async () => {
    for (let i = 0; i < 20; i++) {
      links.at(-1).tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: `word ${i} ` } } });
      await new Promise(requestAnimationFrame);
    }
  }));
  await tell(page, 'TURN_COMPLETE', { turn: 120 });
  await page.evaluate(() => {
    window.took = {}; // by interaction, in ms
    window.late = []; // how late this machine is meanwhile
    new PerformanceObserver((list) => list.getEntries().filter((e) => e.interactionId).forEach((e) => {
      took[e.interactionId] = Math.max(took[e.interactionId] ?? 0, e.duration);
    })).observe({ type: 'event', durationThreshold: 16 });
    let at = performance.now();
    setInterval(() => {
      const now = performance.now();
      late.push(now - at - 20);
      at = now;
    }, 20);
  });
  for (let i = 0; i < 4; i++) {
    await page.click('#mute');
    await page.click('#mute');
    await type(page, `Hello ${i}`);
  }
  await page.waitForTimeout(300); // entries come after the frame
  const { took, late } = await page.evaluate(() => ({ took: Object.values(took), late }));
  const share = (list, part) => list.sort((a, b) => a - b)[Math.floor(part * (list.length - 1))];
  const slow = share(took, 0.75);
  const lateness = Math.max(0, share(late, 0.95));
  t.diagnostic(`styles ${styles.toFixed(1)} ms a word; largest paint after ${paint.toFixed()} ms; ${took.length} interactions, 75th percentile ${slow} ms; this machine ${lateness.toFixed()} ms late`);
  assert.ok(styles <= 10, `a word costs ${styles} ms of styles: a rule like body:has(…) searches the whole conversation`);
  assert.ok(took.length >= 8, `${took.length} interactions`);
  assert.ok(slow <= 200 + 2 * lateness, `${slow} ms`);
  assert.ok(paint <= 2500 + 20 * lateness, `${paint} ms`);
}, { context: moves, chromiumOnly: 'Firefox does not tell interactions apart' });

const aMicrophone = () => {
  window.mics = [];
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (o) => {
    if (window.unplugged) throw new DOMException('none', 'NotFoundError');
    const stream = await real(o);
    mics.push(...stream.getTracks());
    return stream;
  };
};
play('takes the microphone up again that was unplugged', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => {
    window.unplugged = true;
    mics[0].stop();
    mics[0].dispatchEvent(new Event('ended'));
  });
  await says(page, 'The microphone is gone.');
  assert.equal(await orb(page), 'muted');
  await page.evaluate(() => (window.unplugged = false));
  assert.ok(await page.isHidden('#mute'), 'one button is enough');
  await page.click('#tryagain');
  await says(page, 'Listening');
  assert.equal(await page.evaluate(() => mics.length), 2);
}, { init: aMicrophone });

const noWorklet = () => {
  window.refused = true;
  const { addModule } = Worklet.prototype;
  Worklet.prototype.addModule = function (url, ...rest) {
    return refused && String(url).includes('capture') ? Promise.reject(new DOMException('no', 'AbortError')) : addModule.call(this, url, ...rest);
  };
};
play('does not say that it listens when nobody hears', async (page) => {
  await start(page);
  await says(page, 'Gemini cannot hear you');
  await page.waitForFunction(() => document.body.dataset.orb === 'muted');
  await page.evaluate(() => (window.refused = false));
  await page.click('#mute');
  await says(page, 'Listening');
}, { init: noWorklet });

play('says what it is doing, and the orb shows it', async (page) => {
  const seen = [await orb(page)];
  const see = async (sentence) => {
    await says(page, sentence);
    seen.push(await orb(page));
  };
  await start(page);
  await see('Listening');
  await tell(page, 'ASSISTANT_THINKING', { thinking: true });
  await see('Thinking…');
  await tell(page, 'USER_SPEAKING', { speaking: true });
  await see('Listening'); // to who speaks on
  await tell(page, 'USER_SPEAKING', { speaking: false });
  await see('Thinking…');
  await tell(page, 'ASSISTANT_THINKING', { thinking: false });
  await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
  await see(/Speaking\s· talk or press to interrupt/);
  await page.click('#talk');
  assert.ok(await page.evaluate(() => links[0].said.some((m) => m.type === 'INTERRUPT')), 'a tap interrupts');
  await tell(page, 'INTERRUPTED', { generation: 1, heard: '', playedMs: 0, turn: 1, by: 'client' });
  await see('Listening');
  await tell(page, 'ASSISTANT_THINKING', { thinking: true });
  await see('Thinking…');
  await tell(page, 'ASSISTANT_THINKING', { thinking: false });
  await see('Listening');
  await page.click('#mute');
  await see('You are muted.');
  await page.click('#talk');
  await see('Listening');
  assert.deepEqual(seen, [
    'ready', 'listening', 'thinking', 'listening', 'thinking', 'speaking', 'listening', 'thinking', 'listening', 'muted', 'listening',
  ]);
  assert.match(await page.title(), /^● Listening · Voxgate$/);
  await stop(page);
  await says(page, 'The conversation is over.');
  assert.equal(await page.title(), 'Voxgate');
});

play('reads no answer aloud into an open microphone', async (page) => {
  await start(page);
  await says(page, 'Listening');
  const told = (text) => page.waitForFunction((text) => document.querySelector('#told').textContent === text, text);
  await told('Listening');
  await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
  await told(''); // who hears it need not be told
  assert.equal(await page.$eval('#log', (e) => e.ariaLive), 'off');
  await page.click('#mute');
  await told('Speaking. You are muted.');
  assert.equal(await page.$eval('#log', (e) => e.ariaLive), 'polite');
});

play('tells a screen reader of what lasts, and not of each state on the way there', async (page) => {
  await page.evaluate(() => {
    window.told_ = [];
    const e = document.querySelector('#told');
    new MutationObserver(() => told_.push(e.textContent)).observe(e, { childList: true });
  });
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => {
    document.querySelector('#mute').click();
    for (const thinking of [true, false, true]) links[0].tell('ASSISTANT_THINKING', { thinking });
    links[0].tell('ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
  });
  await page.waitForFunction(() => told_.includes('Speaking. You are muted.'));
  const told = await page.evaluate(() => told_.filter((t) => t && t !== 'Connecting…'));
  assert.deepEqual(told.filter((t) => /Thinking|You are muted\. Gemini/.test(t)), [], 'that was over at once');
});

play('shows the answer below what was typed while the browser asks for the microphone', async (page) => {
  await page.evaluate(() => (navigator.mediaDevices.getUserMedia = () => new Promise(() => {})));
  await start(page);
  await says(page, 'Waiting for your microphone.');
  await type(page, 'one');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'two' } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  assert.deepEqual(await page.$$eval('#log > *', (all) => all.map((e) => e.textContent)), ['Youone', 'Geminitwo']);
});

play('shows what was said when it is loaded again, until it is cleared', async (page) => {
  await start(page);
  await type(page, 'one');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'שלום' } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  const said = () => page.$$eval('#log > *', (all) => all.map((e) => e.textContent.replace(/\d+:\d+.*/, 'T')));
  await page.reload();
  assert.deepEqual(await said(), ['Youone', 'Voxgateשלום']);
  const [mine, its] = await page.$$eval('.turn', (all) => all.map((e) => [e.matches(':dir(rtl)'), e.getBoundingClientRect().left]));
  assert.ok(!mine[0] && its[0] && its[1] < mine[1], 'each on its own side, whichever way the words run');
  await page.evaluate(() => (setups = [{ resumed: true, received: [] }]));
  await start(page);
  await says(page, 'Listening');
  assert.equal(await page.evaluate(() => links[0].hello.resumeToken), 't', 'the conversation goes on');
  assert.deepEqual(await said(), ['Youone', 'Voxgateשלום', 'Continued, T']);
  await page.reload();
  await start(page);
  await says(page, 'Listening');
  const begun = ['Continued, T', 'The conversation could not be kept. A new one goes on, which knows what was said.'];
  assert.deepEqual(await said(), ['Youone', 'Voxgateשלום', ...begun]);
  const known = await page.evaluate(() => links[0].hello.initialConfig.voxgate.history);
  assert.deepEqual(known, [{ role: 'user', content: 'one' }, { role: 'model', content: 'שלום' }]);
  await stop(page);
  await page.click('#settings');
  await page.getByRole('button', { name: 'Clear the transcript' }).click();
  await page.getByRole('button', { name: 'Clear the transcript' }).click();
  await page.keyboard.press('Escape');
  await page.reload();
  await page.locator('#tries').waitFor(); // it comes with the gateway's status
  assert.deepEqual(await said(), []);
});

play('shows an answer above what cut it off, and cards as they were, when it is loaded again', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, 'one');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Once upon a time' } } });
  await type(page, 'stop');
  await tell(page, 'INTERRUPTED', { generation: 1, heard: 'Once upon', playedMs: 500, turn: 1, by: 'text' });
  await tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id: 'a', name: 'no_such', args: {} }, { id: 'b', name: 'get_current_time', args: {} }] } });
  for (const status of ['failed', 'done']) await page.waitForSelector(`#log .card[data-status=${status}]`);
  const said = () => page.$$eval('#log .turn > span, #log .card', (all) => all.map((e) => e.textContent.replace(/(?<=clock): \d.*(?=: )/, '')));
  const cards = () => page.$$eval('#log .card', (all) => all.map((e) => [e.dataset.status, e.innerHTML]));
  const before = await cards();
  const order = ['one', 'Once upon', 'stop', 'No such: did not work', 'Looked at the clock: done'];
  assert.deepEqual(await said(), order);
  await page.reload();
  assert.deepEqual(await said(), order);
  assert.deepEqual(await cards(), before);
});

play('tells in words what a tool has done, and developers what it was asked and answered', async (page) => {
  const functionCalls = [{ id: 'a', name: 'no_such', args: { query: 'Ada <b>', exact: true } }];
  await start(page);
  await says(page, 'Listening');
  await tell(page, 'TOOL_CALL', { toolCall: { functionCalls } });
  await page.waitForSelector('#log .card[data-status=failed]');
  await tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id: 'b', name: 'get_current_time', args: {} }] } });
  await page.waitForSelector('#log .card[data-status=done]');
  await tell(page, 'GEMINI_ERROR', { message: 'args: missing property "query".', details: { code: 'tool_execution_error' } });
  assert.deepEqual(await page.$$eval('#log .card', (all) => all.map((e) => e.textContent)), ['No such: did not work', `Looked at the clock: ${await page.evaluate(() => new Date().toLocaleTimeString('en', { hour: 'numeric', minute: '2-digit' }))}: done`]);
  assert.equal(await page.locator('.note').count(), 0, 'nobody but developers reads that');
  await page.click('#detail');
  await page.getByText('For developers').click();
  const told = await page.textContent('.statistics pre');
  for (const part of ['Ada <b>', 'there is no tool no_such', 'timeZone']) assert.ok(told.includes(part), told);
});

play('shows answers in light Markdown, whose links are safe, and nothing else of it', async (page) => {
  await start(page);
  await says(page, 'Listening');
  const said = 'Take **two** `eggs`:\n- one\n- two\n\nSee [here](https://example.com/a) or [there](javascript:alert(1)) <b>now</b> 2*3*4';
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: said } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  const html = await page.$eval('.turn.model span', (e) => e.innerHTML);
  assert.equal(html, '<p>Take <strong>two</strong> <code>eggs</code>:</p><ul><li>one</li><li>two</li></ul>' +
    '<p>See <a href="https://example.com/a" target="_blank" rel="noopener noreferrer">here</a> or [there](javascript:alert(1)) &lt;b&gt;now&lt;/b&gt; 2*3*4</p>');
});

test('links in Markdown never show another address than they open', async () => {
  const { parse } = await import('../library/markdown.js');
  const shows = (text) => parse(text).map((piece) => (piece.tag === 'a' ? `<${piece.inner[0]}>` : piece)).join('');
  for (const [text, shown] of [
    ['[here](https://a.example/x)', '<here>'],
    ['[a.example](https://www.a.example/x)', '<a.example>'],
    ['[Next.js 15](https://nextjs.org)', '<Next.js 15>'],
    ['[accounts.google.com](https://evil.example/)', '<https://evil.example/>'],
    ['[HTTPS://bank.com/login](https://bank.com.evil.example/)', '<https://bank.com.evil.example/>'],
    ['[x@bank.com](mailto:x@evil.example)', '<mailto:x@evil.example>'],
    ['[\u202emoc.knab](https://evil.example/)', '<https://evil.example/>'],
    ['[here](https://bank.com@evil.example/)', 'here (https://bank.com@evil.example/)'],
    ['https://bank.com@evil.example/', 'https://bank.com@evil.example/'],
  ]) assert.equal(shows(text), shown, text);
});

test('half a row of a table is not shown', async () => {
  const { parse } = await import('../library/markdown.js');
  const shownAs = (piece) => (piece.tag ? `${piece.tag}(${piece.inner.map(shownAs).join()})` : piece);
  const table = 'table(tbody(tr(th(a),th(b)),tr(td(1),td(20))))';
  for (const [text, shown] of [
    ['Look:\n| a | b |\n| - | - |\n| 1 | 20 |', `p(Look:) ${table}`],
    ['Look:\n| a | b |\n| - | - |\n| 1 | 20 |\n|', `p(Look:) ${table}`],
    ['Look:\n| a | b |\n| - | - |\n| 1 | 20 |\n| 2 | 3', `p(Look:) ${table}`],
    ['Look:\n| a | b |\n| - | -', 'p(Look:) table(tbody(tr(th(a),th(b))))'],
    ['Look:\n| a | b', 'Look:'],
    ['Look:\n|', 'Look:'],
    ['a | b', 'a | b'],
  ]) assert.equal(parse(text).map(shownAs).join(' '), shown, text);
});

play('says at the end how long it was, and goes on with what was said', async (page) => {
  await start(page);
  await says(page, 'Listening');
  assert.equal(await page.isVisible('#tries'), false, 'it begins calm');
  await type(page, 'My name is Ada.');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Hello Ada.' } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  await stop(page);
  await says(page, 'The conversation is over.');
  assert.match(await page.textContent('#lasted'), /^It lasted \d+ seconds?\.$/);
  const { name, content } = await saves(page, () => page.click('text=Transcript'));
  assert.deepEqual([name, String(content)], ['transcript.md', '**You:** My name is Ada.\n\n**Gemini:** Hello Ada.']);
  await page.evaluate(() => setups.push({}));
  await page.click('text=Go on');
  await says(page, 'Listening');
  const known = await page.evaluate(() => links.at(-1).hello.initialConfig.voxgate.history);
  assert.deepEqual(known, [{ role: 'user', content: 'My name is Ada.' }, { role: 'model', content: 'Hello Ada.' }]);
  assert.match(await page.innerText('.rule'), /^Continued, /);
  assert.equal(await page.locator('.rule:not(.known)').count(), 0, 'it is the same conversation');
});

play('offers the same after a reload that follows the end', async (page) => {
  await start(page);
  await says(page, 'Listening');
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { inputTranscription: { text: 'My name is Ada.' } } });
  await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Hello **Ada**.' } } });
  await tell(page, 'TURN_COMPLETE', { turn: 1 });
  await stop(page);
  await says(page, 'The conversation is over.');
  await page.reload();
  await page.waitForSelector('#goon');
  for (const id of ['#goon', '#keep', '#after .earlier']) assert.ok(await page.isVisible(id), id);
  assert.equal(await status(page), 'The conversation is over. Press the microphone for a new one.', 'as before the reload');
  assert.ok(!(await page.isVisible('#anew')), 'which the orb begins');
  await page.click('#after .earlier');
  await page.click('.history .entry');
  assert.equal(await page.innerText('.history .turn.model strong'), 'Ada', 'as it was shown');
  await page.keyboard.press('Escape');
  await page.evaluate(() => setups.push({}));
  await page.click('#goon');
  await says(page, 'Listening');
  const known = await page.evaluate(() => links.at(-1).hello.initialConfig.voxgate.history);
  assert.deepEqual(known, [{ role: 'user', content: 'My name is Ada.' }, { role: 'model', content: 'Hello **Ada**.' }]);
});

for (const [name, viewport] of [['desk', { width: 1280, height: 800 }], ['phone', { width: 390, height: 844 }]]) {
  play(`keeps the bar and the field where they are, and the status close under the orb (${name})`, async (page) => {
    const places = () => page.$$eval(name === 'desk' ? '.brand, #text' : '.brand', (all) => all.map((e) => Math.round(e.getBoundingClientRect().top)));
    const before = await places();
    await start(page);
    await says(page, 'Listening');
    await awaitAnimations(page);
    assert.deepEqual(await places(), before, 'in a conversation');
    const [gap, hole] = await page.evaluate(() => {
      const rect = (selector) => document.querySelector(selector).getBoundingClientRect();
      const next = [...document.querySelectorAll('#talk ~ .icon')].find((e) => e.checkVisibility());
      return [rect('#status b').top - rect('#orb').bottom, next.getBoundingClientRect().left - rect('#camera').right];
    });
    assert.ok(gap > 0 && gap < 72, `${gap} px from the orb to the status`);
    assert.ok(hole >= 0 && hole < 60, `${hole} px where the orb comes to stand`);
    await stop(page);
    assert.deepEqual(await places(), before, 'after it');
  }, { context: { viewport, ...moves } });
}

for (const [name, viewport] of variants([['phone', { width: 390, height: 844 }], ['desk', { width: 1280, height: 800 }]])) {
  play(`lets the words grow upwards from a large orb, which makes room when they are many (${name})`, async (page) => {
    const places = () => page.evaluate(() => {
      const rect = (selector) => document.querySelector(selector).getBoundingClientRect();
      const main = document.querySelector('main');
      return {
        first: rect('#log .turn').top, last: rect('#log .turn:last-child').bottom, orb: rect('#orb').top, size: rect('#orb').width, status: rect('#status b').top,
        bar: rect('header').bottom, scrolls: main.scrollHeight > main.clientHeight,
      };
    });
    const answer = (text, turn) => tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } }).then(() => tell(page, 'TURN_COMPLETE', { turn }));
    await start(page);
    await says(page, 'Listening');
    await answer('Hello! How can I help?', 0);
    await page.waitForSelector('#log .turn');
    await awaitAnimations(page);
    const one = await places();
    assert.ok(one.size >= 120 && one.size <= 160, `${one.size} px`);
    assert.ok(one.orb - one.last > 8 && one.orb - one.last < 64, `${one.orb - one.last} px from the words to the orb`);
    assert.ok(one.status > one.orb + one.size, 'the status is under the orb');
    assert.ok(!one.scrolls, 'nothing scrolls');
    await answer('There is one more thing.', 1);
    await page.waitForFunction(() => document.querySelectorAll('#log .turn').length === 2);
    await awaitAnimations(page);
    const two = await places();
    assert.ok(two.first < one.first - 20 && Math.abs(two.last - one.last) < 2, `the words go up: ${JSON.stringify([one, two])}`);
    assert.deepEqual([two.orb, two.size], [one.orb, one.size], 'the orb stays');
    let full = 2;
    while (await page.evaluate(() => document.body.classList.contains('roomy'))) {
      await answer(`Answer ${full++} of many.`, full);
      await page.waitForFunction((n) => document.querySelectorAll('#log .turn').length === n, full);
      await awaitAnimations(page);
    }
    const { last, status } = await places();
    assert.ok(status - last < 80, `the words that need the room of the orb grow into it: ${status - last} px stay empty`);
    for (let i = full; i < 40; i++) await answer(`Answer ${i} of many.`, i);
    await page.waitForFunction(() => document.querySelectorAll('#log .turn').length === 40 && document.querySelector('#orb').offsetWidth < 100);
    await awaitAnimations(page);
    await page.waitForFunction(() => {
      const main = document.querySelector('main');
      return main.scrollHeight - main.clientHeight - main.scrollTop < 2;
    });
    const many = await places();
    assert.ok(many.orb > many.status, 'the orb is in the dock');
    assert.ok(many.status - many.last < 80 && many.status > many.last, `the last words stand above the status: ${JSON.stringify(many)}`);
    await page.setViewportSize({ width: viewport.width, height: 2 * viewport.height + 1200 });
    await page.waitForFunction(() => document.querySelector('#orb').offsetWidth >= 120);
    await awaitAnimations(page);
    const tall = await places();
    assert.ok(tall.orb > tall.last && tall.first > tall.bar, 'where there is room again, all stands above the orb');
  }, { context: { viewport, ...moves } });
}

const sizes = { 'page enlarged four times': [320, 256], desk: [1280, 800], phone: [360, 740], 'small phone': [320, 568], 'phone on its side': [740, 360], wide: [1920, 1080] };
const [smallest, ...larger] = Object.entries(sizes);
for (const [name, [width, height]] of [smallest, ...variants(larger)]) {
  play(`leaves the screen to the conversation, and all in sight (${name})`, async (page) => {
    const context = await page.evaluate(() => ({ inside: [innerWidth, innerHeight] }));
    assert.deepEqual(context.inside, [width, height]);
    assert.ok((await page.$eval('header', (e) => e.offsetHeight)) < 60, 'the bar is one row');
    await start(page);
    await says(page, 'Listening');
    await awaitAnimations(page);
    const dock = () => page.$eval('footer', (e) => e.getBoundingClientRect().height);
    const before = await dock();
    const share = await page.$eval('main', (e) => (e.offsetWidth * e.offsetHeight) / innerWidth / innerHeight);
    const least = { phone: 0.72, desk: 0.68, wide: 0.75, 'phone on its side': 0.74 }[name] ?? 0.5;
    assert.ok(share > least, `${share} of the screen`);
    await tell(page, 'ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
    await says(page, 'Speaking');
    assert.ok(name === 'page enlarged four times' || (await dock()) - before < 1 || width > height, 'the dock stays as high as it was');
    const elements = [{ type: 'text', value: 'Two questions' }, ...['a', 'b', 'c', 'd', 'e'].map((id) => ({ type: 'input', id, label: id }))];
    const buttons = [{ type: 'button', label: 'Book it', action: 'submit' }, { type: 'button', label: 'Not now', action: 'dismiss' }];
    const schema = JSON.stringify({ elements: [...elements, ...buttons] });
    await tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id: 'c', name: 'create_canvas_tool', args: { schema } }] } });
    await page.waitForSelector('.canvas:not([hidden])');
    await awaitAnimations(page);
    const free = (selector) =>
      page.$$eval(selector, (all) =>
        all.filter((e) => e.checkVisibility({ visibilityProperty: true })).map((e) => [e, e.getBoundingClientRect()]).filter(([e, { x, y, width, height, bottom, right }]) => {
          const there = e.contains(document.elementFromPoint(x + width / 2, y + height / 2));
          return !there || x < 0 || y < 0 || bottom > innerHeight || right > innerWidth;
        }).map(([e]) => e.outerHTML));
    assert.deepEqual(await free('footer button, header button'), [], 'what is pressed is in sight');
    if (name !== 'page enlarged four times') assert.deepEqual(await free('.canvas button'), [], 'the buttons of the form are in sight');
    if (width >= 1280) {
      const [left, right] = await page.evaluate(() => ['main > div', '.canvas'].map((s) => document.querySelector(s).getBoundingClientRect()).map((r) => [r.left, r.right]));
      assert.ok(left[1] <= right[0], 'the canvas stands beside the conversation');
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} px sideways`);
    await tell(page, 'TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids: ['c'] } });
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Hello.' } } }); // what was said can be saved, and read again
    await tell(page, 'TURN_COMPLETE', { turn: 1 });
    await page.waitForSelector('#log .turn', { state: 'attached' });
    await page.evaluate(() => document.querySelector('#end').click());
    await page.waitForSelector('#after:not([hidden])');
    await awaitAnimations(page);
    assert.deepEqual(await free('footer button, header button'), [], 'what is pressed at the end is in sight');
    const lines = await page.$$eval('#status, #lasted', (all) => all.map((e) => e.getBoundingClientRect()).map(({ top, bottom }) => [top, bottom]).sort((a, b) => a[0] - b[0]));
    if (name.endsWith('phone')) {
      const tops = new Set(await page.$$eval('#after button:not([hidden])', (all) => all.map((e) => e.getBoundingClientRect().top)));
      const status = await page.evaluate(() => document.querySelector('#status').getBoundingClientRect().height);
      assert.ok(tops.size === 1 && status < 60, `two lines for how it ended, one for what can be done: ${status} px, ${[...tops]}`);
      assert.match(await page.innerText('#status'), /for a new one/);
    }
    assert.ok(lines[0][1] <= lines[1][0], `no sentence stands on the other: ${lines}`);
  }, { context: { viewport: { width, height } } });
}

play('is dark where the page is, the canvas as well', async (page) => {
  await start(page);
  const schema = JSON.stringify([{ type: 'text', value: 'Look' }]);
  await says(page, 'Listening');
  await tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id: 'c', name: 'create_canvas_tool', args: { schema } }] } });
  await page.waitForSelector('.canvas:not([hidden])');
  const light = await page.$eval('.canvas', (e) => {
    const context = document.createElement('canvas').getContext('2d');
    context.fillStyle = getComputedStyle(e).backgroundColor;
    context.fillRect(0, 0, 1, 1);
    return Math.max(...context.getImageData(0, 0, 1, 1).data.slice(0, 3));
  });
  assert.ok(light < 60, String(light));
}, { context: { colorScheme: 'dark' } });

for (const options of [{ forcedColors: 'active', ...moves }, { reducedMotion: 'reduce' }]) {
  play(`tells the states of the orb apart (${Object.entries(options)})`, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await awaitAnimations(page);
    const picture = () => page.screenshot({ clip: { ...box, x: box.x - 6, y: box.y - 6, width: box.width + 12, height: box.height + 12 } });
    const box = await page.locator('#orb').boundingBox();
    const pictures = [];
    for (const state of ['listening', 'thinking', 'muted', 'reconnecting', 'asking']) {
      await page.evaluate((s) => document.querySelector('#orb').setAttribute('state', s), state);
      pictures.push((await picture()).toString('base64'));
    }
    assert.equal(new Set(pictures).size, pictures.length);
    // Whoever speaks, and whether anybody does: by one that no conversation moves.
    await page.evaluate(() => {
      const orb = Object.assign(document.createElement('voxgate-orb'), { id: 'alone' });
      Object.assign(orb.style, { position: 'fixed', inset: '2rem auto auto 2rem', zIndex: '9' });
      document.body.append(orb);
    });
    const clip = { x: 0, y: 0, width: 136, height: 136 };
    const voices = [];
    for (const [state, mic, model] of [['listening', 0, 0], ['listening', 0.05, 0], ['speaking', 0, 0.3]]) {
      await page.evaluate(([state, mic, model]) => {
        const orb = document.querySelector('#alone');
        orb.setAttribute('state', state);
        orb.shadowRoot.getAnimations().forEach((a) => a.cancel()); // it breathes
        orb.show(mic, model);
      }, [state, mic, model]);
      voices.push((await page.screenshot({ clip })).toString('base64'));
    }
    assert.equal(new Set(voices).size, 3);
    await page.evaluate(() => document.querySelector('#orb').setAttribute('state', 'thinking'));
    const turning = await page.evaluate(() => document.querySelector('#orb').shadowRoot.getAnimations().filter((a) => a.effect.getTiming().iterations === Infinity).length);
    assert.equal(turning, options.reducedMotion === 'reduce' ? 0 : 1);
    if (inFirefox) page.complaints.length = 0; // Playwright's own style sheet, for pictures
  }, { context: options });
}

/** Keeps what the page tells the device of its call. */
function deviceCall() {
  window.call = { handlers: {}, mic: [] };
  Object.assign(navigator.mediaSession, {
    setActionHandler: (name, f) => (call.handlers[name] = f),
    setMicrophoneActive: (on) => call.mic.push(on),
    setCameraActive: (on) => (call.camera = on),
  });
}

look('is a call to the device, with its buttons', { init: { content: `(${deviceCall})(); (${playGateway})();` }, query: '?transport=websocket' }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.waitForFunction(() => call.handlers.hangup);
  assert.equal(await page.evaluate(() => navigator.mediaSession.metadata.title), 'Talking with Gemini');
  await page.evaluate(() => call.handlers.togglemicrophone());
  await says(page, 'You are muted. Gemini does not hear you.');
  assert.deepEqual(await page.evaluate(() => [call.mic.includes(true), call.mic.at(-1), call.camera]), [true, false, false]);
  await page.evaluate(() => call.handlers.togglecamera());
  await page.waitForFunction(() => call.camera);
  await page.evaluate(() => call.handlers.hangup());
  await says(page, 'The conversation is over.');
  assert.deepEqual(await page.evaluate(() => [Object.values(call.handlers), navigator.mediaSession.metadata]), [[null, null, null], null]);
});

look('says so when a microphone gives nothing', { init: playGateway, query: '?transport=websocket' }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.evaluate(() => void (later += 10_000));
  await says(page, 'We hear nothing from “');
  await page.click('#mute');
  await says(page, 'You are muted');
  await page.click('#mute');
  await says(page, 'Listening');
});

const micLevel = (page, test) => page.waitForFunction(test, undefined, { polling: 'raf' });
/** A person who refuses the microphone, and later allows it. */
const refusing = () => {
  const { mediaDevices } = navigator;
  const real = mediaDevices.getUserMedia.bind(mediaDevices);
  window.refuses = true;
  mediaDevices.getUserMedia = (wanted) => (window.refuses ? Promise.reject(new DOMException('', 'NotAllowedError')) : real(wanted));
};

look('says where to allow a microphone that was refused, and tries it again', { init: { content: `(${refusing})(); (${playGateway})();` }, query: '?transport=websocket' }, async (page) => {
  const again = page.getByRole('button', { name: 'Try again' });
  assert.equal(await again.isVisible(), false);
  await start(page);
  await says(page, `The microphone is not allowed. ${inFirefox ? 'Press the microphone by the address and remove the block.' : 'Press the icon before the address and allow it.'}`);
  assert.ok(await again.isVisible());
  assert.equal(await page.isVisible('#mute'), false, 'one way for the microphone');
  await again.click();
  await says(page, 'The microphone is not allowed.');
  await page.evaluate(() => void (window.refuses = false));
  await again.click();
  await says(page, 'Listening');
  assert.deepEqual([await again.isVisible(), await page.isVisible('#mute')], [false, true]);
});

look('or gives nothing any more', { init: playGateway, query: '?transport=websocket', sounds: [tone(0.6)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await micLevel(page, () => Number(document.querySelector('#orb').style.getPropertyValue('--mic')) > 0);
  await says(page, 'We hear nothing from “', 25_000); // 8 s after the last sound
  assert.equal(await page.evaluate(() => document.body.dataset.orb), 'listening', 'it is open');
  assert.equal(await page.innerText('#mute span'), 'Mute');
});

/** A microphone that the system can keep. */
const keptMic = () => Object.defineProperty(MediaStreamTrack.prototype, 'muted', { get: () => window.kept });
look('or is kept by the system, and when that is over', { init: { content: `(${keptMic})(); (${playGateway})();` }, query: '?transport=websocket', sounds: [tone(20)] }, async (page, gateway, t) => {
  const judge = clock(t);
  await start(page);
  await says(page, 'Listening');
  await micLevel(page, () => Number(document.querySelector('#orb').style.getPropertyValue('--mic')) > 0);
  const took = await page.evaluate(async () => {
    const [from, told] = [performance.now(), document.querySelector('#status')];
    const change = new Promise((resolve) => new MutationObserver(resolve).observe(told, { childList: true }));
    window.kept = true;
    await change;
    return performance.now() - from;
  });
  assert.match(await status(page), /^We hear nothing/);
  judge(() => assert.ok(took < 1_000, `told after ${took} ms`));
  await page.evaluate(() => void (window.kept = false));
  await says(page, 'Listening');
});

look('and does not take a reconnect for that', { init: playGateway, query: '?transport=websocket', sounds: [tone(30)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await micLevel(page, () => Number(document.querySelector('#orb').style.getPropertyValue('--mic')) > 0);
  await page.evaluate(() => {
    window.seen = [];
    new MutationObserver(() => seen.push(document.querySelector('#status').textContent)).observe(document.querySelector('#status'), { childList: true });
    setups.push({ resumed: true, received: [] });
    links.at(-1).drop();
  });
  await page.waitForFunction(() => links.length > 1);
  await page.evaluate(() => void (later += 10_000));
  await says(page, 'Listening');
  await page.evaluate(() => new Promise((resolve) => { // until the microphone was looked at once more
    const { getFloatTimeDomainData } = AnalyserNode.prototype;
    let looks = 0;
    AnalyserNode.prototype.getFloatTimeDomainData = function (to) {
      if (to.length === this.fftSize && ++looks === 2) resolve();
      return getFloatTimeDomainData.call(this, to);
    };
  }));
  assert.ok(!(await page.evaluate(() => seen)).some((s) => s.startsWith('We hear nothing')), String(await page.evaluate(() => seen)));
});

look('says nothing of the kind when it gives a little', { init: playGateway, query: '?transport=websocket', sounds: [tone(30)] }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await page.waitForFunction(() => Number(document.querySelector('#orb').style.getPropertyValue('--mic')) > 0);
  await page.evaluate(() => void (later += 10_000));
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  assert.equal(await status(page), 'Listening');
});

look('can be installed', {}, async (page) => {
  const manifest = await page.evaluate(async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json());
  assert.deepEqual([manifest.start_url, manifest.display], ['.', 'standalone']);
  for (const src of [...manifest.icons.map((i) => i.src), 'icon.png']) {
    const size = await page.evaluate(async (url) => {
      const img = Object.assign(new Image(), { src: url });
      await img.decode();
      return img.naturalWidth;
    }, src);
    assert.ok(size > 0, src);
  }
});
