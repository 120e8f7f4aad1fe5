/** voxgate.js and the page against a gateway that the test plays itself, message by message. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { detail, playGateway, says, start, status, stop, TALKS, type, withGateway } from './harness.mjs';

const inPage = withGateway();

const play = (name, run, options) => inPage(name, { init: playGateway, query: '?transport=websocket', ...options }, run);

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

  play('waits as long as a busy gateway says', async (page) => {
    await page.clock.install();
    await page.evaluate(async () => {
      await talk();
      setups.push({ success: false, error: { message: 'Busy.', details: { code: 'busy', retryAfter: 20 } } }, { resumed: true, received: [] });
      session.send('one');
      links[0].drop();
    });
    await page.clock.runFor(19_000);
    assert.equal(await page.evaluate(() => links.length), 2);
    await page.clock.runFor(3_000);
    assert.deepEqual(await page.evaluate(() => [links.length, session.state, texts(links[2])]), [3, 'listening', ['one']]);
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

  play('and nothing listens any more for a network that came long ago', async (page) => {
    await page.evaluate(async () => {
      await talk();
      for (let i = 0; i < 3; i++) await reconnect({ resumed: true, received: [] });
    });
    const debug = await page.context().newCDPSession(page);
    const expression = 'getEventListeners(window).online.length';
    const { result } = await debug.send('Runtime.evaluate', { expression, includeCommandLineAPI: true });
    assert.equal(result.value, 1);
  }, { chromiumOnly: 'counted by its debugger' });

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

describe('a socket that says nothing', () => {
  const resumed = { resumed: true, received: [] };
  const deaf = (page) => page.evaluate((setup) => {
    links.at(-1).deaf = true;
    setups.push(setup);
  }, resumed);
  const seen = (page) =>
    page.evaluate(() => {
      const tokens = links.filter((l) => l.hello?.resumeToken).length;
      return { sockets: links.length, tokens, state: session.state };
    });
  const begin = async (page) => {
    await page.clock.install();
    await page.evaluate(async () => void (await talk()));
    await page.clock.pauseAt(Date.now() + 60_000); // from here on the test makes the time
  };
  const networkChanges = (page) => page.evaluate(() => void dispatchEvent(new Event('online')));

  play('is kept as long as it answers, and given up for another one when it does not', async (page) => {
    await begin(page);
    await page.clock.runFor(60_000);
    assert.deepEqual(await seen(page), { sockets: 1, tokens: 0, state: 'listening' });
    await deaf(page);
    await page.clock.runFor(4_000);
    assert.deepEqual(await seen(page), { sockets: 1, tokens: 0, state: 'listening' });
    await page.clock.runFor(2_500);
    assert.deepEqual(await seen(page), { sockets: 2, tokens: 1, state: 'listening' });
  });

  play('is kept when it speaks again before there is another one', async (page) => {
    await begin(page);
    await deaf(page);
    await page.evaluate(() => void (window.unreachable = true));
    await page.clock.runFor(7_000);
    assert.equal((await seen(page)).state, 'reconnecting');
    await page.evaluate(() => {
      links[0].deaf = false;
      links[0].tell('LOG_MESSAGE', { type: 'info', message: 'a sign of life' });
    });
    await page.clock.runFor(10_000);
    const { tokens, state } = await seen(page);
    assert.deepEqual({ tokens, state }, { tokens: 0, state: 'listening' });
  });

  play('is given up sooner when the browser tells of another network', async (page) => {
    await begin(page);
    await page.evaluate(() => links[0].tell('LOG_MESSAGE', { type: 'info', message: 'a sign of life' }));
    await deaf(page);
    await networkChanges(page);
    await page.clock.runFor(4_000);
    assert.deepEqual(await seen(page), { sockets: 1, tokens: 0, state: 'listening' });
    await page.clock.runFor(1_000);
    assert.deepEqual(await seen(page), { sockets: 2, tokens: 1, state: 'listening' });
  });

  play('is asked once, and kept if it answers within 3.5 s, however often the browser tells of another network', async (page) => {
    await begin(page);
    await page.evaluate(() => {
      const [link] = links;
      const { send, tell } = link;
      window.pings = 0;
      link.send = (text) => (text.includes('"PING"') && pings++, send.call(link, text));
      link.tell = (...a) => void setTimeout(() => tell.apply(link, a), 3_500); // by a loss over TCP
    });
    await page.clock.runFor(8_000);
    await page.evaluate(() => void (pings = 0));
    for (let i = 0; i < 24; i++) {
      await networkChanges(page);
      await page.clock.runFor(50);
    }
    assert.ok((await page.evaluate(() => pings)) <= 1);
    await page.clock.runFor(8_000);
    assert.deepEqual(await seen(page), { sockets: 1, tokens: 0, state: 'listening' });
  });
});

/**
 * Runs in the page: peers that the test plays, too. Something comes over each while it `flows`, and the first answer to an offer
 * connects it.
 */
const playPeers = () => {
  window.peers = [];
  if (!navigator.connection) navigator.connection = new EventTarget(); // as in Firefox
  window.RTCPeerConnection = class {
    connectionState = 'new';
    signalingState = 'stable';
    localDescription = { sdp: '' };
    sctp = { maxMessageSize: 65_536 };
    channel = { readyState: 'connecting', send() {} };
    flows = true;
    packets = 0;
    restarts = 0;
    constructor() {
      peers.push(this);
      setTimeout(() => this.onnegotiationneeded());
    }
    createDataChannel = () => this.channel;
    addTransceiver = () => ({ sender: { replaceTrack: async () => {} } });
    async setLocalDescription() {}
    async setRemoteDescription() {
      if (this.connectionState === 'new') setTimeout(() => this.becomes('connected'));
    }
    becomes(state) {
      this.connectionState = state;
      if (state === 'connected') this.channel.readyState = 'open';
      this.onconnectionstatechange();
    }
    restartIce() {
      this.restarts++;
      setTimeout(() => this.onnegotiationneeded());
    }
    async getStats() {
      if (this.flows) this.packets++;
      return new Map([['t', { type: 'transport', packetsReceived: this.packets }]]);
    }
    close() {}
  };
  const { send } = WebSocket.prototype;
  WebSocket.prototype.send = function (text) {
    send.call(this, text);
    if (text.includes('"WEBRTC_OFFER"') && !this.deaf) setTimeout(() => this.tell('WEBRTC_ANSWER', { sdp: '' }));
  };
};

