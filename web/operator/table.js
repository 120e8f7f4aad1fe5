/** Tables whose columns sort them, and whose rows say what was said last. */
import { make } from './dom.js';

const FEW = 8; // rows, until all are asked for

/** @typedef {string|number|undefined} Cell what a column is sorted by; undefined comes last */

/**
 * Makes the heads of a table buttons that sort by their column: once upwards (numbers and times downwards), twice the other way.
 * @param {HTMLTableElement} table
 * @param {((item: any) => Cell)[]} cells of each column
 * @param {() => void} onChange
 * @returns {<T>(items: T[]) => T[]} the items in the order that was chosen, or as they are
 */
export function sortable(table, cells, onChange) {
  const heads = [.../** @type {HTMLTableRowElement} */ (table.tHead?.rows[0]).cells];
  let by = -1;
  let down = false;
  heads.forEach((head, i) => {
    const button = make('button', 'sort', head.textContent ?? '');
    button.onclick = () => {
      const falls = head.matches('.number, .time');
      down = by === i ? !down : falls;
      by = i;
      heads.forEach((h, j) => (h.ariaSort = j === by ? (down ? 'descending' : 'ascending') : null));
      onChange();
    };
    head.replaceChildren(button);
  });
  return (items) => {
    const value = cells[by];
    if (!value) return items;
    return items.toSorted((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
      const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
      return down ? -order : order;
    });
  };
}

/**
 * Shows the first rows of a list until all are asked for.
 * @param {HTMLButtonElement} button shows all of them
 * @param {() => void} onChange
 * @returns {<T>(items: T[]) => T[]} the rows to show
 */
export function limited(button, onChange) {
  let isWhole = false;
  button.onclick = () => {
    isWhole = true;
    onChange();
  };
  return (items) => {
    button.hidden = isWhole || items.length <= FEW;
    if (!button.hidden) button.textContent = `Show all ${items.length}`;
    return button.hidden ? items : items.slice(0, FEW);
  };
}

/** Where somebody comes from; on a phone also what other columns have no room for. @param {string} [place] @param {string} [less] */
export function placeOf(place, less) {
  const small = make('small');
  small.append(make('span', '', place), make('span', 'less', less));
  return small;
}

/**
 * The row under another one that holds what was said last.
 * @param {number} free columns before it
 * @param {number} columns of it
 * @param {string} [text]
 */
export function saidRow(free, columns, text) {
  const row = make('tr', 'said');
  const cell = Object.assign(document.createElement('td'), { colSpan: columns, dir: 'auto' });
  cell.append(make('p', '', text));
  row.append(...Array.from({ length: free }, () => make('td', 'time')), cell);
  return row;
}
