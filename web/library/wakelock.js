/** Keeps the screen of a phone on while a conversation runs: it would fall asleep in mid-talk. */

/** @param {AbortSignal} over the conversation has ended */
export function keepAwake(over) {
  const lock = async () => {
    if (document.visibilityState !== 'visible') return; // the browser lets go of it in the background
    try {
      const held = await navigator.wakeLock.request('screen');
      if (over.aborted) return held.release();
      over.addEventListener('abort', () => held.release(), { once: true });
    } catch {
      // this browser has none, or the battery is low
    }
  };
  document.addEventListener('visibilitychange', lock, { signal: over });
  lock();
}
