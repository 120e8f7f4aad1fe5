/** What Gemini shows and asks on the screen: by a real gateway with the emulator, and by one that the test plays. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { inFirefox, playGateway, says, start, status, stop, type, withGateway, variants, findBarriers } from './harness.mjs';

const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
const pixel = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';

const inPage = withGateway();

const text = (value, id) => ({ type: 'text', value, id });
const button = (action, label = action) => ({ type: 'button', label, action });
const ask = [text('Who are <b>you</b>?'), { type: 'input', id: 'name', label: 'Name', hint: 'Ada' }, button('submit', 'Send it')];
const canvas = (elements) => JSON.stringify({ type: 'canvas', elements });

const questions = () => [text('Which <b>one</b>?'), button('first'), button('second')];

const box = (page) => page.locator('.canvas');
const press = (page, name) => box(page).getByRole('button', { name, exact: true }).click();
const isOpen = (page) => box(page).isVisible();
const shown = async (page) => (await page.locator('.canvas-sheet').innerText()).split('\n').filter((l) => l.trim());

describe('through the gateway', () => {
  const talk = (name, run, transport = 'websocket') =>
    inPage(name, { query: `?transport=${transport}` }, async (page) => {
      await start(page);
      await says(page, 'Listening');
      await run(page);
    });
  const tell = (page, name, elements) => type(page, `/tool ${name} ${JSON.stringify({ schema: canvas(elements) })}`);
  const logSays = (page, what) =>
    page.waitForFunction((what) => document.querySelector('#log').textContent.includes(what), what);

  const types = async (page) => {
    await tell(page, 'create_canvas_tool', ask);
    await page.click('.canvas-sheet [data-element="text"]'); // pressing into it is where the focus comes from
    await page.keyboard.type('Ada Lovelace');
    await press(page, 'Send it');
    assert.equal(await isOpen(page), false);
    await logSays(page, 'The tool create_canvas_tool says: {"action":"submit","name":"Ada Lovelace"}');
  };
  talk('what the person types reaches the model', types);
  talk('what the person types reaches the model, over WebRTC', types, 'webrtc');

  talk('as does what is pressed on a canvas that was answered', async (page) => {
    await tell(page, 'show_canvas_tool', [...ask, button('more')]);
    await page.fill('.canvas input', 'Ada');
    await press(page, 'more');
    await logSays(page, 'The tool show_canvas_tool says: {"action":"more","name":"Ada"}');
    assert.equal(await isOpen(page), true);
    await page.press('.canvas input', 'Enter');
    await page.waitForFunction(() => sent.some((m) => m.payload?.text));
    const { payload } = await page.evaluate(() => sent.find((m) => m.payload?.text));
    assert.deepEqual(JSON.parse(payload.text), { name: 'Ada', action: 'submit' });
    assert.equal(await page.locator('.card', { hasText: 'answered' }).count(), 2, 'both stand in the conversation');
  });

  talk('a suggestion of Google’s stands with what was said, and opens in a tab of its own', async (page) => {
    await page.context().route('https://www.google.com/**', (route) => route.fulfill({ body: 'found' }));
    await type(page, '/ground parrots');
    await logSays(page, 'I have searched the web for you.');
    await says(page, 'Listening'); // until then what is said moves the suggestion
    const opened = page.waitForEvent('popup');
    await page.frameLocator('#log iframe').getByText('parrots').click();
    await (await opened).waitForURL('https://www.google.com/search?q=parrots');
  });

  talk('nothing that is hostile executes', async (page, dialogs = []) => {
    page.setDefaultTimeout(40_000); // the model says all that was wrong, aloud
    page.on('dialog', (d) => dialogs.push(d.dismiss()));
    await tell(page, 'create_canvas_tool', [text(HOSTILE.join('\n'))]);
    await logSays(page, 'The tool create_canvas_tool');
    await tell(page, 'append_to_canvas_tool', [{ type: 'image', src: 'data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImhhY2tlZD0xIi8+' }]);
    await logSays(page, 'The tool append_to_canvas_tool');
    assert.deepEqual([await page.evaluate(() => window.hacked), dialogs.length], [undefined, 0]);
  });
});

const HOSTILE = [
  '<script>hacked = 1</script>',
  '<img src=x onerror="hacked = 1">',
  '<img src="https://evil.example/pixel.gif">',
  '<svg onload="hacked = 1"><animate onbegin="hacked = 1"/></svg>',
  '<iframe srcdoc="<script>parent.hacked = 1</script>"></iframe>',
  '<a href="javascript:hacked=1" onclick="hacked=1">one</a>',
  '<a href=" java&#10;script:hacked=1">two</a>',
  "<a href='data:text/html,x'>three</a>",
  '<a href="https://ok.example/" target="_top" style="position:fixed">four</a>',
  '<a href="//evil.example">five</a>',
  '<style>@import "https://evil.example/x.css";</style>',
  '<meta http-equiv="refresh" content="0;url=https://evil.example">',
  '<base href="https://evil.example/">',
  '<link rel="stylesheet" href="https://evil.example/x.css">',
  '<form action="https://evil.example"><input name=x></form>',
  '<b onmouseover="hacked=1" style="background:url(https://evil.example)" id="talk" class="canvas">six</b>',
  '<math><mtext><style><img src=x onerror=hacked=1>',
  '<template><script>hacked=1</script></template>',
  '<object data="https://evil.example"></object>',
  '<p title="</p><img src=x onerror=hacked=1>">seven',
  '<!-- <img src=x onerror=hacked=1> --><img src=x onerror=hacked=1//',
  '<video src="https://evil.example/x" autoplay onerror="hacked=1"></video>',
];

/** A test on the page with a gateway that the test plays. */
const play = (name, run, options = {}) =>
  inPage(name, { init: playGateway, query: '?transport=websocket', ...options }, async (page, gateway) => {
    await page.click('#talk');
    await says(page, 'Listening');
    await page.waitForSelector('.canvas-sheet', { state: 'attached' }); // canvas.js is loaded meanwhile
    await run(page, gateway);
  });
