/**
 * The elements of a canvas as nodes. The gateway has cleaned them; here is the second wall, and the only one for what tools of the
 * page ask. Nothing is made from markup: it works where Trusted Types are required and no inline style or script is allowed, and
 * what is not on the lists cannot come into being.
 */
import { dataURL } from './calls.js';
import { keepCellsWhole, make } from './dom.js';
import { canvas as words } from './en.js';
import { fill } from './strings.js';

/** @import { CanvasElement } from './types.d.ts' */

/**
 * Where pictures and sounds come from: the gateway, and what tools have made. `urls` gets the object URLs, to be let go of later;
 * `level` is that of the last heading.
 * @typedef {{gateway: URL, kept: Map<string, Blob>, urls: string[], level?: number}} Sources
 */

const MAX_ELEMENTS = 200; // at once, as the gateway's
const MAX_SIZE = 512 * 1024; // characters: the gateway's 256 KB, and the addresses that it adds
const MAX_TYPED = 20_000; // characters of an input: 50 such inputs still fit into a message of the protocol, 1 MiB
const MAX_DEPTH = 32; // of tags: thousands of them make browsers slow

const KINDS = ['text', 'number', 'date', 'time', 'email', 'tel', 'url']; // and multiline
/** @type {Record<string, string>} */
const MEDIA = { image: 'picture', audio: 'sound', video: 'video' }; // in words
const DATA = /^data:((image|audio|video)\/[a-z0-9.+-]+);base64,([a-z0-9+/=]*)$/i;
const PICTURES = /^image\/(png|jpeg|gif|webp)$/; // no SVG

const ALLOWED = new Set(
  ('b i u em strong s small sub sup br p h1 h2 h3 h4 ul ol li blockquote code pre span hr a ' +
    'table thead tbody tr td th').split(' '),
);
const TOKEN = /<(\/?)([a-z][a-z0-9]*)([^<>]*)>|<!--[^]*?(?:-->|$)|[^<]+|</giy;
const CHARACTERS = new Map([['amp', '&'], ['lt', '<'], ['gt', '>'], ['quot', '"'], ['apos', "'"], ['nbsp', '\u00a0']]);

/**
 * The nodes of a schema: a canvas, a list of elements, or a bare one. Throws an Error that says what cannot be shown.
 * @param {unknown} schema JSON, or what it stands for
 * @param {Sources} sources
 */
export function build(schema, sources) {
  const text = typeof schema === 'string' ? schema : JSON.stringify(schema ?? null);
  if (text.length > MAX_SIZE) throw new Error(`a canvas has at most ${MAX_SIZE / 1024} KB`);
  const all = JSON.parse(text);
  const elements = all?.elements && (all.type ?? 'canvas') === 'canvas' ? all.elements : [all].flat();
  let count = 0;
  /** @param {CanvasElement[]} list @param {string} at @returns {HTMLElement[]} */
  const make = (list, at) => {
    if (!Array.isArray(list)) throw new Error(`${at} is no list`);
    count += list.length;
    if (count > MAX_ELEMENTS) throw new Error(`a canvas has at most ${MAX_ELEMENTS} elements`);
    return list.map((e, i) => element(e, `${at}[${i}]`, sources, make));
  };
  return make(elements, 'elements');
}

/**
 * @param {CanvasElement} e
 * @param {string} at where it stands
 * @param {Sources} sources
 * @param {(list: CanvasElement[], at: string) => HTMLElement[]} inner
 */
function element(e, at, sources, inner) {
  const box = make(e?.type === 'form' ? 'fieldset' : 'div');
  box.dataset['element'] = e?.type;
  if (e?.id) box.dataset['id'] = String(e.id);
  switch (e?.type) {
    case 'text':
      box.append(html(e.value, sources));
      break;
    case 'list': {
      const list = make(e.ordered ? 'ol' : 'ul');
      for (const item of e.items ?? []) list.appendChild(make('li')).append(html(item, sources));
      box.append(list);
      break;
    }
    case 'input':
      if (!e.id) throw new Error(`${at}.id is missing`);
      box.append(input(e));
      break;
    case 'button': {
      if (!/^[a-z][a-z0-9_-]{0,63}$/i.test(e.action ?? '')) throw new Error(`${at}.action is no plain name`);
      const button = make('button', '', e.label || e.action);
      button.dataset['action'] = e.action;
      box.append(button);
      break;
    }
    case 'form':
      if (e.label) box.append(make('legend', '', e.label));
      box.append(...inner(e.elements ?? [], `${at}.elements`));
      break;
    case 'image':
    case 'audio':
    case 'video':
      box.append(media(e, sources));
      break;
    default:
      throw new Error(`${at}: there is no element ${JSON.stringify(e?.type)}`);
  }
  return box;
}

