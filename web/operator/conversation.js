/** The conversation that was chosen: what is said, and what steers it; or what was said, and its recordings. */
import { ask, keyOf, sentence } from './ask.js';
import { make } from './dom.js';
import { nodes } from './markdown.js';
import { isPlaying, nameOf, play, stopTape } from './recordings.js';
import { get, newChoice, put } from './table.js';
import { twice } from './twice.js';
import { EXACTLY, lengthOf, money, orderLine, outcomeOf, percent, seconds, when, where, who } from './words.js';

const MOST = 500; // words and events that are kept
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });

const urlOf = (/** @type {string} */ id) => `v1/sessions/${encodeURIComponent(id)}`;

/** @type {{id: string, isPast: boolean, socket: WebSocket | null, over: boolean, orders: number, sent: string[]} | null} `orders` are shown; `sent` are not listed by the gateway yet */
let chosen = null;
/** @type {Map<string, string[]>} what this page has ordered, by conversation */
const ordered = new Map();
/** @type {{running: any[], ended: any[], steered: Record<string, any[]>}} what the gateway has told last; `steered`: orders to conversations that run */
let known = { running: [], ended: [], steered: {} };

/** Shows a running or an ended conversation. @param {any} c */
export function open(c) {
  const isPast = Boolean(c.endedAt);
  if (chosen && chosen.id === c.id && chosen.isPast === isPast && (isPast || !chosen.over)) return;
  shut();
  const now = (chosen = { id: c.id, isPast, socket: isPast ? null : follow(c.id), over: isPast, orders: 0, sent: [] });
  if (now.socket) {
    now.socket.onmessage = ({ data }) => chosen === now && take(JSON.parse(data));
    now.socket.onclose = () => chosen === now && over('The connection to this conversation was lost. Choose it again.');
  }
  for (const part of ['words', 'events', 'tapes']) get(part).replaceChildren();
  for (const part of ['say', 'orders', 'log']) get(part).hidden = isPast;
  put(get('ended'), '');
  get('end').replaceChildren(twice('End', end));
  orders(false);
  get('one').hidden = false;
  get('one').classList.toggle('past', isPast);
  describe();
  get('one').focus({ preventScroll: true });
  if (isPast) void read(c);
}

