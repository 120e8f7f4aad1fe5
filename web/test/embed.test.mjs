/** The talk button, in pages of somebody else. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before } from 'node:test';
import { awaitAnimations, clock, findBarriers, mayPaste, openPage, shiftClock, silence, start, startGateway, test, tone, variants } from './harness.mjs';

let gateway;
let app;
let stranger;
/** A page with one line of ours, and as strict a policy as it can have. */
const serve = async (host) => {
  const server = createServer((request, response) => {
    const theirs = gateway.url.replace(/\/$/, '');
    const inline = request.url.includes('inline') ? '<voxgate-talk label="Ask us" voice="Puck" prompt="Be brief."></voxgate-talk>' : '';
    const agent = request.url.includes('agent') ? '?agent=interpreter' : '';
    response.setHeader('Content-Type', 'text/html');
    response.setHeader('Content-Security-Policy', `default-src 'none'; img-src data:; script-src ${theirs}; frame-src ${theirs}; connect-src ${theirs} ${theirs.replace('http', 'ws')}`);
    response.end(`<!doctype html><html lang="en"><title>A shop</title><link rel="icon" href="data:,"><main><h1>A shop</h1>${inline}</main><p id="status" hidden></p>
      <script type="module" src="${theirs}/embed.js${agent}"></script></html>`);
  });
  await new Promise((resolve) => server.listen(0, host, resolve));
  server.origin = `http://${host}:${server.address().port}`;
  return server;
};
before(async () => {
  app = await serve('127.0.0.1');
  stranger = await serve('127.0.0.2');
  gateway = await startGateway({ VOXGATE_ORIGINS: app.origin, VOXGATE_AGENTS: new URL('../../examples/agents', import.meta.url).pathname });
});
after(async () => {
  app?.close();
  stranger?.close();
  await gateway?.stop();
});

const inShop = (name, run, { path = '/', origin = () => app.origin, ...options } = {}) =>
  test(name, { timeout: 90_000 }, async (t) => {
    const page = await openPage({ url: origin() + path, ...options });
    try {
      await run(page, t);
      const others = page.complaints.filter((c) => !c.startsWith(`asked ${gateway.url}`));
      assert.deepEqual(others, []);
    } finally {
      await page.quit();
    }
  });
const button = (page, name) => page.getByRole('button', { name, exact: true });
const says = (page, text) => page.locator('.status').filter({ hasText: text }).waitFor();

/** Waits until the model is set up with a prompt. */
const setUp = (page, prompt) => page.waitForFunction((p) => told.some((m) => m.type === 'SETUP_COMPLETE' && JSON.stringify(m.payload).includes(p)), prompt);

inShop('one line of HTML has an agent answer', async (page) => {
  await button(page, 'Talk').click();
  await setUp(page, 'You are an interpreter');
  assert.deepEqual(await page.locator('.head b, .empty span').allInnerTexts(), ['Interpreter', 'How can I help?'], 'one name');
}, { path: '/agent' });

inShop("the gateway's page has one answer, too", async (page) => {
  await page.goto(`${gateway.url}?agent=nobody`);
  await page.getByText('There is no “nobody” at this gateway.').waitFor();
  assert.equal(await page.innerText('h2'), 'Nobody answers here');
  assert.equal(await page.getByRole('link', { name: 'Talk with Voxgate' }).getAttribute('href'), '/');
  await page.goto(`${gateway.url}?agent=desk`);
  await start(page);
  await setUp(page, 'You are the front desk');
});