describe('a peer through which nothing comes', () => {
  const playPeer = (name, run) => inPage(name, { init: `(${playGateway})(); (${playPeers})();` }, run);
  const begin = async (page, setup = {}, mic = true) => {
    await page.clock.install();
    await page.evaluate(async ([setup, mic]) => {
      setups = [setup, { resumed: true, received: [] }];
      Object.defineProperty(navigator.connection, 'type', { get: () => window.network });
      window.network = 'wifi';
      await talk({ transport: 'auto', mic });
    }, [setup, mic]);
    if (mic) await page.waitForFunction(() => session.mic === 'live');
    await page.clock.pauseAt(Date.now() + 60_000); // from here on the test makes the time
    assert.deepEqual(await seen(page), { tokens: 0, restarts: 0, state: 'listening', transport: 'webrtc' });
  };
  const seen = (page) =>
    page.evaluate(() => {
      const tokens = links.filter((l) => l.hello?.resumeToken).length;
      return { tokens, restarts: peers[0].restarts, state: session.state, transport: session.transport };
    });
  const stops = (page) => page.evaluate(() => void (peers[0].flows = false));

  playPeer('is waited for longer without a microphone, when little comes anyway', async (page) => {
    await begin(page, {}, false);
    await page.evaluate(() => {
      window.pings = 0;
      peers[0].channel.send = (text) => void (text.includes('"PING"') && pings++);
    });
    await stops(page);
    await page.clock.runFor(2_900);
    assert.equal((await seen(page)).restarts, 0);
    const pings = await page.evaluate(() => window.pings);
    assert.ok(pings >= 8, `asked ${pings} times, of which some get lost`);
    await page.clock.runFor(500);
    assert.equal((await seen(page)).restarts, 1);
  });

  playPeer('is noticed by its bytes in a browser that counts no packets', async (page) => {
    await begin(page);
    await page.evaluate(() => {
      const [peer] = peers;
      peer.getStats = async () => {
        if (peer.flows) peer.packets++;
        return new Map([['t', { type: 'transport' }], ['p', { type: 'candidate-pair', selected: true, bytesReceived: 100 * peer.packets }]]);
      };
    });
    await page.clock.runFor(4_000);
    assert.equal((await seen(page)).restarts, 0);
    await stops(page);
    await page.clock.runFor(2_000);
    assert.equal((await seen(page)).restarts, 1);
  });

  for (const [name, restarts, tells] of [
    ['is waited for when the browser tells of the same network', 0, () => navigator.connection.dispatchEvent(new Event('change'))],
    ['is not when it tells of another one', 1, () => {
      network = 'cellular';
      navigator.connection.dispatchEvent(new Event('change'));
    }],
  ]) {
    playPeer(name, async (page) => {
      await begin(page);
      await page.clock.runFor(1_000);
      await stops(page);
      await page.evaluate(tells);
      await page.clock.runFor(1_400);
      assert.equal((await seen(page)).restarts, restarts);
    });
  }

  for (const [name, within, happens] of [
    ['connects for a moment', 5_500, () => {
      peers[0].becomes('disconnected');
      peers[0].becomes('connected');
      links[0].deaf = true;
    }],
    ['is called connected when the socket closes', 2_000, () => links[0].drop()],
    ['is disconnected when the socket closes', 2_000, () => {
      peers[0].becomes('disconnected');
      links[0].drop();
    }],
    ['does not connect, and the socket is closing', 5_500, () => links[0].close()],
  ]) {
    playPeer(`is given up though a restart was answered, and it ${name}`, async (page) => {
      await begin(page);
      await stops(page);
      await page.clock.runFor(2_000);
      assert.equal((await seen(page)).restarts, 1);
      await page.evaluate(() => session.on('state', () => links.some((l) => l.hello?.resumeToken) || (window.carriers ??= []).push(session.transport)));
      await page.evaluate(happens);
      await page.clock.runFor(within);
      const { tokens, state, transport } = await seen(page);
      assert.deepEqual({ tokens, state, transport }, { tokens: 1, state: 'listening', transport: 'webrtc' });
      assert.ok(!(await page.evaluate(() => carriers)).includes('websocket'));
    });
  }

  playPeer('is kept for its return if there is no resume token', async (page) => {
    await begin(page, { resumeToken: undefined });
    await stops(page);
    await page.evaluate(() => void (links[0].deaf = true));
    await page.clock.runFor(12_000);
    assert.deepEqual(await seen(page), { tokens: 0, restarts: 1, state: 'reconnecting', transport: 'webrtc' });
    await page.evaluate(() => void (peers[0].flows = true));
    await page.clock.runFor(1_000);
    assert.equal((await seen(page)).state, 'listening');
  });
});

