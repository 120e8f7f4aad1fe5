/** What a person is told, in each state and for each reason, over the page, the talk button, React and VOX, in both languages. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { errors, states } from '../library/en.js';
import { cutOf, OFFERS, placeOfPermission, situationOf, statusOf } from '../library/status.js';
import { speak } from '../library/strings.js';

/** Sentences that send a person to something, by what it is. */
const ADVICE = { 'press anew': 'orb', 'press again': 'orb', 'press on': 'goOn', ready: 'orb', left: 'orb', 'can type': 'type', 'press mic': 'microphone', 'choose mic': 'devices' };

const MICS = ['off', 'asking', 'live', 'muted', 'refused', 'missing', 'failed', 'lost', 'insecure', 'unheard', 'silent'];
const CODES = ['closed', 'aborted', 'ended', 'replaced', 'lost', 'no_gateway', 'no_token', 'timeout', 'busy', 'connection_failed', 'unauthorized', 'forbidden',
  'authentication_failed', 'api_key_missing', 'project_id_missing', 'origin_refused', 'bad_options', 'websocket_error', 'unknown_error', 'refused', 'time_limit', 'token_limit', 'budget', 'silence', 'shutdown'];

/** Every situation, with what must be true of it beside what is true of all. */
function* situations() {
  yield { state: 'idle' };
  yield { state: 'idle', resumable: true };
  for (const mic of MICS) {
    yield { state: 'connecting', mic };
    yield { state: 'connecting', mic, asksMic: true };
    for (const state of ['listening', 'thinking', 'speaking']) {
      for (const more of [{}, { push: true }, { blocked: true }, { activity: 'Taking photo…' }, { activity: 'Taking photo…', asks: true }, { wait: 'Gemini did not answer.' }]) yield { state, mic, ...more };
    }
    for (const isLostForLong of [true, false, undefined]) yield { state: 'reconnecting', mic, isLostForLong };
    yield { state: 'listening', mic, hasTyped: true };
    yield { state: 'reconnecting', mic, wait: 'Waiting for Gemini’s answer…' };
  }
  for (const reason of CODES) yield { state: 'closed', reason, message: 'What the gateway says.' };
  yield { state: 'closed', reason: 'ended' };
  yield { state: 'closed', reason: 'busy', retryIn: 3 };
}

for (const lang of ['en', 'de']) {
  test(`each status is true, complete and can be followed, in ${lang}`, async () => {
    await speak({ states, errors }, { lang });
    for (const [surface, offers] of Object.entries(OFFERS)) {
      for (const situation of situations()) {
        const { keys, text, look, listens, press, next } = statusOf({ ...situation, offers });
        const what = `${surface}: ${JSON.stringify(situation)}: ${text}`;
        if (surface !== 'react' || situation.state !== 'idle') assert.ok(text, what);
        assert.doesNotMatch(text, /undefined|[{}]|goodbye|  /, what);
        const names = keys.map((key) => key.replace('states ', ''));
        for (const name of names) assert.ok(!ADVICE[name] || offers.includes(ADVICE[name]), `${what} advises what is not there`);
        if (text === states['listening']) assert.ok(listens && look === 'listening' && press === (situation.push ? '' : 'mute'), what);
        if (listens) assert.equal(look, 'listening', what);
        if (situation.blocked && situation.state !== 'closed') assert.equal(press, 'unblock', what);
        const over = ['idle', 'closed'].includes(situation.state);
        assert.equal(look === 'ready', over, what);
        if (!over) assert.ok(next === '' && press !== 'start', what);
        if (situation.state === 'closed') {
            assert.equal(press, next ? "start" : "", what);
          assert.equal(names.includes('press again'), next === 'retry' && offers.includes('orb'), what);
        }
      }
    }
  });
}