inShop('one line of HTML lets a person talk', async (page, t) => {
  const judge = clock(t);
  await page.evaluate(() => addEventListener('turn', (e) => (window.turns ??= []).push(e.detail), true));
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await judge(() => page.waitForFunction(() => told.some((m) => m.type === 'TURN_COMPLETE'))); // the sentence of the microphone was answered
  await page.getByLabel('Or type a message').fill('Do you deliver?');
  await page.keyboard.press('Enter');
  await page.locator('.log .user', { hasText: 'Do you deliver?' }).waitFor();
  await page.locator('.log .model', { hasText: 'Do you deliver?' }).waitFor(); // the emulator repeats it
  assert.ok(await page.evaluate(() => turns.some((t) => t.role === 'model' && t.text.includes('deliver'))));
  await page.getByLabel('Or type a message').fill('/ground parrots');
  await page.keyboard.press('Enter');
  const source = page.locator('.log .model small', { hasText: 'Found on wikipedia.org' }).locator('a');
  assert.equal(await source.getAttribute('href'), 'https://en.wikipedia.org/wiki/Parrot');
  await page.frameLocator('.log .model .suggestions').getByText('parrots').waitFor(); // Google requires its suggestions to be shown
  await page.waitForFunction(() => document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation').shadowRoot.querySelector('.suggestions').offsetHeight >= 40);
  await button(page, 'Mute').click();
  await says(page, 'You are muted');
  const field = page.getByLabel('Or type a message');
  const { height } = await field.boundingBox();
  const send = (property) => button(page, 'Send').evaluate((e, property) => getComputedStyle(e)[property], property);
  const quiet = await send('backgroundColor');
  await field.fill('one');
  for (let i = 0; i < 9; i++) await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('two');
  await awaitAnimations(page);
  assert.notEqual(await send('backgroundColor'), quiet, 'Send is what leads on');
  const grown = (await field.boundingBox()).height;
  assert.ok(grown > 2 * height && grown < 4 * height, `the field grows to a few lines: ${grown} px`);
  await page.keyboard.press('Enter');
  await page.locator('.log .user', { hasText: /^one\n+two$/ }).waitFor();
  assert.equal((await field.boundingBox()).height, height);
  await page.locator('.log').evaluate((e) => (e.scrollTop = 0));
  await button(page, 'To the newest words').click();
  await button(page, 'To the newest words').waitFor({ state: 'hidden' });
  assert.ok(await page.locator('.log').evaluate((e) => e.matches(':focus')), 'the keyboard goes on from the words');
  await button(page, 'End').click();
  await says(page, 'The conversation is over.');
  await page.waitForFunction(() => sockets.every((s) => s.readyState === WebSocket.CLOSED));
  assert.ok(await page.locator('.log .user', { hasText: 'Do you deliver?' }).isVisible(), 'what was said stays');
  assert.ok(await button(page, 'Go on').evaluate((e) => e.matches(':focus')), 'the keyboard goes on where End was');
  await button(page, 'Go on').click();
  await says(page, 'Listening');
  const history = await page.evaluate(() => sent.filter((m) => m.type === 'CONNECT_GEMINI').at(-1).payload.initialConfig.voxgate.history);
  assert.ok(history.some((t) => t.content === 'Do you deliver?'));
  const rules = () => page.locator('.log .rule').allInnerTexts().then((all) => all.map((words) => words.replace(/, .+/, '')));
  const colour = () => page.locator('.log .model').first().evaluate((e) => getComputedStyle(e).color);
  const known = await colour();
  assert.deepEqual(await rules(), ['Continued']);
  await button(page, 'End').click();
  await button(page, 'New conversation').click();
  await says(page, 'Listening');
  assert.deepEqual(await rules(), ['New conversation'], 'nothing was said in the one before');
  assert.notEqual(await colour(), known, 'what is not known any more is grey');
  await button(page, 'End').click();
  await button(page, 'Close').click();
  await button(page, 'Talk').waitFor();
}, { sounds: [silence(1), tone(0.6)] });

inShop('it says so when a microphone gives nothing', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  const top = () => page.locator('.orb > *').evaluate((e) => e.getBoundingClientRect().top);
  await awaitAnimations(page);
  const before = await top();
  await page.evaluate(() => void (later += 10_000));
  await says(page, 'We hear nothing from your microphone.');
  await awaitAnimations(page);
  assert.equal(await top(), before, 'the orb stays where it is');
  await page.getByRole('button', { name: 'Speak, or choose another microphone.' }).click();
  await page.waitForFunction(() => document.activeElement.shadowRoot.activeElement.shadowRoot.activeElement?.matches('.menu select')); // it leads to the choice
  await page.keyboard.press('Escape');
  await button(page, 'Mute').click();
  await says(page, 'You are muted.');
  assert.ok(await page.locator('.orb voxgate-orb').evaluate((e) => [...e.shadowRoot.querySelectorAll('svg > *')].every((sign) => getComputedStyle(sign).display === 'none')), 'the button alone says it');
}, { init: shiftClock });