/** @param {CanvasElement} e */
function input({ label, hint = '', value = '', kind = 'text', required }) {
  const box = make('label');
  const control = /** @type {HTMLInputElement} */ (make(kind === 'multiline' ? 'textarea' : 'input'));
  if (kind !== 'multiline') control.type = KINDS.includes(kind) ? kind : 'text';
  if (kind === 'number') control.step = 'any';
  control.maxLength = MAX_TYPED;
  control.placeholder = hint;
  control.value = String(value).slice(0, MAX_TYPED);
  control.required = required === true;
  if (label) box.append(make('span', '', label));
  else control.ariaLabel = hint || words['answer'] || '';
  box.append(control);
  return box;
}

/**
 * What is not here already is asked for only when the person says so, and through the gateway: else its host would learn who looks.
 * @param {CanvasElement} e
 * @param {Sources} sources
 */
function media({ type, src = '', alt, fetch }, { gateway, kept, urls }) {
  const what = words[MEDIA[type] ?? ''];
  const blob = kept.get(src) ?? unpack(src);
  if (blob) return blob.type.startsWith(`${type}/`) ? player(type, alt, blob, urls) : missing(fill(words['not shown'], { what }));
  const url = URL.canParse(src) ? new URL(src) : undefined;
  if (url?.protocol !== 'https:') return missing(fill(words['not here'], { what }));
  const through = fetch && new URL(fetch, gateway);
  if (!through || through.origin !== gateway.origin) return missing(fill(words['comes from'], { what, host: url.host }));
  const button = make('button', '', fill(words['show from'], { what, host: url.host }));
  button.addEventListener('click', () => button.replaceWith(player(type, alt, through, urls)), { once: true });
  return button;
}

/**
 * @param {string} type
 * @param {string|undefined} alt
 * @param {Blob|URL} from
 * @param {string[]} urls
 */
function player(type, alt, from, urls) {
  const what = words[MEDIA[type] ?? ''];
  const e = /** @type {HTMLImageElement & HTMLVideoElement} */ (make(type === 'image' ? 'img' : type));
  e.onerror = () => e.replaceWith(missing(fill(words['not shown'], { what })));
  if (type === 'image') e.alt = alt || fill(words['picture of']);
  else e.controls = e.playsInline = true;
  if (from instanceof URL) e.src = from.href;
  else if (type === 'image') dataURL(from).then((url) => (e.src = url)); // policies have data: for pictures, blob: for the rest
  else urls.push((e.src = URL.createObjectURL(from)));
  return e;
}

/** @param {string} url a data: URL; undefined if its type is not shown */
function unpack(url) {
  const [, type = '', kind, base64 = ''] = DATA.exec(url) ?? [];
  if (!type || (kind === 'image' && !PICTURES.test(type))) return undefined;
  try {
    return new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], { type });
  } catch {
    return undefined; // no base64
  }
}

/** @param {string} text */
const missing = (text) => make('p', 'canvas-missing', text);

/**
 * Nodes for the HTML that is on the list; of everything else the text is left.
 * @param {unknown} source
 * @param {Sources} sources
 */
function html(source, sources) {
  const fragment = document.createDocumentFragment();
  /** @type {Node[]} */
  const path = [fragment];
  const top = () => /** @type {Node} */ (path.at(-1));
  for (const [token, end, tag = '', attributes = ''] of String(source ?? '').matchAll(TOKEN)) {
    let name = tag.toLowerCase();
    if (!name && !token.startsWith('<!--')) top().appendChild(document.createTextNode(decode(token)));
    if (!ALLOWED.has(name)) continue;
    const opened = path.findLastIndex((n) => n.nodeName.toLowerCase() === name || (/^h\d$/.test(name) && /^H\d$/.test(n.nodeName)));
    if (end) {
      if (opened > 0) path.length = opened;
      continue;
    }
    if (path.length > MAX_DEPTH) continue;
    const level = Number(/^h(\d)$/.exec(name)?.[1]); // the page has its h1, and headings go down by one
    if (level) name = `h${(sources.level = Math.max(2, Math.min(level, (sources.level ?? 1) + 1)))}`;
    if (/^(p|li|tr|td|th)$/.test(name) && opened === path.length - 1) path.pop(); // an end that may be left out
    const e = top().appendChild(document.createElement(name));
    if (e instanceof HTMLAnchorElement) link(e, attributes);
    if (name !== 'br' && name !== 'hr') path.push(e);
  }
  keepCellsWhole(fragment);
  return fragment;
}

/**
 * @param {HTMLAnchorElement} a
 * @param {string} attributes
 */
function link(a, attributes) {
  const [, one, two] = /(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)')/i.exec(attributes) ?? [];
  const href = decode(one ?? two ?? '').trim();
  if (!URL.canParse(href) || !['https:', 'mailto:', 'tel:'].includes(new URL(href).protocol)) return;
  a.href = href;
  a.target = '_blank';
  a.rel = 'noopener noreferrer';
}

/** @param {string} text */
const decode = (text) =>
  text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]+));/gi, (all, decimal, hex, name) => {
    if (name) return CHARACTERS.get(name) ?? all;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