test('what is said where it matters most', async () => {
  await speak({ states, errors }, { lang: 'en' });
  const page = (situation) => statusOf({ offers: OFFERS.page, ...situation }).text;
  const rows = [
    [{ state: 'idle' }, 'Ready. Press the microphone and speak.'],
    [{ state: 'closed', reason: 'closed' }, 'The conversation is over. Press the microphone for a new one.'],
    [{ state: 'closed', reason: 'ended' }, 'The conversation was ended from the other side. Press the microphone for a new one.'],
    [{ state: 'closed', reason: 'lost' }, 'The connection was lost. Press the microphone to try again.'],
    [{ state: 'closed', reason: 'busy', retryIn: 3 }, 'Busy just now. Trying again in 3 s.'],
    [{ state: 'closed', reason: 'api_key_missing', message: 'GEMINI_API_KEY is not set.' }, 'Gemini is not available here.'],
    [{ state: 'closed', reason: 'ended', message: 'The shop closes now.' }, 'The shop closes now. Press the microphone for a new one.'],
    [{ state: 'closed', reason: 'no_gateway' }, 'There is no connection. Press the microphone to try again.'],
    [{ state: 'reconnecting', mic: 'live', isLostForLong: false }, 'Reconnecting…'],
    [{ state: 'reconnecting', mic: 'live', isLostForLong: true }, 'No connection. Trying again…'],
    [{ state: 'listening', mic: 'refused', hasTyped: true }, 'No microphone.'],
    [{ state: 'listening', mic: 'lost', hasTyped: true }, 'The microphone is gone. Plug it in.'],
    [{ state: 'listening', mic: 'live', activity: 'Sending message…', asks: true }, 'Gemini waits for you.'],
    [{ state: 'listening', mic: 'live', asks: true }, 'Listening'],
    [{ state: 'listening', mic: 'silent', microphone: 'Headset' }, 'We hear nothing from “Headset”. Speak, or choose another microphone.'],
  ];
  for (const [situation, sentence] of rows) assert.equal(page(situation), sentence);
  assert.equal(statusOf({ state: 'listening', mic: 'silent', offers: OFFERS.react }).text, 'We hear nothing from your microphone. Speak, or check whether it is switched on.');
});

test('the place where a refused microphone can be allowed is that of the browser', () => {
  const rows = [
    ['Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36', 'by icon'],
    ['Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36', 'by icon'],
    ['Mozilla/5.0 (Linux; Android 10; K; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/142.0.0.0 Mobile Safari/537.36', 'in settings'],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0', 'in Firefox'],
    ['Mozilla/5.0 (Android 15; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0', 'by icon'],
    ['Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15', 'in Safari'],
    ['Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1', 'on iPhone'],
    ['Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/142.0.0.0 Mobile/15E148 Safari/604.1', 'in settings'],
  ];
  for (const [agent, place] of rows) assert.equal(placeOfPermission(agent, true), place, agent);
  assert.equal(placeOfPermission(rows[0][0], false), 'in settings', 'an installed app has no address');
});

test('an answer is called interrupted only if something of it was not heard', async () => {
  await speak({ states, errors }, { lang: 'en' });
  const rows = [
    ['person', 'Once upon', 'Once upon a time.', 'you interrupted'],
    ['person', 'Once upon', undefined, 'you interrupted'],
    ['person', 'It rains. ', 'It rains. On Friday it does not.', 'you interrupted'],
    ['person', 'It rains.', 'It rains. ', ''],
    ['link', '“It rains.”', undefined, ''],
    [undefined, 'Once upon', 'Once upon a time.', ''],
  ];
  for (const [by, said, text, mark] of rows) assert.equal(cutOf(by, said, text), mark, `${by}, ${said}, ${text}`);
});

test('a session is told as what it is', () => {
  const session = { state: 'listening', mic: 'live', link: { state: 'live' }, blocked: false, setup: { resumeToken: 't' }, turns: [] };
  assert.equal(statusOf(situationOf(session)).text, states['listening']);
  assert.equal(situationOf(undefined).state, 'idle');
  const away = (ms, reachable) => statusOf(situationOf({ ...session, state: 'reconnecting', away: { since: Date.now() - ms, reachable } })).keys.join();
  assert.deepEqual([away(1_000, false), away(4_000, true)], ['states reconnecting', 'states unreachable'], 'the first moment alarms nobody, and then one sentence stays');
  const retry = (mic, turns) => (({ canRetryMic, isBrief }) => [canRetryMic, isBrief].join())(statusOf(situationOf({ ...session, mic, turns })));
  assert.deepEqual([retry('refused', [{ role: 'model' }]), retry('refused', [{ role: 'user' }]), retry('missing', [{ role: 'user' }]), retry('muted', [{ role: 'user' }])], ['true,false', 'true,true', 'true,false', 'false,false']);
  const ended = Object.assign(new Error('The connection was lost.'), { code: 'lost' });
  assert.deepEqual(situationOf({ ...session, state: 'closed' }, {}, ended), { state: 'closed', reason: 'lost', message: 'The connection was lost.' });
});

test('each code with which the gateway ends a conversation has its sentence', () => {
  const source = readFileSync(new URL('../../bridge/errors.go', import.meta.url), 'utf8');
  const limits = [...source.matchAll(/(Err\w+) +Limit = /g)].map(([, name]) => name);
  const codes = [...source.matchAll(/\{(Err\w+), "(\w+)"\}/g)].filter(([, name]) => limits.includes(name)).map(([, , code]) => code);
  assert.ok(codes.length > 3);
  for (const code of [...codes, 'shutdown']) assert.ok(errors[code] && CODES.includes(code), code);
});
