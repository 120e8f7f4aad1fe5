/** What the parts of the page make their nodes with. */

/**
 * @param {string} tag
 * @param {string} [className]
 * @param {string} [text]
 */
export function make(tag, className = '', text = '') {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.textContent = text;
  if (e instanceof HTMLButtonElement) e.type = 'button';
  return e;
}

/**
 * Lets a text field grow to a few lines. Enter sends its form; Shift and Enter begin a line.
 * @param {HTMLTextAreaElement} field
 */
export function growField(field) {
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    field.form?.requestSubmit();
  });
  if (CSS.supports('field-sizing', 'content')) return;
  const fit = () => {
    field.style.height = '';
    if (field.value) field.style.height = `${field.scrollHeight + field.offsetHeight - field.clientHeight}px`;
  };
  for (const type of ['input', 'focus']) field.addEventListener(type, fit);
  field.form?.addEventListener('submit', () => setTimeout(fit)); // it is emptied then
}

const SHORT = 20; // characters of a cell in one line, as a date or a range

/** Lets no short value in the cells of tables break, as 17–23 °C, and aligns numbers and what stands above them. @param {ParentNode} root */
export function keepCellsWhole(root) {
  for (const { rows } of root instanceof HTMLTableElement ? [root] : root.querySelectorAll('table')) for (const { cells, rowIndex } of rows) {
    for (const cell of cells) {
      const value = cell.tagName === 'TH' ? rows[rowIndex + 1]?.cells[cell.cellIndex] ?? cell : cell;
      if ((cell.textContent ?? '').trim().length <= SHORT) cell.className = 'short';
      cell.classList.toggle('digits', cell.cellIndex > 0 && /^[^\p{L}]*\d[^\p{L}]*$/u.test(value.textContent ?? ''));
    }
  }
}

/**
 * Changes where a picture stands, and lets it glide there. What moves by a transform moves nothing else.
 * @param {HTMLElement} picture
 * @param {() => void} change
 * @param {HTMLElement[]} words that stand with it: they glide too, and keep their size
 */
export function glide(picture, change, ...words) {
  const all = [picture, ...words];
  const before = all.map((e) => e.getBoundingClientRect());
  change();
  const after = all.map((e) => e.getBoundingClientRect());
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) return;
  all.forEach((e, i) => {
    const [from, to] = [/** @type {DOMRect} */ (before[i]), /** @type {DOMRect} */ (after[i])];
    const [x, y] = [from.x + from.width / 2 - to.x - to.width / 2, from.y + from.height / 2 - to.y - to.height / 2];
    if (!from.width || !to.width || Math.abs(x) + Math.abs(y) < 1) return;
    const scale = e === picture ? ` scale(${from.width / to.width})` : '';
    e.animate([{ transform: `translate(${x}px, ${y}px)${scale}` }, {}], { duration: 200, easing: 'ease-out' });
  });
}

/**
 * Numbers as a line, from left to right, the largest at the top.
 * @param {number[]} values
 * @param {number} width of the picture, as the next
 * @param {number} height
 */
export function lineOf(values, width, height) {
  const most = Math.max(...values, 1);
  const points = values.map((v, i) => `${(i / Math.max(1, values.length - 1)) * width},${height - 2 - (v / most) * (height - 4)}`);
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
  line.setAttribute('points', points.join(' '));
  return line;
}

/**
 * Puts words into markup: `data-text`, `data-label` (for who hears it), `data-hint` (of a field) and `data-title` (of a button with a picture) are
 * names in the table. What is right already stays untouched.
 * @param {ParentNode} root
 * @param {(name: string) => string} word
 */
export function label(root, word) {
  /** @type {[string, (e: any) => [any, string]][]} */
  const kinds = [['text', (e) => [e, 'textContent']], ['label', (e) => [e, 'ariaLabel']], ['hint', (e) => [e, 'placeholder']],
    ['title', (e) => [e, 'title']], ['title', (e) => [e.querySelector('.unseen'), 'textContent']]];
  for (const [kind, place] of kinds) {
    for (const e of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(`[data-${kind}]`))) {
      const [where, property] = place(e);
      const words = word(e.dataset[kind] ?? '');
      if (where && where[property] !== words) where[property] = words;
    }
  }
}
