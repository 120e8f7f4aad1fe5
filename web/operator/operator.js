/** The operator's page: what runs, what it costs, whether it is well; and one conversation. It uses the endpoints of docs/sideband.md. */
import { NoAnswer, ask, keyOf, sentence, useKey } from './ask.js';
import { make } from './dom.js';
import { nodes } from './markdown.js';
import { EXACTLY, orderLines, showHistory } from './history.js';
import { limited, placeOf, saidRow, sortable } from './table.js';
import { money, newestOf, ruleOf, seconds, stateOf, where, who } from './words.js';

const EVERY = 2_000; // ms between two looks
const MOST = 500; // words and events that are kept

const get = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const count = (/** @type {number} */ n) => n.toLocaleString();
const percent = (/** @type {number | undefined} */ n) => (n === undefined ? '–' : `${(100 * n).toFixed(n && n < 0.1 ? 1 : 0)}\u00a0%`);
const lossOf = (/** @type {any} */ s) => (s.loss ? `${percent(s.loss.up)} / ${percent(s.loss.down)}` : '–');
const since = (/** @type {string} */ at) => {
  const s = Math.max(0, Math.round((Date.now() - Date.parse(at)) / 1000));
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
};

/** Changes nothing that is right already: nothing flickers, and a screen reader reads nothing twice. */
function put(/** @type {Element} */ e, /** @type {string} */ text) {
  if (e.textContent !== text) e.textContent = text;
}

// --- asking

const id = (/** @type {string} */ name) => `v1/sessions/${encodeURIComponent(name)}`;

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
    if (status.keyed && !keyOf()) wantKey('One that may “sessions:all” sees every conversation: gateway key new --may sessions:all,listen NAME');
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
  const history = await past.json();
  steered = history.steered ?? {};
  draw('ended conversations', () => showHistory(history));
  get('over').hidden = false;
  draw('the chosen conversation', describe);
}

function wantKey(/** @type {string} */ why) {
  put(get('why'), why);
  get('login').hidden = false;
  for (const part of ['list', 'whole', 'none', 'hint', 'silent', 'over', 'charts']) get(part).hidden = true;
}

get('login').onsubmit = (/** @type {Event} */ e) => {
  e.preventDefault();
  useKey(get('key').value.trim());
  get('key').value = '';
  lookAtSessions().catch(() => {}); // the next look says that the gateway is gone
};

// --- what runs

/** @type {Map<string, [HTMLTableRowElement, HTMLElement]>} the row of each, and below it the one of what was said last */
const rows = new Map();
/** @type {any[]} */
let running = [];
/** @type {Record<string, any[]>} orders to conversations that run */
let steered = {};

const sort = sortable(get('list'), [who, (s) => s.agent, (s) => stateOf(s.state), (s) => Date.now() - Date.parse(s.startedAt), (s) => s.turns, (s) => s.tokens, (s) => s.dollars,
  (s) => s.latencyMs, (s) => s.loss?.up], () => showRunning());
const few = limited(get('whole'), () => showRunning());

function showSessions(/** @type {{sessions: any[], silent?: number}} */ { sessions, silent }) {
  running = sessions.toSorted((a, b) => b.startedAt.localeCompare(a.startedAt));
  get('login').hidden = true;
  get('silent').hidden = !silent;
  put(get('silent'), silent ? `${silent} other ${silent === 1 ? 'gateway does' : 'gateways do'} not answer.` : '');
  showRunning();
}

function showRunning() {
  get('list').hidden = running.length === 0;
  get('none').hidden = running.length > 0;
  const listed = few(sort(running));
  const body = get('list').tBodies[0];
  for (const [name, both] of rows) {
    if (listed.some((s) => s.id === name)) continue;
    for (const row of both) row.remove();
    rows.delete(name);
  }
  listed.forEach((s, at) => {
    const [row, said] = rows.get(s.id) ?? newRow(s.id);
    const state = s.newest || s.state !== 'live' ? stateOf(s.state) : 'connected';
    const texts = [who(s), s.agent ?? '–', state, since(s.startedAt), count(s.turns), count(s.tokens), money(s.dollars),
      seconds(s.latencyMs), lossOf(s)];
    texts.forEach((text, i) => put(/** @type {Element} */ (i ? row.cells[i] : row.querySelector('button')), text));
    put(/** @type {Element} */ (row.querySelector('small')?.firstElementChild), where(s));
    row.dataset['state'] = state.split(/[ ,]/)[0];
    put(/** @type {Element} */ (row.querySelector('.less')), s.agent ? `\u00a0· ${s.agent}` : '');
    put(/** @type {Element} */ (said.querySelector('p')), newestOf(s.newest) || 'Nothing was said yet.');
    if (body.rows[2 * at] !== row) {
      body.insertBefore(row, body.rows[2 * at] ?? null);
      row.after(said);
    }
  });
  describe();
}

