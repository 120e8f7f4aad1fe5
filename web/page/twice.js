/** A button for what cannot be undone. */
import { make } from './dom.js';

/** A button that asks before it does what cannot be undone. @param {string|undefined} name @param {string|undefined} sure @param {() => void} act */
export function twice(name, sure, act) {
  const button = make('button', 'halt', name);
  button.addEventListener('click', () => {
    if (button.textContent !== sure) return void (button.textContent = sure ?? '');
    act();
  });
  return button;
}
