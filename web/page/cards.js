/**
 * What stays of a tool call in the conversation: a title, what a canvas asked and what was answered, what it showed, or the photo that was taken. It is
 * loaded with the canvas.
 */
import { make } from './dom.js';
import { build } from './elements.js';
import { canvas as labels } from './en.js';
import { page as words } from './page.en.js';
import { fill, language } from './strings.js';

/**
 * @import { Shown } from './transcript.js'
 * @import { CanvasElement } from './types.d.ts'
 */

/** @typedef {{title: string, text: string, content: Node[], small?: Promise<string>}} Description `text`: for a downloaded transcript; `small`: a photo, to be kept */

const TITLE = 60; // characters
const SMALL = 320; // px: the longer side of a photo that is kept, which has some 15 KB

/**
 * @param {Shown & {doneTitle?: string}} call of any tool
 * @param {URL} gateway for its pictures
 * @param {Map<string, Blob>} [kept] what tools have made
 * @returns {Description}
 */
export function describeCall({ name, args, response, status, doneTitle = '' }, gateway, kept = new Map()) {
  const nothing = { title: '', text: '', content: [] };
  if (name === 'find_contact') return { ...nothing, title: status === 'done' && response?.name ? cut(fill(words['looked up'], { name: response.name })) : '' };
  if (name === 'send_message') {
    const fields = status !== 'done' || !response?.sent ? [] : /** @type {const} */ (['to', 'text']).flatMap((key) => (response[key] ? [[labels[key] ?? '', String(response[key])]] : []));
    return { ...nothing, text: textOf(fields), content: listOf(fields) };
  }
  if (!name.endsWith('_canvas_tool')) {
    const image = { type: 'image', src: response?.photo, alt: doneTitle };
    const isNew = kept.has(image.src);
    if (!isNew && !String(image.src).startsWith('data:')) return nothing; // else it is what `shrink` has made
    const box = preview(image, doneTitle, gateway, kept);
    const photo = box.querySelector('img');
    return { ...nothing, content: [box], ...(isNew && photo && { small: shrink(photo) }) };
  }
  if (status !== 'done') return { ...nothing, title: titleOf(elementsOf(args)) };
  const elements = elementsOf(args);
  const title = titleOf(elements);
  if (response?.dismissed || response?.continued) return { ...nothing, title };
  if (response?.shown) {
    try {
      return { ...nothing, title, content: [preview(args?.schema, title, gateway, kept)] };
    } catch {
      return { ...nothing, title }; // the canvas has told the model
    }
  }
  const fields = flat(elements).flatMap(({ type, id, label, kind }) => (type === 'input' && id && response?.[id] ? [[label ?? id, valueOf(kind, String(response[id]))]] : []));
  const pressed = flat(elements).find((e) => e.type === 'button' && e.action === response?.action)?.label;
  return { title, text: [textOf(fields), pressed].filter(Boolean).join(', '), content: [...(pressed ? [make('p', 'pressed', pressed)] : []), ...listOf(fields)] };
}

/** @param {string[][]} fields pairs of a label and a value */
const textOf = (fields) => fields.map(([label, value]) => `${label}: ${value}`).join(', ');

/** @param {string[][]} fields pairs of a label and a value @returns {Node[]} */
function listOf(fields) {
  const list = make('dl');
  for (const [label, value] of fields) list.append(make('dt', '', label), make('dd', '', value));
  return fields.length ? [list] : [];
}

/**
 * Shows the content of a canvas in a card; its pictures can be enlarged.
 * @param {unknown} schema @param {string} title @param {URL} gateway @param {Map<string, Blob>} kept
 */
function preview(schema, title, gateway, kept) {
  const box = make('div', 'shown');
  box.tabIndex = 0; // it scrolls
  box.ariaLabel = title || (words['a canvas'] ?? '');
  box.role = 'group';
  box.append(...build(schema, { gateway: new URL('.', gateway.href.replace(/^ws/, 'http')), kept, urls: [] }));
  for (const image of box.querySelectorAll('img')) enlargeable(image);
  offerAll(box);
  return box;
}

/** Adds the button "Show all" under a box while its content is cut. @param {HTMLElement} box */
function offerAll(box) {
  const button = make('button', 'chip', words['show all'] ?? '');
  button.addEventListener('click', () => {
    box.classList.add('whole');
    box.focus({ preventScroll: true }); // from the button, which goes
  });
  const observer = new ResizeObserver(() => (box.scrollHeight > box.clientHeight + 1 ? box.after(button) : button.remove()));
  for (const e of [box, ...box.children]) observer.observe(e);
}