function newRow(/** @type {string} */ name) {
  const row = /** @type {HTMLTableRowElement} */ (make('tr'));
  row.dataset['id'] = name;
  for (const head of get('list').tHead.rows[0].cells) row.append(make('td', head.className));
  const button = make('button', 'pick');
  row.onclick = () => (chosen?.id === name && !chosen.over) || open(name); // the button has a click that bubbles
  row.cells[0]?.append(button, ' ', placeOf());
  const said = saidRow(0, row.cells.length);
  said.onclick = row.onclick;
  /** @type {[HTMLTableRowElement, HTMLElement]} */
  const both = [row, said];
  rows.set(name, both);
  return both;
}

// --- how it is

/** @param {string} list @param {[name: string, state: string, bad?: boolean|null, href?: string][]} lines null: it is not used @param {string} [none] what an empty list says */
function states(list, lines, none = '') {
  const ul = get(list);
  if (!lines.length && none) lines = [['', none]];
  while (ul.children.length > lines.length) ul.lastElementChild.remove();
  lines.forEach(([name, state, bad = false, href = ''], i) => {
    const li = ul.children[i] ?? ul.appendChild(make('li'));
    if (!li.firstChild) li.append(make('b'), make('span'), Object.assign(make('a', 'chip', 'Talk to it'), { target: '_blank', rel: 'noopener' }));
    const [b, span, a] = li.children;
    put(b, name);
    put(span, state);
    b.hidden = !name;
    a.hidden = !href;
    a.href = href;
    li.className = bad ? 'bad' : bad === null ? 'off' : '';
  });
}

const BACKENDS = { gemini: 'Gemini', vertex: 'Gemini by Vertex AI', emulator: 'Emulator' };

function showStatus(/** @type {any} */ s) {
  const up = Math.floor((Date.now() - Date.parse(s.startedAt)) / 60_000);
  const hours = up < 1 ? 'less than a minute' : up < 60 ? `${up} min` : `${Math.floor(up / 60)} h ${up % 60} min`;
  put(get('alive'), s.unreached ? `Gemini cannot be reached: ${s.unreached}` : s.ready ? 'The gateway is up.' : 'The gateway takes no new calls.');
  get('alive').classList.toggle('bad', Boolean(s.unreached));
  get('of-whom').hidden = !s.redis;
  put(get('now'), count(s.now));
  put(get('begun'), count(s.today.begun));
  put(get('dollars'), s.today.dollars ? money(s.today.dollars) : '$0');
  const refusals = Object.entries(s.refusals ?? {}).sort((a, b) => b[1] - a[1]);
  put(get('refused'), count(refusals.reduce((all, [, n]) => all + n, 0)));
  states('refusals', refusals.map(([rule, n]) => [refusals.length > 1 ? count(n) : '', ruleOf(rule)]));
  const ok = s.dials?.ok ?? 0;
  const failures = Object.entries(s.dialErrors ?? {}).sort((a, b) => b[1] - a[1]);
  const failed = failures.map(([reason, n]) => `${count(n)} × ${reason.replace(/\.$/, '')}`);
  const lost = failures.reduce((all, [, n]) => all + n, 0); // of the same moment as the reasons
  const dialled = [`${count(ok)} connection${ok === 1 ? '' : 's'} since start`, ...lost ? [`${count(lost)} failed: ${failed.join(', ')}`] : []].join('; ');
  states('health', [
    ['Gateway', `${s.ready ? 'takes calls' : 'takes no new calls'}, up for ${hours}`, !s.ready],
    [BACKENDS[/** @type {keyof typeof BACKENDS} */ (s.backend)] ?? s.backend, `${s.backend === 'emulator' ? 'no Gemini key; ' : ''}${dialled}`, lost > 0],
    ['Redis', s.redis ? (s.redis === 'well' ? 'answers' : 'does not answer') : 'not used: this gateway is alone', s.redis ? s.redis === 'down' : null],
    ['Recordings', s.unrecorded ? `the disk has refused ${count(s.unrecorded)}` : s.recordings ? `in ${s.recordings}` : 'off', s.recordings ? s.unrecorded > 0 : null],
    ...(s.disks ?? []).map((/** @type {any} */ d) => [d.folder === s.recordings ? 'Disk of recordings' : 'Disk of call files', `${(d.free / 1e9).toFixed(1)} of ${(d.total / 1e9).toFixed(1)} GB free in ${d.folder}`, d.free < d.total / 20]),
  ]);
  get('page').href = s.page;
  const talk = (/** @type {string} */ agent) => new URL(`?agent=${encodeURIComponent(agent)}`, s.page).href;
  states('agents', s.agents.map((/** @type {any} */ a) => [a.name, a.problem ?? '', Boolean(a.problem), a.problem ? '' : talk(a.name)]),
    'There are no agents: VOXGATE_AGENTS names no folder.');
}

