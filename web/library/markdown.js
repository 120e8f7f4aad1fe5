/** What models write, lightly: bold, italics, code, lists, tables and links. Everything else stays the text that it is; nothing is made from markup. */
import { keepCellsWhole } from './dom.js';

/** @typedef {string|{tag: 'p'|'ul'|'ol'|'li'|'pre'|'code'|'strong'|'em'|'a'|'table'|'tbody'|'tr'|'th'|'td', href?: string, inner: Piece[]}} Piece */

const SPAN = /`([^`\n]+)`|\*\*(?=\S)(.+?)\*\*|(?<![*\w])\*(?=\S)([^*\n]+?)\*(?![*\w])|\[([^\]\n]+)\]\((https?:\/\/[^\s()<>]+|mailto:[^\s()<>]+)\)|(https?:\/\/[^\s<>()]*[^\s<>().,;:!?])/g;

/** @param {string} text @returns {Piece[]} */
function spans(text) {
  /** @type {Piece[]} */
  const all = [];
  let at = 0;
  for (const m of text.matchAll(SPAN)) {
    const [whole, code, strong, em, label, href, url] = m;
    if (m.index > at) all.push(text.slice(at, m.index));
    at = m.index + whole.length;
    if (code) all.push({ tag: 'code', inner: [code] });
    else if (strong) all.push({ tag: 'strong', inner: spans(strong) });
    else if (em) all.push({ tag: 'em', inner: spans(em) });
    else all.push(link(href ?? url ?? '', label ?? url ?? ''));
  }
  if (at < text.length) all.push(text.slice(at));
  return all;
}

/** What reads as an address: a scheme, or a name with a dot in it whose last part is letters. */
const ADDRESS = /^\s*(?:[a-z]+:\/\/|mailto:)?(?:[^\s/@]*@)?((?:[\p{L}\p{N}-]+\.)+\p{L}{2,})(?=[/:?#\s]|$)/iu;

/** File names such as Next.js are not turned into links. */
const FILE = /\.(?:js|ts|css|html|json|txt)$/i;

/**
 * A link never shows another address than it opens: words that name another host, or turn their direction round, give way to the address. One with a
 * name before the host, as in https://google.com@evil.example, is none.
 * @param {string} href
 * @param {string} label
 * @returns {Piece}
 */
function link(href, label) {
  const to = URL.canParse(href) ? new URL(href) : undefined;
  if (!to || to.username || to.password) return href === label ? label : `${label} (${href})`;
  const host = to.protocol === 'mailto:' ? to.pathname.split('@').at(-1) : to.hostname;
  const [, named] = ADDRESS.exec(label) ?? [];
  const lies = /[\u202a-\u202e\u2066-\u2069]/.test(label) || (named && !FILE.test(named) && named.toLowerCase() !== host && `www.${named.toLowerCase()}` !== host);
  return { tag: 'a', href, inner: [lies ? href : label] };
}

/** The cells of a line of a table. @param {string} line */
const cells = (line) => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));

/** The line under the head of a table, or the beginning of one while it grows. */
const RULE = /^\s*\|?(?:\s*:?-+:?\s*\|)*\s*:?-*:?\s*\|?\s*$/;

/**
 * The last line is a row of a table that grows, or was cut off there: half a cell may say something else than all of it. Tables whose rows have no bar at
 * their ends are shown as they grow.
 * @param {string[]} source
 */
function isHalfRow(source) {
  const isOpen = (line = '') => /^\s*\|/.test(line) && !/\|\s*$/.test(line);
  return /^\s*\|\s*$/.test(source.at(-1) ?? '') || (isOpen(source.at(-1)) && !isOpen(source.at(-2)));
}

/**
 * A table with the lines from `at` on, if there is one, and the number of its lines. A head that is still alone is one already, so that it does not
 * appear as text first.
 * @param {string[]} source
 * @param {number} at
 * @returns {{table: Piece, lines: number}|undefined}
 */
function tableAt(source, at) {
  const [head = '', rule] = source.slice(at, at + 2);
  if (!/^\s*\|.*\|\s*$/.test(head) || (rule !== undefined && !(rule.includes('-') ? RULE.test(rule) : at + 2 === source.length && RULE.test(rule)))) return undefined;
  let end = at + 1;
  while (end < source.length && /^\s*\|/.test(source[end] ?? '')) end++;
  const row = (/** @type {string} */ line, /** @type {'th'|'td'} */ tag) => (
    /** @type {Piece} */ ({ tag: 'tr', inner: cells(line).map((cell) => ({ tag, inner: spans(cell) })) }));
  const rows = [row(head, 'th'), ...source.slice(at + 2, end).map((line) => row(line, 'td'))];
  return { table: { tag: 'table', inner: [{ tag: 'tbody', inner: rows }] }, lines: end - at };
}

/**
 * The pieces of a text. One that is no Markdown is one piece.
 * @param {string} text
 * @returns {Piece[]}
 */
export function parse(text) {
  /** @type {Piece[]} */
  const all = [];
  /** @type {string[]} */
  let lines = [];
  const flush = () => {
    if (lines.length) all.push({ tag: 'p', inner: spans(lines.join('\n')) });
    lines = [];
  };
  const source = text.split('\n');
  if (/^\s{0,3}(?:[-*•]|\d{1,3}[.)])\s*$/.test(source.at(-1) ?? '') || isHalfRow(source)) source.pop(); // an item of a list that has no words yet, or a row
  for (let i = 0; i < source.length; i++) {
    const line = source[i] ?? '';
    const [, bullet, number, item = ''] = /^\s{0,3}(?:([-*•])|(\d{1,3})[.)])\s+(.+)$/.exec(line) ?? [];
    const found = tableAt(source, i);
    if (found) {
      flush();
      all.push(found.table);
      i += found.lines - 1;
    } else if (line.startsWith('```')) {
      const end = source.findIndex((l, j) => j > i && l.startsWith('```'));
      flush();
      all.push({ tag: 'pre', inner: [source.slice(i + 1, end < 0 ? undefined : end).join('\n')] });
      i = end < 0 ? source.length : end;
    } else if (bullet || number) {
      flush();
      const tag = bullet ? 'ul' : 'ol';
      const last = all.at(-1);
      const list = typeof last === 'object' && last.tag === tag ? last : /** @type {Exclude<Piece, string>} */ ({ tag, inner: [] });
      if (list !== last) all.push(list);
      list.inner.push({ tag: 'li', inner: spans(item) });
    } else if (line.trim()) lines.push(line.replace(/^#{1,6}\s+(.+?)\s*#*$/, '**$1**'));
    else flush();
  }
  flush();
  const [only] = all;
  return all.length === 1 && typeof only === 'object' && only.tag === 'p' ? only.inner : all;
}

/** @param {string} text @returns {Node[]} */
export const nodes = (text) => parse(text).map(node);

/** @param {Piece} piece @returns {Node} */
function node(piece) {
  if (typeof piece === 'string') return document.createTextNode(piece);
  const e = document.createElement(piece.tag);
  if (e instanceof HTMLAnchorElement) Object.assign(e, { href: piece.href, target: '_blank', rel: 'noopener noreferrer' });
  e.append(...piece.inner.map(node));
  if (piece.tag === 'table') keepCellsWhole(e);
  return e;
}
