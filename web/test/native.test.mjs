/** The tools of the page: by a real gateway whose model is listened to, and by a gateway that the test plays. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import {
  detail, jpegSize, openPage, playGateway, saves, says, start, startGateway, startModel, status, stop, test, type, withGateway, variants,
  awaitAnimations, findBarriers,
} from './harness.mjs';

const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const shots = process.env.SHOTS; // a folder for pictures to look at

const ada = { name: 'Ada Lovelace', phone: '+44 20 7946 0000', email: 'ada@example.com' };
const book = [
  ada,
  { name: 'Ada Byron', phone: '', email: 'byron@example.com' },
  { name: 'Łukasz Müller', phone: '030 1234', email: '' },
  { name: 'Søren Groß', phone: '1', email: '' },
];

const box = (page) => page.locator('.canvas');
const button = (page, name) => box(page).getByRole('button', { name, exact: true });
const press = (page, name) => button(page, name).click();
const asked = async (page, what) => {
  await box(page).getByText(what).filter({ visible: true }).waitFor();
  assert.equal(await page.locator('.canvas-question').count(), 1, 'asked once');
};
const live = (page) => page.evaluate(() => tracks.filter((t) => t.readyState === 'live').length);
const looksLike = (page, name) => shots && page.screenshot({ path: `${shots}/${name}.png` });

/** Keeps what the browser is asked for. */
function watch() {
  if (navigator.maxTouchPoints) delete MediaDevices.prototype.getDisplayMedia; // as on phones
  window.tracks = [];
  window.wishes = [];
  const devices = navigator.mediaDevices;
  const getUserMedia = devices.getUserMedia.bind(devices);
  devices.getUserMedia = async (wish) => {
    if (wish.video) wishes.push(wish.video);
    if (wish.video && window.gate) await gate;
    const stream = await getUserMedia(wish);
    tracks.push(...stream.getVideoTracks());
    return stream;
  };
  // What a link would open.
  window.opened = [];
  addEventListener('click', (e) => {
    const a = e.target.closest('a');
    if (!a || !/^(sms|mailto):/.test(a.href)) return;
    e.preventDefault();
    opened.push(a.href);
  });
}

/** In the settings. */
const contactsRow = (page) => page.locator('.settings .row', { hasText: 'Contacts' }).getByRole('button');
async function openBook(page) {
  await page.click('#settings');
  await contactsRow(page).click();
}
const keepContacts = (contacts) => `localStorage.setItem('voxgate.contacts', '${JSON.stringify(contacts)}');`;

// --- the model listens

for (const transport of variants(['webrtc', 'websocket'])) {
  test(`take a photo, show it on the canvas, send it to a contact (${transport})`, { timeout: 60_000 }, () => photoToAda(transport));
}