// --- one conversation

/** @type {{id: string, socket: WebSocket, over: boolean, orders: number, sent: string[]} | null} `orders` are shown; `sent` are not listed by the gateway yet */
let chosen = null;

function open(/** @type {string} */ name) {
  shut();
  const url = new URL(`${id(name)}/events`, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  const socket = new WebSocket(url, keyOf() ? ['voxgate', `voxgate.token.${keyOf()}`] : []);
  const mine = (chosen = { id: name, socket, over: false, orders: 0, sent: [] });
  for (const part of ['words', 'events']) get(part).replaceChildren();
  put(get('ended'), '');
  orders(false);
  get('one').hidden = false;
  socket.onmessage = ({ data }) => chosen === mine && take(JSON.parse(data));
  socket.onclose = () => chosen === mine && over('The connection to this conversation was lost. Choose it again.');
  describe();
  get('one').focus({ preventScroll: true });
}

function shut() {
  hush();
  chosen?.socket.close();
  chosen = null;
  get('one').hidden = true;
}

function over(/** @type {string} */ why) {
  if (!chosen || chosen.over) return;
  chosen.over = true;
  put(get('ended'), why);
  orders(false);
  hush();
}

const orders = (/** @type {boolean} */ on) => document.querySelectorAll('#say :is(input, select, button), #orders button')
  .forEach((e) => (/** @type {HTMLButtonElement} */ (e).disabled = !on));

function describe() {
  get('hint').hidden = !running.length || Boolean(chosen);
  const isCovered = Boolean(chosen) && matchMedia('(width < 64rem)').matches; // by the conversation
  document.querySelectorAll('header, main > :not(#aside), #aside > :not(#one)').forEach((e) => e.toggleAttribute('inert', isCovered));
  for (const [name, [row]] of rows) row.toggleAttribute('aria-current', name === chosen?.id);
  const s = running.find((r) => r.id === chosen?.id);
  if (!s) return;
  put(get('one-title'), who(s));
  const loss = s.loss && `${percent(s.loss.up)} of the person’s voice, ${percent(s.loss.down)} of the agent’s`;
  const facts = [['From', where(s)], ['Agent', s.agent], ['Step', s.step?.replaceAll('_', ' ')], ['Model', s.model], ['Since', clock.format(Date.parse(s.startedAt))],
    ['Answers after', s.latencyMs && seconds(s.latencyMs)], ['Tokens', count(s.tokens)], ['Cost', s.dollars && money(s.dollars)], ['Packet loss', loss], ['ID', s.id]].filter(([, value]) => value);
  const list = get('what');
  while (list.children.length > facts.length) list.lastElementChild.remove();
  facts.forEach((pair, i) => {
    if (!list.children[i]) list.appendChild(make('div')).append(make('dt'), make('dd'));
    pair.forEach((text, j) => put(list.children[i].children[j], text));
  });
  showOrders();
}

/** What colleagues did, among the words by its time. What was ordered here stands there already. */
function showOrders() {
  const given = steered[chosen?.id ?? ''] ?? [];
  for (; chosen && chosen.orders < given.length; chosen.orders++) {
    const at = chosen.sent.indexOf(given[chosen.orders].text);
    const order = given[chosen.orders];
    if (at < 0) add(get('words'), make('p', 'order', orderLines([order])[0]), (e) => Number(e.dataset.at) >= Date.parse(order.at));
    else chosen.sent.splice(at, 1);
  }
}

/** Adds to a list, which keeps the newest; before what is later. */
function add(/** @type {HTMLElement} */ list, /** @type {HTMLElement} */ e, isLater = (/** @type {HTMLElement} */ _) => false) {
  list.insertBefore(e, /** @type {HTMLElement[]} */ ([...list.children]).find(isLater) ?? null);
  while (list.children.length > MOST) list.firstElementChild?.remove();
}

/** Words of a turn: a piece that grows the newest line, or with final all of it. @param {{role: string, turn: number, text: string, final?: boolean, at?: number}} t `at`: ms since 1970 */
function words({ role, turn, text, final, at }) {
  const list = get('words');
  let p = list.querySelector(`p[data-of="${role} ${Number(turn)}"]:not(.final)`);
  if (!p) {
    p = make('p', `turn ${role}`);
    Object.assign(p.dataset, { of: `${role} ${Number(turn)}`, ...(at && { at }) });
    p.append(make('span', 'unseen', role === 'user' ? 'Person: ' : 'Agent: '), make('span'));
    add(list, p);
  }
  if (final && role !== 'user') p.children[1].replaceChildren(...nodes(text));
  else put(p.children[1], final ? text : p.children[1].textContent + text);
  p.classList.toggle('final', Boolean(final));
}

function take(/** @type {{type: string, payload?: any, time?: number}} */ { type, payload = {}, time = Date.now() }) {
  if (type === 'TRANSCRIPT') return words(payload);
  if (type === 'CONTEXT') {
    orders(true);
    get('words').replaceChildren();
    payload.entries.forEach((/** @type {any} */ e, /** @type {number} */ i) => words({ role: e.role, turn: -1 - i, text: e.content + (e.cut ? ' …' : ''), final: true, at: e.timestamp }));
    if (chosen) chosen.orders = 0;
    return showOrders();
  }
  if (type === 'GEMINI_DISCONNECTED') over(payload.reason && payload.reason !== 'goodbye' ? `It has ended: ${payload.reason}` : 'It has ended.');
  if (type === 'INTERRUPTED') [...document.querySelectorAll(`#words [data-of="assistant ${Number(payload.turn)}"]`)].at(-1)?.append(' …');
  if (type === 'GEMINI_ERROR') put(get('ended'), payload.message ?? '');
  const item = make('li');
  item.append(make('time', '', clock.format(time)), ' ', make('b', '', type.toLowerCase().replaceAll('_', ' ')), ` ${brief(payload)}`);
  add(get('events'), item);
}

/** What stands in an event, in a line. */
function brief(/** @type {any} */ payload) {
  const text = payload.message ?? payload.reason ?? Object.entries(payload).map(([k, v]) => `${k} ${typeof v === 'object' ? JSON.stringify(v) : v}`).join(', ');
  return text.slice(0, 300);
}

function send(/** @type {string} */ type, /** @type {object} */ payload = {}) {
  if (chosen?.socket.readyState === WebSocket.OPEN) chosen.socket.send(JSON.stringify({ type, payload }));
}

get('say').onsubmit = (/** @type {Event} */ e) => {
  e.preventDefault();
  const text = get('text').value.trim();
  if (!text) return;
  const exactly = get('how').value === 'say';
  add(get('words'), make('p', 'order', exactly ? `You had it say: ${text}` : `You instructed: ${text}`));
  const instruction = exactly ? EXACTLY + text : text;
  send('RESPOND', { instruction });
  chosen?.sent.push(instruction);
  get('text').value = '';
};
get('how').onchange = () => (get('text').placeholder = get('how').value === 'say' ? 'One moment, please.' : 'Offer a call back');
get('interrupt').onclick = () => send('INTERRUPT');
get('close').onclick = () => {
  const [row] = rows.get(chosen?.id ?? '') ?? [];
  shut();
  describe();
  row?.querySelector('button')?.focus();
};
get('end').onclick = async () => {
  const mine = chosen;
  if (!mine || !confirm('End this conversation, after the sentence that is being said?')) return;
  const answer = await ask(id(mine.id), 'DELETE').catch(() => null);
  if (chosen !== mine || mine.over) return; // it may have ended before the answer came
  put(get('ended'), answer?.ok ? 'It ends after the sentence that is being said.' : answer ? await sentence(answer) : 'The gateway does not answer.');
};

/** An <audio> can show no key: it gets a ticket. */
get('listen').onclick = async () => {
  if (get('listen').ariaPressed === 'true') return hush();
  const mine = chosen;
  if (!mine) return;
  const answer = await ask(`${id(mine.id)}/ticket`).catch(() => null);
  if (!answer?.ok || chosen !== mine) return;
  get('listen').ariaPressed = 'true';
  get('sound').src = `listen/${(await answer.json()).ticket}`;
  get('sound').play().catch(() => {});
};
get('sound').onplaying = () => put(get('ended'), 'You hear both sides, about two seconds late.');
get('sound').onerror = () => {
  if (get('listen').ariaPressed !== 'true') return;
  hush();
  put(get('ended'), 'This conversation cannot be heard: the key may not “listen”, or four listen already.');
};
function hush() {
  get('listen').ariaPressed = 'false';
  get('sound').removeAttribute('src');
  get('sound').load();
}

look();
