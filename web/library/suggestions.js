/** Google's search suggestions, which Google requires to be shown with an answer for which its search was used. */
import { states } from './en.js';

const HEIGHT = { least: 40, most: 240 }; // px: one row, and a third of a phone

/**
 * A frame without an origin, which can do nothing here but tell its height. Until it does it is not seen: a page's policy may forbid frames, and the suggestions expire.
 * @param {string} url `chips` of a turn
 * @param {() => void} [onShown]
 */
export function suggestionsFrame(url, onShown) {
  const frame = document.createElement('iframe');
  frame.className = 'suggestions';
  frame.sandbox.add('allow-scripts', 'allow-popups', 'allow-popups-to-escape-sandbox');
  frame.referrerPolicy = 'no-referrer';
  frame.title = states['suggestions'] ?? '';
  frame.style.height = '0';
  frame.src = url;
  let wasShown = false;
  const fit = (/** @type {MessageEvent} */ { source, data }) => {
    if (wasShown && !frame.isConnected) removeEventListener('message', fit);
    wasShown ||= frame.isConnected; // it may be put into the page later
    if (source !== frame.contentWindow || data?.voxgate !== 'height') return;
    frame.style.height = `${Math.min(Math.max(Number(data.height) || 0, HEIGHT.least), HEIGHT.most)}px`;
    onShown?.();
  };
  addEventListener('message', fit);
  return frame;
}
