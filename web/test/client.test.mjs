/** voxgate.js and the page against a gateway that the test plays itself, message by message. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { says, start, status, type, withGateway } from './harness.mjs';

const inPage = withGateway();

/**
 * Runs in the page before its own scripts: instead of sockets there are `links`. Each answers CONNECT_GEMINI with the
 * next of `setups`, keeps in `said` what came after it, and tells or drops what the test wants.
 */
function playGateway() {
  const links = (window.links = []);
  window.setups = [{}];
  const now = performance.now.bind(performance);
  window.later = 0; // ms
  performance.now = () => now() + later;
  window.WebSocket = class {
    static OPEN = 1;
    readyState = 0;
    bufferedAmount = 0;
    said = [];
    deaf = false; // loses what it is sent, as a dying connection does
    constructor() {
      links.push(this);
      setTimeout(() => {
        this.readyState = 1;
        this.onopen();
      });
    }
    send(text) {
      const message = JSON.parse(text);
      if (message.type !== 'CONNECT_GEMINI') {
        if (!this.deaf) this.said.push(message);
        return;
      }
      setTimeout(() => {
        this.tell('GEMINI_CONNECTED', { protocol: 1, iceServers: [] });
        const fresh = { success: true, sessionId: 's', model: 'm', resumed: false, resumeToken: 't', backend: 'gemini' };
        this.tell('SETUP_COMPLETE', { ...fresh, effectiveConfig: {}, ...setups.shift() });
      });
    }
    tell(type, payload) {
      this.onmessage?.({ data: JSON.stringify({ type, payload }) });
    }
    drop(code = 1006) {
      this.readyState = 3;
      this.onclose?.({ code });
    }
    close() {
      this.readyState = 3;
    }
  };
  /** Opens a session and keeps what it tells. */
  window.talk = async (options) => {
    const { connect } = await import('./voxgate.js');
    window.session = await connect({ mic: false, transport: 'websocket', ...options });
    window.events = [];
    for (const type of ['error', 'closed', 'link', 'usage', 'tool']) {
      session.on(type, (e) => events.push([type, e instanceof Error ? `${e.code}: ${e.message}` : e]));
    }
    return session;
  };
  /** Loses the newest link and waits for the next to be set up. */
  window.reconnect = async (setup) => {
    setups.push(setup);
    const back = new Promise((resolve) => {
      const off = session.on('state', ({ state }) => state === 'listening' && resolve(off()));
    });
    links.at(-1).drop();
    return back;
  };
  window.texts = ({ said }) =>
    said.filter((m) => !m.payload?.audio).map((m) => m.payload?.parts?.[0].text ?? m.payload?.text ?? m.type);
}

const play = (name, run, query = '?transport=websocket') => inPage(name, { init: playGateway, query }, run);

describe('what was sent before a loss', () => {
  play('is sent again if it did not arrive, in order and before what was typed meanwhile', async (page) => {
    const { before, after } = await page.evaluate(async () => {
      await talk();
      const [first] = links;
      session.send('one');
      session.post('SEND_REALTIME_INPUT', { text: 'two' });
      session.post('SEND_REALTIME_INPUT', { audioStreamEnd: true });
      session.post('UPDATE_CONFIG', { model: 'n' });
      const back = reconnect({ resumed: true, received: [first.said[0].id] });
      session.send('three');
      await back;
      return { before: first.said, after: links[1].said };
    });
    assert.deepEqual(before.map((m) => typeof m.id), ['string', 'string', 'undefined', 'string']);
    assert.equal(new Set(before.map((m) => m.id)).size, 4);
    const three = { type: 'SEND_MESSAGE', payload: { parts: [{ text: 'three' }], turnComplete: true } };
    assert.deepEqual(after, [before[1], before[3], { ...three, id: after[2]?.id }]);
  });

  play('is sent again at the second try, too', async (page) => {
    const after = await page.evaluate(async () => {
      await talk();
      links[0].deaf = true;
      session.send('one');
      await reconnect({ resumed: true, received: [] });
      links[1].said = []; // lost as well
      await reconnect({ resumed: true, received: [] });
      return texts(links[2]);
    });
    assert.deepEqual(after, ['one']);
  });

  play('is forgotten when it must have arrived, not by a clock alone', async (page) => {
    const after = await page.evaluate(async () => {
      await talk();
      session.send('old');
      later += 11_000;
      links[0].tell('LOG_MESSAGE', { type: 'info', message: 'a sign of life' });
      session.send('silence since');
      later += 60_000;
      await reconnect({ resumed: true, received: [] });
      return texts(links[1]);
    });
    assert.deepEqual(after, ['silence since']);
  });

  play('is bounded', async (page) => {
    const after = await page.evaluate(async () => {
      await talk();
      for (let i = 0; i < 100; i++) session.send(String(i));
      await reconnect({ resumed: true, received: [] });
      return texts(links[1]);
    });
    assert.deepEqual(after, Array.from({ length: 64 }, (_, i) => String(i + 36)));
  });

  play('a tool’s answer has one id, asked for as often as it may be', async (page) => {
    const { before, after } = await page.evaluate(async () => {
      await talk({ tools: { f: { description: '', run: () => 'x' } } });
      const call = () => links.at(-1).tell('TOOL_CALL', { toolCall: { functionCalls: [{ id: 'c1', name: 'f' }] } });
      const done = new Promise((resolve) => session.on('tool', (c) => c.status === 'done' && resolve()));
      call();
      await done;
      await reconnect({ resumed: true, received: [] });
      call();
      return { before: links[0].said, after: links[1].said };
    });
    assert.equal(before.length, 1);
    assert.deepEqual(after, [before[0], before[0]]);
  });
});