const tell = (page, type, payload) => page.evaluate((m) => links[0].tell(...m), [type, payload]);
const call = (page, id, name, elements, more = {}) =>
  tell(page, 'TOOL_CALL', {
    toolCall: { functionCalls: [{ id, name: `${name}_canvas_tool`, args: { schema: canvas(elements) }, ...more }] },
  });
const create = (page, id, elements) => call(page, id, 'create', elements);
const append = (page, id, elements) => call(page, id, 'append_to', elements);
const answers = (page) => page.evaluate(() => links[0].answers.map((r) => [r.id, r.response]));
const texts = (page) =>
  page.evaluate(() => links[0].said.map((m) => m.payload?.text).filter(Boolean).map((t) => JSON.parse(t)));

describe('a canvas', () => {
  play('grows, is changed, hidden and shown again', async (page) => {
    await create(page, 'a', [text('One'), text('Two', 't')]);
    await append(page, 'b', [text('Three'), text('Second', 't'), { type: 'list', items: ['<i>Four</i>', 'Five'] }]);
    assert.deepEqual(await shown(page), ['One', 'Second', 'Three', 'Four', 'Five']);
    await press(page, 'Hide');
    assert.equal(await isOpen(page), false);
    await append(page, 'c', [text('Six')]);
    assert.equal((await shown(page)).length, 6);
    await create(page, 'd', [text('Anew')]);
    assert.deepEqual(await shown(page), ['Anew']);
    assert.deepEqual(await answers(page), ['a', 'b', 'c', 'd'].map((id) => [id, { shown: true }]));
  });

  play('tells who waits, exactly once, what became of it', async (page) => {
    await create(page, 'a', ask);
    await says(page, /^Listening.*answer here, or say it/);
    await create(page, 'b', ask);
    await append(page, 'c', [text('While you think about it …')]);
    await append(page, 'd', [button('more')]);
    await page.fill('.canvas input', 'Ada');
    await press(page, 'Hide');
    await append(page, 'e', [button('other')]);
    await page.keyboard.press('Escape');
    assert.equal(await isOpen(page), false);
    await append(page, 'f', [button('dismiss', 'No, thanks')]);
    assert.equal(await page.inputValue('.canvas input'), 'Ada', 'hiding clears nothing');
    await press(page, 'No, thanks');
    const dismissed = { dismissed: true };
    assert.deepEqual(await answers(page), [
      ['a', dismissed], ['c', { shown: true }], ['b', { continued: true }], ['d', { continued: true }], ['e', dismissed], ['f', dismissed],
    ]);
    assert.equal(await status(page), 'Listening', 'Esc has not ended the call');
    for (let i = 0; i < 2; i++) await page.keyboard.press('Escape');
    await says(page, 'The conversation is over.');
  });

  play('goes when its call is cancelled, and when the conversation ends', async (page) => {
    await create(page, 'a', ask);
    await tell(page, 'TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids: ['a'] } });
    assert.equal(await isOpen(page), false);
    await append(page, 'b', [button('more')]);
    assert.equal(await isOpen(page), true);
    await stop(page);
    await says(page, 'The conversation is over.');
    assert.equal(await isOpen(page), false);
    assert.equal(await page.locator('.canvas-sheet > *').count(), 0, 'nothing is left for the next');
    assert.deepEqual(await answers(page), []);
  });

  play('goes by itself when nobody touches it', async (page) => {
    await page.clock.install();
    await create(page, 'a', [text('Read me')]);
    await page.clock.fastForward('01:50');
    await page.dispatchEvent('.canvas-sheet', 'wheel');
    await page.clock.fastForward('01:50');
    assert.equal(await isOpen(page), true);
    await page.clock.fastForward('00:11');
    assert.equal(await isOpen(page), false);
    assert.deepEqual(await answers(page), [['a', { shown: true }]]);
  });

  play('warns before a question goes, and stays for who wants to take longer', async (page) => {
    await page.clock.install();
    const late = () => page.locator('.canvas-late').isVisible();
    await create(page, 'a', ask);
    await page.clock.fastForward('03:59');
    assert.equal(await late(), false);
    await page.clock.fastForward('00:02');
    assert.equal(await page.locator('.canvas-late').innerText(), 'Gemini waits for another minute.\n\nKeep it open');
    assert.equal(await page.textContent('.canvas-live'), 'Gemini waits for another minute.');
    await page.clock.fastForward('01:00');
    assert.equal(await isOpen(page), false);
    assert.deepEqual(await answers(page), [['a', { dismissed: true }]]);
    assert.match(await page.locator('.card').last().innerText(), /not answered in time$/i);

    await create(page, 'b', ask);
    await page.clock.fastForward('04:30');
    await page.getByRole('button', { name: 'Keep it open' }).click();
    assert.equal(await late(), false);
    assert.deepEqual((await answers(page)).at(-1), ['b', { continued: true }], 'before the gateway ends the call');
    await page.clock.fastForward('30:00');
    assert.equal(await isOpen(page), true);
    await page.fill('.canvas input', 'Ada');
    await page.keyboard.press('Enter');
    assert.equal(await isOpen(page), false);
    assert.match((await page.evaluate(() => texts(links[0]))).at(-1), /"Ada"/, 'it goes as a message');

    await create(page, 'c', ask);
    await page.clock.fastForward('02:00');
    await page.press('.canvas input', 'A');
    await page.clock.fastForward('02:01');
    assert.deepEqual((await answers(page)).at(-1), ['c', { continued: true }], 'who types is not asked');
    assert.deepEqual([await isOpen(page), await late()], [true, false]);
  });

  play('has every kind of input, and forms of their own', async (page) => {
    const kinds = ['text', 'multiline', 'number', 'date', 'time', 'email', 'tel', 'url'];
    await create(page, 'a', [
      ...kinds.map((kind) => ({ type: 'input', id: kind, kind, label: kind })),
      { type: 'form', label: 'Mine', elements: [{ type: 'input', id: 'inner', required: true, value: 'in' }, button('submit', 'Inner')] },
      button('all'),
    ]);
    const types = await page.$$eval('.canvas-sheet > [data-element="input"] :is(input, textarea)', (all) => all.map((e) => e.type));
    assert.deepEqual(types, ['text', 'textarea', ...kinds.slice(2)]);
    const values = {
      text: 'a', multiline: 'b\nc', number: '1.5', date: '2026-01-02', time: '10:30', email: 'not one', tel: '+49 1', url: 'https://x.de',
    };
    for (const [kind, value] of Object.entries(values)) await page.getByLabel(kind, { exact: true }).fill(value);
    await press(page, 'all');
    await page.fill('fieldset input', '');
    await page.press('fieldset input', 'Enter');
    assert.equal(await isOpen(page), true, 'what is required is not there');
    assert.match(await page.innerText('fieldset .canvas-wrong'), /fill/i);
    assert.equal(await page.getAttribute('fieldset input', 'aria-invalid'), 'true');
    assert.deepEqual(await findBarriers(page, '.canvas'), []);
    await page.fill('fieldset input', 'here');
    assert.equal(await page.locator('.canvas-wrong').count(), 0);
    await page.press('fieldset input', 'Enter');
    assert.equal(await isOpen(page), false, 'who is wrong elsewhere is no hindrance');
    assert.deepEqual(await answers(page), [['a', { ...values, inner: 'in', action: 'all' }]]);
    assert.deepEqual(await texts(page), [{ inner: 'here', action: 'submit' }]);
  });

  const input = (id) => ({ type: 'input', id, label: id });
  const form = (...elements) => ({ type: 'form', elements });
  const typed = [
    ['no button at all', [input('a')], ['Done'], { a: 'x', action: 'submit' }],
    ['a form without one', [text('Hi'), form(input('a'), input('b'))], ['Done'], { a: 'x', b: '', action: 'submit' }],
    ['two forms without one', [form(input('a')), form(input('b'))], ['Done'], { a: 'x', b: '', action: 'submit' }],
    ['another form has one', [form(input('a')), form(input('b'), button('submit'))], ['Done', 'submit'], { a: 'x', action: 'submit' }],
    ['nothing but a no', [input('a'), button('dismiss')], ['dismiss', 'Done'], { a: 'x', action: 'submit' }],
    ['the only one in a form', [input('a'), form(input('b'), button('submit'))], ['submit', 'Done'], { a: 'x', b: '', action: 'submit' }],
    ['a button for all', [form(input('a')), button('submit')], ['submit'], { a: 'x', action: 'submit' }],
    ['a button that leaves it open', [input('a'), button('more')], ['more'], { a: 'x', action: 'submit' }],
  ];
  play('loses nothing that is typed, whatever its buttons are', async (page) => {
    for (const [name, elements, buttons, entered] of typed) {
      for (const [id, root] of [[name, '.canvas-sheet'], [`ask-${name}`, '.canvas-question']]) {
        await call(page, id, root === '.canvas-sheet' ? 'create' : 'show', elements);
        assert.deepEqual(await page.locator(`${root} [data-action]`).allInnerTexts(), buttons, id);
        await page.fill(`${root} input >> nth=0`, 'x');
        await page.press(`${root} input >> nth=0`, 'Enter');
        assert.equal(await isOpen(page), false, id);
        assert.deepEqual((await answers(page)).at(-1), [id, entered]);
      }
    }
  });

  play('has a button of its own until there is another, which takes a finger', async (page) => {
    await create(page, 'a', [text('Who?'), input('name')]);
    await page.focus('text=Done');
    await append(page, 'b', [text('Take your time.')]);
    assert.deepEqual(await shown(page), ['Who?', 'name', 'Take your time.', 'Done']);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Done');
    await append(page, 'c', [{ ...button('submit', 'Send'), id: 's' }]);
    assert.deepEqual(await shown(page), ['Who?', 'name', 'Take your time.', 'Send']);
    await append(page, 'd', [{ ...text('No more of it.'), id: 's' }]);
    await page.fill('.canvas input', 'Ada');
    await page.getByText('Done')[inFirefox ? 'click' : 'tap'](); // its driver makes no click of a touch
    assert.equal(await isOpen(page), false);
    assert.deepEqual((await answers(page)).at(-1), ['c', { name: 'Ada', action: 'submit' }]);
  }, { context: phone });

  play('can be called back as it was', async (page) => {
    const show = page.getByRole('button', { name: 'Show what Gemini asks' });
    await create(page, 'a', []);
    await press(page, 'Hide');
    assert.equal(await show.isVisible(), false, 'there is nothing to show');
    await create(page, 'b', [...ask, button('more')]);
    await page.fill('.canvas input', 'Ada');
    await press(page, 'Hide');
    await call(page, 'ask-1', 'show', questions());
    assert.ok(await show.isVisible(), 'beside a question, too');
    await press(page, 'first');
    await show.press('Enter');
    assert.deepEqual([await isOpen(page), await show.isVisible()], [true, false]);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Hide');
    await press(page, 'more');
    assert.deepEqual((await answers(page)).at(-1), ['b', { name: 'Ada', action: 'more' }]);
    assert.equal(await page.textContent('.canvas-waits'), '', 'it is answered, and stays open');
    await page.getByText('Hide', { exact: true }).press('Enter');
    assert.equal(await show.isVisible(), false, 'nobody waits for it, and the conversation has it');
    await stop(page);
    await says(page, 'The conversation is over.');
    assert.equal(await show.isVisible(), false);
    assert.deepEqual(await answers(page), [['a', { shown: true }], ['ask-1', { action: 'first' }], ['b', { name: 'Ada', action: 'more' }]]);
  });

  play('is answered once: what was sent is gone', async (page) => {
    const show = page.getByRole('button', { name: 'Show what Gemini asks' });
    await create(page, 'a', ask);
    await page.fill('.canvas input', 'Ada');
    await page.press('.canvas input', 'Enter');
    assert.deepEqual([await isOpen(page), await show.isVisible(), await page.locator('.canvas-sheet > *').count()], [false, false, 0]);
    assert.deepEqual([await answers(page), await texts(page)], [[['a', { name: 'Ada', action: 'submit' }]], []]);
  });

  play('is closed by Esc from the top, and by Hide at once', async (page) => {
    const all = async (i) => {
      await create(page, `s${i}`, ask);
      await call(page, `ask-${i}-1`, 'show', questions());
      await call(page, `ask-${i}-2`, 'show', questions());
    };
    await all(1);
    const parts = '.canvas :is(.canvas-question, .canvas-sheet)';
    const tops = await page.$$eval(parts, (e) => e.map((e) => e.getBoundingClientRect().top));
    assert.deepEqual(tops, [...tops].sort((a, b) => a - b), 'questions, the canvas');
    const left = () => page.locator(parts).filter({ visible: true }).count();
    for (const count of [2, 1, 0]) {
      await page.keyboard.press('Escape');
      assert.equal(await left(), count);
    }
    const dismissed = { dismissed: true };
    assert.deepEqual(await answers(page), [['ask-1-2', dismissed], ['ask-1-1', dismissed], ['s1', dismissed]]);
    await all(2);
    await press(page, 'Hide');
    assert.deepEqual([await isOpen(page), (await answers(page)).length], [false, 3], 'hiding answers nothing');
    await page.getByRole('button', { name: 'Show what Gemini asks' }).click();
    for (let i = 0; i < 3; i++) await page.keyboard.press('Escape');
    assert.deepEqual([await left(), (await answers(page)).length], [0, 6]);
    assert.equal(await status(page), 'Listening');
  });

  play('marks what was chosen last, where the choice stays open', async (page) => {
    const marked = () => page.$$eval('.canvas [aria-pressed]', (buttons) => buttons.map((b) => b.textContent));
    await create(page, 'a', [text('Which day?'), button('tue', 'Tuesday'), button('wed', 'Wednesday')]);
    assert.deepEqual(await marked(), []);
    await press(page, 'Tuesday');
    assert.deepEqual(await marked(), ['Tuesday']);
    await press(page, 'Wednesday');
    assert.deepEqual(await marked(), ['Wednesday']);
    assert.deepEqual(await findBarriers(page), []);
    await create(page, 'b', [button('more', 'Only this'), button('dismiss', 'Close')]);
    await press(page, 'Only this');
    assert.deepEqual(await marked(), [], 'a lone button is no choice');
  });

  play('takes one press at a time', async (page) => {
    await page.evaluate(() => {
      window.pauses = new Set();
      const { setTimeout, clearTimeout } = window;
      window.setTimeout = (f, ms, ...rest) => {
        const id = setTimeout(() => (pauses.delete(id), f()), ms, ...rest);
        if (ms === 1_000) pauses.add(id);
        return id;
      };
      window.clearTimeout = (id) => (pauses.delete(id), clearTimeout(id));
    });
    await create(page, 'a', [button('more')]);
    const more = page.locator('.canvas').getByText('more', { exact: true });
    await more.evaluate((b) => (b.focus(), b.click(), b.click()));
    assert.equal(await page.evaluate(() => document.activeElement.matches('[data-action="more"][aria-disabled="true"]')), true);
    await page.waitForFunction(() => !document.querySelector('.canvas [aria-disabled]'));
    const timers = await more.evaluate((b) => {
      b.click();
      b.click();
      const own = [...pauses];
      document.querySelector('#end').click();
      return [own.length, own.filter((id) => pauses.has(id)).length];
    });
    assert.deepEqual(timers, [1, 0], 'none is left after the end');
    assert.deepEqual([await answers(page), await texts(page)], [[['a', { action: 'more' }]], [{ action: 'more' }]]);
  });

  for (const forcedColors of ['none', 'active']) {
    play(`shows that there is more below (forced colours: ${forcedColors})`, async (page) => {
      await create(page, 'a', [text('<p>More.</p>'.repeat(60))]);
      const { x, y, height } = await box(page).boundingBox();
      const strip = (bottom) => page.screenshot({ clip: { x: x + 16, y: y + height - bottom, width: 4, height: 6 } }); // beside the text
      const [plain, more] = [await strip(100), await strip(10)];
      assert.ok(!plain.equals(more), 'nothing tells of it');
      await box(page).evaluate((e) => e.scrollTo(0, e.scrollHeight));
      assert.ok(plain.equals(await strip(10)), 'at the end there is no more');
      await create(page, 'b', [text('All.')]);
      const short = await box(page).boundingBox();
      assert.ok(plain.equals(await page.screenshot({ clip: { x: short.x + 16, y: short.y + short.height - 10, width: 4, height: 6 } })));
      if (inFirefox) page.complaints.length = 0; // Playwright's own style sheet, for pictures
    }, { context: { forcedColors } });
  }

  play('leaves the focus and the keys to who has them', async (page) => {
    await page.focus('#text');
    await create(page, 'a', ask);
    await page.keyboard.type('mmm');
    assert.equal(await page.inputValue('#text'), 'mmm');
    await page.keyboard.press('Shift+Tab');
    const there = () => page.evaluate(() => document.activeElement.matches('.canvas input'));
    for (let i = 0; i < 20 && !(await there()); i++) await page.keyboard.press('Shift+Tab');
    await page.keyboard.type('mm');
    assert.equal(await page.textContent('#mute span'), 'Mute', 'letters typed are no commands');
    for (let i = 0; i < 2; i++) await page.keyboard.press('Escape'); // out of the field, and the canvas
    assert.equal(await page.evaluate(() => document.activeElement.tagName), 'BUTTON', 'the focus goes back to where it came from');
  });

  play('is announced as Gemini’s', async (page) => {
    await page.evaluate(() => {
      window.announced = [];
      const live = document.querySelector('#canvas [role="status"]');
      new MutationObserver(() => announced.push(live.textContent)).observe(live, { childList: true });
    });
    await create(page, 'a', [text('Look')]);
    await append(page, 'b', ask);
    assert.deepEqual(await page.evaluate(() => announced), ['Gemini shows you something.', 'Gemini asks you something.']);
    assert.match(await box(page).innerText(), /^From Gemini/);
    assert.equal(await page.getByRole('dialog', { name: 'From Gemini' }).count(), 1);
  });

  play('has room for questions of tools, and stays what it was', async (page) => {
    await create(page, 'a', [text('A photo')]);
    await call(page, 'ask-1', 'show', questions(), { title: 'Sending message…' });
    await call(page, 'ask-2', 'show', ask, { title: 'book_table' });
    const asked = await box(page).innerText();
    assert.match(asked, /Sending message…[^]*Which one\?[^]*book_table[^]*Who are you\?/);
    assert.doesNotMatch(asked, /A photo/, 'one thing at a time: it stands in the conversation');
    await append(page, 'b', [text('and more')]);
    await press(page, 'second');
    assert.deepEqual(await shown(page), ['A photo', 'and more']);
    await tell(page, 'TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids: ['ask-2'] } });
    assert.equal(await page.locator('.canvas-question').count(), 0);
    assert.equal(await isOpen(page), true);
    assert.deepEqual(await answers(page), [['a', { shown: true }], ['b', { shown: true }], ['ask-1', { action: 'second' }]]);
  });
});

describe('what does not come from Gemini’s own hand', () => {
  play('pictures are asked for by the person alone, through the gateway', async (page, gateway) => {
    const asked = [];
    const of = (src, more) => ({ type: 'image', src, ...more });
    await page.route('**/canvas/image*', (route) => {
      asked.push(route.request().url());
      route.fulfill({ contentType: 'image/png', body: Buffer.from(pixel.split(',')[1], 'base64') });
    });
    await create(page, 'a', [
      of(pixel, { alt: 'A dot' }),
      of('https://example.com/a.png', { fetch: 'canvas/image?u=1', alt: 'A cat' }),
      of('https://example.com/b.png'),
      of('https://example.com/c.png', { fetch: 'https://evil.example/c.png' }),
      of('photo:7'),
      of('http://example.com/d.png', { fetch: 'canvas/image?u=2' }),
    ]);
    assert.deepEqual(await shown(page), [
      'Show picture from example.com', ...Array(2).fill('A picture from example.com.'), ...Array(2).fill('This picture is not here.'),
    ]);
    assert.deepEqual(asked, []);
    await press(page, 'Show picture from example.com');
    await page.waitForFunction(() => document.querySelector('[alt="A cat"]')?.naturalWidth === 1);
    assert.equal(await page.evaluate(() => document.querySelector('[alt="A dot"]').naturalWidth), 1);
    assert.deepEqual(asked, [`${gateway.url}/canvas/image?u=1`.replace('//canvas', '/canvas')]);
  });

  play('sounds and photos that tools made', async (page) => {
    await page.evaluate(async (pixel) => {
      const { Canvas } = await import('./canvas.js');
      const mine = (window.mine = new Canvas(document.body.appendChild(document.createElement('div'))));
      mine.keep('photo:1', await new Promise((r) => document.createElement('canvas').toBlob(r, 'image/jpeg')));
      const wav = `UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAg${'AAAA'.repeat(2_731)}`; // some have to hear of it
      const elements = [
        { type: 'image', src: 'photo:1' },
        { type: 'audio', src: `data:audio/wav;base64,${wav}` },
        { type: 'audio', src: pixel },
      ];
      await mine.show({ id: 'a', name: 'create_canvas_tool', args: { schema: elements }, gateway: new URL(location), send() {} });
    }, pixel);
    await page.waitForFunction(() => document.querySelector('.canvas img')?.naturalWidth === 300);
    const audio = await page.$eval('.canvas audio', ({ controls, autoplay, src }) => [controls, autoplay, src.slice(0, 5)]);
    assert.deepEqual(audio, [true, false, 'blob:']);
    assert.equal(await page.locator('.canvas-missing').innerText(), 'This sound cannot be shown.');
    assert.equal(await page.evaluate(() => (mine.hide(), mine.kept('photo:1'))), undefined);
  });

  play('hostile text is text, and what is no canvas is refused', async (page) => {
    const [dialogs, navigations] = [[], []];
    page.on('dialog', (d) => dialogs.push(d.dismiss()));
    page.on('framenavigated', () => navigations.push(1));
    page.on('popup', () => navigations.push(1));
    for (const [i, h] of HOSTILE.entries()) await create(page, `h${i}`, [text(h)]);
    const odd = ['<b>'.repeat(20_000) + 'deep', '<!--'.repeat(10_000), '&#0;&#1114112;&nope;&#x41;'];
    await create(page, 'all', [HOSTILE.join(''), ...odd].map((h) => text(h)));
    await page.click('.canvas a >> nth=0');
    await page.hover('.canvas b >> nth=0');
    const attributes = await page.$$eval('.canvas-sheet *', (all) =>
      all.flatMap((e) => e.getAttributeNames().map((n) => `${e.tagName} ${n}`)));
    const allowed = ['DIV class', 'DIV data-element', 'A href', 'A target', 'A rel'];
    assert.deepEqual([...new Set(attributes)].filter((a) => !allowed.includes(a)), []);
    assert.deepEqual(await page.$$eval('.canvas a[href]', (all) => all.map((a) => [a.href, a.target, a.rel])), [
      ['https://ok.example/', '_blank', 'noopener noreferrer'],
    ]);
    const refused = {
      big: [text('x'.repeat(10_000_000))],
      many: Array(201).fill(text('x')),
      script: [{ type: 'script', value: 'hacked=1' }],
      nested: [{ type: 'form', elements: [{ type: 'iframe', src: 'https://evil.example' }] }],
      action: [button('javascript:hacked=1')],
      nameless: [{ type: 'input' }],
    };
    for (const [id, elements] of Object.entries(refused)) await create(page, id, elements);
    const errors = (await answers(page)).filter(([, r]) => r.error);
    assert.deepEqual(errors.map(([id, { error }]) => `${id}: ${error}`), [
      'big: a canvas has at most 512 KB',
      'many: a canvas has at most 200 elements',
      'script: elements[0]: there is no element "script"',
      'nested: elements[0].elements[0]: there is no element "iframe"',
      'action: elements[0].action is no plain name',
      'nameless: elements[0].id is missing',
    ]);
    await append(page, 'odd', [{ type: 'input', id: '__proto__', value: 'y'.repeat(100_000), label: 'L' }, button('submit', 'Go')]);
    await press(page, 'Go');
    // The last that was said may be the microphone's.
    const said = await page.evaluate(() => JSON.stringify(links[0].said.filter((m) => m.payload.toolResponse).at(-1)));
    assert.match(said, /"response":{"__proto__":"y{20000}","action":"submit"}/);
    assert.equal(await page.evaluate(() => ({}).length), undefined);
    assert.deepEqual([await page.evaluate(() => window.hacked), dialogs.length, navigations.length], [undefined, 0, 0]);
  });

  play('Google’s suggestions stay in their frame', async (page, { url }) => {
    const chips = `<a href="/status" target="_blank">chip</a><script>
      parent.postMessage({ voxgate: 'height', height: 9000 }, '*');
      try { parent.document.title = 'hacked' } catch {}
      document.querySelector('a').onclick = () => parent.postMessage({ voxgate: 'chip' }, '*');</script>`;
    await page.route('**/canvas/chips*', (route) => route.fulfill({ contentType: 'text/html', body: chips }));
    await tell(page, 'groundingMetadata', { groundingMetadata: { webSearchQueries: ['parrots'] }, chips: 'canvas/chips?id=1' });
    await tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Parrots are birds.' } } });
    assert.equal(await page.locator('iframe').count(), 0, 'they come when the answer grows no more');
    await tell(page, 'TURN_COMPLETE', { turn: 1 });
    await page.waitForFunction(() => document.querySelector('#log .turn .sources iframe')?.style.height === '240px');
    assert.equal(await isOpen(page), false, 'they belong to what was said');
    assert.match(await page.locator('#log').innerText(), /Searched the web for parrots/);
    assert.notEqual(await page.title(), 'hacked');
    const opened = page.waitForEvent('popup');
    await page.frameLocator('#log iframe').getByText('chip').click();
    await (await opened).waitForURL(new URL('/status', url).href);
  });
});

describe('the page', () => {
  const everything = [
    text('<h2>Trip</h2><p>To <a href="https://example.com">Rome</a>, <code>3</code> days.</p>'),
    text('<table><tr><th>Day</th><td>1</td></tr></table>'),
    { type: 'image', src: 'https://example.com/a.png', fetch: 'canvas/image?u=1' },
    { type: 'image', src: pixel },
    { type: 'list', items: ['Hat', 'Coat'], ordered: true },
    ...ask,
    { type: 'form', label: 'Guests', elements: [{ type: 'input', id: 'n', kind: 'multiline', hint: 'Names' }, button('add', 'Add')] },
    button('dismiss', 'No, thanks'),
    text('<p>More.</p>'.repeat(30)),
  ];
  const contexts = {
    desktop: {},
    phone,
    'phone with its keyboard': { ...phone, viewport: { width: 390, height: 480 } },
    dark: { colorScheme: 'dark' },
  };
  for (const [name, context] of variants(Object.entries(contexts))) {
    play(`has no barriers, and its own controls stay free (${name})`, async (page) => {
      await create(page, 'a', everything);
      await call(page, 'ask-1', 'show', [text('Sure?'), button('submit', 'Yes')], { title: 'Sending message…' });
      assert.deepEqual(await findBarriers(page, { exclude: 'main' }), []);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${wide} px sideways`);
      const small = await page.$$eval('button:not(.copy), input, textarea', (all) =>
        all.map((e) => [e.outerHTML, e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.height, r.width) < 48));
      assert.deepEqual(small, [], 'smaller than a finger');
      const covered = await page.$$eval('footer button, #text', (all) =>
        all.filter((e) => {
          const { x, y, width, height } = e.getBoundingClientRect();
          return width ? !e.contains(document.elementFromPoint(x + width / 2, y + height / 2)) : ['mute', 'talk'].includes(e.id);
        }).map((e) => e.outerHTML));
      assert.deepEqual(covered, []);
      assert.ok(await page.getByText('Hide', { exact: true }).isVisible());
      await page.mouse.move(195, 300);
      await page.locator('.canvas').evaluate((e) => e.scrollTo(0, e.scrollHeight));
      assert.ok(await page.getByText('Hide', { exact: true }).isVisible());
      await stop(page);
      await says(page, 'The conversation is over.');
    }, { context });
  }

  play('keeps the way back to the canvas clear of its controls', async (page) => {
    for (const size of [{ width: 1280, height: 800 }, { width: 390, height: 844 }, { width: 360, height: 640 }]) {
      await page.setViewportSize(size);
      await create(page, `a${size.width}`, everything);
      await press(page, 'Hide');
      assert.deepEqual(await findBarriers(page), []);
      const [[show], others] = await page.evaluate(() => ['.canvas-show', 'header, footer'].map((selector) =>
        [...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect().toJSON())));
      assert.ok(await page.isVisible('main .canvas-show'), 'it stands in the conversation');
      assert.ok(others.length === 2 && show.height >= 48 && show.left >= 0 && show.right <= size.width);
      for (const o of others) assert.ok(o.bottom <= show.top || o.top >= show.bottom, JSON.stringify([show, o]));
    }
  });

  play('is marked while Gemini waits for an answer, beside the status of the conversation', async (page) => {
    const waits = async (marked, title) => {
      assert.equal(await status(page), 'Booking a table…');
      assert.equal(await page.textContent('.canvas-waits'), marked ? 'waits for you' : '');
      assert.equal(await page.title(), `● ${title} · Voxgate`);
    };
    await tell(page, 'TOOL_STATUS', { id: 'g1', name: 'book', title: 'Booking a table…', status: 'running' });
    await create(page, 'a', [text('Look')]);
    await waits(false, 'Booking a table…');
    await append(page, 'b', ask);
    await waits(true, 'Gemini asks you something.');
    await tell(page, 'SESSION_STATE', { state: 'resuming', message: 'Reconnecting to Gemini…' });
    assert.equal(await status(page), 'Reconnecting to Gemini…');
    await tell(page, 'SESSION_STATE', { state: 'live' });
    await press(page, 'Hide');
    await waits(true, 'Gemini asks you something.');
    await page.getByRole('button', { name: 'Show what Gemini asks' }).click();
    await page.keyboard.press('Escape');
    await waits(false, 'Booking a table…');
    await call(page, 'ask-1', 'show', ask);
    await waits(true, 'Gemini asks you something.');
    await press(page, 'Send it');
    await waits(false, 'Booking a table…');
    await page.waitForFunction(() => document.querySelector('#told').textContent === 'Booking a table…');
  });

  play('keeps in the conversation what was shown, asked and answered', async (page) => {
    const card = async (what) => {
      await page.waitForFunction((what) => [...document.querySelectorAll('.card')].at(-1)?.innerText.replace(/\s+/g, ' ').replace(' :', ':').toLowerCase() === what.toLowerCase(), what);
    };
    await create(page, 'a', [text('<h3>Vienna</h3><p>Warm</p>'), { type: 'image', src: pixel, alt: 'A view' }]);
    await card('Vienna: shown beside'); // once, and not here as well
    assert.equal(await page.$eval('.canvas h2', (e) => getComputedStyle(e).fontSize), '24px', 'a title is larger than what follows');
    await append(page, 'a2', [text('<p>Dry</p>'), { type: 'list', items: Array.from({ length: 900 }, (_, i) => `Street and number ${i} of all in this town`) }]);
    await card('Vienna: shown beside'); // what is added has no card of its own
    await create(page, 'b', [text('A table'), { type: 'input', id: 'name', label: 'Name' }, { type: 'input', id: 'day', label: 'Day', kind: 'date' },
      { type: 'input', id: 'at', label: 'At', kind: 'time' }, button('submit', 'Book it')]);
    await page.waitForFunction(() => /Warm\s+Dry\s+Street and number 0 /.test(document.querySelector('.card .shown')?.innerText));
    await page.fill('.canvas input', 'Ada');
    await page.fill('.canvas [type=date]', '2026-12-04');
    await page.fill('.canvas [type=time]', '20:00');
    await press(page, 'Book it');
    await card('A table: answered Book it Name Ada Day Fri, Dec 4, 2026 At 8:00 PM');
    await append(page, 'c', [button('more')]);
    await page.keyboard.press('Escape');
    await card('On the screen: not now');
    await create(page, 'd', [{ type: 'script' }]);
    await card('On the screen: did not work');
    await create(page, 'e1', ask);
    await create(page, 'e', ask);
    await card('Who are you?: replaced by the next question'); // the person has not said no
    await tell(page, 'TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids: ['e'] } });
    await page.waitForFunction(() => [...document.querySelectorAll('.card')].at(-1)?.textContent.endsWith(': not needed any more'));
    await page.getByRole('button', { name: 'Enlarge: A view' }).click();
    await page.locator('dialog.enlarged img').waitFor();
    assert.deepEqual(await page.$eval('dialog.enlarged', (e) => [e.offsetWidth, e.offsetHeight]), await page.evaluate(() => [innerWidth, innerHeight]), 'no edge at the dock');
    for (let i = 0; i < 2; i++) await page.click('#mute'); // they stay in sight
    const size = page.viewportSize();
    await page.setViewportSize({ width: 320, height: 256 });
    for (let i = 0; i < 2; i++) await page.click('#mute'); // enlarged four times as well
    await page.setViewportSize(size);
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => !document.querySelector('dialog'));
    assert.deepEqual(await findBarriers(page, 'main'), []);
    await create(page, 'f', ask);
    await page.waitForSelector('.canvas:not([hidden])');
    await page.click('#end');
    await page.waitForFunction(() => [...document.querySelectorAll('.card')].at(-1)?.textContent.endsWith(': not answered'));
    const cards = () => page.$$eval('.card', (all) => all.map((e) => e.innerText));
    const before = await cards();
    await page.reload();
    const all = page.getByRole('button', { name: 'Show all' });
    await all.waitFor();
    assert.deepEqual(await cards(), before, 'they are whole after a reload');
    assert.ok(before.some((text) => text.includes('Street and number 899')), 'a long list as well');
    await all.press('Enter');
    assert.ok(await page.evaluate(() => document.activeElement.matches('.shown') && document.activeElement.scrollHeight <= document.activeElement.clientHeight + 1), 'of its whole height');
    await all.waitFor({ state: 'detached' });
  });

  play('breaks no short value of a table, and gives choices equal widths', async (page) => {
    const rows = [['Day', 'Low / high', 'Sky'], ['30 Nov 2026', '17–23 °C', 'Clear until noon, then showers from the west'], ['1 Dec 2026', '9/14 °C', 'Fog']];
    await create(page, 'a', [text(`<table>${rows.map((r) => `<tr>${r.map((c) => `<td>${c}</td>`).join('')}</tr>`).join('')}</table>`)]);
    const lines = await page.$$eval('.canvas td', (all) => all.map((e) => {
      const range = document.createRange();
      range.selectNodeContents(e);
      return [e.textContent, range.getClientRects().length];
    }));
    assert.deepEqual(lines.filter(([, count]) => count > 1).map(([value]) => value), ['Clear until noon, then showers from the west']);
    await create(page, 'b', [text('Which?'), button('a', 'Sydney'), button('b', 'Canberra'), button('c', 'Perth, Western Australia')]);
    const widths = await page.$$eval('.canvas-actions button', (all) => all.map((e) => `${e.offsetWidth} x ${e.offsetHeight}`));
    assert.equal(new Set(widths).size, 1, String(widths));
  });

  play('tells cards apart without their words and colours', async (page) => {
    for (const status of ['running', 'done', 'failed', 'cancelled']) {
      await tell(page, 'TOOL_STATUS', { id: status, name: 'book', status, ms: 1 });
    }
    const marks = await page.$$eval('.card > :first-child', (all) => all.map((e) => getComputedStyle(e, '::before').content));
    assert.equal(new Set(marks).size, 4, String(marks));
    assert.deepEqual(await findBarriers(page, 'main'), []);
  });

  play('tells what runs in the gateway', async (page) => {
    const told = { id: 'g1', name: 'book', title: 'Booking a table…' };
    await tell(page, 'TOOL_STATUS', { ...told, status: 'running' });
    await says(page, 'Booking a table…');
    assert.equal(await page.textContent('.card'), 'Booking a table: running');
    await tell(page, 'TOOL_STATUS', { ...told, status: 'failed', ms: 120.4, error: 'No table is free.' });
    await says(page, 'Listening');
    assert.equal(await page.textContent('#log .card'), 'Booking a table: did not work: No table is free.');
    await tell(page, 'TOOL_STATUS', { id: 'g2', name: 'plain', status: 'done', ms: 3 });
    assert.equal(await page.textContent('.card >> nth=1'), 'Plain: done');
    await tell(page, 'TOOL_STATUS', { id: 'g3', name: 'slow', status: 'running' });
    await stop(page);
    await says(page, 'The conversation is over.');
  });

  inPage('says in another language that a tool failed, and why it did where one points', { init: playGateway, query: '?transport=websocket&lang=de' }, async (page) => {
    await start(page);
    await says(page, 'Ich höre zu');
    await tell(page, 'TOOL_STATUS', { id: 'g1', name: 'book', title: 'Tisch buchen …', status: 'failed', ms: 120.4, error: 'No table is free.' });
    const [text, title] = await page.locator('#log .card').evaluate((e) => [e.textContent, e.title]);
    assert.deepEqual([text, title], ['Tisch buchen: hat nicht geklappt', 'No table is free.']);
  });
});
