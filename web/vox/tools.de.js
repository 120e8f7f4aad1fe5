/** What is said of the tools of the registry in German: their roles. It is loaded where it is wanted. */

/** @type {Record<string, string>} */
export const tools = {
};