describe('a session', () => {
  play('is there at once, and what is typed before it is ready is sent', async (page) => {
    const got = await page.evaluate(async () => {
      const { open } = await import('./voxgate.js');
      const session = open({ url: 'ws', mic: false, transport: 'websocket' });
      const states = [];
      session.on('state', ({ state }) => states.at(-1) === state || states.push(state));
      session.send('early');
      const before = [session.state, session.turns.map((t) => t.text)];
      await session.ready;
      const after = session.state;
      await session.close();
      return { before, after, states, texts: texts(links[0]) };
    });
    assert.deepEqual(got, { before: ['connecting', ['early']], after: 'listening', states: ['connecting', 'listening', 'closed'], texts: ['early', 'DISCONNECT_GEMINI'] });
  });

  play('says why it did not begin: in the promise, and as the last event', async (page) => {
    const got = await page.evaluate(async () => {
      const { open, VoxgateError } = await import('./voxgate.js');
      const tries = [
        {}, { url: 'http://' }, { url: 'ws', signal: AbortSignal.abort() },
        { url: 'ws', token: () => Promise.reject(new Error('no backend')) },
        { url: 'ws', answer: { success: false, error: { message: 'No such model.', details: { code: 'bad_config', field: 'payload.initialConfig.model' } } } },
      ];
      const list = [];
      for (const { answer, ...options } of tries) {
        setups = [answer ?? {}];
        const session = open({ mic: false, transport: 'websocket', ...options });
        const closed = new Promise((resolve) => session.on('closed', resolve));
        const why = await session.ready.catch((e) => e);
        list.push([why.code, why.field, why.fatal, why instanceof VoxgateError, why === (await closed), session.state]);
      }
      return list;
    });
    const closed = [true, true, true, 'closed'];
    assert.deepEqual(got, [
      ['bad_options', 'url', ...closed], ['bad_options', 'url', ...closed], ['aborted', undefined, ...closed], ['no_token', undefined, ...closed],
      ['bad_config', 'payload.initialConfig.model', ...closed],
    ]);
  });

  play('waits for a token and for a person, but not for ever', async (page) => {
    await page.clock.install();
    const got = await page.evaluate(async () => {
      const { open } = await import('./voxgate.js');
      const settled = (promise) => Promise.race([promise.then(() => 'ready', (e) => e.code), new Promise((resolve) => queueMicrotask(() => setTimeout(resolve, 0, 'waits')))]);
      window.settled = settled;
      window.late = open({ url: 'ws', mic: false, token: () => new Promise(() => {}) });
      navigator.mediaDevices.getUserMedia = () => new Promise(() => {}); // the prompt stays open
      window.asked = open({ url: 'ws', transport: 'websocket' });
      asked.send('typed meanwhile');
    });
    assert.equal(got, undefined);
    const seen = () => page.evaluate(() => [late.state, asked.state, asked.mic]);
    await page.clock.runFor(9_000);
    assert.deepEqual(await seen(), ['connecting', 'connecting', 'asking']);
    assert.deepEqual(await page.evaluate(() => texts(links.at(-1))), ['typed meanwhile'], 'who is asked for a microphone can type');
    await page.clock.runFor(30_000);
    assert.deepEqual(await seen(), ['closed', 'connecting', 'asking'], 'the prompt has a time of its own');
    assert.equal(await page.evaluate(() => late.ready.catch((e) => e.code)), 'no_token');
    await page.clock.runFor(25_000);
    assert.deepEqual(await seen(), ['closed', 'listening', 'asking']);
  });

  play('that is closed is over at once, whatever it waits for', async (page) => {
    await page.clock.install(); // it stands still
    const got = await page.evaluate(async () => {
      const { open } = await import('./voxgate.js');
      const never = () => new Promise(() => {});
      navigator.mediaDevices.getUserMedia = never;
      const list = [];
      for (const options of [{ token: never }, { token: never, resume: 'x' }, { mic: true }]) {
        const s = open({ url: 'ws', mic: false, transport: 'websocket', ...options });
        if (options.mic) await new Promise((resolve) => s.on('state', () => s.setup && resolve()));
        const update = s.update({ config: {} });
        s.close();
        const late = s.update({ config: {} });
        list.push(await Promise.all([s.ready, update, late, s.context()].map((p) => p.catch((e) => e.code))));
      }
      return list;
    });
    assert.deepEqual(got, Array(3).fill(['closed', 'closed', 'aborted', 'aborted']));
  });

  play('has one state, which the gateway knows better', async (page) => {
    const states = await page.evaluate(async () => {
      await talk();
      const [link] = links;
      const seen = [];
      const speech = [];
      session.on('speech', ({ speaking }) => speech.push(speaking));
      const tell = (type, payload) => (link.tell(type, payload), seen.push(session.state));
      tell('USER_SPEAKING', { speaking: true });
      tell('ASSISTANT_THINKING', { thinking: true });
      tell('USER_SPEAKING', { speaking: false });
      tell('SESSION_STATE', { state: 'resuming' });
      tell('SESSION_STATE', { state: 'resuming', message: 'Reconnecting to Gemini…' });
      tell('SESSION_STATE', { state: 'live', message: 'Gemini did not answer.', unanswered: true });
      tell('ASSISTANT_THINKING', { thinking: false });
      tell('ASSISTANT_SPEAKING', { speaking: true, turn: 1 });
      tell('INTERRUPTED', { generation: 1, heard: '', playedMs: 0 });
      tell('ASSISTANT_THINKING', { thinking: true });
      await reconnect({ resumed: true, received: [] });
      seen.push(session.state);
      return { seen, speech };
    });
    assert.deepEqual(states, {
      seen: ['listening', 'listening', 'thinking', 'thinking', 'reconnecting', 'listening', 'listening', 'speaking', 'listening', 'thinking', 'listening'],
      speech: [true, false],
    });
  });

  play('keeps its tools when its configuration changes, and says whether it did', async (page) => {
    const got = await page.evaluate(async () => {
      await talk({ tools: { f: { description: 'F', run() {} } }, config: { model: 'm' } });
      const [link] = links;
      const results = [];
      const note = (update) => update.then(() => results.push('done'), (e) => results.push(`${e.code} ${e.field}`));
      session.post('UPDATE_CONFIG', { model: 'n' });
      const updates = [note(session.update({ config: { model: '?' } })), note(session.update({ tools: { g: { description: 'G', run() {} } } }))];
      const fails = { code: 'session_config_update_failed', field: 'payload.model' };
      link.tell('SETUP_COMPLETE', { success: true });
      link.tell('SETUP_COMPLETE', { success: false, error: { message: 'No.', details: fails } });
      link.tell('GEMINI_ERROR', { message: 'No.', details: fails });
      link.tell('SETUP_COMPLETE', { success: true });
      await Promise.all(updates);
      const lost = session.update({ config: {} }).catch((e) => e.code);
      await session.close();
      return { results, lost: await lost, sent: link.said.filter((m) => m.type === 'UPDATE_CONFIG').map(({ payload }) => [payload.model, payload.tools[0].functionDeclarations[0].name]) };
    });
    assert.deepEqual(got, {
      results: ['session_config_update_failed payload.model', 'done'], lost: 'closed', sent: [['n', 'f'], ['?', 'f'], ['?', 'g'], [undefined, 'g']],
    });
  });

  play('asks the next conversation for the configuration that is in force, not for one that was refused', async (page) => {
    const got = await page.evaluate(async () => {
      await talk({ config: { model: 'm' } });
      const update = session.update({ config: { model: '?' } }).catch((e) => e.code);
      links[0].tell('SETUP_COMPLETE', { success: false, error: { message: 'No.', details: { code: 'session_config_update_failed' } } });
      const code = await update;
      const kept = session.update({ config: { model: 'n' } });
      links[0].tell('ASSISTANT_SPEAKING', { speaking: true });
      await reconnect({ resumed: false });
      const { model } = links[1].hello.initialConfig;
      links[1].tell('SETUP_COMPLETE', { success: true });
      await kept;
      return { code, model, asked: links[1].said.map((m) => m.payload.model) };
    });
    assert.deepEqual(got, { code: 'session_config_update_failed', model: 'n', asked: ['n'] });
  });

  play('knows new turns from old ones after a long conversation and a reload', async (page) => {
    await page.evaluate(async () => {
      await talk({ resume: 'long' });
      for (let i = 0; i < 300; i++) session.send(`old ${i}`);
    });
    await page.reload();
    const got = await page.evaluate(async () => {
      setups = [{ resumed: true, received: [] }];
      await talk({ resume: 'long' });
      for (let i = 0; i < 60; i++) session.send(`new ${i}`);
      const texts = session.turns.map((t) => t.text);
      return { all: texts.length, first: texts[0], last: texts.slice(-61, -59), ids: new Set(session.turns.map((t) => t.id)).size };
    });
    assert.deepEqual(got, { all: 200, first: 'old 160', last: ['old 299', 'new 0'], ids: 200 });
  });

  play('sends after a reload what was typed before it and did not arrive', async (page) => {
    await page.evaluate(async () => {
      await talk({ resume: 'typed' });
      links[0].deaf = true;
      session.send('one');
      session.send('two');
    });
    await page.reload();
    const got = await page.evaluate(async () => {
      setups = [{ resumed: true, received: [] }];
      await talk({ resume: 'typed' });
      const [link] = links;
      return { turns: session.turns.map((t) => t.text), texts: texts(link), ids: new Set(link.said.map((m) => m.id)).size };
    });
    assert.deepEqual(got, { turns: ['one', 'two'], texts: ['one', 'two'], ids: 2 });
  });

  play('says once that the voice cannot be played', async (page) => {
    const events = await page.evaluate(async () => {
      await talk({ worklets: '/nowhere/' });
      for (let i = 0; i < 5; i++) links[0].tell('AUDIO_CHUNK', { generation: 0, data: 'AAAA' });
      await new Promise((resolve) => session.on('error', () => setTimeout(resolve, 300)));
      return events;
    });
    page.complaints.length = 0; // of the file that is not there
    assert.deepEqual(events.map(([type, what]) => [type, what.split(':')[0]]), [['error', 'playback_failed']]);
  });

  play('shows what Gemini shows, by an event', async (page) => {
    const got = await page.evaluate(async () => {
      await talk({ canvas: true });
      const [link] = links;
      const shown = [];
      session.on('canvas', (c) => {
        shown.push([c.id, c.args.schema]);
        c.signal.addEventListener('abort', () => shown.push('over'));
        if (c.id === 'a') c.answer({ name: 'Ada' });
      });
      const show = (id) => link.tell('TOOL_CALL', { toolCall: { functionCalls: [{ id, name: 'show_canvas_tool', args: { schema: '{}' } }] } });
      show('a');
      show('b');
      await new Promise((resolve) => setTimeout(resolve));
      link.tell('TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids: ['b'] } });
      await new Promise((resolve) => setTimeout(resolve));
      return { canvas: link.hello.initialConfig.voxgate.canvas, shown, answers: link.answers.map((a) => [a.id, a.response]) };
    });
    assert.deepEqual(got, { canvas: true, shown: [['a', '{}'], ['b', '{}'], 'over'], answers: [['a', { name: 'Ada' }]] });
  });

  play('does not disturb another one on the same page', async (page) => {
    const got = await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      setups = [{}, {}];
      const both = await Promise.all([1, 2].map(() => connect({ url: 'ws', mic: false, transport: 'websocket' })));
      both[0].send('one');
      await both[0].close();
      both[1].send('two');
      return [links.map(texts), both.map((s) => [s.state, s.turns.map((t) => t.text)])];
    });
    assert.deepEqual(got, [[['one', 'DISCONNECT_GEMINI'], ['two']], [['closed', ['one']], ['listening', ['two']]]]);
  });
});