describe('in a conversation that had to be begun anew', () => {
  play('only what has no answer yet is asked again', async (page) => {
    const after = await page.evaluate(async () => {
      await talk({ tools: { f: { description: '', run: () => 'x' } } });
      const [link] = links;
      session.send('answered');
      link.tell('ASSISTANT_SPEAKING', { speaking: true });
      link.tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text: 'Yes.' } } });
      link.tell('TURN_COMPLETE');
      const done = new Promise((resolve) => session.on('tool', (c) => c.status === 'done' && resolve()));
      link.tell('TOOL_CALL', { toolCall: { functionCalls: [{ id: 'c1', name: 'f' }] } });
      await done;
      session.send('not answered');
      const back = reconnect({ resumed: false });
      session.send('typed meanwhile');
      await back;
      return { texts: texts(links[1]), events };
    });
    assert.deepEqual(after.texts, ['not answered', 'typed meanwhile']);
    assert.deepEqual(after.events.at(-1), ['error', 'not_resumed: The conversation could not be kept; this is a new one.']);
  });
});

describe('the library tells', () => {
  const tokens = (totalTokens) => ({ inputTokens: 1, outputTokens: 2, totalTokens, input: { AUDIO: 1 } });
  const usage = { turn: tokens(120), total: tokens(3_400) };

  play('tokens, and where the conversation stands with Gemini', async (page) => {
    const { links, events } = await page.evaluate(async (usage) => {
      await talk();
      const [link] = window.links;
      const seen = [session.link];
      link.tell('SESSION_STATE', { state: 'resuming', message: 'One moment.' });
      seen.push(session.link);
      link.tell('LOG_MESSAGE', { type: 'info', message: 'This turn took …', details: { usage } });
      return { links: seen, events };
    }, usage);
    const resuming = { state: 'resuming', message: 'One moment.' };
    assert.deepEqual(links, [{ state: 'live' }, resuming]);
    assert.deepEqual(events, [['link', resuming], ['usage', usage]]);
  });

  play('the context, also across a loss', async (page) => {
    const entries = [{ role: 'user', content: 'Hi', timestamp: 1 }];
    const got = await page.evaluate(async (entries) => {
      await talk();
      const asked = session.context();
      links[0].tell('CONTEXT', { entries });
      const list = [await asked];
      const [second, cleared] = [session.context(), session.clearContext()];
      await reconnect({ resumed: true, received: [] });
      links[1].tell('CONTEXT', { entries: [] });
      links[1].tell('CONTEXT', { entries: [] });
      links[1].tell('CONTEXT', { entries: [] }); // an answer nobody waits for
      list.push(await second, (await cleared) ?? 'nothing');
      const never = session.context().catch((e) => e.code);
      session.close();
      return { list: [...list, await never, await session.context().catch((e) => e.code)], asked: texts(links[1]) };
    }, entries);
    assert.deepEqual(got.list, [entries, [], 'nothing', 'closed', 'aborted']);
    assert.deepEqual(got.asked.slice(0, 2), ['GET_CONTEXT', 'CLEAR_CONTEXT']);
  });

  play('an error once: as the reason if the end follows', async (page) => {
    const got = await page.evaluate(async () => {
      const error = (code, message) => ['GEMINI_ERROR', { message, details: { code } }];
      const list = [];
      const one = async (...messages) => {
        setups = [{}];
        await talk();
        for (const [type, payload] of messages) links.at(-1).tell(type, payload);
        await new Promise((resolve) => setTimeout(resolve, 400));
        list.push([...events]);
        await session.close();
      };
      await one(error('busy', 'Too much.'));
      await one(error('websocket_error', 'It broke.'), ['GEMINI_DISCONNECTED', { reason: 'It broke.' }]);
      await one(error('bad_message', 'What?'), ['GEMINI_DISCONNECTED', { reason: 'The gateway is shutting down.' }]);
      await one(error('bad_message', 'What?'), error('bad_message', 'What again?'), ['INTERRUPTED']);
      return list;
    });
    assert.deepEqual(got, [
      [['error', 'busy: Too much.']],
      [['closed', 'websocket_error: It broke.']],
      [['error', 'bad_message: What?'], ['closed', 'ended: The gateway is shutting down.']],
      [['error', 'bad_message: What?'], ['error', 'bad_message: What again?']],
    ]);
  });
});

