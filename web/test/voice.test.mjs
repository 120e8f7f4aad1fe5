/** Conversations with the emulator, judged by what is heard in the page. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import {
  clock, gets, goesBy, hears, hearsNothing, inFirefox, now, says, silence, speech, start, status, TALKS, tone, type, withGateway,
} from './harness.mjs';

const talk = withGateway();
const question = [silence(1), speech(), tone(0.6)];
const beeps = [silence(1), tone(0.6)];

for (const [transport, query] of [['WebRTC', ''], ['WebSocket', '?transport=websocket']]) {
  describe(`over ${transport}`, () => {
    talk('says back what was spoken', { sounds: question, query }, async (page, gateway, t) => {
      const judge = clock(t);
      assert.equal(await status(page), 'Ready. Press the microphone and speak.');
      await start(page);
      await says(page, 'Listening');
      await goesBy(page, transport);
      await says(page, 'Speaking');
      await judge(() => hears(page, { sound: 1.2, tone: 0.25 }));
      await says(page, 'Listening');
      assert.match(await page.textContent('.turn.user'), /seconds of speech/);
      assert.match(await page.textContent('#log .turn.model'), /You said/);
      const chunks = await page.evaluate(() => told.filter((m) => m.type === 'AUDIO_CHUNK').length);
      assert.equal(chunks > 0, transport === 'WebSocket', 'the voice goes one way only');
      const audio = await page.evaluate(() => sent.filter((m) => m.payload?.audio && m.at > told.find(({ type }) => type === 'ASSISTANT_SPEAKING').at).length);
      assert.equal(audio > 0, transport === 'WebSocket', `the microphone goes one way only: ${audio} chunks beside WebRTC`);
    });

    const over = [silence(1), speech(), speech(), speech(), silence(1.8), tone(0.6)]; // the answer is as long as what was said
    talk('falls silent when it is interrupted', { sounds: over, query }, async (page, gateway, t) => {
      const judge = clock(t);
      await start(page);
      await says(page, 'Speaking');
      const { at } = await gets(page, 'INTERRUPTED');
      const last = await hearsNothing(page, at);
      const spoke = await page.evaluate((at) => heard.some((f) => f.level > 0.005 && f.at < at + 300), at); // a busy page hears late
      judge(() => assert.ok(spoke, 'heard until then'));
      judge(() => assert.ok(last - at < 600, `heard for ${last - at} ms after INTERRUPTED`));
      assert.ok(await page.locator('.turn.model.interrupted').isVisible());
      await hears(page, { tone: 0.2, after: last }); // and then answers the interruption
    });

    talk('stops when the page says so, keeps what was heard, and answers the next question', { query }, async (page, gateway, t) => {
      const judge = clock(t);
      await page.evaluate(async (transport) => {
        const { connect } = await import('./voxgate.js');
        window.session = await connect({ url: 'ws', mic: false, transport });
        window.turns = [];
        session.on('turn', (t) => t.role === 'model' && t.final && turns.push(t));
      }, transport.toLowerCase());
      const long = 'one two three four five six seven eight nine ten '.repeat(3).trim();
      await page.evaluate((text) => session.send(text), long);
      await hears(page, { sound: 1 });
      const stopped = await page.evaluate(() => (session.interrupt(), performance.now()));
      const last = await hearsNothing(page, stopped);
      judge(() => assert.ok(last - stopped < 600, `heard for ${last - stopped} ms after interrupt()`));
      await page.waitForFunction(() => turns.length === 1 && session.state === 'listening');
      const whole = `You said: ${long}`;
      const [{ text, interrupted }] = await page.evaluate(() => turns);
      assert.ok(interrupted && text.length > 0 && text.length < whole.length / 2 && whole.startsWith(text), text);
      await page.evaluate(() => session.send('and now?'));
      await hears(page, { sound: 0.3, after: last });
      await page.waitForFunction(() => turns.length === 2);
      const next = await page.evaluate(() => turns[1]);
      assert.deepEqual([next.text, next.interrupted], ['You said: and now?', false]);
      const { by, turn } = (await gets(page, 'INTERRUPTED')).payload;
      assert.deepEqual([by, turn], ['client', 1]);
      await page.evaluate(() => session.close());
    });

    talk('answers what was typed', { query }, async (page) => {
      await start(page);
      await says(page, 'Listening');
      await type(page, 'Hello there');
      await says(page, 'Speaking');
      await hears(page, { sound: 0.3 });
      await says(page, 'Listening');
      assert.equal(await page.textContent('#log .turn.user span'), 'Hello there');
      assert.equal(await page.textContent('#log .turn.model span'), 'You said: Hello there');
      await page.waitForFunction(() => /^Web(RTC|Socket) · answered in (\d+\.\d s|\d+ ms) · \d+ tokens$/.test(document.querySelector('#detail').title));
    });
  });
}

describe('without a microphone', () => {
  const insecure = () => Object.defineProperty(Navigator.prototype, 'mediaDevices', { get: () => undefined });
  for (const [why, options, sentence, brief = sentence] of [
    ['refused', { mic: 'denied' }, 'The microphone is not allowed.', 'No microphone. Try again'],
    ['none there', { mic: 'none' }, 'No microphone was found.'],
    ['over http', { init: insecure }, 'The microphone needs https or localhost.'],
  ]) {
    talk(`(${why}) says so and answers aloud what is typed`, options, async (page) => {
      await start(page);
      await says(page, sentence);
      await type(page, 'Hello there');
      await says(page, 'Speaking');
      await hears(page, { sound: 0.3 });
      await says(page, brief);
    });
  }

  talk('who only types is not asked for one', { sounds: beeps }, async (page) => {
    await page.evaluate(() => {
      const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
      navigator.mediaDevices.getUserMedia = (o) => ((window.asked = true), ask(o));
    });
    await type(page, 'Hello there');
    await hears(page, { sound: 0.3 });
    await says(page, 'To speak, press the microphone.');
    assert.equal(await page.evaluate(() => window.asked), undefined);
    const before = await now(page);
    await page.click('#mute');
    await says(page, 'Listening');
    await hears(page, { tone: 0.25, after: before });
  });
});

describe('mute', () => {
  talk('sends silence over WebRTC', { sounds: Array(10).fill(speech()) }, async (page) => {
    const uplink = () =>
      page.evaluate(async () => {
        const stats = [...(await peers[0].getStats()).values()];
        const { bytesSent, packetsSent: packets } = stats.find((s) => s.type === 'outbound-rtp');
        const { totalAudioEnergy: energy = bytesSent } = stats.find((s) => s.type === 'media-source'); // Firefox tells none
        return { energy, packets };
      });
    /** Waits for half a second of packets and says how much sound was in them. */
    const measure = async () => {
      const from = await uplink();
      for (;;) {
        const to = await uplink();
        if (to.packets - from.packets >= 25) return to.energy - from.energy;
      }
    };
    await start(page);
    await goesBy(page, 'WebRTC');
    const loud = await measure();
    assert.ok(loud > 0);
    await page.click('#mute');
    await says(page, 'You are muted.');
    await measure(); // what was on its way
    const muted = await measure();
    const little = loud / (inFirefox ? 4 : 100); // silence takes bytes, too
    assert.ok(muted < little, `${muted} of ${loud}`);
    await page.keyboard.press('m');
    await says(page, TALKS);
    assert.ok((await measure()) > little);
  });

  const endless = Array(10).fill(speech());
  talk('ends the audio stream on the WebSocket', { sounds: endless, query: '?transport=websocket' }, async (page) => {
    await start(page);
    await gets(page, 'CONTENT_MESSAGE'); // speech was noticed
    await page.click('#mute');
    await gets(page, 'ASSISTANT_SPEAKING'); // the end of the stream is the end of the turn
    await gets(page, 'TURN_COMPLETE');
    await says(page, 'You are muted.');
    const inputs = await page.evaluate(() =>
      sent.filter((m) => m.type === 'SEND_REALTIME_INPUT').map((m) => Object.keys(m.payload)[0]),
    );
    assert.equal(inputs.indexOf('audioStreamEnd'), inputs.length - 1, 'no audio after it');
  });
});