describe('the microphone', () => {
  play('that fails as browsers name it is not waited for', async (page) => {
    const got = await page.evaluate(async () => {
      navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('Starting audioinput failed', 'AbortError')); // Firefox, of one in use
      await talk({ mic: true });
      await session.use({ video: 'camera' });
      return [session.mic, session.video.state];
    });
    assert.deepEqual(got, ['failed', 'failed']);
  });

  play('of who is muted gives no sound from its first moment on', async (page) => {
    const got = await page.evaluate(async () => {
      const { open } = await import('./voxgate.js');
      const seen = [];
      const { addModule } = Worklet.prototype;
      window.session = open({ url: 'ws', mic: true, muted: true, transport: 'websocket' });
      Worklet.prototype.addModule = async function (...a) {
        await new Promise((resolve) => setTimeout(resolve, 200));
        seen.push(session.track?.enabled);
        return addModule.apply(this, a);
      };
      await session.ready;
      return [[...new Set(seen)], session.track.enabled, session.mic];
    });
    assert.deepEqual(got, [[false], false, 'muted']);
  });

  play('is not live when it was closed while it could not be read yet', async (page) => {
    const got = await page.evaluate(async () => {
      await talk();
      const { addModule } = Worklet.prototype;
      let loads;
      const loading = new Promise((resolve) => (loads = resolve));
      let go;
      const held = new Promise((resolve) => (go = resolve));
      Worklet.prototype.addModule = async function (...a) {
        loads();
        await held;
        return addModule.apply(this, a);
      };
      const opened = session.use({ mic: true });
      await loading;
      await session.use({ mic: false });
      go();
      await opened;
      return [session.mic, session.track?.readyState];
    });
    assert.deepEqual(got, ['off', undefined]);
  });

  play('goes on when another one cannot be opened, and that is told', async (page) => {
    const got = await page.evaluate(async () => {
      await talk({ mic: true });
      const states = [];
      session.on('state', ({ mic }) => states.push(mic));
      const { track } = session;
      await session.use({ mic: { deviceId: { exact: 'unplugged' } } });
      const { mic } = session;
      session.mute();
      return { states: [...new Set(states)], mic, same: track === session.track, live: track.readyState, enabled: track.enabled, error: events.at(-1)[1].split(':')[0] };
    });
    assert.deepEqual(got, { states: ['muted'], mic: 'live', same: true, live: 'live', enabled: false, error: 'microphone_kept' });
  });

  play('that cannot be read here stays muted for who mutes it', async (page) => {
    const got = await page.evaluate(async () => {
      Worklet.prototype.addModule = () => Promise.reject(new Error('refused'));
      await talk({ mic: true });
      const { mic } = session;
      session.mute(true);
      return [mic, session.track.enabled];
    });
    assert.deepEqual(got, ['unheard', false]);
  });

  play('no promise is broken unseen where there are no worklets', async (page) => {
    await page.clock.install();
    await page.evaluate(async () => {
      Object.defineProperty(BaseAudioContext.prototype, 'audioWorklet', { value: undefined }); // a page over plain http
      await talk({ mic: true });
      links[0].tell('AUDIO_CHUNK', { generation: 0, data: 'AAAA' });
    });
    await page.clock.runFor(10_000);
    assert.equal(await page.evaluate(() => session.mic), 'unheard');
  });
});