inShop('it is where the page wants it, with the voice that it names', async (page) => {
  assert.equal(await page.locator('voxgate-talk').count(), 1);
  await page.evaluate(() => document.querySelector('main').prepend(document.querySelector('voxgate-talk'))); // as frameworks do
  const [talk, place] = ['.talk', 'voxgate-talk'].map((s) => page.locator(s));
  await page.evaluate(() => document.querySelector('voxgate-talk').toggleAttribute('inline', true));
  const before = await place.boundingBox();
  await button(page, 'Ask us').click();
  await says(page, 'Listening');
  await button(page, 'Minimise').click();
  assert.ok(await talk.isVisible() && (await page.locator('.small').boundingBox()).y > 600, 'the bar is in the corner');
  await talk.click();
  await page.locator('voxgate-conversation').waitFor();
  assert.deepEqual(await place.boundingBox(), before, 'the text around it does not move');
  const config = await page.evaluate(() => sent.find((m) => m.type === 'CONNECT_GEMINI').payload.initialConfig);
  assert.equal(config.generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName, 'Puck');
  assert.equal(config.systemInstruction.parts[0].text, 'Be brief.');
  await page.evaluate(() => document.querySelector('voxgate-talk').remove());
  await page.waitForFunction(() => sockets.every((s) => s.readyState === WebSocket.CLOSED)); // nobody is heard by what is gone
}, { path: '/inline' });

inShop('it says that the microphone is refused, and can be typed to', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'The microphone is not allowed.');
  assert.ok(await button(page, 'Try again').isVisible());
  const between = await page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => {
    const [words, retry] = ['.status span', '.denied button'].map((s) => shadowRoot.querySelector(s).getBoundingClientRect());
    return retry.top - words.bottom;
  });
  assert.ok(between >= 11 && between < 20, `Try again is ${between} px below the sentence`);
  assert.ok(await page.locator('.dock .mute').isHidden(), 'one button for it is enough');
  assert.ok(await page.locator('.empty span').isHidden(), 'no greeting over an orb that does not listen');
  await awaitAnimations(page);
  const [dock, orb, end] = await page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => ['.dock', '.orb > *', '.end'].map((s) => shadowRoot.querySelector(s).getBoundingClientRect().toJSON()));
  assert.ok(Math.abs(orb.left - dock.left - (dock.right - end.right)) < 3, `the orb and End stand in the middle: ${JSON.stringify([dock, orb, end])}`);
  await page.getByLabel('Or type a message').fill('Hello?');
  await page.keyboard.press('Enter');
  await page.locator('.log .model', { hasText: 'Hello?' }).waitFor();
  await says(page, 'No microphone. Try again');
  assert.ok(await page.locator('.denied').isHidden(), 'it is one line now');
  await button(page, 'Minimise').click();
  assert.equal(await page.locator('.small .now').innerText(), 'Gemini\nNo microphone', 'short enough for the bar');
}, { mic: 'denied' });

inShop('a page that may not talk says so to its visitors, and why in the console, and offers nothing that cannot help', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'is not available here.');
  assert.ok(page.complaints.some((c) => c.includes('does not let pages of http://127.0.0.2')), String(page.complaints));
  for (const useless of ['New conversation', 'Interrupt']) assert.equal(await button(page, useless).count(), 0, useless);
  assert.ok(await page.getByLabel('Or type a message').isHidden());
  assert.ok(await page.locator('.empty').isHidden(), 'no greeting invites to what cannot be done');
  const [above, between, below] = await page.locator('voxgate-conversation').evaluate((e) => {
    const [panel, head, status, close] = [e, ...['.head', '.status span', '.dock > button:not(.icon, .orb):not([hidden])'].map((s) => e.shadowRoot.querySelector(s))].map((part) => part.getBoundingClientRect());
    return [status.top - head.bottom, close.top - status.bottom, panel.bottom - close.bottom];
  });
  assert.ok(above > 100 && below > 100 && between < 40 && Math.abs(above - below) < 40, `the sentence and its button are in the middle: ${above} px above, ${between} px between, ${below} px below`);
  await button(page, 'Close').click();
  await button(page, 'Talk').waitFor();
  page.complaints.splice(0, page.complaints.length, ...page.complaints.filter((c) => !/voxgate:|403|blocked by CORS|ERR_FAILED|Cross-Origin Request Blocked|can’t establish/.test(c)));
}, { origin: () => stranger.origin });

