/**
 * The conversation for React, without a bundle of its own: React is the app's.
 *
 *   <VoxgateProvider url="wss://your.gateway/ws"><App /></VoxgateProvider>
 *   const { state, turns, start, end } = useVoxgate();
 *
 * declared/react.d.ts describes all of it.
 */
import { createContext, createElement as h, useContext, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from 'react';
import { canvas as words, errors, states, talk as buttons } from './en.js';
import { isOpen } from './look.js';
import { parse } from './markdown.js';
import { cardOf, withHistory } from './conversation.js';
import { BEFORE, keepEarlier, readEarlier, renameEarlier } from './earlier.js';
import './orb.js';
import { absenceOf, cutOf, hasUser, isMomentary, MOMENT, muteOf, nameOfDefault, OFFERS, situationOf, sourcesOf, splitStatus, statusOf } from './status.js';
import { callIt, fill, language, speak } from './strings.js';
import { suggestionsFrame } from './suggestions.js';
import { markUnheard } from './unheard.js';
import { open, resumable } from './voxgate.js';

/**
 * @import { Piece } from './markdown.js'
 * @import { Earlier, UsedTool } from './earlier.js'
 * @import { Seen } from './declared/react.d.ts'
 * @import { Offer } from './status.js'
 * @import { Devices, Options, Session, ToolCall, Turn, VoxgateError } from './types.d.ts'
 */

/** @type {Seen} */
const NOBODY = { state: 'closed', mic: 'off', turns: [], sentence: '' };
const QUIET = { mic: 0, model: 0 };

/** The conversations of one provider, one after the other, as something that React can watch. */
class Talk {
  /** @type {Options} */ options = { url: '' };
  /** @type {Devices} */ devices = {};
  /** @type {Set<() => void>} */ #watchers = new Set();
  /** @type {Session|undefined} */ #session;
  /** @type {VoxgateError|undefined} why the last one ended */ ended;
  begunAt = 0; // ms since 1970, the newest
  /** @type {readonly Turn[]} what the session goes on with */ #known = [];
  /** @type {readonly Turn[]|undefined} the session's part of `seen.turns` */ #sessionTurns;
  /** @type {ReturnType<typeof resumable>} what was said before the page was loaded again; the next session goes on with it */ left;
  /** @type {Set<string>} turns that were typed without a connection, and that the gateway does not have */ unsent = new Set();
  /** @type {readonly UsedTool[]} */ tools = [];
  seen = NOBODY;

  subscribe = (/** @type {() => void} */ f) => {
    this.#watchers.add(f);
    return () => void this.#watchers.delete(f);
  };

  get = () => this.seen;

  /** Shows the conversation that a reload has interrupted. @param {string} name of `resume` */
  recall = (name) => {
    this.left = this.#session ? undefined : resumable(name);
    if (!this.left) return;
    const { at, turns, tools } = readEarlier(name);
    [this.#known, this.tools, this.begunAt] = [turns, tools, at];
    this.see({ turns: [...turns, ...this.left.turns] });
  };

  /** What the conversation that a reload has interrupted went on with. @returns {Earlier} */
  get earlier() {
    return { at: this.begunAt, turns: this.#known, tools: this.tools };
  }

  /** @param {Partial<Options>} [more] */
  start = (more) => {
    const wished = more && 'nativeEvent' in more ? {} : more; // as onClick={start} gives it
    if (!this.left) return this.#open(wished);
    const { earlier } = this;
    return this.#open({ ...wished, config: withHistory(wished?.config ?? this.options.config, earlier.turns) }, earlier);
  };

  goOn = () => {
    const { seen, unsent } = this;
    const { ids, turns, tools } = renameEarlier(seen.turns, this.tools);
    const session = this.#open({ config: withHistory(this.options.config, seen.turns.filter((turn) => !unsent.has(turn.id))) }, { at: Date.now(), turns, tools });
    this.unsent = new Set([...this.unsent, ...[...ids].flatMap(([id, renamed]) => (unsent.has(id) ? [renamed] : []))]);
    return session;
  };

  /** @param {Partial<Options>|undefined} wished @param {Earlier} [earlier] */
  #open(wished, { at, turns, tools } = { at: Date.now(), turns: [], tools: [] }) {
    if (this.#session && this.#session.state !== 'closed') return this.#session;
    const { video, ...devices } = this.devices;
    const session = (this.#session = open({ ...this.options, ...devices, ...wished }));
    if (video) session.ready.then(() => session.use({ video }), () => {});
    /** @type {Set<string>} */ const seen = new Set();
    session.on('state', () => {
      if (session.state !== 'closed' && !isAway(session)) this.unsent = new Set([...this.unsent].filter((id) => id.startsWith(BEFORE)));
      this.see();
      if (session.away && isMomentary(session.away)) setTimeout(() => this.see(), MOMENT); // the sentence changes then
    });
    session.on('turn', ({ id, role }) => {
      if (role === 'user' && !seen.has(id) && isAway(session)) this.unsent = new Set([...this.unsent, id]);
      seen.add(id);
      this.see();
    });
    session.on('tool', (call) => {
      const { after = this.seen.turns.at(-1)?.id } = this.tools.find((t) => t.call.id === call.id) ?? {};
      this.tools = [...this.tools.filter((t) => t.call.id !== call.id), { call, after }];
      this.#keep();
      this.see();
    });
    session.on('error', (error) => this.see({ error }));
    session.on('closed', (why) => {
      this.ended = why;
      this.see(['closed', 'aborted'].includes(why.code) ? {} : { error: why });
    });
    this.ended = this.left = undefined;
    this.begunAt = at;
    this.unsent = new Set();
    this.tools = tools;
    this.seen = NOBODY;
    this.#known = turns;
    this.#sessionTurns = undefined;
    this.#keep();
    this.see({ session });
    return session;
  }

  /** Keeps what a page that is loaded again shows before the turns of the session, and its cards. */
  #keep() {
    keepEarlier(this.options.resume, this.earlier);
  }

  end = () => this.#session?.close() ?? Promise.resolve();

  /** @param {string} text */
  send = (text) => (this.#session && this.#session.state !== 'closed' ? this.#session : this.start({ mic: false })).send(text);

  /** @param {boolean} [on] */
  mute = (on) => this.#session?.mute(on);

  interrupt = () => this.#session?.interrupt();

  /** @param {Devices} devices now, and of the next conversation */
  use = (devices) => {
    this.devices = { ...this.devices, ...devices };
    return this.#session?.use(devices) ?? Promise.resolve();
  };

  /** Another snapshot, and everybody hears of it. @param {Partial<Seen>} [more] */
  see = (more) => {
    const session = this.#session;
    const { state = 'closed', mic = 'off', turns: newest } = session ?? {};
    const turns = newest === this.#sessionTurns ? this.seen.turns : [...this.#known, ...(newest ?? [])];
    this.#sessionTurns = newest;
    const { error } = { ...this.seen, ...more };
    const failed = error?.fatal ? error : undefined;
    const sentence = session && (state !== 'closed' || failed) ? statusOf(situationOf(session, { offers: OFFERS.react }, failed)).text : '';
    this.seen = { ...this.seen, state, mic, turns, sentence, ...more };
    for (const f of this.#watchers) f();
  };
}

/** What is typed is sent later. @param {Session} session */
const isAway = ({ setup, state }) => !setup || state === 'reconnecting';

const Context = createContext(/** @type {Talk|undefined} */ (undefined));

function useTalk() {
  const talk = useContext(Context);
  if (!talk) throw new Error('voxgate: put a <VoxgateProvider url="wss://your.gateway/ws"> around what uses it');
  return talk;
}

/** @param {Options & {children?: import('react').ReactNode}} props */
export function VoxgateProvider({ children, ...options }) {
  const [talk] = useState(() => new Talk());
  const { lang, strings, who, resume } = options;
  if (who) callIt(who); // what is shown before the conversation has the name, too
  useEffect(() => {
    talk.options = options; // of the next conversation
  });
  useEffect(() => {
    speak({ talk: buttons, states, errors, canvas: words }, { ...(lang && { lang }), ...(strings && { strings }) }).then(() => talk.see());
  }, [talk, lang, strings]);
  useEffect(() => {
    if (resume) talk.recall(resume);
  }, [talk, resume]);
  useEffect(() => () => void talk.end(), [talk]);
  return h(Context.Provider, { value: talk }, children);
}

export function useVoxgate() {
  const talk = useTalk();
  const seen = useSyncExternalStore(talk.subscribe, talk.get, () => NOBODY);
  const { start, goOn, end, send, mute, interrupt, use } = talk;
  return { ...seen, start, goOn, end, send, mute, interrupt, use };
}

export function useLevel() {
  const { session, state } = useVoxgate();
  const [level, setLevel] = useState(QUIET);
  const on = Boolean(session) && state !== 'closed';
  useEffect(() => {
    if (!on || !session) return undefined;
    let frame = 0;
    const step = () => {
      const { mic, model } = session.level;
      setLevel((was) => (Math.abs(was.mic - mic) + Math.abs(was.model - model) < 0.01 ? was : { mic, model }));
      frame = requestAnimationFrame(step);
    };
    step();
    return () => {
      cancelAnimationFrame(frame);
      setLevel(QUIET);
    };
  }, [session, on]);
  return level;
}

/** @param {Record<string, any>} props */
export function Orb(props) {
  const { session } = useVoxgate();
  const orb = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (orb.current) orb.current.session = session;
  }, [session]);
  return h('voxgate-orb', { ...props, ref: orb });
}

/** @param {Record<string, any>} props */
export function Conversation(props) {
  const talk = useTalk();
  const { session } = useVoxgate();
  const { left } = talk;
  const element = useRef(/** @type {any} */ (null));
  useEffect(() => {
    element.current.source = talk;
    if (session) element.current.session = session;
    else if (left) element.current.recall(left, talk.earlier);
  }, [talk, session, left]);
  return h('voxgate-conversation', { ...props, ref: element });
}

const SECOND = 1_000; // ms

/** @param {{offers?: Offer[], onChooseMicrophone?: () => void, children?: import('react').ReactNode} & Record<string, any>} props */
export function Status({ offers = OFFERS.react, onChooseMicrophone, children, ...props }) {
  const talk = useTalk();
  const { session, turns } = useVoxgate();
  const [, count] = useState(0);
  const away = session?.away;
  const isAway = Boolean(away);
  useEffect(() => {
    const timer = isAway ? setInterval(() => count((n) => n + 1), SECOND) : undefined;
    return () => clearInterval(timer);
  }, [isAway]);
  const { text, keys, canRetryMic, isBrief, next } = statusOf(situationOf(session, { offers, ...(talk.left && { resumable: true }), ...(hasUser(turns) && { hasTyped: true }) }, talk.ended));
  const canGoOn = talk.ended && next && turns.length > 0;
  const [first, rest] = splitStatus(text);
  const absence = absenceOf(away);
  const press = () => (canRetryMic ? session?.mute(false) : session?.retry());
  const words = states[canRetryMic ? 'try again' : 'try now'];
  const link = (/** @type {string|undefined} */ label, /** @type {() => void} */ onClick) => h('button', { type: 'button', className: 'link', onClick }, label);
  const more = isBrief ? link(words, press) : onChooseMicrophone && keys.includes('states choose mic') ? link(rest.trim(), onChooseMicrophone) : rest.trim();
  return h('div', props, h('p', { className: 'status', role: 'status' }, h('b', null, first), more && ' ', more && h('span', { className: isBrief || rest.startsWith(' ·') ? undefined : 'apart' }, more)),
    absence || (canRetryMic && !isBrief) ? h('p', { className: 'absence' }, absence, ' ', h('button', { type: 'button', onClick: press }, words)) : null,
    canGoOn || children ? h('p', { className: 'absence next' }, canGoOn ? h('button', { type: 'button', className: 'primary', onClick: talk.goOn }, fill(next === 'start' ? buttons['go on'] : states['try again'])) : null, children) : null);
}

/** @param {Record<string, any>} props */
export function MicButton({ children, onClick, ...props }) {
  const { state, mic, start, mute } = useVoxgate();
  const off = state === 'closed';
  const press = (/** @type {any} */ event) => {
    onClick?.(event);
    if (event.defaultPrevented) return;
    if (off) start();
    else mute(isOpen(mic));
  };
  const name = off ? states['start'] : muteOf(mic);
  const label = children ? { 'aria-label': name, title: name } : {};
  const closed = !off && !isOpen(mic) && mic !== 'asking'; // looks.css strikes it through
  const away = state === 'reconnecting'; // the microphone is not heard
  return h('button', { type: 'button', disabled: mic === 'asking', 'aria-pressed': off ? undefined : !isOpen(mic), 'data-on': closed || undefined, 'data-away': away || undefined, ...label, ...props, onClick: press },
    children ?? name);
}

const KINDS = /** @type {const} */ ({ microphone: 'audioinput', speaker: 'audiooutput', camera: 'videoinput' });

/** @param {{kind?: keyof typeof KINDS, standard?: string} & Record<string, any>} props */
export function DeviceSelect({ kind = 'microphone', standard = 'Default', onChange, ...props }) {
  const { mic, use, session } = useVoxgate();
  const [chosen, setChosen] = useState('');
  const [devices, setDevices] = useState(/** @type {MediaDeviceInfo[]} */ ([]));
  useEffect(() => {
    const { mediaDevices } = navigator;
    const list = () => mediaDevices?.enumerateDevices().then(setDevices, () => {});
    list(); // they have names once a microphone was allowed
    mediaDevices?.addEventListener('devicechange', list);
    return () => mediaDevices?.removeEventListener('devicechange', list);
  }, [mic]);
  const choose = (/** @type {any} */ event) => {
    onChange?.(event);
    const id = event.target.value;
    setChosen(id);
    const wish = id ? { deviceId: { ideal: id } } : {};
    use(kind === 'speaker' ? { speaker: id } : kind === 'camera' ? { camera: wish } : { mic: wish });
  };
  const known = devices.filter((d) => d.kind === KINDS[kind] && d.deviceId && d.label);
  const others = known.filter((d) => d.deviceId !== 'default' && d.deviceId !== 'communications');
  const own = nameOfDefault(known, KINDS[kind]) ?? (kind === 'microphone' && !chosen ? session?.track?.label : undefined);
  return h('select', { ...props, onChange: choose }, h('option', { value: '' }, own ? `${standard} (${own})` : standard),
    others.map((d) => h('option', { key: d.deviceId, value: d.deviceId }, d.label)));
}

/** @param {Piece} piece @param {number} key @returns {import('react').ReactNode} */
function element(piece, key) {
  if (typeof piece === 'string') return piece;
  const link = piece.tag === 'a' ? { href: piece.href, target: '_blank', rel: 'noopener noreferrer' } : {};
  return h(piece.tag, { key, ...link }, piece.inner.map(element));
}

/** @param {{turn: Turn, note?: string|undefined, show?: (turn: Turn) => import('react').ReactNode}} props */
function Line({ turn, note, show }) {
  const { role, text, heard, interrupted, cutBy, chips } = turn;
  const line = useRef(/** @type {any} */ (null));
  const said = heard ?? text;
  const sources = sourcesOf(turn).map(({ title, href }, i) => h('span', { key: i }, i ? ', ' : ' ', href ? h('a', { href, target: '_blank', rel: 'noopener noreferrer' }, title) : title));
  useEffect(() => {
    const frame = chips && !show ? suggestionsFrame(chips) : undefined;
    if (frame) line.current.append(frame);
    return () => frame?.remove();
  }, [chips, show]);
  useLayoutEffect(() => {
    const { current } = line;
    if (role !== 'model' || show) return undefined;
    markUnheard(current, turn);
    return () => markUnheard(current, { ...turn, played: undefined });
  }, [role, show, turn]);
  return h('article', { ref: line, className: `turn ${role}`, dir: 'auto', 'data-role': role, 'data-interrupted': interrupted || undefined },
    show ? show(turn) : role === 'model' ? parse(said).map(element) : said, show ? null : [cutOf(cutBy, said, text), note].map((words) => words && h('small', { key: words }, words)), show || !sources.length ? null : h('small', null, states['found'], sources));
}

/** That a tool has run. @param {{call: ToolCall}} props */
function Card({ call }) {
  const card = cardOf(call);
  return card ? h('div', { className: 'card', 'data-kind': 'tool', 'data-status': card.status }, h('span', null, card.title), ' ', h('span', { className: card.isQuiet ? 'unseen' : 'outcome' }, card.outcome)) : null;
}

/** @param {{children?: (turn: Turn) => import('react').ReactNode} & Record<string, any>} props */
export function Transcript({ children: show, ...props }) {
  const { unsent, begunAt, tools } = useTalk();
  const { state, session, turns } = useVoxgate();
  const later = session?.setup ? 'sent back' : 'sent later';
  const noteOf = (/** @type {string} */ id) => (unsent.has(id) ? states[state === 'closed' || id.startsWith(BEFORE) ? 'unsent' : later] : undefined);
  /** @type {import('react').ReactNode[]} */
  const lines = turns.flatMap((turn) => [h(Line, { key: turn.id, turn, note: noteOf(turn.id), ...(show && { show }) }),
    ...tools.filter(({ after }) => after === turn.id).map(({ call }) => h(Card, { key: `tool ${call.id}`, call }))]);
  const isKnown = (/** @type {string|undefined} */ id) => id?.startsWith(BEFORE);
  const known = turns.filter(({ id }) => isKnown(id)).length && [...turns.map(({ id }) => id), ...tools.map(({ after }) => after)].filter(isKnown).length;
  const time = new Date(begunAt).toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' });
  if (known) lines.splice(known, 0, h('p', { key: 'rule', className: 'rule known' }, fill(buttons['continued'], { time })));
  return h('div', { role: 'log', 'aria-label': states['said'], ...props }, lines);
}