describe('in a conversation that had to be begun anew', () => {
  play('the model is told what was said, but for what is asked again', async (page) => {
    const { history, first } = await page.evaluate(async () => {
      await talk({ config: { voxgate: { history: [{ role: 'user', content: 'long ago' }] } } });
      const [link] = links;
      const says = (text) => link.tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
      link.tell('CONTENT_MESSAGE', { serverContent: { inputTranscription: { text: 'What is it?' } } });
      says('A parrot, as you ');
      link.tell('INTERRUPTED', { generation: 1, heard: 'A parrot', playedMs: 400, by: 'voice' });
      session.send('Why?');
      says('Because.');
      link.tell('TURN_COMPLETE', { turn: 2 });
      session.send('Is it?');
      await reconnect({ resumed: false });
      return { first: link.hello.initialConfig.voxgate.history, history: links[1].hello.initialConfig.voxgate.history };
    });
    assert.deepEqual(first, [{ role: 'user', content: 'long ago' }]);
    const said = ['What is it?', 'A parrot', 'Why?', 'Because.'].map((content, i) => ({ role: i % 2 ? 'model' : 'user', content }));
    assert.deepEqual(history, [...first, ...said]);
  });

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
    assert.deepEqual(after.events.at(-1), ['error', 'not_resumed: The conversation could not be kept. A new one goes on, which knows what was said.']);
  });
});

describe('the library tells', () => {
  const tokens = (totalTokens) => ({ inputTokens: 1, outputTokens: 2, totalTokens, input: { AUDIO: 1 } });
  const usage = { turn: tokens(120), total: tokens(3_400) };

  play('learns of the steps of an agent', async (page) => {
    const seen = await page.evaluate(async () => {
      setups = [{ step: 'greet' }];
      await talk();
      const steps = [session.setup.step];
      session.on('step', (s) => steps.push(s, session.setup.step));
      links[0].tell('AGENT_STEP', { step: 'book', fields: { guests: 2 } });
      return steps;
    });
    assert.deepEqual(seen, ['greet', { step: 'book', fields: { guests: 2 } }, 'book']);
  });

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
    const resuming = { state: 'resuming', message: 'Reconnecting to Gemini…' };
    assert.deepEqual(links, [{ state: 'live' }, resuming]);
    assert.deepEqual(events, [['link', resuming], ['usage', usage]]);
  });

  play('how long an answer took, and what was heard of one that was cut off', async (page) => {
    const latency = { modelMs: 480.2, gatewayMs: 1.1, roundTripMs: 40, totalMs: 521.3 };
    const { turns, events } = await page.evaluate(async (latency) => {
      await talk();
      const [link] = window.links;
      const turns = [];
      session.on('turn', (t) => t.final && turns.push([t.text, t.interrupted, t.heard]));
      const says = (text) => link.tell('CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
      says('Once upon a time there was ');
      says('a parrot.');
      link.tell('INTERRUPTED', { generation: 1, heard: 'Once upon a time ', playedMs: 900 });
      link.tell('TURN_LATENCY', latency);
      says('All of it.');
      link.tell('TURN_COMPLETE');
      says('None of it.');
      link.tell('INTERRUPTED', { generation: 2, heard: '', playedMs: 40 });
      return { turns, events };
    }, latency);
    assert.deepEqual(turns, [
      ['Once upon a time there was a parrot.', true, 'Once upon a time '], ['All of it.', false, undefined], ['None of it.', true, ''],
    ]);
    assert.deepEqual(events, [['latency', latency]]);
  });

  play('no sound of an answer that was cut off, however late it comes, but all that came before Gemini was lost', async (page) => {
    const heard = await page.evaluate(async () => {
      const played = [];
      const { Voice } = await import('./audio.js');
      Voice.prototype.play = (data) => played.push(data);
      Voice.prototype.flush = () => played.push('-');
      await talk();
      const [link] = window.links;
      const chunk = (generation, data) => link.tell('AUDIO_CHUNK', { generation, data });
      chunk(0, 'a');
      link.tell('INTERRUPTED', { generation: 1, heard: '', playedMs: 0 });
      chunk(0, 'stale');
      chunk(1, 'b');
      link.tell('INTERRUPTED', { generation: 2, heard: '', playedMs: 0, by: 'link' });
      chunk(2, 'c');
      await reconnect({ resumed: false });
      window.links.at(-1).tell('AUDIO_CHUNK', { generation: 0, data: 'd' });
      return played;
    });
    assert.deepEqual(heard, ['a', '-', 'b', 'c', '-', 'd']);
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
      await one(error('bad_message', 'What?'), ['GEMINI_DISCONNECTED', { reason: 'The gateway is shutting down.', code: 'shutdown' }]);
      await one(error('bad_message', 'What?'), error('bad_message', 'What again?'), ['INTERRUPTED']);
      return list;
    });
    assert.deepEqual(got, [
      [['error', 'busy: Busy just now.']],
      [['closed', 'websocket_error: The connection to Gemini was lost.']],
      [['error', 'bad_message: What?'], ['closed', 'shutdown: The service is shutting down.']],
      [['error', 'bad_message: What?'], ['error', 'bad_message: What again?']],
    ]);
  });
});

/** Runs in the page: a session with these tools and a canvas, and what its one call was told and answered. */
const tools = () => {
  window.Notification = class {
    static permission = 'granted';
    constructor(title, options) {
      (window.notified ??= []).push([title, options.body]);
    }
  };
  Object.defineProperty(document, 'hidden', { get: () => window.away ?? false });
  window.use = async (tool, { canvas = true, ...options } = {}) => {
    const { Canvas } = await import('./canvas.js');
    const shown = canvas && new Canvas(document.body.appendChild(document.createElement('div')));
    await talk({ tools: { f: { description: 'F', ...tool } }, ...(shown && { canvas: shown }), ...options });
    call('c1', 'f', { n: 1 });
  };
  window.call = (id, name, args) => links.at(-1).tell('TOOL_CALL', { toolCall: { functionCalls: [{ id, name, args }] } });
  window.cancel = (...ids) => links.at(-1).tell('TOOL_CALL_CANCELLATION', { toolCallCancellation: { ids } });
  window.told = () => events.filter(([type]) => type === 'tool').map(([, c]) => [c.id, c.status]);
};
const playTools = (name, run) =>
  inPage(name, { init: `(${playGateway})(); (${tools})();` , query: '?transport=websocket' }, run);