inShop('what is typed after the end begins another conversation, and who is muted is told so while Gemini speaks', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await button(page, 'Mute').click();
  await says(page, 'You are muted');
  await page.getByLabel('Or type a message').fill('one two three four five');
  await page.keyboard.press('Enter');
  await says(page, 'Speaking. You are muted.');
  await page.evaluate(() => sockets[0].onmessage({ data: JSON.stringify({ type: 'GEMINI_DISCONNECTED', payload: { reason: 'Time is up.' } }) }));
  await says(page, 'Time is up.');
  await page.getByLabel('Or type a message').fill('Do you deliver?');
  await page.keyboard.press('Enter');
  await page.locator('.log .model', { hasText: 'Do you deliver?' }).waitFor();
});

inShop('Mute mutes in the second conversation as well', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await page.evaluate(() => sockets[0].onmessage({ data: JSON.stringify({ type: 'GEMINI_DISCONNECTED', payload: { reason: 'Time is up.' } }) }));
  await says(page, 'Time is up.');
  await button(page, 'Close').click();
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await button(page, 'Mute').click();
  await says(page, 'You are muted');
});

inShop('a lost connection is one sentence, moves nothing, and what follows it has one name each', async (page) => {
  await page.evaluate(() => (document.querySelector('voxgate-talk').options = { transport: 'websocket' }));
  const lose = () => page.evaluate(() => {
    window.Socket ??= WebSocket;
    window.WebSocket = class { constructor() { throw new Error('no sockets here'); } };
    sockets.at(-1).close();
  });
  const places = () => page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => ['.empty', '.orb > *', '.dock .end', '.status', '.type'].map((s) => shadowRoot.querySelector(s).getBoundingClientRect().top));
  const isCovered = () => page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => {
    const line = shadowRoot.querySelector('.absence').getBoundingClientRect();
    return ['.log > :last-child > *, .log > .turn', '.orb > *', '.status span', '.type'].flatMap((s) => [...shadowRoot.querySelectorAll(s)]).some((e) => {
      const { top, bottom } = e.getBoundingClientRect();
      return top < bottom && top < line.bottom && bottom > line.top;
    });
  });
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await button(page, 'Mute').click(); // or it says after a while that nothing is heard
  for (const isFresh of [true, false]) {
    await says(page, 'You are muted');
    await awaitAnimations(page);
    const before = await places();
    await lose();
    await says(page, 'Reconnecting…');
    assert.ok(await page.locator('.dock .mute[data-away]').isVisible(), 'nobody is heard');
    await says(page, 'No connection. Trying again…');
    await page.locator('.absence', { hasText: /^Lost \d s ago Try now$/ }).waitFor();
    await awaitAnimations(page);
    assert.deepEqual([await places(), await isCovered()], [before, false], isFresh ? 'before the first words' : 'with words');
    if (!isFresh) break;
    await button(page, 'Minimise').click();
    assert.ok(await page.locator('.small .mute').isHidden() && await button(page, 'Try now').isVisible(), 'the bar can try again, too');
    await button(page, 'Back to the conversation').click();
    await page.evaluate(() => void (window.WebSocket = window.Socket));
    await button(page, 'Try now').click();
    await says(page, 'You are muted');
    await page.getByLabel('Or type a message').fill('Do you deliver?');
    await page.keyboard.press('Enter');
    await page.locator('.log .model', { hasText: 'Do you deliver?' }).waitFor();
  }
  await page.evaluate(() => document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation').session.close(Object.assign(new Error('The connection was lost.'), { code: 'lost' })));
  await says(page, 'The connection was lost.');
  assert.deepEqual(await page.locator('.dock > button:visible').allInnerTexts(), ['Try again', 'New conversation']);
});

