/** Words of an answer that are still to be heard, in grey: a highlight of the browser, so that no text in the document changes. */
import { nodes } from './markdown.js';

/** @import { Turn } from './types.d.ts' */

const NAME = 'voxgate-unheard'; // looks.css has its colour
/** @type {WeakMap<Element, StaticRange>} */
const ranges = new WeakMap();

/**
 * Greys out what was not played yet of an answer. Call it after each change of the element.
 * @param {Element} e shows the text of the turn, with its Markdown
 * @param {Turn} turn
 */
export function markUnheard(e, { text, played }) {
  if (!globalThis.Highlight || matchMedia('(forced-colors: active)').matches) return; // which would show a selection
  const all = CSS.highlights.get(NAME) ?? new Highlight();
  CSS.highlights.set(NAME, all);
  const before = ranges.get(e);
  if (before) all.delete(before);
  for (const item of e.querySelectorAll('.unheard')) item.classList.remove('unheard');
  if (played === undefined) return;
  const heard = document.createElement('i');
  heard.append(...nodes(text.slice(0, played).trimStart()));
  let left = heard.textContent?.trimEnd().length ?? 0;
  const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
  for (let at = walker.nextNode(); at; at = walker.nextNode()) {
    const { length } = /** @type {Text} */ (at);
    if (left <= length) {
      const range = new StaticRange({ startContainer: at, startOffset: left, endContainer: e, endOffset: e.childNodes.length });
      all.add(range);
      ranges.set(e, range);
      for (const item of e.querySelectorAll('li')) item.classList.toggle('unheard', Boolean(at.compareDocumentPosition(item) & Node.DOCUMENT_POSITION_FOLLOWING)); // a highlight leaves out its number
      return;
    }
    left -= length;
  }
}