describe('tools', () => {
  talk('run in the page, and their answer is spoken', {}, async (page) => {
    await start(page);
    await says(page, 'Listening');
    await page.waitForFunction(() => channel.readyState === 'open'); // the voice may be there before it
    await type(page, '/tool get_current_time {}');
    await gets(page, 'TOOL_CALL', { way: 'channel' });
    await hears(page, { sound: 0.3 });
    assert.match(await page.textContent('#log .card'), /Looked at the clock: .*M: done/);
    const year = String(new Date().getFullYear());
    await page.waitForFunction((year) => document.querySelector('.turn.model').textContent.includes(year), year);
    const ways = await page.evaluate(() => sent.filter((m) => m.type === 'SEND_TOOL_RESPONSE').map((m) => m.way));
    assert.deepEqual(ways, ['channel']);
  });

  talk('report a failure, and a cancellation', {}, async (page) => {
    const calls = await page.evaluate(async () => {
      const { connect } = await import('./voxgate.js');
      const seen = [];
      const session = await connect({
        url: 'ws',
        mic: false,
        tools: {
          fails: { description: 'fails', run: () => Promise.reject(new Error('no luck')) },
          hangs: {
            description: 'hangs until it is cancelled',
            behavior: 'BLOCKING',
            run: (_, { signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
          },
        },
      });
      const over = (status) => new Promise((resolve) => session.on('tool', (c) => c.status === status && resolve(c)));
      session.send('/tool fails {"a":1}');
      seen.push(await over('failed'));
      const running = over('running');
      session.send('/tool hangs');
      await running;
      const cancelled = over('cancelled');
      session.send('never mind');
      seen.push(await cancelled);
      await session.close();
      return seen;
    });
    assert.deepEqual(calls.map((c) => [c.name, c.args, c.status, c.response?.error]), [
      ['fails', { a: 1 }, 'failed', 'no luck'],
      ['hangs', {}, 'cancelled', undefined],
    ]);
  });
});
