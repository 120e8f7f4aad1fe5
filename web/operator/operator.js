/** The operator's page: what runs, what it costs, whether it is well; and one conversation. It uses the endpoints of docs/sideband.md. */
import { NoAnswer, ask, keyOf, sentence, useKey } from './ask.js';
import { showCharts } from './charts.js';
import { describe, open } from './conversation.js';
import { make } from './dom.js';
import { showHistory, startHistory } from './history.js';
import { WHO, get, newList, put } from './table.js';
import { lengthOf, money, percent, ruleOf, seconds, stateOf } from './words.js';

const EVERY = 2_000; // ms between two looks

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const count = (/** @type {number} */ n) => n.toLocaleString();

// --- asking

let seen = 0; // when the gateway answered last
let barred = ''; // a key that was refused: each time that it is shown counts as a refusal

async function look() {
  try {
    const answer = await ask('status');
    if (!answer.ok) throw new Error(await sentence(answer));
    const status = await answer.json();
    seen = Date.now();
    gone(false);
    draw('totals and health', () => showStatus(status));
    if (status.keyed && !keyOf()) wantKey('');
    else if (!keyOf() || keyOf() !== barred) await lookAtSessions();
    faults.delete('answer');
  } catch (e) {
    gone(e instanceof NoAnswer);
    if (e instanceof NoAnswer) put(get('alive'), seen ? `The gateway has not answered since ${clock.format(seen)}.` : 'The gateway does not answer.');
    else noteFault('answer', e);
  }
  const parts = [...faults].map(([part, why]) => (part === 'answer' ? why : `${part}: ${why}`));
  get('faults').hidden = !parts.length;
  put(get('faults'), `The gateway answers, but not all of it can be shown here: ${parts.join('; ')}`);
  document.querySelector('main')?.classList.remove('loading');
  setTimeout(look, EVERY);
}

/** @type {Map<string, string>} why a part of the page is not up to date */
const faults = new Map();

/** Draws a part of the page. A part that cannot be drawn leaves the others up to date. */
function draw(/** @type {string} */ part, /** @type {() => void} */ show) {
  try {
    show();
    faults.delete(part);
  } catch (e) {
    noteFault(part, e);
  }
}

function noteFault(/** @type {string} */ part, /** @type {any} */ e) {
  if (faults.get(part) !== e.message) console.error(part, e);
  faults.set(part, e.message);
}

function gone(/** @type {boolean} */ is) {
  document.body.classList.toggle('gone', is);
  document.title = is ? '✕ No answer · Voxgate: operator' : `${running.length ? `(${running.length}) ` : ''}Voxgate: operator`;
}

async function lookAtSessions() {
  const shown = keyOf();
  const answer = await ask('v1/sessions');
  if (shown !== keyOf()) return; // another was entered meanwhile
  barred = answer.ok ? '' : keyOf();
  if (!answer.ok) return wantKey(await sentence(answer));
  const told = await answer.json();
  draw('running conversations', () => showSessions(told));
  const past = await ask('ended');
  if (!past.ok) return;
  const { conversations, steered = {}, hours } = await past.json();
  get('over').hidden = false;
  draw('ended conversations', () => showHistory(conversations));
  draw('charts', () => showCharts(hours));
  draw('the chosen conversation', () => describe({ running, ended: conversations, steered }));
}

function wantKey(/** @type {string} */ why) {
  put(get('why'), why);
  get('login').hidden = false;
  for (const part of ['list', 'whole', 'none', 'silent', 'over', 'charts']) get(part).hidden = true;
}

get('login').onsubmit = (/** @type {Event} */ e) => {
  e.preventDefault();
  useKey(get('key').value.trim());
  get('key').value = '';
  lookAtSessions().catch(() => {}); // the next look says that the gateway is gone
};

// --- what runs

/** @type {any[]} */
let running = [];

const started = (/** @type {any} */ s) => Date.parse(s.startedAt);
const showRunning = newList(get('list'), get('whole'), [
  WHO, { text: (s) => s.agent ?? '–', by: (s) => s.agent }, { text: stateOf }, { text: lengthOf, by: (s) => -started(s) }, { text: (s) => count(s.turns), by: (s) => s.turns },
  { text: (s) => count(s.tokens), by: (s) => s.tokens }, { text: (s) => money(s.dollars), by: (s) => s.dollars }, { text: (s) => seconds(s.latencyMs), by: (s) => s.latencyMs },
  { text: (s) => (s.loss ? `${percent(s.loss.up)} / ${percent(s.loss.down)}` : '–'), by: (s) => s.loss?.up },
], {
  open, less: (s) => s.agent, least: (s) => `${lengthOf(s)}${s.dollars ? ` · ${money(s.dollars)}` : ''}`, silent: 'Nothing was said yet.',
  decorate: (row, s) => (row.dataset['state'] = stateOf(s).split(/[ ,]/)[0]?.toLowerCase()),
});
startHistory(open);

function showSessions(/** @type {{sessions: any[], silent?: number}} */ { sessions, silent }) {
  running = sessions.toSorted((a, b) => started(b) - started(a));
  get('login').hidden = true;
  get('none').hidden = running.length > 0;
  get('silent').hidden = !silent;
  put(get('silent'), silent ? `${silent} other ${silent === 1 ? 'gateway does' : 'gateways do'} not answer.` : '');
  showRunning(running);
}

// --- how it is