describe('a tool', () => {
  const answers = async (page, count = 1) => {
    await page.waitForFunction((count) => links.at(-1).answers.length >= count, count);
    return page.evaluate(() => links.at(-1).answers);
  };
  const press = (page, name) => page.locator('.canvas').getByRole('button', { name, exact: true }).click();

  playTools('is declared with its rules, and the canvas with it', async (page) => {
    const hello = await page.evaluate(async () => {
      const parameters = { type: 'object' };
      const rules = { behavior: 'NON_BLOCKING', scheduling: 'SILENT', timeout: '20s' };
      const config = { model: 'm', voxgate: { record: true }, tools: [{ googleSearch: {} }] };
      await use({ parameters, title: 'Effing…', ...rules, foreground: true, run() {} }, { config });
      const [first] = links;
      await use({ foreground: true, run() {} }, { canvas: false });
      return [first.hello.initialConfig, links[1].hello.initialConfig];
    });
    const rules = { behavior: 'NON_BLOCKING', scheduling: 'SILENT', timeout: '20s' };
    const declared = { name: 'f', description: 'F', parameters: { type: 'object' }, title: 'Effing…', ...rules };
    assert.deepEqual(hello, [
      { model: 'm', voxgate: { canvas: true, record: true }, tools: [{ googleSearch: {} }, { functionDeclarations: [declared] }] },
      { tools: [{ functionDeclarations: [{ name: 'f', description: 'F', timeout: '60s' }] }] },
    ]);
  });

  playTools('can be answered by who hears of it', async (page) => {
    await page.evaluate(async () => {
      await use({ title: 'Waiting…' });
      const calls = [];
      session.on('tool', (c) => calls.push(c));
      events.find(([type]) => type === 'tool')[1].respond(['later']);
      call('c2', 'f');
      calls.find((c) => c.id === 'c2').reject(new Error('not today'));
      calls[0].respond('twice');
      call('c3', 'constructor');
    });
    const said = await answers(page, 3);
    assert.deepEqual(said.map((r) => [r.id, r.response]).sort(), [
      ['c1', { output: ['later'] }], ['c2', { error: 'not today' }], ['c3', { error: 'there is no tool constructor' }],
    ]);
    const [, first] = await page.evaluate(() => events.find(([type]) => type === 'tool'));
    assert.deepEqual([first.title, first.where, first.status, first.args], ['Waiting…', 'client', 'running', { n: 1 }]);
  });

  playTools('can ask, and be told', async (page) => {
    await page.evaluate(() =>
      use({
        title: 'Sending…',
        async run({ n }, { confirm, ask, progress }) {
          progress('at the door');
          const yes = await confirm('Send <b>it</b> & go?');
          const { who } = await ask([{ type: 'input', id: 'who', label: 'Who' }, { type: 'button', label: 'Go', action: 'submit' }]);
          const no = await confirm('Again?');
          return { n, yes, who, no };
        },
      }));
    assert.match(await page.locator('.canvas:not([hidden])').innerText(), /Sending…[^]*Send <b>it<\/b> & go\?/);
    await press(page, 'Yes');
    await page.fill('.canvas input', 'Ada');
    await press(page, 'Go');
    await press(page, 'No');
    assert.deepEqual(await answers(page, 2), [
      { id: 'c1', name: 'f', response: { output: 'at the door' }, willContinue: true },
      { id: 'c1', name: 'f', response: { n: 1, yes: true, who: 'Ada', no: false } },
    ]);
    const ids = await page.evaluate(() => links[0].said.map((m) => m.id));
    assert.equal(new Set(ids).size, 2, 'both arrive');
  });

  playTools('may ask nobody where there is no canvas', async (page) => {
    await page.evaluate(() => use({ run: (_, { confirm }) => confirm('Sure?') }, { canvas: false }));
    assert.deepEqual((await answers(page))[0].response, { error: 'there is no canvas to ask the person on' });
  });

  playTools('that is cancelled asks no more, and its late answer is dropped', async (page) => {
    await page.evaluate(() =>
      use({
        async run(_, { ask, progress, signal }) {
          const answer = await ask({ type: 'button', label: 'Go', action: 'submit' });
          progress('late');
          window.over = [answer, signal.aborted];
          return 'late';
        },
      }));
    await page.locator('.canvas').getByText('Go').waitFor();
    await page.evaluate(() => ((later += 1_500), cancel('c1')));
    assert.deepEqual(await page.evaluate(() => over), [{ dismissed: true }, true]);
    assert.equal(await page.locator('.canvas:not([hidden])').count(), 0);
    assert.deepEqual(await page.evaluate(() => [told(), links[0].answers]), [[['c1', 'running'], ['c1', 'cancelled']], []]);
    const { ms } = await page.evaluate(() => events.at(-1)[1]);
    assert.ok(ms >= 1_500 && Number.isInteger(ms), String(ms));
  });

  // A model may use an id again: after a cancellation, and in another conversation.
  playTools('runs again under the id of a call that is over for the model', async (page) => {
    const got = await page.evaluate(async () => {
      const gone = [];
      let runs = 0;
      const run = ({ waits }, { signal }) =>
        waits ? new Promise(() => signal.addEventListener('abort', () => gone.push(++runs))) : `run ${++runs}`;
      const rest = () => new Promise((resolve) => setTimeout(resolve));
      await talk({ tools: { f: { description: 'F', run } } });
      for (const waits of [true, true, false]) {
        call('c1', 'f', { waits });
        await rest();
        cancel('c1');
      }
      call('c1', 'f', {});
      await rest();
      const first = links[0].answers.map((r) => r.response.output);
      const messages = new Set(links[0].said.map((m) => m.id)).size; // the gateway takes none twice
      await reconnect({ resumed: false });
      call('c1', 'f', {});
      await rest();
      return { gone, first, messages, anew: links[1].answers.map((r) => r.response.output) };
    });
    assert.deepEqual(got, { gone: [1, 2], first: ['run 3', 'run 4'], messages: 2, anew: ['run 5'] });
  });

  // What is remembered of calls is bounded, and what still runs is no memory.
  playTools('can be cancelled however many calls came after it, and the newest answers are remembered', async (page) => {
    const got = await page.evaluate(async () => {
      let gone = false;
      let runs = 0;
      const waits = (_, { signal }) => new Promise(() => signal.addEventListener('abort', () => (gone = true)));
      await talk({ tools: { f: { description: 'F', run: () => ++runs }, waits: { description: 'Waits', run: waits } } });
      call('long', 'waits', {});
      for (let i = 0; i < 66; i++) {
        call(`c${i}`, 'f', {});
        await new Promise((resolve) => setTimeout(resolve));
      }
      cancel('long');
      call('c65', 'f', {});
      call('c10', 'f', {});
      const remembered = runs;
      call('c0', 'f', {});
      return { gone, remembered, runs };
    });
    assert.deepEqual(got, { gone: true, remembered: 66, runs: 67 });
  });

  playTools('that asks in the background calls the person back, or says that they were missed', async (page) => {
    await page.evaluate(async () => {
      window.away = true;
      await use({ title: 'Paying…', run: (_, { confirm }) => confirm('Sure?') });
      const show = (id, type, title) => {
        const args = { schema: { type, id: 'x', value: '' } };
        links[0].tell('TOOL_CALL', { toolCall: { functionCalls: [{ id, name: 'show_canvas_tool', args, title }] } });
      };
      show('ask-1', 'input', 'book_table');
      show('ask-2', 'input');
      show('waits', 'input', 'Showing canvas…');
      show('does not', 'text', 'Showing canvas…');
      await new Promise((resolve) => setTimeout(resolve));
      Notification.permission = 'default';
      call('c2', 'f');
      show('ask-3', 'input');
      show('neither', 'text');
      await new Promise((resolve) => setTimeout(resolve));
      window.away = false;
      show('here', 'input');
    });
    const titles = (await page.evaluate(() => notified)).map(([title]) => title);
    assert.deepEqual(titles, ['Paying…', 'book_table', 'a question', 'Showing canvas…'].map((t) => `Gemini: ${t}`));
    const missed = await page.evaluate(() => events.filter(([, c]) => c.missed).map(([, c]) => [c.id, c.status]));
    assert.deepEqual(missed, [['c2', 'running'], ['ask-3', 'running']]);
  });

  playTools('may show the model a picture', async (page) => {
    await page.evaluate(async () => {
      const { withPicture } = await import('./voxgate.js');
      await use({ run: () => withPicture({ ref: 'photo:1' }, new Blob(['abc'], { type: 'image/jpeg' })) });
    });
    const [{ response, parts }] = await answers(page);
    assert.deepEqual([response, parts], [{ ref: 'photo:1' }, [{ inlineData: { mimeType: 'image/jpeg', data: 'YWJj' } }]]);
  });

  describe('that needs the foreground', () => {
    const photo = (page, options) =>
      page.evaluate((o) => use({ title: 'Taking photo…', foreground: true, run: () => navigator.userActivation.isActive }, o), options);

    playTools('runs when the person allows it, in their gesture', async (page) => {
      await photo(page);
      assert.match(await page.locator('.canvas:not([hidden])').innerText(), /^From Gemini\s+Hide\s+Gemini wants to: Taking photo…/);
      await press(page, 'Allow');
      assert.deepEqual((await answers(page))[0].response, { output: true });
    });

    playTools('does not when the person does not', async (page) => {
      await photo(page);
      await press(page, 'Not now');
      await page.evaluate(() => call('c2', 'f'));
      await page.keyboard.press('Escape');
      const said = (await answers(page, 2)).map((r) => r.response);
      assert.deepEqual(said, Array(2).fill({ error: 'the person did not allow it' }));
    });

    playTools('may ask in its own words instead', async (page) => {
      await page.evaluate(() => use({ foreground: 'asks', run: (_, { confirm }) => confirm('Smile?') }));
      assert.match(await page.locator('.canvas:not([hidden])').innerText(), /^From Gemini\s+Hide\s+Smile\?/);
      await press(page, 'Yes');
      assert.deepEqual((await answers(page))[0].response, { output: true });
    });

    playTools('calls the person back to the page', async (page) => {
      await page.evaluate(() => (window.away = true));
      await photo(page);
      await page.evaluate(() => ((Notification.permission = 'default'), call('c2', 'f')));
      const said = (await answers(page, 2)).map((r) => r.response.error);
      assert.deepEqual(said, [
        'The page is in the background; the person was sent a notification. Ask again when they are back.',
        'The page is in the background; the person could not be notified. Ask again when they are back.',
      ]);
      assert.deepEqual(await page.evaluate(() => notified), [['Gemini: Taking photo…', 'Gemini needs you in the conversation.']]);
    });
  });

  playTools('of the gateway is told, with the titles of the set-up', async (page) => {
    const calls = await page.evaluate(async () => {
      setups = [{ tools: [{ name: 'book', title: 'Booking…', behavior: 'BLOCKING', where: 'gateway' }] }];
      await talk();
      const [link] = links;
      link.tell('TOOL_STATUS', { id: 'g1', name: 'book', status: 'running' });
      link.tell('TOOL_STATUS', { id: 'g1', name: 'book', status: 'done', ms: 12 });
      link.tell('TOOL_STATUS', { id: 'g2', name: 'other', title: 'Other…', status: 'failed', ms: 3, error: 'No.' });
      link.tell('TOOL_STATUS', { id: 'g3', name: 'other', status: 'running' });
      await session.close();
      return JSON.parse(JSON.stringify(events.filter(([type]) => type === 'tool').map(([, c]) => c)));
    });
    const where = 'gateway';
    const { ms } = calls.at(-1); // measured here
    const book = { id: 'g1', name: 'book', title: 'Booking…', where };
    assert.deepEqual(calls, [
      { ...book, status: 'running' },
      { ...book, status: 'done', ms: 12 },
      { id: 'g2', name: 'other', title: 'Other…', where, status: 'failed', ms: 3, response: { error: 'No.' } },
      { id: 'g3', name: 'other', where, status: 'running' },
      { id: 'g3', name: 'other', where, status: 'cancelled', ms },
    ]);
    assert.ok(Number.isInteger(ms));
  });

  playTools('canvases go to whoever shows them, and once', async (page) => {
    const got = await page.evaluate(async () => {
      const shown = [];
      const canvas = {
        async show({ id, name, args, title, gateway }) {
          shown.push([id, name, args.schema, title, gateway.href]);
          if (id === 'b') throw new Error('no');
          return { a: 1 };
        },
        hide: (id) => shown.push(['hide', id]),
      };
      await talk({ canvas, url: 'ws://gateway.example/ws' });
      const functionCalls = [
        { id: 'a', name: 'create_canvas_tool', args: { schema: '{}' } },
        { id: 'ask-1', name: 'show_canvas_tool', args: { schema: '[]' }, title: 'T' },
        { id: 'b', name: 'append_to_canvas_tool', args: {} },
      ];
      links[0].tell('TOOL_CALL', { toolCall: { functionCalls } });
      await new Promise((resolve) => setTimeout(resolve));
      const answers = links[0].answers.map((r) => [r.id, r.response]);
      const chips = new Promise((resolve) => session.on('grounding', resolve));
      links[0].tell('groundingMetadata', { groundingMetadata: { webSearchQueries: [] }, chips: 'canvas/chips?x' });
      const grounding = await chips;
      await session.close();
      return { shown, answers, grounding };
    });
    const gateway = 'http://gateway.example/';
    assert.deepEqual(got.shown, [
      ['a', 'create_canvas_tool', '{}', undefined, gateway],
      ['ask-1', 'show_canvas_tool', '[]', 'T', gateway],
      ['b', 'append_to_canvas_tool', undefined, undefined, gateway],
      ['hide', undefined],
    ]);
    assert.deepEqual(got.answers, [['a', { a: 1 }], ['ask-1', { a: 1 }], ['b', { error: 'no' }]]);
    assert.deepEqual(got.grounding, { webSearchQueries: [], chips: 'http://gateway.example/canvas/chips?x' });
  });
});

