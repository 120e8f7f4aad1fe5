/** Whether it works here: a person's microphone, speaker, network and ways to the gateway, in words. The page opens it for ?check. */
import { check as words } from './check.en.js';
import { make } from './dom.js';
import { measure } from './statistics.js';
import { fill, speak } from './strings.js';
import { open } from './voxgate.js';

/**
 * @import { Session } from './voxgate.js'
 * @import { VoxgateError } from './types.d.ts'
 * @typedef {{url: URL, token?: string}} Gateway
 */

const ANSWERS = 10_000; // ms in which what works answers
const SPEAKS = 8_000; // ms for which a person may say something
const RELAYS = 5_000; // ms in which a relay answers, after the gateway has
const LISTENS = 8_000; // ms for which the network is measured
const HEARD = 0.02; // of session.level: a quiet voice at arm's length
const LOSS = 0.05; // above it voices are choppy, for all that is sent again
const REFUSALS = ['refused', 'missing', 'failed', 'insecure'];

/** @typedef {'well'|'wrong'|'not judged'} Verdict */
/** @typedef {(name: string, verdict?: Verdict, said?: string) => void} Tell called when a row begins, and again with its verdict */

/** @param {Gateway} gateway @param {(on: boolean) => void} quiet while it is on, both sides of a conversation that runs are muted */
export async function openCheck(gateway, quiet) {
  await speak({ check: words }, {}, { de: () => import('./check.de.js') });
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet check'));
  const title = make('h2', '', words['title']);
  title.id = 'check-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const close = make('button', '', words['close']);
  const head = make('header');
  head.append(title, close);
  const rows = make('dl');
  const read = make('div');
  read.setAttribute('role', 'status');
  const end = make('p', 'verdict');
  read.append(rows, end);
  const begin = make('button', 'primary', words['begin']);
  const copy = make('button', '', words['copy']);
  copy.hidden = true;
  const foot = make('div', 'foot');
  foot.append(begin, copy);
  sheet.append(head, make('p', 'quiet', words['intro']), read, foot);
  /** @type {Record<string, {verdict: Verdict, said: string}>} */
  let found = {};
  const leaving = new AbortController();
  begin.addEventListener('click', async () => {
    quiet(true); // what is said now is for the check
    begin.hidden = copy.hidden = true;
    end.textContent = '';
    rows.replaceChildren();
    found = {};
    await run(gateway, teller(rows, found), (question) => ask(read, question), leaving.signal);
    end.textContent = fill(words[Object.values(found).some(({ verdict }) => verdict === 'wrong') ? 'not all well' : 'all well']);
    begin.textContent = fill(words['again']);
    begin.hidden = copy.hidden = false;
  });
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(JSON.stringify({ page: location.origin, browser: navigator.userAgent, found }, null, 2));
    copy.textContent = fill(words['copied']);
  });
  close.addEventListener('click', () => sheet.close());
  sheet.addEventListener('close', () => {
    leaving.abort();
    quiet(false);
    sheet.remove();
  });
  document.body.append(sheet);
  sheet.showModal();
}

/** @param {HTMLElement} rows @param {Record<string, object>} found @returns {Tell} */
function teller(rows, found) {
  /** @type {Map<string, HTMLElement>} */
  const shown = new Map();
  return (name, verdict, said = fill(words['waits'])) => {
    let row = shown.get(name);
    if (!row) {
      row = make('dd');
      shown.set(name, row);
      rows.append(make('dt', '', words[name]), row);
    }
    row.dataset['verdict'] = verdict ?? 'waits';
    row.replaceChildren(make('b', 'unseen', verdict ? `${words[verdict]}: ` : ''), said);
    if (verdict) found[name] = { verdict, said };
  };
}

/** Asks a question below what was found. @param {HTMLElement} below @param {string} question @returns {Promise<boolean>} */
function ask(below, question) {
  const row = make('p', 'asks', question);
  below.append(row);
  return new Promise((resolve) => {
    for (const [name, answer] of /** @type {const} */ ([['yes', true], ['no', false]])) {
      const button = make('button', '', words[name]);
      button.addEventListener('click', () => {
        row.remove();
        resolve(answer);
      });
      row.append(button);
    }
    row.querySelector('button')?.focus();
  });
}