/** A small copy of a photo, which can be kept in the transcript. @param {HTMLImageElement} image @returns {Promise<string>} as a data: URL */
async function shrink(image) {
  if (!image.naturalWidth) await new Promise((resolve) => image.addEventListener('load', resolve, { once: true }));
  const canvas = document.createElement('canvas');
  const scale = Math.min(1, SMALL / Math.max(image.naturalWidth, image.naturalHeight));
  [canvas.width, canvas.height] = [image.naturalWidth * scale, image.naturalHeight * scale];
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', 0.7);
}

/** What was put into a field, as people write it: dates and times are no ISO. @param {string|undefined} kind of the field @param {string} value */
function valueOf(kind, value) {
  const at = new Date(kind === 'time' ? `2000-01-01T${value}` : `${value}T00:00`);
  if (!['date', 'time'].includes(kind ?? '') || Number.isNaN(Number(at))) return value;
  return kind === 'time' ? at.toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' })
    : at.toLocaleDateString(language(), { weekday: 'short', year: 'numeric', month: 'short', day: 'numeric' });
}

/**
 * The arguments of a call as if it had shown a later call's content, too. As on the canvas, an element takes the place of the one with its id.
 * @param {any} shown @param {any} added
 */
export function joinCanvases(shown, added) {
  const all = structuredClone(elementsOf(shown));
  for (const e of elementsOf(added)) if (!e?.id || !replaceElement(all, e)) all.push(e);
  return { schema: { elements: all } };
}

/** @param {CanvasElement[]} list @param {CanvasElement} e @returns {boolean} whether there was one with its id */
function replaceElement(list, e) {
  return list.some((o, i) => (o?.id === e.id ? Boolean((list[i] = e)) : o?.type === 'form' && replaceElement(o.elements ?? [], e)));
}

/** @param {any} args @returns {CanvasElement[]} */
function elementsOf(args) {
  try {
    const { schema } = args ?? {};
    const all = typeof schema === 'string' ? JSON.parse(schema) : schema;
    return [all?.elements ?? all ?? []].flat();
  } catch {
    return [];
  }
}

/** Those in forms, too. @param {CanvasElement[]} elements @returns {CanvasElement[]} */
const flat = (elements) => elements.flatMap((e) => (e?.type === 'form' ? [e, ...flat(e.elements ?? [])] : e ?? []));

/** The first heading, or the first words. @param {CanvasElement[]} elements */
function titleOf(elements) {
  const texts = flat(elements).flatMap((e) => (e.type === 'text' ? String(e.value ?? '') : e.type === 'form' && e.label ? e.label : []));
  const [, heading] = texts.map((t) => /<h\d[^>]*>(.*?)<\/h\d>/is.exec(t)).find(Boolean) ?? [];
  const html = (heading ?? texts[0] ?? '').slice(0, 20 * TITLE); // the title is its text
  const [node] = build([{ type: 'text', value: html }], { gateway: new URL(location.href), kept: new Map(), urls: [] });
  return cut(node?.textContent?.trim() ?? '');
}

/** A title of at most TITLE characters. @param {string} title */
const cut = (title) => (title.length > TITLE ? `${title.slice(0, TITLE - 1)}…` : title);

/** A picture that fills the screen when it is pressed. @param {HTMLImageElement} image */
function enlargeable(image) {
  const button = make('button', 'enlarge');
  button.title = button.ariaLabel = `${words['enlarge']}: ${image.alt}`;
  image.replaceWith(button);
  button.append(image);
  button.addEventListener('click', () => {
    const dialog = /** @type {HTMLDialogElement} */ (make('dialog', 'enlarged'));
    const close = make('button', '', words['close'] ?? '');
    dialog.append(image.cloneNode(), close);
    dialog.ariaLabel = image.alt;
    leaveDock(dialog);
    const escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault(); // it ends no conversation
      event.stopPropagation();
      dialog.close();
    };
    document.addEventListener('keydown', escape, true);
    dialog.addEventListener('click', () => dialog.close());
    dialog.addEventListener('close', () => {
      document.removeEventListener('keydown', escape, true);
      dialog.remove();
      document.body.classList.remove('shows-enlarged');
      button.focus({ preventScroll: true });
    });
    document.body.append(dialog);
    document.body.classList.add('shows-enlarged');
    dialog.show(); // not modal: Mute and End can be pressed
    close.focus();
  });
}

/** Leaves room for the dock, which stands below or, on a phone on its side, beside: style.css puts it above what is enlarged. @param {HTMLElement} over */
function leaveDock(over) {
  const boxes = [...document.querySelectorAll('footer, footer .dock')].map((e) => e.getBoundingClientRect()); // enlarged four times the footer has no box
  const { top, left, width, height } = boxes.find((box) => box.width) ?? new DOMRect();
  if (!width || document.body.classList.contains('home')) return;
  if (top > innerHeight / 2) over.style.paddingBottom = `${innerHeight - top}px`;
  else if (height && left > innerWidth / 2) over.style.paddingRight = `${innerWidth - left}px`;
  over.style.setProperty('--dock', over.style.paddingBottom || '0px');
}
