/** Requests to the gateway, with the server key that was entered. The key is kept until the tab is closed. */

const KEY = 'voxgate-operator-key';
const PATIENCE = 5_000; // ms for an answer

let key = sessionStorage.getItem(KEY) ?? '';

export const keyOf = () => key;

/** @param {string} entered */
export function useKey(entered) {
  key = entered;
  sessionStorage.setItem(KEY, key);
}

/** The gateway cannot be reached, or did not answer in time. */
export class NoAnswer extends Error {}

/** Rejects with NoAnswer only. @param {string} path @param {string} [method] @param {number} [patience] ms @returns {Promise<Response>} */
export function ask(path, method = 'GET', patience = PATIENCE) {
  const headers = new Headers(key ? { Authorization: `Bearer ${key}` } : {});
  return fetch(path, { method, headers, cache: 'no-store', signal: AbortSignal.timeout(patience) }).catch((e) => {
    throw new NoAnswer(e.message);
  });
}

/** The sentence of an error of the gateway. @param {Response} answer */
export async function sentence(answer) {
  const body = await answer.json().catch(() => null);
  return body?.error?.message ?? `The gateway answers ${answer.status}.`;
}