inShop('it has the name, the face and the greeting of who answers, and makes way for the page', async (page) => {
  await page.evaluate(() => {
    const talk = document.querySelector('voxgate-talk');
    const face = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
    for (const [name, value] of Object.entries({ who: 'Nora', greeting: 'How can I help?', picture: face })) talk.setAttribute(name, value);
    const titles = { description: 'The hours', title: 'Looking up the hours…' };
    talk.options = { tools: { hours: { ...titles, doneTitle: 'Looked up the hours', run: () => '9 to 18' }, broken: { ...titles, run: () => Promise.reject(new Error('closed')) } } };
  });
  assert.ok(await page.locator('.talk img').isVisible(), 'the button has the face, too');
  await button(page, 'Talk with Nora').click();
  await says(page, 'Listening');
  assert.equal(await page.locator('.head b').innerText(), 'Nora');
  assert.ok(await page.locator('.head img').isVisible());
  assert.ok(await page.getByText('How can I help?').isVisible());
  const height = () => page.locator('voxgate-conversation').evaluate((e) => e.offsetHeight);
  const before = await height();
  const [greeting, orb, status] = await page.locator('voxgate-conversation').evaluate((e) => {
    const words = document.createRange();
    words.selectNodeContents(e.shadowRoot.querySelector('.empty'));
    return [words, ...['voxgate-orb', '.status span'].map((s) => e.shadowRoot.querySelector(s))].map((part) => part.getBoundingClientRect().toJSON());
  });
  assert.ok(orb.width > 110 && orb.top >= greeting.bottom && orb.top - greeting.bottom < 50 && status.top >= orb.bottom - 1 && status.top - orb.bottom < 40, JSON.stringify([greeting, orb, status]));
  const ring = await page.locator('.orb voxgate-orb').evaluate((e) => parseFloat(getComputedStyle(e.shadowRoot.querySelector('.ring')).borderTopWidth) * new DOMMatrix(getComputedStyle(e).transform).a);
  assert.ok(ring > 1 && ring <= 3.5, `a ring of ${ring} px`);
  await page.locator('.orb').click();
  await says(page, 'You are muted. Nora does not hear you.');
  await page.locator('.orb').click();
  await page.getByLabel('Or type a message').fill('one\n\n| a | b |\n| --- | --- |\n| 1 | 2 |');
  await page.keyboard.press('Enter');
  await page.locator('.log .model').waitFor();
  assert.equal(await height(), before, 'nothing jumps');
  await awaitAnimations(page);
  assert.ok((await page.locator('.orb > *').boundingBox()).width > 100, 'the orb stays large while there are few words');
  await page.waitForFunction(() => {
    const { shadowRoot } = document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation');
    const [words, dock] = ['.log > :last-child', '.dock'].map((s) => shadowRoot.querySelector(s).getBoundingClientRect());
    return dock.top - words.bottom >= 0 && dock.top - words.bottom < 40; // the words grow upwards from it
  });
  for (const [tool, status, words] of [['hours', 'done', 'Looked up the hours done'], ['broken', 'failed', 'Looking up the hours did not work']]) {
    await page.getByLabel('Or type a message').fill(`/tool ${tool} {}`);
    await page.keyboard.press('Enter');
    await page.locator(`.log .card[data-status=${status}]`).waitFor();
    assert.equal(await page.locator(`.log .card[data-status=${status}]`).evaluate((e) => e.textContent), words);
  }
  const disc = (e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color, e.offsetWidth === e.offsetHeight];
  const red = await button(page, 'End').evaluate(disc);
  await button(page, 'Minimise').click();
  await page.locator('voxgate-conversation').waitFor({ state: 'hidden' });
  assert.deepEqual(await button(page, 'End').evaluate(disc), red, 'what ends the conversation looks the same');
  for (const name of ['Mute', 'End', 'Back to the conversation']) assert.ok(await button(page, name).isVisible(), name);
  await page.locator('.small .now', { hasText: /^Nora(Listening|Speaking|You are muted|We hear nothing)/ }).waitFor();
  await button(page, 'Back to the conversation').click();
  await page.locator('.log .model').first().waitFor();
});