/** @param {Session} session @param {() => boolean} done @param {number} most ms @param {AbortSignal} signal @returns {Promise<boolean>} */
async function until(session, done, most, signal) {
  const end = performance.now() + most;
  while (!done()) {
    if (performance.now() > end || signal.aborted || session.state === 'closed') return done();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return true;
}

/** @param {Gateway} gateway @param {Tell} tell @param {(question: string) => Promise<boolean>} asks @param {AbortSignal} signal */
async function run(gateway, tell, asks, signal) {
  const began = performance.now();
  tell('gateway');
  const session = open({ ...gateway, config: { systemInstruction: 'Say nothing.' } });
  const stop = () => void session.close();
  signal.addEventListener('abort', stop);
  try {
    try {
      await session.ready;
    } catch (e) {
      tell('gateway', 'wrong', `${fill(words['gateway lost'])} ${/** @type {VoxgateError} */ (e).message}`);
      return;
    }
    tell('gateway', 'well', fill(words['gateway well'], { ms: Math.round(performance.now() - began) }));
    await microphone(session, tell, signal);
    const direct = await way(session, tell, signal);
    await network(session, tell, signal);
    await session.close();
    await relay(gateway, tell, direct, signal);
    if (!signal.aborted) await speaker(tell, asks);
  } finally {
    signal.removeEventListener('abort', stop);
    await session.close();
  }
}

/** @param {Session} session @param {Tell} tell @param {AbortSignal} signal */
async function microphone(session, tell, signal) {
  if (REFUSALS.includes(session.mic)) return tell('microphone', 'wrong', fill(words[`microphone ${session.mic}`]));
  const label = session.track?.label || '?';
  tell('microphone', undefined, fill(words['say']));
  const heard = await until(session, () => session.level.mic > HEARD, SPEAKS, signal);
  tell('microphone', heard ? 'well' : 'wrong', fill(words[heard ? 'microphone heard' : 'microphone silent'], { label }));
}

/** @param {Session} session @param {Tell} tell @param {AbortSignal} signal @returns {Promise<boolean>} whether WebRTC comes through without a relay */
async function way(session, tell, signal) {
  tell('way');
  const rtc = await until(session, () => session.transport === 'webrtc', ANSWERS, signal);
  if (!rtc) {
    tell('way', 'wrong', fill(words['way socket']));
    return false;
  }
  const { relayed, protocol = '', roundTripMs } = await measure(session);
  tell('way', 'well', fill(words[relayed ? 'way relay' : 'way direct'], { protocol, ms: roundTripMs === undefined ? '?' : Math.round(roundTripMs) }));
  return !relayed;
}

/** @param {Session} session @param {Tell} tell @param {AbortSignal} signal */
async function network(session, tell, signal) {
  tell('network');
  if (session.transport !== 'webrtc') return tell('network', 'not judged', fill(words['network socket']));
  await until(session, () => false, LISTENS, signal);
  const { lostUp = 0, lostDown = 0, jitterMs = 0 } = await measure(session);
  const lost = Math.max(lostUp, lostDown);
  const values = { lost: (100 * lost).toFixed(1), jitter: Math.round(jitterMs) };
  tell('network', lost > LOSS ? 'wrong' : 'well', fill(words[lost > LOSS ? 'network bad' : 'network well'], values));
}

/** @param {Gateway} gateway @param {Tell} tell @param {boolean} direct @param {AbortSignal} signal */
async function relay(gateway, tell, direct, signal) {
  if (signal.aborted) return;
  tell('relay');
  const session = open({ ...gateway, mic: false, iceTransportPolicy: 'relay' });
  const came = await session.ready.then(() => until(session, () => session.transport === 'webrtc', RELAYS, signal), () => false);
  await session.close();
  if (came) tell('relay', 'well', fill(words['relay well']));
  else tell('relay', direct ? 'not judged' : 'wrong', fill(words[direct ? 'relay none' : 'relay needed']));
}

/** @param {Tell} tell @param {(question: string) => Promise<boolean>} asks */
async function speaker(tell, asks) {
  tell('speaker');
  const context = new AudioContext();
  const volume = new GainNode(context, { gain: 0.2 });
  volume.connect(context.destination);
  for (const [i, frequency] of [440, 660].entries()) {
    const tone = new OscillatorNode(context, { frequency });
    tone.connect(volume);
    tone.start(context.currentTime + i * 0.6);
    tone.stop(context.currentTime + i * 0.6 + 0.4);
  }
  const heard = await asks(fill(words['speaker ask']));
  await context.close();
  tell('speaker', heard ? 'well' : 'wrong', fill(words[heard ? 'speaker yes' : 'speaker no']));
}