async function photoToAda(transport) {
  const up = []; // all but what is seen and heard
  const model = await startModel((message) => message.realtimeInput || up.push(message));
  const gateway = await startGateway({ GOOGLE_GEMINI_BASE_URL: model.url });
  const page = await openPage({ url: gateway.url, query: `?transport=${transport}`, init: watch });
  const responses = () => up.flatMap((m) => m.toolResponse?.functionResponses ?? []);
  const answered = async (count) => {
    const until = performance.now() + 30_000;
    while (responses().length < count) {
      assert.ok(performance.now() < until, `${JSON.stringify(responses())}\n${gateway.log.join('\n')}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return responses().map((r) => [r.name, r.response]);
  };
  try {
    await page.evaluate(keepContacts(book));
    await page.evaluate(() => {
      window.shared = [];
      navigator.canShare = () => true;
      navigator.share = async (data) => void shared.push({ ...data, active: navigator.userActivation.isActive });
    });
    await start(page);
    await says(page, 'Listening');
    const call = (name, args) => type(page, `/tool ${name} ${JSON.stringify(args)}`);
    await call('take_photo', {});

    await asked(page, 'wants to take a photo.');
    await page.waitForFunction(() => document.querySelector('.canvas video').videoWidth > 0);
    assert.equal(await live(page), 1);
    const typed = up.length;
    await press(page, 'Take photo');
    assert.ok(!JSON.stringify(up).includes('image/jpeg'), 'nothing has left before');
    await press(page, 'Use photo');
    const [[, taken]] = await answered(1);
    assert.match(taken.photo, /^photo:\d+$/);
    const parts = up.slice(typed).flatMap((m) => m.clientContent?.turns ?? []).flatMap((t) => t.parts);
    const [{ inlineData }] = parts.filter((p) => p.inlineData);
    assert.equal(inlineData.mimeType, 'image/jpeg');
    assert.deepEqual(jpegSize(Buffer.from(inlineData.data, 'base64')), { width: taken.width, height: taken.height }, 'the model sees it');
    assert.equal(await live(page), 0);

    const elements = [{ type: 'text', value: 'Your <b>photo</b>' }, { type: 'image', src: taken.photo }];
    await call('show_canvas_tool', { schema: JSON.stringify({ type: 'canvas', elements }) });
    await page.waitForFunction(() => document.querySelector('.canvas-sheet img')?.naturalWidth > 0);
    assert.equal(await page.evaluate(() => document.querySelector('.canvas-sheet img').naturalWidth), taken.width);
    assert.deepEqual((await answered(2))[1], ['show_canvas_tool', { shown: true }]);

    await call('find_contact', { query: 'lovelace ada' });
    await asked(page, 'the number and the e-mail address of Ada Lovelace?');
    assert.ok(!JSON.stringify(up).includes('7946'), 'nothing has left before');
    await press(page, 'Yes');
    assert.deepEqual((await answered(3))[2], ['find_contact', { name: ada.name, phones: [ada.phone], emails: [ada.email] }]);

    await call('send_message', { to: ada.phone, text: 'Look, Ada Lovelace!', photo: taken.photo });
    await asked(page, 'wants to send a message.');
    assert.equal(await page.inputValue('.canvas input'), ada.phone);
    assert.equal(await page.inputValue('.canvas textarea'), 'Look, Ada Lovelace!');
    await page.waitForFunction(() => document.querySelector('.canvas-question img')?.naturalWidth > 0);
    assert.equal(await page.evaluate(() => shared.length), 0);
    await page.fill('.canvas textarea', 'Look, Ada!');
    await press(page, 'Send');
    const [, , , [name, { sent }]] = await answered(4);
    assert.deepEqual([name, sent], ['send_message', 'shared']);
    const files = await page.evaluate(() => shared.map(({ text, active, files: [f] }) => [text, active, f.name, f.type, f.size > 1_000]));
    assert.deepEqual(files, [['Look, Ada!', true, 'photo.jpg', 'image/jpeg', true]]);
    assert.deepEqual(page.complaints, []);
    await page.reload();
    const isKept = () => [...document.querySelectorAll('.card .shown img')].some((e) => Math.max(e.naturalWidth, e.naturalHeight) === 320);
    await page.waitForFunction(isKept, null, { timeout: 5_000 }).catch(() => assert.fail('the photo stands in its card after a reload'));
  } finally {
    await page.quit();
    await gateway.stop();
    await model.stop();
  }
}

const inPage = withGateway();

inPage('what the model takes back closes', { query: '?transport=websocket', init: watch }, async (page) => {
  await start(page);
  await says(page, 'Listening');
  await type(page, '/tool take_photo {}');
  await asked(page, 'wants to take a photo.');
  assert.equal(await live(page), 1);
  await type(page, '/cancel');
  await page.waitForFunction(() => document.querySelector('.canvas').hidden);
  assert.equal(await live(page), 0);
  assert.match(await page.textContent('.card'), /^No photo was taken: not needed any more/);
});

// --- a gateway that the test plays

/** `init` runs in the page before its own scripts. */
const play = (name, run, { contacts = [], init = '', ...options } = {}) => {
  const all = `(${playGateway})(); ${keepContacts(contacts)} (${init || 'Boolean'})(); navigator.mediaDevices && (${watch})();`;
  inPage(name, { init: { content: all }, query: '?transport=websocket', ...options }, async (page) => {
    await page.click('#talk');
    await page.waitForFunction(() => !/Connecting|asking/.test(document.querySelector('#status').textContent));
    await run(page);
  });
};
const tell = (page, type, payload) => page.evaluate((m) => links[0].tell(...m), [type, payload]);
const call = (page, id, name, args = {}) => tell(page, 'TOOL_CALL', { toolCall: { functionCalls: [{ id, name, args }] } });
const cancel = (page, ...ids) => tell(page, 'TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids } });
const answers = (page) => page.evaluate(() => links[0].answers);
/** What the model was told, once it was. */
const answer = async (page, id) => {
  const found = await page.waitForFunction((id) => links[0].answers.find((a) => a.id === id), id);
  return (await found.jsonValue()).response;
};
const isOpen = (page) => box(page).isVisible();

async function hasNoBarriers(page, within) {
  await awaitAnimations(page); // a card that fades in has less contrast
  assert.deepEqual(await findBarriers(page, within), []);
  const wide = await page.evaluate((within) => {
    const e = document.querySelector(within);
    return Math.max(document.documentElement.scrollWidth - innerWidth, e.scrollWidth - e.clientWidth);
  }, within);
  assert.ok(wide <= 0, `${wide} px sideways`);
  const small = await page.$$eval(`${within} :is(button, input, textarea, a)`, (all) =>
    all.map((e) => [e.outerHTML, e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.height, r.width) < 48));
  assert.deepEqual(small, [], 'smaller than a finger');
}

play('get_current_time', async (page) => {
  await call(page, 'a', 'get_current_time');
  const { time, timeZone } = await answer(page, 'a');
  assert.equal(timeZone, 'Asia/Tokyo');
  assert.match(time, /^\w+day, \w+ \d+, \d{4} at \d+:\d\d:\d\d [AP]M$/);
}, { context: { timezoneId: 'Asia/Tokyo' } });

play('the model is told of them', async (page) => {
  const told = await page.evaluate(() => links[0].hello.initialConfig.tools[0].functionDeclarations);
  const names = ['get_current_time', 'take_photo', 'find_contact', 'send_message'];
  assert.deepEqual(told.map((d) => [d.name, d.timeout]), names.map((n, i) => [n, i ? '5m' : undefined]));
  assert.ok(told.every((d) => d.description && d.title && !d.foreground && !d.behavior));
});

describe('take_photo', () => {
  play('one after the other, when the person presses', async (page) => {
    for (const [i, facing] of ['environment', 'user'].entries()) {
      await call(page, `${i}`, 'take_photo', i ? { facing } : {});
      await asked(page, 'wants to take a photo.');
      await page.waitForFunction(() => document.querySelector('.canvas video')?.videoWidth > 0);
      assert.equal((await answers(page)).length, i, 'nothing has left before');
      assert.deepEqual([await status(page), await page.getAttribute('body', 'data-orb')], ['Gemini waits for you.', 'asking'], 'who waits for whom');
      assert.equal(await page.evaluate((i) => wishes[i].facingMode.ideal, i), facing);
      await hasNoBarriers(page, '.canvas');
      await looksLike(page, `photo-${facing}`);
      await press(page, 'Take photo');
      await page.waitForFunction(() => document.querySelector('.canvas-question img')?.naturalWidth > 0);
      await hasNoBarriers(page, '.canvas');
      await looksLike(page, `photo-look-${facing}`);
      for (const width of [320, 390]) {
        await page.setViewportSize({ width, height: 720 });
        assert.equal(new Set(await page.$$eval('.canvas-actions button', (all) => all.map((e) => e.offsetTop))).size, 1, 'three buttons stand in one line');
      }
      await page.setViewportSize({ width: 1280, height: 720 });
      await press(page, 'Retake');
      await page.waitForFunction(() => document.querySelector('.canvas video')?.paused === false);
      await press(page, 'Take photo');
      await press(page, 'Use photo');
      const { photo, width, height } = await answer(page, `${i}`);
      await page.evaluate(() => links.at(-1).tell('TURN_LATENCY', { modelMs: 21_000, gatewayMs: 20, totalMs: 21_020 }));
      assert.doesNotMatch(await detail(page), /21\.0/, 'the time of the person');
      assert.equal(photo, `photo:${i + 1}`);
      const [{ inlineData }] = (await answers(page))[i].parts;
      assert.equal(inlineData.mimeType, 'image/jpeg');
      assert.deepEqual(jpegSize(Buffer.from(inlineData.data, 'base64')), { width, height });
      assert.ok(Math.max(width, height) <= 1024 && Math.min(width, height) > 100, `${width}x${height}`);
      assert.equal(await isOpen(page), false);
      assert.equal(await live(page), 0, 'the camera is let go');
      const picture = page.locator('#log .card .enlarge img').nth(i);
      assert.deepEqual(await picture.evaluate(async (img) => (await img.decode(), [img.naturalWidth, img.naturalHeight])), [width, height], 'it stands in the conversation');
    }
  }, { context: phone });

  play('not, when the person does not want it', async (page) => {
    const hidden = async () => { // which answers nothing
      await press(page, 'Hide');
      await page.getByText('Show what Gemini asks').click();
      await press(page, 'Cancel');
    };
    const ways = { cancel: () => press(page, 'Cancel'), hidden, escape: () => page.keyboard.press('Escape') };
    for (const [id, leave] of Object.entries(ways)) {
      await call(page, id, 'take_photo');
      await asked(page, 'wants to take a photo.');
      await leave();
      assert.deepEqual(await answer(page, id), { error: 'the person did not take a photo' });
      assert.equal(await live(page), 0);
    }
    await call(page, 'seen', 'take_photo');
    await press(page, 'Take photo');
    await press(page, 'Cancel');
    assert.deepEqual(await answer(page, 'seen'), { error: 'the person did not give the photo' });
    assert.equal(await live(page), 0);
    assert.equal(await page.evaluate(() => tracks.length), 4);
    assert.equal(await isOpen(page), false);
  });

  play('not, when the model takes it back', async (page) => {
    await call(page, 'a', 'take_photo');
    await asked(page, 'wants to take a photo.');
    await cancel(page, 'a');
    assert.deepEqual([await live(page), await isOpen(page)], [0, false]);

    await page.evaluate(() => void (window.gate = new Promise((resolve) => (window.allow = resolve))));
    await call(page, 'b', 'take_photo'); // while the browser asks
    await cancel(page, 'b');
    await page.evaluate(() => allow());
    await page.waitForFunction(() => tracks.length === 2 && tracks[1].readyState === 'ended');
    await page.evaluate(() => delete window.gate);

    await call(page, 'c', 'take_photo');
    await asked(page, 'wants to take a photo.');
    await stop(page);
    await says(page, 'The conversation is over.');
    assert.deepEqual([await live(page), await isOpen(page), await answers(page)], [0, false, []]);
  });

  const cannot = {
    'the camera is not allowed; the person can allow it in the browser': { mic: 'denied' },
    'there is no camera': { mic: 'none' },
    'the camera needs https or localhost, which this page does not have': {
      init: () => Object.defineProperty(navigator, 'mediaDevices', { value: undefined }),
    },
    'the camera does not work; another program may be using it': {
      init: () => (navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('busy', 'NotReadableError'); }),
    },
  };
  for (const [error, how] of Object.entries(cannot)) {
    play(`says that ${error}`, async (page) => {
      await call(page, 'a', 'take_photo');
      assert.deepEqual(await answer(page, 'a'), { error });
      assert.equal(await isOpen(page), false);
    }, how);
  }

  play('calls the person back to a page in the background', async (page) => {
    for (const name of ['take_photo', 'find_contact', 'send_message']) {
      await call(page, name, name, { query: 'Ada' });
      assert.match((await answer(page, name)).error, /^The page is in the background; .*notif/);
    }
    assert.equal(await isOpen(page), false);
  }, { init: () => Object.defineProperty(document, 'hidden', { value: true }) });
});

describe('find_contact', () => {
  play('in the address book, with a yes', async (page) => {
    const found = { 'ADA L': ada, 'lukasz': book[2], 'mull luk': book[2], 'soren gross': book[3], 'byron': book[1] };
    for (const [query, { name, phone, email }] of Object.entries(found)) {
      await call(page, query, 'find_contact', { query });
      await asked(page, `of ${name}?`);
      assert.equal(await page.evaluate((id) => links[0].answers.some((a) => a.id === id), query), false, 'nothing has left before');
      await press(page, 'Yes');
      assert.deepEqual(await answer(page, query), { name, phones: phone ? [phone] : [], emails: email ? [email] : [] });
      assert.equal(await page.textContent('#log .card:last-child > :first-child'), `Looked up ${name}`);
    }
    await call(page, 'no', 'find_contact', { query: 'byron' });
    await asked(page, 'the e-mail address of Ada Byron?');
    await press(page, 'No');
    assert.deepEqual(await answer(page, 'no'), { error: 'the person does not give the contact for “byron”' });
    for (const query of ['da', 'Ada Ada Müller', 'Charles', '']) {
      await call(page, `no ${query}`, 'find_contact', { query });
      assert.deepEqual(await answer(page, `no ${query}`), { error: `no contact matches “${query}”` });
    }
  }, { contacts: book });

  const bobs = Array.from({ length: 11 }, (_, i) => ({ name: 'Bob', phone: `${i + 1}`, email: '' }));
  play('of several, the person chooses', async (page) => {
    await call(page, 'a', 'find_contact', { query: 'ada' });
    await asked(page, 'Whom do you mean by “ada”?');
    const names = await page.$$eval('.canvas-question button', (all) => all.map((e) => e.textContent));
    assert.deepEqual(names, ['Ada Byron', 'Ada Lovelace', 'None of these']);
    await press(page, 'Ada Lovelace');
    assert.deepEqual(await answer(page, 'a'), { name: ada.name, phones: [ada.phone], emails: [ada.email] });
    await call(page, 'b', 'find_contact', { query: 'Bob' });
    await asked(page, 'These are 8 of 11.');
    assert.equal(await page.locator('.canvas-question button').count(), 9);
    assert.ok(await button(page, 'Bob, 1').isVisible(), 'names that are alike are told apart');
    await hasNoBarriers(page, '.canvas');
    await looksLike(page, 'contact-several');
    await press(page, 'None of these');
    assert.deepEqual(await answer(page, 'b'), { error: 'the person chose none of the contacts that match “Bob”' });
    await call(page, 'c', 'find_contact', { query: 'ada' });
    await asked(page, 'Whom do you mean');
    await cancel(page, 'c');
    assert.equal(await isOpen(page), false);
  }, { context: phone, contacts: [...book, ...bobs] });

  play('offers to add somebody to an empty book', async (page) => {
    await call(page, 'a', 'find_contact', { query: '<b>Ada</b>' });
    await asked(page, 'looks for “<b>Ada</b>”, but your address book is empty.');
    await hasNoBarriers(page, '.canvas');
    await looksLike(page, 'contact-empty');
    await press(page, 'Cancel');
    assert.deepEqual(await answer(page, 'a'), { error: 'the address book is empty, and the person added no contact' });
    await call(page, 'b', 'find_contact', { query: 'Ada' });
    await box(page).getByLabel('Name').fill('Ada Lovelace');
    await box(page).getByLabel('Phone').fill('123');
    await press(page, 'Save');
    await asked(page, 'the number of Ada Lovelace?');
    await press(page, 'Yes');
    assert.deepEqual(await answer(page, 'b'), { name: 'Ada Lovelace', phones: ['123'], emails: [] });
    await call(page, 'c', 'find_contact', { query: 'Ada' });
    await asked(page, 'the number of Ada Lovelace?');
  }, { context: phone });

  const withPicker = () => {
    window.picks = [];
    window.next = [{ name: ['Ada'], tel: ['1', '2'], email: [] }];
    Object.defineProperty(navigator, 'contacts', {
      value: {
        async select(fields, options) {
          picks.push([fields, options ?? {}, navigator.userActivation.isActive]);
          if (next instanceof Error) throw next;
          return next;
        },
      },
    });
  };
  play('with the browser’s own picker, where there is one', async (page) => {
    await page.click('#settings');
    await page.locator('.settings select').first().waitFor();
    assert.equal(await contactsRow(page).count(), 0);
    await page.keyboard.press('Escape');
    await call(page, 'a', 'find_contact', { query: 'Ada' });
    await asked(page, 'looks for “Ada”.');
    assert.deepEqual(await page.evaluate(() => picks), []);
    await press(page, 'Choose a contact');
    assert.deepEqual(await answer(page, 'a'), { name: 'Ada', phones: ['1', '2'], emails: [] });
    assert.deepEqual(await page.evaluate(() => picks), [[['name', 'tel', 'email'], {}, true]]);
    const errors = {
      '': 'the person did not open their contacts',
      '[]': 'the person chose no contact',
      'new TypeError("x")': 'the contacts could not be opened: x',
    };
    for (const [outcome, error] of Object.entries(errors)) {
      if (outcome) await page.evaluate(`void (window.next = ${outcome})`);
      await call(page, error, 'find_contact', { query: 'Ada' });
      await press(page, outcome ? 'Choose a contact' : 'Cancel');
      assert.deepEqual(await answer(page, error), { error });
    }
  }, { init: withPicker, contacts: book });
});

describe('the address book', () => {
  const rows = async (page) => {
    await page.locator('.contacts[open]').waitFor(); // it is loaded when it is opened
    return page.$$eval('.contacts li', (all) => all.map((e) => e.innerText.replace(/\s*\n\s*/g, ' | ')));
  };

  play('is kept by keyboard', async (page) => {
    const keys = (...all) => all.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    await page.focus('#settings');
    await keys('Enter');
    await contactsRow(page).press('Enter');
    assert.deepEqual(await rows(page), []);
    await keys('Tab');
    await page.keyboard.type('mmm Ada');
    await keys('Tab');
    await page.keyboard.type('1234');
    await keys('Tab', 'Tab', 'Enter');
    assert.deepEqual(await rows(page), ['mmm Ada | 1234']);
    assert.equal(await page.textContent('.contacts [role="status"]'), 'mmm Ada is saved.');
    await keys('Tab', 'Enter'); // to the row
    assert.equal(await page.evaluate(() => document.activeElement.value), 'mmm Ada', 'the focus is in the form');
    await keys('ControlOrMeta+a');
    await page.keyboard.type('Ada Lovelace');
    await keys('Enter');
    assert.deepEqual(await rows(page), ['Ada Lovelace | 1234'], 'changed, not doubled');
    await keys('ControlOrMeta+a', 'Delete', 'Enter');
    assert.deepEqual(await rows(page), ['Ada Lovelace | 1234'], 'nobody has no name');
    await keys('Escape');
    assert.equal(await page.locator('.contacts').isVisible(), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'settings');
    assert.match(await status(page), /Listening/, 'neither Esc nor Enter nor m has reached the conversation');
    assert.equal(await page.textContent('#mute span'), 'Mute');

    await openBook(page);
    await page.getByRole('button', { name: 'Ada Lovelace' }).press('Enter');
    await page.getByRole('button', { name: 'Cancel' }).press('Enter');
    assert.equal(await page.inputValue('.contacts [name="name"]'), '');
    await page.getByRole('button', { name: 'Ada Lovelace' }).press('Enter');
    await page.getByRole('button', { name: 'Remove' }).press('Enter');
    assert.deepEqual(await rows(page), []);
    assert.equal(await page.evaluate(() => document.activeElement.name), 'name');
    await page.getByRole('button', { name: 'Close' }).press('Enter');
    assert.equal(await page.evaluate(() => localStorage.getItem('voxgate.contacts')), '[]');
    await keys('Escape', 'Escape');
    await says(page, 'The conversation is over.');
  });

  play('Esc closes it before the canvas', async (page) => {
    await call(page, 'a', 'send_message', { text: 'Hi' });
    await asked(page, 'wants to send a message.');
    await openBook(page);
    await rows(page);
    await page.keyboard.press('Escape');
    assert.deepEqual([await page.locator('.contacts').isVisible(), await isOpen(page)], [false, true]);
  });

  for (const [name, context] of variants([['phone', phone], ['dark', { ...phone, colorScheme: 'dark' }], ['desktop', {}]])) {
    play(`has no barriers (${name})`, async (page) => {
      await openBook(page);
      await page.getByRole('button', { name: 'Ada Lovelace' }).click();
      await hasNoBarriers(page, '.contacts');
      await looksLike(page, `contacts-${name}`);
    }, { context, contacts: book });
  }

  play('where the browser keeps nothing', async (page) => {
    await openBook(page);
    assert.deepEqual(await rows(page), []);
    await page.fill('.contacts [name="name"]', 'Ada');
    await page.click('.contacts [type="submit"]');
    const said = 'This browser keeps nothing for this page, so no contact can be saved.';
    assert.equal(await page.textContent('.contacts [role="status"]'), said);
    await page.keyboard.press('Escape');
    await call(page, 'a', 'find_contact', { query: 'Ada' });
    await press(page, 'Save');
    assert.match((await answer(page, 'a')).error, /^This browser keeps nothing/);
  }, { init: () => Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } }) });

  play('is empty if somebody else wrote it', async (page) => {
    await page.evaluate(() => localStorage.setItem('voxgate.contacts', '[1, null, {"name": 3}, {"name": " Ada ", "phone": {}}]'));
    await openBook(page);
    assert.deepEqual(await rows(page), ['Ada']);
    await page.evaluate(() => localStorage.setItem('voxgate.contacts', '{'));
    await page.keyboard.press('Escape');
    await openBook(page);
    assert.deepEqual(await rows(page), []);
  });
});

describe('send_message', () => {
  const withShare = () => {
    window.shared = [];
    window.fails = undefined;
    navigator.canShare = (data) => !data.files;
    navigator.share = async (data) => {
      if (fails) throw fails;
      shared.push(data);
    };
  };
  const field = (page, label) => box(page).getByLabel(label, { exact: true });

  play('by a link to the messages or the e-mail app', async (page) => {
    const sent = {
      '+44 (0)20 7946-0000': 'sms:+442079460000?&body=Caf%C3%A9%20%26%20%3Ci%3E%0D%0A%3F',
      'ada+x?&cc=eve@example.com': 'mailto:ada%2Bx%3F%26cc%3Deve@example.com?body=Caf%C3%A9%20%26%20%3Ci%3E%0D%0A%3F',
    };
    for (const [to, href] of Object.entries(sent)) {
      await call(page, to, 'send_message', { to, text: 'Café & <i>\n?' });
      await asked(page, 'wants to send a message.');
      assert.deepEqual([await field(page, 'To').inputValue(), await field(page, 'Text').inputValue()], [to, 'Café & <i>\n?']);
      await hasNoBarriers(page, '.canvas');
      await looksLike(page, 'send');
      await press(page, 'Send');
      await asked(page, `To ${to}`);
      await hasNoBarriers(page, '.canvas');
      await looksLike(page, 'send-link');
      assert.equal(await page.evaluate(() => opened.length), Object.keys(sent).indexOf(to), 'nothing opens before the link is pressed');
      assert.equal(await page.evaluate((id) => links[0].answers.some((a) => a.id === id), to), false);
      await box(page).getByRole('link', { name: /^Open your/ }).click();
      const { sent: how, note, ...message } = await answer(page, to);
      assert.equal(how, href.split(':')[0]);
      assert.deepEqual(message, { to, text: 'Café & <i>\n?' });
      assert.match(note, /^It was handed to the .* app\. Whether it was sent is not known\.$/);
      assert.equal(await page.evaluate(() => opened.at(-1)), href);
      assert.deepEqual(await page.locator('#log .card:last-child').locator('dt, dd').allTextContents(), ['To', to, 'Text', 'Café & <i>\n?']);
      assert.equal(await isOpen(page), false);
    }
  }, { context: phone });

  play('asks for what is missing', async (page) => {
    await call(page, 'a', 'send_message');
    await asked(page, 'wants to send a message.');
    await press(page, 'Send');
    assert.equal(await isOpen(page), true, 'there is nobody to send it to');
    await field(page, 'To').fill('Ada');
    await press(page, 'Send');
    assert.equal(await isOpen(page), true, 'there is nothing to send');
    await field(page, 'Text').fill('Hi');
    await press(page, 'Send');
    await asked(page, '“Ada” is neither a phone number nor an e-mail address.');
    assert.equal(await field(page, 'Text').inputValue(), 'Hi', 'nothing typed is lost');
    await field(page, 'To').fill('ada@example.com');
    await press(page, 'Send');
    await asked(page, 'To ada@example.com');
    await press(page, 'Cancel');
    assert.deepEqual(await answer(page, 'a'), { error: 'the person did not send it' });
    assert.deepEqual(await page.evaluate(() => opened), []);
  });

  play('by the share sheet', async (page) => {
    await call(page, 'a', 'send_message', { to: '123', text: 'Hi' });
    await asked(page, 'share sheet');
    await looksLike(page, 'send-share');
    assert.deepEqual(await page.evaluate(() => shared), []);
    await press(page, 'Send');
    assert.equal((await answer(page, 'a')).sent, 'shared');
    assert.deepEqual(await page.evaluate(() => shared.map(({ text, files }) => [text, files ?? null])), [['Hi', null]]);
    await call(page, 'b', 'send_message', { to: '123', text: 'Hi' });
    await press(page, 'Send with your messages app');
    await box(page).getByRole('link', { name: 'Open your messages app' }).click();
    assert.equal((await answer(page, 'b')).sent, 'sms');
    const errors = { AbortError: 'the person did not send it', NotAllowedError: 'the share sheet could not be opened: why' };
    for (const [name, error] of Object.entries(errors)) {
      await page.evaluate((name) => void (window.fails = new DOMException('why', name)), name);
      await call(page, name, 'send_message', { text: 'Hi' });
      await press(page, 'Send');
      assert.deepEqual(await answer(page, name), { error });
    }
    for (const [id, leave] of Object.entries({ no: () => press(page, 'Cancel') })) {
      await call(page, id, 'send_message', { to: '123', text: 'Hi' });
      await leave();
      assert.deepEqual(await answer(page, id), { error: 'the person did not send it' });
    }
    await call(page, 'back', 'send_message', { to: '123', text: 'Hi' });
    await asked(page, 'wants to send a message.');
    await cancel(page, 'back');
    assert.equal(await isOpen(page), false);
    assert.deepEqual(await page.evaluate(() => shared.length), 1);
  }, { init: withShare, context: phone });

  play('a photo that cannot go along is to be saved', async (page) => {
    await call(page, 'no', 'send_message', { to: '123', photo: 'photo:1' });
    assert.deepEqual(await answer(page, 'no'), { error: 'there is no photo “photo:1”; take_photo takes one and returns its reference' });
    await call(page, 'p', 'take_photo');
    await press(page, 'Take photo');
    await press(page, 'Use photo');
    await call(page, 'a', 'send_message', { to: '123', photo: (await answer(page, 'p')).photo });
    await asked(page, 'The photo cannot go along from this browser');
    await page.waitForFunction(() => document.querySelector('.canvas-question img')?.naturalWidth > 0);
    await looksLike(page, 'send-photo');
    await press(page, 'Send');
    const photo = await saves(page, () => box(page).getByRole('link', { name: 'Save the photo' }).click());
    assert.equal(photo.name, 'photo.jpg');
    await hasNoBarriers(page, '.canvas');
    await looksLike(page, 'send-photo-link');
    await box(page).getByRole('link', { name: 'Open your messages app' }).click();
    const { sent, note } = await answer(page, 'a');
    assert.equal(sent, 'sms');
    assert.match(note, /The photo could not go along/);
    assert.deepEqual(await page.evaluate(() => opened), ['sms:123']);
  }, { init: withShare, context: phone });
});