inShop('a conversation goes on in the next page of the site', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await page.locator('.clock', { hasText: /^0:0\d$/ }).waitFor();
  await page.getByLabel('Or type a message').fill('Do you deliver?');
  await page.keyboard.press('Enter');
  await page.locator('.log .model', { hasText: 'Do you deliver?' }).waitFor();
  await says(page, 'Listening');
  await page.reload();
  await button(page, 'Go on with the conversation').click();
  await says(page, 'Listening');
  assert.equal(await page.locator('.log .user').innerText(), 'Do you deliver?');
  assert.ok(await page.evaluate(() => told.some((m) => m.type === 'SETUP_COMPLETE' && m.payload.resumed)));
  await button(page, 'End').click();
  await says(page, 'The conversation is over.');
  assert.ok(await page.locator('.clock').isHidden());
  await page.reload();
  await button(page, 'Talk').waitFor();
});

inShop('the menu in its head has the microphones and copies what was said', async (page) => {
  await mayPaste(page);
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await button(page, 'More').click();
  assert.ok(await button(page, 'Copy the conversation').isHidden(), 'nothing was said');
  const list = page.getByLabel('Microphone');
  await list.waitFor();
  const names = await list.locator('option').allInnerTexts();
  assert.ok(/^Default \(.+\)$/.test(names[0]) && names.length > 1, String(names));
  await list.selectOption(names.at(-1));
  await page.waitForFunction((name) => document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation').session.track?.label === name, names.at(-1));
  const [menu, panel] = await Promise.all(['.menu', 'voxgate-conversation'].map((s) => page.locator(s).boundingBox()));
  assert.ok(menu.x >= panel.x && menu.x + menu.width <= panel.x + panel.width && menu.y > panel.y, 'it is under its button');
  await page.keyboard.press('Escape');
  await page.locator('.menu').waitFor({ state: 'hidden' });
  await page.getByLabel('Or type a message').fill('Do you deliver?');
  await page.keyboard.press('Enter');
  await page.locator('.log .model', { hasText: 'Do you deliver?' }).waitFor();
  await button(page, 'End').click();
  await button(page, 'More').click();
  assert.deepEqual(await findBarriers(page, 'voxgate-talk'), []);
  assert.ok(await list.isHidden(), 'after the end there is nothing to choose it for');
  await button(page, 'Copy the conversation').click();
  await button(page, 'Copied').waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^You: Do you deliver\?\n\nGemini: You said: Do you deliver\?/);
});

inShop('the element alone fills its box, whatever display the page gives it', async (page) => {
  await page.evaluate(async (url) => {
    await import(`${url}conversation.js`);
    const box = document.body.appendChild(document.createElement('div'));
    box.style.height = '480px';
    const view = box.appendChild(document.createElement('voxgate-conversation'));
    return view.ready;
  }, gateway.url);
  for (const display of ['', 'block', 'flex', 'grid']) {
    const [whole, below, beside] = await page.locator('voxgate-conversation').evaluate((view, display) => {
      view.style.display = display;
      const [field, head] = ['.type', '.head'].map((s) => view.shadowRoot.querySelector(s).getBoundingClientRect());
      return [view.offsetHeight, view.getBoundingClientRect().bottom - field.bottom, view.offsetWidth - head.width];
    }, display);
    assert.deepEqual([whole, Math.round(below), Math.round(beside)], [480, 1, 2], `display: ${display}`);
  }
});

inShop('a conversation goes on with what was heard, and with no empty turn', async (page) => {
  const history = await page.evaluate(async (url) => {
    const { withHistory } = await import(`${url}conversation.js`);
    const turn = (text, more) => ({ role: 'model', text, final: true, ...more });
    return withHistory({}, [turn('all'), turn('one two', { heard: 'one' }), turn('three', { heard: '' }), turn('four', { final: false })]).voxgate.history.map(({ content }) => content);
  }, gateway.url);
  assert.deepEqual(history, ['all', 'one'], 'the gateway refuses a turn without words');
});

