/** How the conversation does: the last answers and where their time went, the network, the tokens. It is loaded when it is opened. */
import { make } from './dom.js';
import { translated } from './settings.js';
import { settings as words } from './settings.en.js';
import { fill, language } from './strings.js';

/**
 * @import { Session } from './voxgate.js'
 * @import { TurnLatency, Usage } from './messages.d.ts'
 */

const EVERY = 1_000; // ms

const COLUMNS = 20; // answers in the chart
const VISIBLE = 0.02; // of an answer's time: what took less is no part of the bar
const SEGMENTS = /** @type {const} */ ([['modelMs', 'Gemini'], ['gatewayMs', 'gateway'], ['roundTripMs', 'network']]);
const STEPS = [0.5, 1, 1.5, 2, 3, 4, 6, 8, 10, 15, 20, 30, 60]; // s, at the top of the chart

/** What makes a connection fair, and what makes it poor: ms on the way there and back, the share of the sound that is lost, ms of jitter. */
const LIMITS = /** @type {const} */ ([['roundTripMs', 250, 500], ['lostUp', 0.02, 0.06], ['lostDown', 0.02, 0.06], ['jitterMs', 40, 100]]);

/** @param {{session: () => Session|undefined, answers: TurnLatency[], usage: () => Usage|undefined, details: object[]}} page oldest first: `answers`, and of calls and errors `details` */
export async function openStatistics({ session, answers, usage, details }) {
  await translated();
  const sheet = /** @type {HTMLDialogElement} */ (make('dialog', 'sheet statistics'));
  const title = make('h2', '', words['statistics']);
  title.id = 'statistics-title';
  sheet.setAttribute('aria-labelledby', title.id);
  const head = make('header');
  const close = make('button', '', words['close']);
  head.append(title, close);
  const shown = make('div');
  const measured = make('div');
  const copy = make('button', '', words['copy JSON']);
  const developers = make('details');
  developers.append(make('summary', '', words['developers']), measured, ...asJSON(details), copy);
  sheet.append(head, shown, developers);
  /** @type {Network} */
  let network = {};
  const show = async () => {
    network = await measure(session(), network);
    const known = summary(session(), network, usage(), answers);
    shown.replaceChildren(...latency(answers), ...(known.length ? [table(known)] : []));
    measured.replaceChildren(table(rows(session(), network, usage())));
  };
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(JSON.stringify({ transport: session()?.transport, model: session()?.setup?.model, network, answers, usage: usage(), details }, null, 2));
    copy.textContent = fill(words['copied']);
  });
  close.addEventListener('click', () => sheet.close());
  sheet.addEventListener('click', ({ target }) => target === sheet && sheet.close()); // a click on the backdrop
  const timer = setInterval(show, EVERY);
  sheet.addEventListener('close', () => {
    clearInterval(timer);
    sheet.remove();
  });
  document.body.append(sheet);
  sheet.showModal();
  return show();
}

/**
 * Of the WebRTC way; rates are since the last look.
 * @typedef {{at?: number, sent?: number, received?: number, way?: string, protocol?: string, relayed?: boolean, roundTripMs?: number, jitterMs?: number, lostUp?: number,
 *   lostDown?: number, kbpsUp?: number, kbpsDown?: number, madeUp?: number}} Network
 */

