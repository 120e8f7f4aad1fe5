/** The conversation as the device's own call: its lock screen, headset and small windows have buttons for one (W3C Media Session). */

import { page } from './page.en.js';
import { fill } from './strings.js';

/** @import { Session } from './voxgate.js' */

/** @typedef {'togglemicrophone'|'togglecamera'|'hangup'} Action not all of them are known to TypeScript, nor to each browser */

/**
 * @param {Session} session
 * @param {() => void} end
 */
export function asCall(session, end) {
  const device = /** @type {any} */ (navigator.mediaSession);
  if (!device) return;
  /** @type {Record<Action, () => void>} */
  const actions = {
    togglemicrophone: () => session.mute(),
    togglecamera: () => session.use({ video: session.video.state === 'live' ? null : 'camera' }),
    hangup: end,
  };
  const set = (/** @type {boolean} */ on) => {
    for (const [name, action] of Object.entries(actions)) {
      try {
        device.setActionHandler(name, on ? action : null);
      } catch {
        // this browser has no such button
      }
    }
    device.metadata = on ? new MediaMetadata({ title: fill(page['talking']), artist: location.host }) : null;
  };
  const tell = () => {
    device.setMicrophoneActive?.(session.mic === 'live' || session.mic === 'silent');
    device.setCameraActive?.(session.video.state === 'live');
  };
  set(true);
  tell();
  session.on('state', tell);
  session.on('closed', () => set(false));
}