inShop('with forced colours nothing is lost', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  await page.getByLabel('Or type a message').fill('one two three four five six seven eight nine ten');
  await page.keyboard.press('Enter');
  await says(page, 'Speaking');
  await page.locator('.log .model', { hasText: 'one' }).waitFor();
  const [bars, marked, sphere] = await page.locator('voxgate-conversation').evaluate(({ shadowRoot }) => [
    getComputedStyle(shadowRoot.querySelector('.orb voxgate-orb').shadowRoot.querySelector('g')).display, CSS.highlights.get('voxgate-unheard')?.size ?? 0,
    getComputedStyle(shadowRoot.querySelector('.head b'), '::before').forcedColorAdjust]);
  assert.deepEqual([bars, marked, sphere], ['inline', 0, 'none'], 'the orb shows who speaks, words to come are no selection, and the head has its sphere');
  await says(page, 'Listening');
  await button(page, 'Mute').click();
  await says(page, 'You are muted.');
  const { height } = await page.locator('.status b').boundingBox();
  assert.ok(height < 30, 'the first sentence is not broken where the rest has lines of its own');
  await button(page, 'Minimise').click();
  assert.equal(await page.locator('.small').evaluate((e) => getComputedStyle(e).borderTopStyle), 'solid');
}, { context: { forcedColors: 'active' } });

inShop('it says so when the library does not come, and may try again', async (page) => {
  await page.route('**/voxgate.js', (route) => route.abort());
  await button(page, 'Talk').click();
  await says(page, 'The conversation cannot be loaded.');
  await page.unroute('**/voxgate.js');
  await button(page, 'Close').click();
  await button(page, 'Talk').waitFor();
  page.complaints.splice(0, page.complaints.length, ...page.complaints.filter((c) => !/ERR_FAILED|Cross-Origin Request Blocked/.test(c)));
});

for (const viewport of [{ width: 1280, height: 800 }, ...variants([{ width: 390, height: 844 }])]) {
  inShop(`the large orb stands above a status of several lines (${viewport.width} px)`, async (page) => {
    await button(page, 'Talk').click();
    await says(page, 'The microphone is not allowed.');
    await awaitAnimations(page);
    const [orb, words] = await page.evaluate(() => {
      const { shadowRoot } = document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation');
      return ['.orb > *', '.status span'].map((part) => shadowRoot.querySelector(part).getBoundingClientRect()).map(({ top, bottom }) => ({ top, bottom }));
    });
    assert.ok(words.bottom - words.top > 30 && orb.bottom <= words.top, JSON.stringify([orb, words]));
  }, { mic: 'denied', context: { viewport } });
}

/** What of the talk button is cut off by the window, or by the panel. */
const cut = (page) => page.evaluate(() => {
  const talk = document.querySelector('voxgate-talk').shadowRoot;
  const panel = talk.querySelector('voxgate-conversation');
  const parts = [...talk.querySelectorAll('.small button'), ...panel.shadowRoot.querySelectorAll('button, input, .status, .status span')].filter((e) => e.checkVisibility());
  const { left, right, top, bottom } = panel.checkVisibility() ? panel.getBoundingClientRect() : { left: 0, right: innerWidth, top: 0, bottom: innerHeight };
  return parts.filter((e) => {
    const r = e.getBoundingClientRect();
    return r.left < left || r.right > right || r.top < top || r.bottom > bottom || (e.matches('button:not(.orb, .back)') && e.scrollWidth > e.clientWidth) || (e.matches('.status') && e.scrollHeight > e.clientHeight);
  }).map((e) => e.ariaLabel || e.textContent);
});

