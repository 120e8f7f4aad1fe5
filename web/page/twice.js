/** A button for what cannot be undone. */
import { make } from './dom.js';
import { settings as words } from './settings.en.js';

/**
 * A button that asks before it does what cannot be undone: it gives way to a question with two buttons.
 * @param {string|undefined} name
 * @param {() => void} act
 * @param {string} [kind] class of the first button
 */
export function twice(name = '', act, kind = 'halt') {
  const box = make('div', 'twice');
  const first = make('button', kind, name);
  const asks = make('p', '', words['sure']);
  const keep = make('button', '', words['cancel']);
  const yes = make('button', 'stop', name);
  keep.addEventListener('click', () => {
    box.replaceChildren(first);
    first.focus();
  });
  yes.addEventListener('click', act);
  first.addEventListener('click', () => {
    box.replaceChildren(asks, keep, yes);
    keep.focus();
  });
  box.role = 'group';
  box.ariaLabel = name;
  box.append(first);
  return box;
}