/** @param {Session|undefined} session @param {Network} [before] @returns {Promise<Network>} */
export async function measure(session, before = {}) {
  const report = await session?.stats();
  if (!report) return {};
  const all = [...report.values()];
  const of = (/** @type {string} */ type, kind = 'audio') => all.find((s) => s.type === type && (!s.kind || s.kind === kind)) ?? {};
  const up = of('outbound-rtp');
  const down = of('inbound-rtp');
  const pair = all.find((s) => s.type === 'candidate-pair' && s.nominated && s.state === 'succeeded') ?? {};
  const local = all.find((s) => s.id === pair.localCandidateId) ?? {};
  const at = performance.now();
  const rate = (/** @type {number|undefined} */ now, /** @type {number|undefined} */ then) =>
    now === undefined || then === undefined || !before.at ? undefined : (8 * (now - then)) / (at - before.at);
  const seconds = pair.currentRoundTripTime;
  return {
    at, sent: up.bytesSent, received: down.bytesReceived, protocol: local.protocol?.toUpperCase(), relayed: local.candidateType === 'relay',
    way: [local.protocol?.toUpperCase(), local.candidateType === 'relay' && words['relay']].filter(Boolean).join(' '),
    roundTripMs: seconds === undefined ? undefined : 1_000 * seconds,
    jitterMs: down.jitter === undefined ? undefined : 1_000 * down.jitter,
    lostUp: of('remote-inbound-rtp').fractionLost,
    lostDown: down.packetsReceived ? Math.max(0, down.packetsLost) / (down.packetsReceived + Math.max(0, down.packetsLost)) : undefined,
    kbpsUp: rate(up.bytesSent, before.sent), kbpsDown: rate(down.bytesReceived, before.received),
    madeUp: down.totalSamplesReceived ? (down.concealedSamples - (down.silentConcealedSamples ?? 0)) / down.totalSamplesReceived : undefined, // not what was silent anyway
  };
}

/** @param {number} ms */
const inSeconds = (ms) => `${(ms / 1_000).toLocaleString(language(), ms < 1_000 ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`;

/** A value that is too short to be shown is not shown as zero. @param {number} ms */
const partInSeconds = (ms) => (ms < SHORTEST ? fill(words['under'], { time: inSeconds(SHORTEST) }) : inSeconds(ms));
const SHORTEST = 10; // ms

/** @param {TurnLatency[]} answers */
function latency(answers) {
  const last = answers.at(-1);
  if (!last) return [make('p', 'note', words['no answers'])];
  const bar = make('div', 'bar');
  const legend = make('p', 'legend');
  for (const [key, name] of SEGMENTS) {
    const ms = last[key];
    if (ms === undefined) continue;
    const part = make('i', name);
    part.style.setProperty('flex-grow', String(ms));
    if (ms > VISIBLE * last.totalMs) bar.append(part);
    const entry = make('span');
    entry.append(make('i', name), `${fill(words[name] ?? '{who}')} ${partInSeconds(ms)}`);
    legend.append(entry);
  }
  return [make('h3', '', words['last answer']), make('p', 'number', inSeconds(last.totalMs)), bar, legend, ...(answers.length > 1 ? chart(answers) : [])];
}

/** The last answers, a column each, split as the bar is, against a scale of seconds; and in words. @param {TurnLatency[]} answers */
function chart(answers) {
  const [column, height, gap] = [14, 72, 3];
  const shown = answers.slice(-COLUMNS);
  const most = Math.max(...shown.map((a) => a.totalMs), 1) / 1_000;
  const top = STEPS.find((s) => s >= most) ?? Math.ceil(most);
  const svg = svgOf('svg', { viewBox: `0 0 ${shown.length * column} ${height}`, preserveAspectRatio: 'none' });
  svg.style.maxWidth = `${shown.length * 2.5}rem`; // a few answers are no wide blocks
  svg.role = 'img';
  svg.ariaLabel = fill(words['last answers'], { count: answers.length, times: answers.map((a) => inSeconds(a.totalMs)).join(', ') });
  shown.forEach((answer, i) => {
    let y = height;
    for (const [key, name] of SEGMENTS) {
      const tall = ((answer[key] ?? 0) / 1_000 / top) * height;
      const part = svgOf('rect', { x: i * column + gap / 2, y: (y -= tall), width: column - gap, height: tall });
      part.classList.add(name);
      svg.append(part);
    }
  });
  const box = make('div', 'chart');
  const scale = make('div', 'scale');
  scale.ariaHidden = 'true';
  for (const seconds of [top, top / 2, 0]) scale.append(make('span', '', `${seconds.toLocaleString(language())} s`));
  box.append(scale, svg);
  return [make('h3', '', fill(words['answers so far'], { count: shown.length })), box];
}