describe('the page says', () => {
  const begin = async (page) => {
    await start(page);
    await says(page, 'Listening');
  };
  const tell = (page, type, payload) => page.evaluate((m) => links[0].tell(...m), [type, payload]);

  play('what a person waits for', async (page) => {
    await begin(page);
    await tell(page, 'SESSION_STATE', { state: 'draining' });
    assert.equal(await status(page), 'Listening', 'what needs no patience is not told');
    await tell(page, 'SESSION_STATE', { state: 'resuming', message: 'Reconnecting to Gemini…' });
    await says(page, 'Reconnecting to Gemini…');
    await tell(page, 'SESSION_STATE', { state: 'live' });
    await says(page, 'Listening');
  });

  play('whether an interrupted conversation is kept, and keeps to its only socket where it is not', async (page) => {
    await page.clock.install();
    await page.evaluate(() => void (setups = [{ resumeToken: undefined }]));
    await begin(page);
    await page.evaluate(() => void (links[0].deaf = true));
    await page.clock.runFor(12_000);
    await says(page, 'No connection. Trying again…');
    assert.equal(await page.evaluate(() => links.length), 1);
    await tell(page, 'LOG_MESSAGE', { type: 'info', message: 'a sign of life' });
    await page.clock.runFor(1_000);
    await says(page, TALKS);
    await page.clock.runFor(31_000);
    await says(page, 'The connection was lost. Press the microphone to try again.');
  });

  play('turns in the order in which they were begun', async (page) => {
    await begin(page);
    const said = (text) => tell(page, 'CONTENT_MESSAGE', { serverContent: { outputTranscription: { text } } });
    await said('Once upon a time');
    await type(page, 'stop');
    await tell(page, 'INTERRUPTED', { generation: 1, heard: 'Once upon', playedMs: 500 });
    await said('As you wish.');
    await tell(page, 'TURN_COMPLETE');
    const turns = await page.$$eval('#log .turn', (all) => all.map((e) => e.textContent));
    assert.deepEqual(turns, ['GeminiOnce upon a timeyou interrupted', 'Youstop', 'GeminiAs you wish.']);
    assert.equal(await page.textContent('#log .interrupted span'), 'Once upon', 'what was heard');
    assert.equal(await page.textContent('#log .interrupted s'), 'a time', 'and what was not');
  });

  play('how many tokens the conversation took', async (page) => {
    await begin(page);
    assert.equal(await detail(page), 'WebSocket');
    const usage = { turn: { totalTokens: 120 }, total: { totalTokens: 3_400 } };
    await tell(page, 'LOG_MESSAGE', { type: 'info', message: 'This turn took …', details: { usage } });
    assert.equal(await detail(page), 'WebSocket · 3,400 tokens');
    await tell(page, 'TURN_LATENCY', { modelMs: 500, gatewayMs: 1, totalMs: 1_234 });
    assert.equal(await detail(page), 'WebSocket · answered in 1.2 s · 3,400 tokens');
    await page.evaluate(() => (setups = [{}]));
    await stop(page);
    await says(page, 'The conversation is over.');
    assert.equal(await detail(page), '');
    await begin(page);
    assert.equal(await detail(page), 'WebSocket', 'another conversation counts anew');
  });

  play('that something may be lost, and goes on', async (page) => {
    await begin(page);
    const forgotten = { message: 'Forgotten.', details: { code: 'session_resumption_failed' } };
    await tell(page, 'GEMINI_ERROR', forgotten);
    await type(page, 'Hello');
    assert.equal(await page.locator('.note').count(), 0, 'nothing was said that could be lost');
    await tell(page, 'GEMINI_ERROR', forgotten);
    await page.waitForSelector('.note');
    assert.equal(await page.textContent('.note'), 'The connection to Gemini had to be set up anew. It may have forgotten some of what was said: say again what matters.');
    assert.equal(await status(page), 'Listening');
  });

  play('when to come back', async (page) => {
    const details = { code: 'busy', retryAfter: 3 };
    await page.evaluate((d) => (setups = [{ success: false, error: { code: 429, message: 'Quota.', details: d } }, {}]), details);
    await start(page);
    await says(page, 'Busy just now. Trying again in 3 s.');
    assert.equal(await page.textContent('#talk span'), 'Start');
    await says(page, 'Busy just now. Trying again in 1 s.');
    await says(page, 'Listening');
    assert.equal(await page.evaluate(() => links.length), 2);
  });

  play('what a visitor can do nothing about', async (page) => {
    const details = { code: 'authentication_failed' };
    await page.evaluate((d) => (setups = [{ success: false, error: { code: 401, message: 'Gemini does not accept the gateway’s key.', details: d } }]), details);
    await start(page);
    await says(page, 'Voxgate is not available here.');
  });

  play('why it is over', async (page) => {
    await begin(page);
    await tell(page, 'GEMINI_DISCONNECTED', { reason: 'The gateway is shutting down.', code: 'shutdown' });
    await says(page, 'The service is shutting down. Try again in a minute.');
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