/** How much darker the upper right corner of an element is than the panel, 0 to 255. */
const shadeAtEnd = async (page, element) => {
  const { x, y, width } = await element.boundingBox();
  const picture = await page.screenshot({ clip: { x: Math.floor(x + width) - 2, y: Math.ceil(y) + 2, width: 2, height: 2 } });
  return page.evaluate(async (bytes) => {
    const context = new OffscreenCanvas(2, 2).getContext('2d');
    context.drawImage(await createImageBitmap(new Blob([Uint8Array.from(bytes)], { type: 'image/png' })), 0, 0);
    return 255 - context.getImageData(0, 0, 1, 1).data[0]; // the panel is white
  }, [...picture]);
};

for (const [width, px] of [[390, 32], ...variants([[320, 32], [390, 24]])]) {
  inShop(`it fits on a phone of ${width} px with letters of ${px} px`, async (page) => {
    await page.evaluate(() => (document.querySelector('voxgate-talk').lang = 'de'));
    await button(page, 'Talk').click();
    await says(page, 'Ich höre zu');
    assert.deepEqual(await cut(page), [], 'before the first words');
    const { x, y, width: wide, height } = await page.locator('voxgate-conversation').boundingBox();
    assert.deepEqual([x, wide, y + height], [0, width, 844], 'it stands on the lower edge');
    await page.getByLabel('Oder eine Nachricht tippen').fill('Hallo');
    await page.keyboard.press('Enter');
    await page.locator('.log .model').waitFor();
    await page.evaluate(() => document.querySelector('voxgate-talk').shadowRoot.querySelector('voxgate-conversation').session.send('alle\n| Tour | Strecke | Schwierigkeit | Einkehr |\n| - | - | - | - |\n| See | 42 km | leicht | Seestuben |'));
    const table = page.locator('.log .model table').last();
    await table.locator('th', { hasText: 'Schwierigkeit' }).waitFor();
    await says(page, 'Ich höre zu');
    assert.ok(await table.evaluate((e) => e.scrollWidth > e.clientWidth + 8), 'not all of the table is in sight');
    assert.ok((await shadeAtEnd(page, table)) > 20, 'a shadow where the table goes on');
    await table.evaluate((e) => (e.scrollLeft = e.scrollWidth));
    assert.ok((await shadeAtEnd(page, table)) < 4, 'none at its end');
    await page.getByRole('button', { name: 'Stummschalten' }).first().click();
    await says(page, 'stumm');
    assert.deepEqual(await cut(page), [], 'in a conversation');
    await button(page, 'Verkleinern').click();
    assert.deepEqual(await cut(page), [], 'minimised');
    await button(page, 'Zurück zum Gespräch').click();
    await button(page, 'Beenden').click();
    await says(page, 'Das Gespräch ist beendet.');
    assert.deepEqual(await cut(page), [], 'after it');
  }, { args: [`--blink-settings=defaultFontSize=${px}`], context: { viewport: { width, height: 844 } } });
}

inShop('on a phone on its side the orb and the status share a row', async (page) => {
  await button(page, 'Talk').click();
  await says(page, 'Listening');
  assert.deepEqual(await cut(page), []);
  await page.getByLabel('Or type a message').fill('Do you deliver?');
  await page.keyboard.press('Enter');
  await page.locator('.log .model').waitFor();
  const [log, dock, status, type] = await Promise.all(['.log', '.dock', 'p.status', '.type'].map((s) => page.locator(s).boundingBox()));
  assert.ok(log.height > 160 && dock.x + dock.width <= status.x + 1 && Math.max(dock.y + dock.height, status.y + status.height) <= type.y + 1, JSON.stringify([log, dock, status, type]));
  assert.deepEqual(await cut(page), []);
}, { context: { viewport: { width: 844, height: 390 } } });

for (const colorScheme of variants(['light', 'dark'])) {
  inShop(`it has no barriers (${colorScheme})`, async (page) => {
    assert.deepEqual(await findBarriers(page), []);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await says(page, 'Listening');
    await page.getByLabel('Or type a message').fill('Hi');
    await page.keyboard.press('Enter');
    await page.locator('.log .model').waitFor();
    assert.deepEqual(await findBarriers(page), []);
  }, { context: { colorScheme, viewport: { width: 360, height: 640 } } });
}
