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
