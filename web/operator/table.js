/** Lists of conversations: the same rows for those that run and those that are over. */
import { make } from './dom.js';
import { newestOf, where, who } from './words.js';

const FEW = 8; // rows, until all are asked for

/** @typedef {{text: (c: any) => string, by?: (c: any) => string|number|undefined}} Column `by`: what sorts it if not the text; undefined comes last */

/**
 * Makes the heads of a table buttons that sort by their column: once upwards (numbers downwards), twice the other way.
 * @param {HTMLTableElement} table
 * @param {Column[]} columns
 * @param {() => void} onChange
 * @returns {(items: any[]) => any[]} the items in the order that was chosen, or as they are
 */
function sortable(table, columns, onChange) {
  const heads = [.../** @type {HTMLTableRowElement} */ (table.tHead?.rows[0]).cells];
  let by = -1;
  let down = false;
  heads.slice(0, columns.length).forEach((head, i) => {
    const button = make('button', 'sort', head.textContent ?? '');
    button.onclick = () => {
      down = by === i ? !down : head.matches('.number');
      by = i;
      heads.forEach((h, j) => (h.ariaSort = j === by ? (down ? 'descending' : 'ascending') : null));
      onChange();
    };
    head.replaceChildren(button);
  });
  return (items) => {
    const column = columns[by];
    if (!column) return items;
    const value = column.by ?? column.text;
    return items.toSorted((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
      const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
      return down ? -order : order;
    });
  };
}

export const get = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Changes nothing that is right already: nothing flickers, and a screen reader reads nothing twice. */
export function put(/** @type {Element | null | undefined} */ e, /** @type {string} */ text) {
  if (e && e.textContent !== text) e.textContent = text;
}

/**
 * Makes a table a list of conversations. Each has a row, whose first cell has the name, and a row with its origin and its newest words. A click on either, or
 * Enter on the name, opens it. Only the first rows are shown until all are asked for. Rows stay while their conversations are listed.
 * @param {HTMLTableElement} table
 * @param {HTMLButtonElement} more shows all rows
 * @param {Column[]} columns
 * @param {{open: (c: any) => void, less: (c: any) => string|undefined, least: (c: any) => string, decorate: (row: HTMLTableRowElement, c: any) => void, silent: string}} how
 *   `less` and `least`: what a narrow window and, in addition, a phone show of the columns for which they have no room; `decorate` changes a row in addition; `silent`: what stands where nothing was said
 * @returns {(items: any[]) => void} shows them, in their order or in the one that was chosen; throws, after all others, if one could not be drawn
 */
export function newList(table, more, columns, { open, less, least, decorate, silent }) {
  /** @type {Map<string, HTMLTableRowElement[]>} the two rows of each */
  const rows = new Map();
  /** @type {any[]} */
  let items = [];
  let isWhole = false;
  const sort = sortable(table, columns, () => draw(items));
  const body = /** @type {HTMLTableSectionElement} */ (table.tBodies[0]);
  more.onclick = () => {
    isWhole = !isWhole;
    draw(items);
    more.scrollIntoView({ block: 'nearest' });
  };

  const newRows = (/** @type {string} */ id) => {
    const [row, said] = /** @type {HTMLTableRowElement[]} */ ([make('tr'), make('tr', 'said')]);
    row?.append(...[...table.tHead?.rows[0]?.cells ?? []].map((head) => make('td', head.className)));
    said?.append(Object.assign(document.createElement('td'), { dir: 'auto' }));
    const place = make('small');
    place.append(make('span'), make('span', 'less'), make('span', 'least'));
    const line = make('p');
    line.append(place, make('span'));
    said?.firstElementChild?.append(line);
    row?.cells[0]?.append(make('button', 'pick'));
    const both = /** @type {HTMLTableRowElement[]} */ ([row, said]);
    for (const one of both) one.onclick = () => open(items.find((c) => c.id === id)); // the button has a click that bubbles
    if (row) row.dataset['id'] = id;
    rows.set(id, both);
    return both;
  };
  const fill = (/** @type {HTMLTableRowElement[]} */ [row, said], /** @type {any} */ c) => {
    columns.forEach(({ text }, i) => put(i ? row?.cells[i] : row?.querySelector('.pick'), text(c)));
    const [place, words] = said?.querySelector('p')?.children ?? [];
    put(place?.firstElementChild, where(c));
    put(place?.children[1], less(c) ? ` · ${less(c)}` : '');
    put(place?.children[2], ` · ${least(c)}`);
    put(words, (c.failed && c.reason) || newestOf(c.newest) || silent);
    if (row) decorate(row, c);
  };
  const draw = (/** @type {any[]} */ all) => {
    items = all;
    table.hidden = !items.length;
    const wide = [...table.tHead?.rows[0]?.cells ?? []].filter((head) => head.checkVisibility()).length; // a column that is hidden would take room
    more.hidden = items.length <= FEW;
    put(more, isWhole ? 'Show fewer' : `Show all ${items.length}`);
    const listed = isWhole ? sort(items) : sort(items).slice(0, FEW);
    for (const [id, both] of rows) {
      if (listed.some((c) => c.id === id)) continue;
      for (const row of both) row.remove();
      rows.delete(id);
    }
    const errors = listed.flatMap((c, at) => {
      const both = rows.get(c.id) ?? newRows(c.id);
      if (body.rows[2 * at] !== both[0]) body.rows[2 * at] ? body.rows[2 * at]?.before(...both) : body.append(...both);
      if (both[1]?.cells[0]) both[1].cells[0].colSpan = wide || 1;
      try {
        return fill(both, c) ?? [];
      } catch (e) {
        return [e];
      }
    });
    if (errors.length) throw errors[0];
  };
  addEventListener('resize', () => draw(items));
  return draw;
}

/** The column of the names. */
export const WHO = { text: who };

/**
 * A group of buttons for one choice.
 * @param {HTMLElement} group has its value in `dataset.value`
 * @param {() => void} onChange
 */
export function newChoice(group, onChange) {
  group.onclick = ({ target }) => {
    const chosen = /** @type {HTMLElement} */ (target).closest('button');
    if (!chosen) return;
    for (const button of group.children) button.ariaPressed = String(button === chosen);
    group.dataset['value'] = chosen.value;
    onChange();
  };
}
