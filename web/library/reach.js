/** How either client reaches its gateway, again and again, and the person's devices: the token, the address, the pauses, the refusals. */

const TOKEN_TIMEOUT = 10_000; // ms for the app's own backend

/**
 * @param {string|(() => string|Promise<string>)} [token]
 * @returns {Promise<string|undefined>} rejects with a sentence about what went wrong
 */
export async function tokenOf(token) {
  if (typeof token !== 'function') return token;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('it did not come in time')), TOKEN_TIMEOUT);
  });
  try {
    return await /** @type {Promise<string>} */ (Promise.race([token(), late]));
  } catch (e) {
    throw new Error(`There is no token: ${e instanceof Error ? e.message : e}`);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The WebSocket of a gateway.
 * @param {string|URL|undefined} url
 * @param {(why: string) => Error} bad an error for the app, as "is missing"
 */
export function socketURL(url, bad) {
  if (!url) throw bad('is missing');
  try {
    const u = new URL(url, location.href);
    u.protocol = u.protocol.replace('http', 'ws');
    return u;
  } catch {
    throw bad('cannot be read');
  }
}

const FIRST_PAUSE = 250; // ms before the second try
const LONGEST_PAUSE = 5_000; // ms

/** The pauses between tries, in ms. They are spread: a restarted gateway meets all its clients at once. */
export function* pauses() {
  for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) yield pause * (0.5 + Math.random());
}

/**
 * Waits until the time is over, there is a network again, or `signal` aborts.
 * @param {number} ms
 * @param {AbortSignal} signal
 */
export function sleep(ms, signal) {
  const over = new AbortController();
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
    signal.addEventListener('abort', resolve, over);
    addEventListener('online', resolve, over);
  }).finally(() => over.abort());
}

/**
 * Explains why the microphone, camera or screen is not available.
 * @param {unknown} e the browser's error
 */
export function refusal(e) {
  const { name } = /** @type {Error} */ (e);
  if (name === 'NotAllowedError' || name === 'SecurityError') return 'refused';
  return name === 'NotFoundError' || name === 'OverconstrainedError' ? 'missing' : 'failed';
}