/** @param {string} id */
function follow(id) {
  const url = new URL(`${urlOf(id)}/events`, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  return new WebSocket(url, keyOf() ? ['voxgate', `voxgate.token.${keyOf()}`] : []);
}

/** Asks for what was said in a conversation that is over. @param {any} c */
async function read(c) {
  if (!c.words) return put(get('ended'), c.node ? `What was said is on the page of the gateway ${c.node}.` : '');
  const answer = await ask(`ended/${encodeURIComponent(c.id)}/words`).catch(() => null);
  const why = answer?.ok ? '' : answer ? await sentence(answer) : 'The gateway does not answer.';
  const { transcript = [] } = answer?.ok ? await answer.json() : {};
  if (chosen?.id !== c.id) return;
  if (why) put(get('ended'), why);
  showTranscript(transcript.map((/** @type {any} */ t) => ({ ...t, content: t.text, timestamp: Date.parse(t.at) })));
}

function showTranscript(/** @type {any[]} */ entries) {
  get('words').replaceChildren();
  entries.forEach((e, i) => words({ role: e.role, turn: -1 - i, text: e.content + (e.cut ? ' …' : ''), final: true, at: e.timestamp }));
  const [newest, last] = [entries.at(-1), get('words').lastElementChild];
  if (newest && !newest.cut && !chosen?.isPast) last.dataset.begin = newest.content; // it may not be all of that turn
  if (chosen) chosen.orders = 0;
  showOrders();
}

function shut() {
  hush();
  stopTape();
  chosen?.socket?.close();
  chosen = null;
  get('one').hidden = true;
}

function over(/** @type {string} */ why) {
  if (!chosen || chosen.over) return;
  chosen.over = true;
  put(get('ended'), why);
  orders(false);
  if (document.activeElement?.closest('#say, #orders')) get('one').focus({ preventScroll: true });
  for (const part of ['say', 'orders']) get(part).hidden = true;
  hush();
}

const orders = (/** @type {boolean} */ on) => document.querySelectorAll('#say :is(input, button), #orders button')
  .forEach((e) => (/** @type {HTMLButtonElement} */ (e).disabled = !on));

/** Brings facts, orders and recordings up to date. @param {typeof known} [told] what the gateway has told */
export function describe(told = known) {
  known = told;
  const isCovered = Boolean(chosen) && matchMedia('(width < 64rem)').matches; // by the conversation
  document.querySelectorAll('header, #lists, #aside > :not(#one)').forEach((e) => e.toggleAttribute('inert', isCovered));
  document.querySelectorAll('tr[data-id]').forEach((row) => (row.ariaCurrent = /** @type {HTMLElement} */ (row).dataset['id'] === chosen?.id ? 'true' : null));
  const isChosen = (/** @type {any} */ c) => c.id === chosen?.id;
  const c = known.running.find(isChosen) ?? known.ended.find(isChosen);
  if (!c) return;
  put(get('one-title'), who(c));
  const loss = c.loss && `${percent(c.loss.up)} of the person’s voice, ${percent(c.loss.down)} of the agent’s`;
  const facts = [['Outcome', c.endedAt && outcomeOf(c)], ['From', where(c)], ['Agent', c.agent], ['Step', c.step?.replaceAll('_', ' ')], ['Model', c.model],
    [c.endedAt ? 'Ended' : 'Since', c.endedAt ? when(c.endedAt) : clock.format(Date.parse(c.startedAt))], ['Duration', lengthOf(c)], ['Latency', c.latencyMs && seconds(c.latencyMs)],
    ['Tokens', c.tokens.toLocaleString()], ['Cost', c.dollars && money(c.dollars)], ['Packet loss', loss], ['ID', c.id]].filter(([, value]) => value);
  const list = get('what');
  while (list.children.length > facts.length) list.lastElementChild.remove();
  facts.forEach((pair, i) => {
    if (!list.children[i]) list.appendChild(make('div')).append(make('dt'), make('dd'));
    pair.forEach((text, j) => put(list.children[i].children[j], text));
    list.children[i].classList.toggle('wrong', Boolean(c.failed) && pair[0] === 'Outcome');
  });
  if (!get('tapes').hasChildNodes()) c.recordings?.forEach((/** @type {string} */ file, /** @type {number} */ i) => {
    const button = make('button', 'chip', `${isPlaying(c, i) ? '❚❚' : '▶'} Recording${c.recordings.length > 1 ? ` ${i + 1}` : ''}`);
    button.dataset['of'] = nameOf(c, i);
    button.title = file;
    button.onclick = () => play(c, i);
    get('tapes').append(button);
  });
  showOrders();
}

/** What colleagues did, among the words by its time. What was ordered here stands there already. */
function showOrders() {
  const given = known.steered[chosen?.id ?? ''] ?? known.ended.find((c) => c.id === chosen?.id)?.steered ?? [];
  for (; chosen && chosen.orders < given.length; chosen.orders++) {
    const order = given[chosen.orders];
    const text = order.text || order.what;
    const at = chosen.sent.indexOf(text);
    if (at < 0) add(get('words'), make('p', 'order', orderLine(ordered.get(chosen.id)?.includes(text) ? { ...order, by: 'You' } : order)), (e) => Number(e.dataset.at) >= Date.parse(order.at));
    else chosen.sent.splice(at, 1);
  }
}

/** Adds to a list, which keeps the newest; before what is later. */
function add(/** @type {HTMLElement} */ list, /** @type {HTMLElement} */ e, isLater = (/** @type {HTMLElement} */ _) => false) {
  list.insertBefore(e, /** @type {HTMLElement[]} */ ([...list.children]).find(isLater) ?? null);
  while (list.children.length > MOST) list.firstElementChild?.remove();
}

const letters = (/** @type {string} */ text) => text.replace(/\s+/g, '');

/** Words of a turn: a piece that grows the newest line, or with final all of it. @param {{role: string, turn: number, text: string, final?: boolean, at?: number}} t `at`: ms since 1970 */
function words({ role, turn, text, final, at }) {
  const list = get('words');
  const last = [...list.querySelectorAll('.turn')].at(-1);
  if (last?.dataset.begin !== undefined && last.matches(`.${role}`)) {
    const isItsTurn = !final || letters(text).startsWith(letters(last.dataset.begin));
    if (!isItsTurn) last.children[1].textContent = last.dataset.begin;
    last.dataset.of = isItsTurn ? `${role} ${Number(turn)}` : '';
    last.classList.toggle('final', !isItsTurn);
    if (final) delete last.dataset.begin;
  }
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
    return showTranscript(payload.entries);
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

/** Shows an order of this page among the words at once: the gateway lists it later. */
function noteOrder(/** @type {string} */ what, text = '') {
  if (!chosen) return;
  add(get('words'), make('p', 'order', orderLine({ at: new Date().toISOString(), by: 'You', what, text })));
  chosen.sent.push(text || what);
  ordered.set(chosen.id, [...ordered.get(chosen.id) ?? [], text || what]);
}

function send(/** @type {string} */ type, /** @type {object} */ payload = {}) {
  if (chosen?.socket?.readyState === WebSocket.OPEN) chosen.socket.send(JSON.stringify({ type, payload }));
}

const isExact = () => get('how').dataset.value === 'say';
newChoice(get('how'), () => (get('text').placeholder = isExact() ? 'One moment, please.' : 'Offer a call back'));

get('say').onsubmit = (/** @type {Event} */ e) => {
  e.preventDefault();
  const text = get('text').value.trim();
  if (!text) return;
  const instruction = isExact() ? EXACTLY + text : text;
  send('RESPOND', { instruction });
  noteOrder('instruct', instruction);
  get('text').value = '';
};
get('interrupt').onclick = () => {
  send('INTERRUPT');
  noteOrder('interrupt');
};

function close() {
  const row = [...document.querySelectorAll('tr[data-id]')].find((e) => e instanceof HTMLElement && e.dataset['id'] === chosen?.id);
  shut();
  describe();
  row?.querySelector('button')?.focus();
}
get('close').onclick = close;
get('one').addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => e.key === 'Escape' && close());

async function end() {
  const asked = chosen;
  if (!asked) return;
  get('end').replaceChildren();
  noteOrder('end');
  const answer = await ask(urlOf(asked.id), 'DELETE').catch(() => null);
  if (chosen !== asked || asked.over) return; // it may have ended before the answer came
  put(get('ended'), answer?.ok ? 'It ends after the sentence that is being said.' : answer ? await sentence(answer) : 'The gateway does not answer.');
  if (!answer?.ok) get('end').replaceChildren(twice('End', end));
}

/** An <audio> can show no key: it gets a ticket. */
get('listen').onclick = async () => {
  if (get('listen').ariaPressed === 'true') return hush();
  const asked = chosen;
  if (!asked) return;
  const answer = await ask(`${urlOf(asked.id)}/ticket`).catch(() => null);
  if (!answer?.ok || chosen !== asked) return;
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
