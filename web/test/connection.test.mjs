/** What happens when connections fail, are lost or are left. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { clock, detail, gets, hears, now, says, silence, start, stop, tone, type, withGateway } from './harness.mjs';

const talk = withGateway();
const beeps = [silence(1), tone(0.6), silence(3), tone(0.6)]; // a second one, for who was not connected at the first

describe('when WebRTC cannot connect', () => {
  const unreachable = () => {
    const nowhere = (text) =>
      text.replace(/(candidate:\S+ \d \S+ \d+ )\S+/g, '$1203.0.113.9').replace(/a=candidate.*?\\r\\n/g, '');
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = function (text) {
      send.call(this, text.includes('"WEBRTC_') ? nowhere(text) : text);
    };
    const { setRemoteDescription } = RTCPeerConnection.prototype;
    RTCPeerConnection.prototype.setRemoteDescription = function ({ type, sdp }) {
      return setRemoteDescription.call(this, { type, sdp: sdp.replace(/a=candidate.*\r\n/g, '') });
    };
    RTCPeerConnection.prototype.addIceCandidate = async () => {};
  };
  talk('the first words go by the WebSocket, at once', { init: unreachable, sounds: beeps }, async (page, gateway, t) => {
    const judge = clock(t);
    const pressed = await now(page);
    await start(page);
    await says(page, 'Listening');
    const took = (await now(page)) - pressed;
    t.diagnostic(`listening after ${Math.round(took)} ms`);
    judge(() => assert.ok(took < 3_000, `took ${took} ms`));
    await hears(page, { tone: 0.25 });
    assert.match(await detail(page), /^WebSocket/);
  });

  const noCandidates = () => {
    window.RTCPeerConnection = class extends RTCPeerConnection {
      constructor() {
        super({ iceTransportPolicy: 'relay' });
      }
    };
  };
  talk('does so at once when there are no candidates', { init: noCandidates, sounds: beeps }, async (page, gateway, t) => {
    const judge = clock(t);
    const pressed = await now(page);
    await start(page);
    await says(page, 'Listening');
    const took = (await now(page)) - pressed;
    judge(() => assert.ok(took < 2_000, `took ${took} ms`));
    await hears(page, { tone: 0.25 });
    assert.match(await detail(page), /^WebSocket/);
  });

  const none = () => delete window.RTCPeerConnection;
  talk('and in a browser without WebRTC', { init: none, sounds: beeps }, async (page) => {
    await start(page);
    await hears(page, { tone: 0.25 });
  });
});

describe('lost connections', () => {
  talk('the conversation outlives its WebSocket', {}, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await type(page, 'first');
    await gets(page, 'TURN_COMPLETE', { way: 'channel' });
    await page.evaluate(() => sockets[0].close());
    await page.waitForFunction(() => sockets[0].readyState === WebSocket.CLOSED);
    const lost = await now(page);
    await type(page, 'second');
    await hears(page, { sound: 0.3, after: lost });
    await gets(page, 'TURN_COMPLETE', { way: 'channel', after: lost });
    assert.equal(await page.evaluate(() => sockets.length), 1, 'no other socket was needed');
    await stop(page);
    await says(page, 'The conversation is over.');
    await gets(page, 'GEMINI_DISCONNECTED', { way: 'channel' });
    assert.equal((await page.evaluate(() => sent.at(-1))).way, 'channel');
  });

  talk('a page that is busy for 4 s loses nothing', { sounds: [silence(0.2)] }, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await page.evaluate(() => {
      for (const until = performance.now() + 4_000; performance.now() < until; );
    });
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 1_000))); // what waited has been done
    const doings = ['CONNECT_GEMINI', 'WEBRTC_OFFER'];
    const counts = await page.evaluate((types) => types.map((type) => sent.filter((m) => m.type === type).length), doings);
    assert.deepEqual(counts, [1, 1]);
    await says(page, 'Listening');
  });

  talk('is resumed when all is lost', { query: '?transport=websocket' }, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await type(page, 'remember me');
    await gets(page, 'TURN_COMPLETE');
    const lost = await now(page);
    const told = says(page, 'Reconnecting…');
    await page.evaluate(() => sockets[0].close());
    await told;
    await says(page, 'Listening');
    assert.equal((await gets(page, 'SETUP_COMPLETE', { after: lost })).payload.resumed, true);
    await type(page, '/history');
    await gets(page, 'TURN_COMPLETE', { after: lost });
    assert.match(await page.textContent('#log'), /remember me.*remember me/s);
    await hears(page, { sound: 0.3, after: lost });
  });

  for (const arrives of [true, false]) {
    const name = `what was typed just as all was lost is answered once (it ${arrives ? 'had' : 'had not'} arrived)`;
    talk(name, { query: '?transport=websocket' }, async (page) => {
      await start(page);
      await says(page, 'Listening');
      await type(page, 'before');
      await gets(page, 'TURN_COMPLETE');
      const lost = await now(page);
      await page.evaluate((arrives) => {
        const [socket] = sockets;
        const { send } = socket;
        socket.send = function (text) {
          if (!text.includes('"SEND_MESSAGE"')) return;
          if (arrives) send.call(this, text);
          this.close();
        };
      }, arrives);
      await type(page, 'at the last moment');
      await type(page, 'while nobody hears');
      const { payload } = await gets(page, 'SETUP_COMPLETE', { after: lost });
      assert.equal(payload.resumed, true);
      assert.equal(payload.received.length, arrives ? 2 : 1);
      await page.waitForFunction(() => document.querySelector('#log').textContent.includes('You said: while nobody hears'));
      const said = await page.evaluate(async () => {
        const [socket] = sockets.slice(-1);
        const told = new Promise((resolve) => {
          socket.addEventListener('message', ({ data }) => data.includes('"CONTEXT"') && resolve(JSON.parse(data)));
        });
        socket.send('{"type":"GET_CONTEXT"}');
        return (await told).payload.entries.filter((e) => e.role === 'user').flatMap((e) => e.content.trim().split('\n'));
      });
      assert.deepEqual(said, ['before', 'at the last moment', 'while nobody hears']);
      assert.equal(await page.locator('.turn.user').count(), 3);
    });
  }

  talk('what was missed in the middle of an answer is told once, and its turn ends once', { query: '?transport=websocket' }, async (page) => {
    await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      window.session = await connect({ url: 'ws', mic: false, transport: 'websocket' });
      window.turns = [];
      session.on('turn', (t) => turns.push(t));
      window.says = (text) => {
        const over = new Promise((resolve) => session.on('turn', (t) => t.role === 'model' && t.final && resolve()));
        return (session.send(text), over);
      };
      await says('first');
    });
    const long = 'one two three four five six seven eight nine ten '.repeat(3).trim();
    await page.evaluate((text) => void says(text), long);
    await page.waitForFunction(() => turns.at(-1).role === 'model' && turns.at(-1).text.includes('two'));
    await page.evaluate(async () => {
      const [socket] = sockets;
      const missed = new Promise((resolve) => {
        let words = 0;
        socket.onmessage = ({ data }) => data.includes('outputTranscription') && ++words === 3 && resolve();
      });
      await missed; // what a dying connection has lost
      socket.close();
    });
    await gets(page, 'INTERRUPTED');
    await page.evaluate(() => says('third'));
    const turns = await page.evaluate(() => window.turns);
    const said = turns.filter((t) => t.final).map((t) => [t.role, t.interrupted, t.text]);
    assert.deepEqual(said.map(([role, interrupted]) => [role, interrupted]), [
      ['user', false], ['model', false], ['user', false], ['model', true], ['user', false], ['model', false],
    ]);
    assert.deepEqual([said[0][2], said[1][2], said[2][2], said[4][2], said[5][2]], ['first', 'You said: first', long, 'third', 'You said: third']);
    const whole = `You said: ${long}`;
    for (const { text } of turns.filter((t) => t.role === 'model' && t.text.includes('one'))) {
      assert.ok(whole.startsWith(text), `told twice, or not at all: ${text}`);
    }
    assert.match(said[3][2], /one two/);
    const numbers = await page.evaluate(() => {
      const hello = sent.findLast((m) => m.type === 'CONNECT_GEMINI');
      return [hello.payload.lastEvent, ...told.filter((m) => m.event && m.at > hello.at).map((m) => m.event)];
    });
    assert.ok(numbers.every((n, i) => i === 0 || n > numbers[i - 1]), `numbers that do not rise: ${numbers}`);
    await page.evaluate(() => session.close());
  });

  talk('what was lost with the WebSocket goes by the channel', {}, async (page) => {
    const text = await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      let take;
      const called = new Promise((resolve) => (take = resolve));
      const tools = { take: { description: 'takes a long text', run: ({ text }) => (take(text), 'thanks') } };
      const session = await connect({ url: 'ws', mic: false, tools });
      if (channel.readyState !== 'open') await new Promise((resolve) => channel.addEventListener('open', resolve));
      sockets[0].send = () => {}; // a dying connection takes it and loses it
      session.send(`/tool take ${JSON.stringify({ text: 'long '.repeat(60_000) })}`);
      sockets[0].close();
      const text = await called;
      await session.close();
      return text;
    });
    assert.equal(text.length, 300_000);
  });

  talk('long messages go in pieces without a WebSocket, both ways', {}, async (page) => {
    const { heard, pieces } = await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      let heard;
      const called = new Promise((resolve) => (heard = resolve));
      const tools = { take: { description: 'takes a long text', run: (args) => (heard(args.text), 'thanks') } };
      const session = await connect({ url: 'ws', mic: false, tools });
      if (channel.readyState !== 'open') await new Promise((resolve) => channel.addEventListener('open', resolve));
      const first = new Promise((resolve) => channel.addEventListener('message', resolve));
      session.send('Hello there');
      await first; // now both sides know that the channel is open
      const gone = new Promise((resolve) => sockets[0].addEventListener('close', resolve));
      sockets[0].close();
      await gone;
      session.send(`/tool take ${JSON.stringify({ text: 'äöü€😀 '.repeat(20_000) })}`);
      const text = await called;
      await session.close();
      const count = (list) => list.filter((m) => m.type === 'PIECE').length;
      return { heard: text, pieces: [count(sent), count(told)] };
    });
    assert.ok(heard === 'äöü€😀 '.repeat(20_000), `${heard.length} characters came back`);
    assert.deepEqual(pieces, [18, 18]); // 280 KB by 16
  });
});

describe('one page', () => {
  const blocked = () => {
    const { play } = HTMLMediaElement.prototype;
    HTMLMediaElement.prototype.play = function () {
      return window.clicked ? play.call(this) : Promise.reject(new DOMException('no gesture', 'NotAllowedError'));
    };
    addEventListener('click', (e) => (window.clicked = e.target.tagName === 'H1'), true);
  };
  talk('says that the sound is held back, until a click', { init: blocked }, async (page) => {
    await start(page);
    await says(page, 'The browser holds the sound back. Press anywhere to hear Voxgate.');
    await page.click('h1');
    await says(page, 'Listening');
  });

  talk('can start again, and quickly', { sounds: [silence(0.2)] }, async (page) => {
    for (let i = 0; i < 3; i++) {
      await start(page);
      await stop(page);
      await says(page, 'The conversation is over.');
    }
    await start(page);
    await says(page, 'Listening');
    await stop(page);
    await gets(page, 'GEMINI_DISCONNECTED');
    const again = await now(page);
    await start(page);
    await says(page, 'Listening');
    await type(page, 'Hello again');
    await hears(page, { sound: 0.3, after: again });
  });

  talk('goes on where it was when it is loaded again', {}, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await page.click('#mute'); // or the microphone is heard, too
    await type(page, 'my word is parrot');
    await page.waitForFunction(() => document.querySelector('#log').textContent.includes('You said: my word is parrot'));
    const { payload: before } = await gets(page, 'SETUP_COMPLETE');
    await page.reload();
    await start(page);
    await says(page, 'Listening');
    const { payload } = await gets(page, 'SETUP_COMPLETE');
    assert.deepEqual([payload.resumed, payload.sessionId], [true, before.sessionId]);
    await page.click('#mute');
    await type(page, 'and now');
    await page.waitForFunction(() => document.querySelector('#log').textContent.includes('You said: and now'));
    const turns = await page.$$eval('#log > :not(.rule)', (all) => all.map((e) => e.querySelector('span')?.textContent ?? e.textContent));
    assert.deepEqual(turns, ['my word is parrot', 'You said: my word is parrot', 'and now', 'You said: and now']);
  });

  talk('two tabs, and two sessions on one page, do not disturb each other', {}, async (page) => {
    const begin = async (names) => {
      const { connect } = await import('./voxgate.js');
      window.sessions = await Promise.all(names.map((resume) => connect({ url: 'ws', mic: false, resume })));
      const answers = sessions.map(async (session, i) => {
        const answer = new Promise((resolve) => session.on('turn', (t) => t.role === 'model' && t.final && resolve(t.text)));
        session.send(`number ${i}`);
        return [session.setup.sessionId, await answer];
      });
      return Promise.all(answers);
    };
    const [first, second] = await page.evaluate(begin, ['one', 'two']);
    assert.deepEqual([first[1], second[1]], ['You said: number 0', 'You said: number 1']);
    const opened = page.waitForEvent('popup');
    await page.evaluate(() => void open(location.href)); // a tab with a copy of this one's sessionStorage
    const tab = await opened;
    await tab.waitForLoadState();
    const [other] = await tab.evaluate(begin, ['one']);
    assert.equal(new Set([first[0], second[0], other[0]]).size, 3, 'three conversations');
    assert.deepEqual(await page.evaluate(() => sessions.map((s) => s.state)), ['listening', 'listening']);
    await page.reload();
    const again = await page.evaluate(begin, ['two', 'one']);
    assert.deepEqual(again.map(([id]) => id), [second[0], first[0]], 'each goes on with its own');
    await page.evaluate(() => Promise.all(sessions.map((s) => s.close())));
    const [afterwards] = await page.evaluate(begin, ['one']);
    assert.notEqual(afterwards[0], first[0], 'what was closed does not go on');
    await tab.evaluate(() => sessions[0].close());
    await page.evaluate(() => sessions[0].close());
  });

  talk('says goodbye when it is left, where nothing is to be kept', {}, async (page, gateway) => {
    const id = await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      return (await connect({ url: 'ws', mic: false })).setup.sessionId;
    });
    await page.goto('about:blank');
    page.complaints.length = 0; // about:blank is not of the gateway
    const left = () => gateway.log.some((l) => l.includes(id) && l.includes('said goodbye'));
    for (const until = Date.now() + 30_000; !left() && Date.now() < until; ) await new Promise(setImmediate);
    assert.ok(left(), 'the gateway heard a goodbye');
  });
});
