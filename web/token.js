/** Who the person is, as the app says it to either client. */

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
