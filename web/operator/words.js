/** What the gateway calls in one word, for people. */

const PROTOCOLS = {
  web: 'Web page', vox: 'VOX', sip: 'Telephone (SIP)', telephony: 'Telephone (provider)', openai: 'OpenAI client', live: 'Gemini Live client',
  rtvi: 'Pipecat client', whip: 'WHIP', rest: 'REST',
};

const OUTCOMES = {
  goodbye: 'Ended by the person', left: 'The person left', silence: 'Nobody spoke', time_limit: 'Time was up', token_limit: 'Tokens used up', budget: 'Budget used up', shutdown: 'Gateway stopped',
};

const STATES = { live: 'listening', tool: 'using a tool', draining: 'listening', parked: 'away', dialing: 'connecting', setup: 'connecting', resuming: 'reconnecting', reseeding: 'reconnecting' };

const ORDERS = { instruct: 'instructed', say: 'typed for the person', interrupt: 'interrupted the answer', end: 'ended it', change: 'changed the agent', recording: 'paused or resumed the recording' };

/** Why a client was refused, by the gateway's name of the rule. */
const RULES = {
  'no token': 'came without a token', 'bad token': 'token not valid', 'no key': 'came without a server key', 'unknown key': 'unknown server key',
  key: 'key without the privilege', door: 'token for another protocol', 'token used twice': 'token for one conversation, used again',
  full: 'the gateway was full', origin: 'page of a site that is not allowed', bodies: 'too many large requests', slow_body: 'request sent too slowly',
  'identity header': 'name given twice by the proxy', 'waiting per address': 'too many waiting from one address',
  'budget for a turn': 'rest of the budget too small for a turn', quota: 'quota of Google used up', 'session webhook': 'declined by your session webhook', 'sip wrong password': 'telephone with a wrong password',
};
const KINDS = { address: 'from one address', key: 'of one key', identity: 'of one person', token: 'with one token', all: 'of everybody together' };

/** @param {Record<string, string>} table @param {string} word */
const from = (table, word) => table[word] ?? word.replaceAll('_', ' ');

const protocolOf = (/** @type {string} */ door) => from(PROTOCOLS, door);

const SPEAKERS = { user: 'Person speaks', assistant: 'Agent speaks' };

/** How a running conversation is. @param {{state: string, speaker?: string}} s */
export const stateOf = ({ state, speaker = '' }) => (/live|draining/.test(state) && from(SPEAKERS, speaker)) || capital(from(STATES, state));

/** @param {string} rule */
export function ruleOf(rule) {
  const [, what, kind = ''] = /^(sessions|new|budget) of (\w+)/.exec(rule) ?? [];
  const many = { sessions: 'too many conversations at once', new: 'too many new conversations', budget: 'budget used up' };
  return what ? `${many[/** @type {keyof typeof many} */ (what)]} ${from(KINDS, kind)}` : from(RULES, rule);
}

const capital = (/** @type {string} */ text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What has become of a conversation. @param {{outcome: string, failed?: boolean, reason?: string, steered?: {what: string}[]}} c */
export const outcomeOf = ({ outcome, failed, reason, steered }) => outcome === 'goodbye' && steered?.some(({ what }) => what === 'end') ? 'Ended by an operator' : capital(failed ? reason || from({}, outcome) : reason && !outcome ? reason : from(OUTCOMES, outcome) || 'Ended');

const date = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit' });
const hour = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });

/** A time of today needs no date. @param {string} at */
export const when = (at) => (new Date(at).toDateString() === new Date().toDateString() ? hour : date).format(Date.parse(at));

/** How long a conversation lasted, or has lasted until now, as 1:05. @param {{startedAt: string, endedAt?: string}} c */
export function lengthOf({ startedAt, endedAt }) {
  const s = Math.max(0, Math.round(((endedAt ? Date.parse(endedAt) : Date.now()) - Date.parse(startedAt)) / 1000)) || 0;
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
}

/** What is put before words that the agent is to say. */
export const EXACTLY = 'Say exactly this, and nothing else: ';

/** An order, in words for people. @param {any} order */
export const orderLine = ({ at, by, what, text }) => `${when(at)} ${by || 'An operator'} ${from(ORDERS, what)}${text ? `: ${text}` : ''}`.replace(`instructed: ${EXACTLY}`, 'had it say: ');

const BROWSERS = [['Edg/', 'Edge'], ['OPR/', 'Opera'], ['Firefox/', 'Firefox'], ['FxiOS/', 'Firefox'], ['CriOS/', 'Chrome'], ['HeadlessChrome/', 'Chrome'], ['Chrome/', 'Chrome'], ['Safari/', 'Safari']];
const SYSTEMS = [['iPhone', 'iPhone'], ['iPad', 'iPad'], ['Android', 'Android'], ['Windows', 'Windows'], ['Mac OS', 'Mac'], ['CrOS', 'Chromebook'], ['Linux', 'Linux']];

/** A browser and its system, as "Firefox, Windows", or the first word of another client. @param {string} [agent] its User-Agent */
export function deviceOf(agent = '') {
  const find = (/** @type {string[][]} */ list) => list.find(([mark = '']) => agent.includes(mark))?.[1];
  const browser = agent.startsWith('Mozilla/') ? find(BROWSERS) : undefined;
  return browser ? [browser, find(SYSTEMS)].filter(Boolean).join(', ') : agent.split(/[/ ]/)[0] ?? '';
}

/** Words in one line, without the marks of Markdown. @param {string} text */
const plain = (text) => text.replace(/\|.*\|.*\|/s, ' (a table) ').replace(/\*\*|`|^#+ |\|(?:[\s|:-]*\|)?/gm, ' ').replace(/\s+/g, ' ').trim();

/** What was said last, in one line. @param {{role: string, text: string}} [newest] */
export const newestOf = (newest) => (newest ? `${newest.role === 'user' ? 'Person' : 'Agent'}: ${plain(newest.text)}` : '');

/** An amount, or a dash for none. @param {number | undefined} n */
export const money = (n) => (!n || n < 0.00005 ? '–' : `$${n.toFixed(n < 1 ? 4 : 2)}`);

/** @param {number | undefined} ms */
export const seconds = (ms) => (ms === undefined ? '–' : ms < 1000 ? `${Math.round(ms)}\u00a0ms` : `${(ms / 1000).toFixed(1)}\u00a0s`);

/** Who talks: a name or number, else the device or the address, and the end of the conversation's ID, which tells those apart that have no name.
 * @param {{identity?: string, device?: string, address?: string, id: string}} s */
export const who = (s) => s.identity || `${deviceOf(s.device) || s.address || 'Nameless'} · ${s.id.slice(-4)}`;

/** What tells people of one name apart. @param {any} s */
export const where = (s) => [s.identity && deviceOf(s.device), s.address !== s.identity && (s.identity || deviceOf(s.device)) && s.address, protocolOf(s.door), s.node && `gateway ${s.node}`].filter(Boolean).join(' · ');

/** @param {number | undefined} n a part of 1 */
export const percent = (n) => (n === undefined ? '–' : `${(100 * n).toFixed(n && n < 0.1 ? 1 : 0)}\u00a0%`);