/** @param {string} list @param {[name: string, state: string, kind?: string, href?: string][]} lines `kind`: bad, warn, off (not used) or empty if well @param {string} [none] what an empty list says */
function states(list, lines, none = '') {
  const ul = get(list);
  if (!lines.length && none) lines = [['', none]];
  while (ul.children.length > lines.length) ul.lastElementChild.remove();
  lines.forEach(([name, state, kind = '', href = ''], i) => {
    const li = ul.children[i] ?? ul.appendChild(make('li'));
    if (!li.firstChild) li.append(make('b'), make('span'), Object.assign(make('a', 'chip', 'Talk to it'), { target: '_blank', rel: 'noopener' }));
    const [b, span, a] = li.children;
    put(b, name);
    put(span, state);
    b.hidden = !name;
    a.hidden = !href;
    a.href = href;
    li.className = kind;
  });
}

const BACKENDS = { gemini: 'Gemini', vertex: 'Gemini by Vertex AI', emulator: 'Emulator' };

const isNearlyFull = (/** @type {any} */ { free, total }) => free < total / 20;

/** Names all that is wrong in the head of the page, or says that all is well. */
function showAlarms(/** @type {any} */ s) {
  const closed = Object.entries(s.closed ?? {}).map(([model, ms]) => `Google's quota for ${model.replace('models/', '')} is used up: no new conversations for ${count(Math.ceil(ms / 1000))} s`);
  const bad = [s.unreached && `Gemini cannot be reached: ${s.unreached}`, s.keyRefused && "Google does not accept the gateway's key", ...closed, s.redis === 'down' && 'Redis does not answer',
    ...s.agents.map((/** @type {any} */ a) => a.problem && `The agent ${a.name} cannot be loaded`)].filter(Boolean);
  const warnings = [!s.ready && 'The gateway takes no new calls', s.unrecorded && `${count(s.unrecorded)} recording${s.unrecorded === 1 ? '' : 's'} could not be written`, s.disks?.some(isNearlyFull) && 'A disk is nearly full'].filter(Boolean);
  put(get('alive'), [...bad, ...warnings].join(' · ') || 'The gateway is up.');
  get('alive').className = bad.length ? 'bad' : warnings.length ? 'warn' : '';
}

function showStatus(/** @type {any} */ s) {
  const up = Math.floor((Date.now() - Date.parse(s.startedAt)) / 60_000);
  const hours = up < 1 ? 'less than a minute' : up < 60 ? `${up} min` : `${Math.floor(up / 60)} h ${up % 60} min`;
  showAlarms(s);
  get('of-whom').hidden = !s.redis;
  put(get('now'), count(s.now));
  put(get('begun'), count(s.today.begun));
  put(get('dollars'), s.today.dollars ? money(s.today.dollars) : '$0');
  const refusals = Object.entries(s.refusals ?? {}).sort((a, b) => b[1] - a[1]);
  const refused = refusals.reduce((all, [, n]) => all + n, 0);
  put(get('refused'), count(refused));
  const ok = s.dials?.ok ?? 0;
  const failures = Object.entries(s.dialErrors ?? {}).sort((a, b) => b[1] - a[1]);
  const failed = failures.map(([reason, n]) => `${count(n)}\u00a0× ${reason.replace(/\.$/, '')}`);
  const lost = failures.reduce((all, [, n]) => all + n, 0); // of the same moment as the reasons
  const dialled = [`${count(ok)} connection${ok === 1 ? '' : 's'} since start`, ...lost ? [`${count(lost)} of ${count(ok + lost)} dials failed: ${failed.join(', ')}`] : []].join('; ');
  states('health', [
    ['Gateway', `${s.ready ? 'takes calls' : 'takes no new calls'}, up for ${hours}`, s.ready ? '' : 'warn'],
    [BACKENDS[/** @type {keyof typeof BACKENDS} */ (s.backend)] ?? s.backend, `${s.unreached ? 'cannot be reached; ' : s.backend === 'emulator' ? 'no Gemini key; ' : ''}${dialled}`, s.unreached || s.keyRefused || s.closed ? 'bad' : ''],
    ['Refused', refused ? `since start: ${refusals.map(([rule, n]) => `${count(n)}\u00a0× ${ruleOf(rule)}`).join(', ')}` : 'nobody since start', 'off'],
    ['Redis', s.redis ? (s.redis === 'well' ? 'answers' : 'does not answer') : 'not used: this gateway is alone', !s.redis ? 'off' : s.redis === 'down' ? 'bad' : ''],
    ['Recordings', s.unrecorded ? `the disk has refused ${count(s.unrecorded)}` : s.recordings ? `in ${s.recordings}` : 'off', !s.recordings ? 'off' : s.unrecorded ? 'warn' : ''],
    ...(s.disks ?? []).map((/** @type {any} */ d) => [d.folder === s.recordings ? 'Disk of recordings' : 'Disk of call files', `${(d.free / 1e9).toFixed(1)} of ${(d.total / 1e9).toFixed(1)} GB free in ${d.folder}`, isNearlyFull(d) ? 'warn' : '']),
  ]);
  get('page').href = s.page;
  const talk = (/** @type {string} */ agent) => new URL(`?agent=${encodeURIComponent(agent)}`, s.page).href;
  states('agents', s.agents.map((/** @type {any} */ a) => [a.name, a.problem ?? '', a.problem ? 'bad' : '', a.problem ? '' : talk(a.name)]),
    'There are no agents: VOXGATE_AGENTS names no folder.');
}

look();