/** What a person wants to know, in their words. @param {Session|undefined} session @param {Network} n @param {Usage|undefined} usage @param {TurnLatency[]} answers @returns {[string, string][]} */
function summary(session, n, usage, answers) {
  const measured = LIMITS.flatMap(([key, fair, poor]) => (n[key] === undefined ? [] : (n[key] ?? 0) > poor ? 2 : (n[key] ?? 0) > fair ? 1 : 0));
  const lost = Math.max(n.lostUp ?? 0, n.lostDown ?? 0);
  const median = answers.map((a) => a.totalMs).sort((a, b) => a - b)[Math.floor(answers.length / 2)] ?? 0;
  return /** @type {[string, string][]} */ ([
    ...(answers.length > 2 ? [['usual', inSeconds(median)]] : []),
    ...(measured.length ? [['quality', fill(words[['good', 'fair', 'poor'][Math.max(...measured)] ?? ''])]] : []),
    ...(n.lostUp === undefined && n.lostDown === undefined ? [] : [['sound lost', `${(100 * lost).toLocaleString(language(), { maximumFractionDigits: 1 })} %`]]),
    ...costs(session, usage),
  ]).map(([name, value]) => [fill(words[name]), value]);
}

/** @param {'svg'|'rect'} name @param {Record<string, string|number>} attributes */
function svgOf(name, attributes) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, String(value));
  return e;
}

/** @param {Session|undefined} session @param {Network} n @param {Usage|undefined} usage @returns {[string, string][]} */
function rows(session, n, usage) {
  const share = (/** @type {number|undefined} */ x) => (x === undefined ? '–' : `${(100 * x).toFixed(1)} %`);
  const kbps = (/** @type {number|undefined} */ x) => (x === undefined ? '–' : x.toFixed());
  const ms = (/** @type {number|undefined} */ x) => (x === undefined ? '–' : `${x.toFixed()} ms`);
  const count = (/** @type {number|undefined} */ x) => (x ?? 0).toLocaleString(language());
  const webrtc = session?.transport === 'webrtc';
  return /** @type {[string, string][]} */ ([
    ['way', webrtc ? ['WebRTC', n.way].filter(Boolean).join(', ') : session?.transport ? 'WebSocket' : fill(words['none'])],
    ...(webrtc
      ? /** @type {[string, string][]} */ ([
          ['round trip', ms(n.roundTripMs)],
          ['lost', `${share(n.lostUp)} / ${share(n.lostDown)}`],
          ['jitter', ms(n.jitterMs)],
          ...(n.kbpsUp === undefined && n.kbpsDown === undefined ? [] : [['rate', `${kbps(n.kbpsUp)} / ${kbps(n.kbpsDown)} kb/s`]]),
          ['rebuilt', share(n.madeUp)],
        ])
      : []),
    ['upstream', fill(words[session ? `link ${session.link.state}` : 'none'])],
    ['tokens', `${count(usage?.total.inputTokens)} / ${count(usage?.total.outputTokens)}`],
    ['cached', count(usage?.total.cachedTokens)],
  ]).map(([name, value]) => [fill(words[name]), value]);
}

/** By the gateway's table of prices; the emulator costs nothing. @param {Session|undefined} session @param {Usage|undefined} usage @returns {[string, string][]} */
function costs(session, usage) {
  if (usage?.dollars === undefined || session?.setup?.backend === 'emulator') return [];
  return [['cost', `$${usage.dollars.toFixed(4)}`]];
}

/** What tools were asked and have answered, and what went wrong in them, the newest first. @param {object[]} details */
const asJSON = (details) => (details.length ? [make('pre', '', [...details].reverse().map((d) => JSON.stringify(d, null, 1)).join('\n'))] : []);

/** @param {[string, string][]} all */
function table(all) {
  const list = make('dl');
  for (const [name, value] of all) list.append(make('dt', '', name), make('dd', '', value));
  return list;
}