describe('the page says', () => {
  const begin = async (page) => {
    await start(page);
    await says(page, 'Gemini is listening...');
  };
  const tell = (page, type, payload) => page.evaluate((m) => links[0].tell(...m), [type, payload]);

  play('what a person waits for', async (page) => {
    await begin(page);
    await tell(page, 'SESSION_STATE', { state: 'draining' });
    assert.equal(await status(page), 'Gemini is listening...', 'what needs no patience is not told');
    await tell(page, 'SESSION_STATE', { state: 'resuming', message: 'Reconnecting to Gemini…' });
    await says(page, 'Reconnecting to Gemini…');
    await tell(page, 'SESSION_STATE', { state: 'live' });
    await says(page, 'Gemini is listening...');
  });

  play('how many tokens the conversation took', async (page) => {
    await begin(page);
    assert.equal(await page.textContent('#detail'), 'WebSocket');
    const usage = { turn: { totalTokens: 120 }, total: { totalTokens: 3_400 } };
    await tell(page, 'LOG_MESSAGE', { type: 'info', message: 'This turn took …', details: { usage } });
    assert.equal(await page.textContent('#detail'), 'WebSocket · 3,400 tokens');
    await page.evaluate(() => (setups = [{}]));
    await page.click('#talk');
    await says(page, 'Ready.');
    assert.equal(await page.textContent('#detail'), '');
    await begin(page);
    assert.equal(await page.textContent('#detail'), 'WebSocket', 'another conversation counts anew');
  });

  play('that something may be lost, and goes on', async (page) => {
    await begin(page);
    await tell(page, 'GEMINI_ERROR', { message: 'Forgotten.', details: { code: 'session_resumption_failed' } });
    await page.waitForSelector('.note');
    assert.equal(await page.textContent('.note'), 'Some of the conversation may be lost.');
    assert.equal(await status(page), 'Gemini is listening...');
  });

  play('when to come back', async (page) => {
    const details = { code: 'busy', retryAfter: 30 };
    await page.evaluate((d) => (setups = [{ success: false, error: { code: 429, message: 'Quota.', details: d } }]), details);
    await start(page);
    await says(page, 'Gemini is busy. Try again in 30 s.');
    assert.equal(await page.textContent('#talk span'), 'Start');
  });

  play('why it is over', async (page) => {
    await begin(page);
    await tell(page, 'GEMINI_DISCONNECTED', { reason: 'The gateway is shutting down.' });
    await says(page, 'The gateway is shutting down. Press the button to start anew.');
  });

  play('once what was typed, however often it was sent', async (page) => {
    await begin(page);
    await page.evaluate(() => (links[0].deaf = true));
    await type(page, 'Hello there');
    await page.evaluate(() => setups.push({ resumed: true, received: [] }));
    await page.evaluate(() => links[0].drop());
    await page.waitForFunction(() => links[1]?.said.length);
    assert.deepEqual(await page.evaluate(() => texts(links[1])), ['Hello there']);
    assert.equal(await page.locator('.turn.user').count(), 1);
  });
});
