/** The projects that this browser knows: what VOX has made, and what was said. The gateway keeps their tools and apps. */
import { make } from '../dom.js';
import { language } from '../strings.js';
import { thumbnail } from './cards.js';

/** @import { Snapshot, ToolAction, TranscriptEntry } from './types.d.ts' */

const KEY = 'voxgate.vox'; // of the settings; each project has its own behind it
const KEPT = 200; // turns of a project
const BRIEF = 40; // letters of a name

/**
 * @typedef {object} Kept a project as the browser keeps it
 * @property {string} id
 * @property {number} at when it was last changed, in ms
 * @property {string} projectId
 * @property {Snapshot['project']} project
 * @property {TranscriptEntry[]} transcript
 * @property {ToolAction[]} actions
 */

export class Projects {
  /** @type {Record<string, any>} theme, model, speak, and the ids of the project that is open and of the one that was closed aside */ settings;
  #id = '';

  constructor() {
    this.settings = read(KEY) ?? {};
    const { projectId, project, transcript, ...settings } = this.settings;
    if (project) { // an earlier version of this page kept one project
      this.settings = settings;
      if (project.apps?.length || project.tools?.length || transcript?.length) write(`${KEY}.1`, { id: '1', at: Date.now(), projectId, project, transcript, actions: [] });
      this.keep({ open: '1' });
    }
    this.#id = this.settings['open'] ?? '';
  }

  /** @param {Record<string, unknown>} changed settings */
  keep(changed) {
    this.settings = { ...this.settings, ...changed };
    write(KEY, this.settings);
  }

  /** All of them, the newest first. @returns {Kept[]} */
  get all() {
    const keys = Object.keys(localStorageOr()).filter((k) => k.startsWith(`${KEY}.`));
    return keys.map((k) => read(k)).filter(isWhole).sort((a, b) => b.at - a.at);
  }

  /** The open project, or undefined. @returns {Kept|undefined} */
  get open() {
    const kept = read(`${KEY}.${this.#id}`);
    return isWhole(kept) ? kept : undefined;
  }

  /** @param {string} id of a project; '' begins a new one */
  choose(id) {
    this.#id = id;
    this.keep({ open: id });
  }

  /** @param {Snapshot} now */
  save({ projectId, project, transcript, actions }) {
    if (!transcript.length && !project.tools.length && !project.apps.length) return;
    if (!this.#id) this.choose(Date.now().toString(36));
    const from = Math.max(0, transcript.length - KEPT);
    const recent = actions.filter((a) => a.at >= from).map((a) => ({ ...a, at: a.at - from }));
    write(`${KEY}.${this.#id}`, { id: this.#id, at: Date.now(), projectId, project, transcript: transcript.slice(from), actions: recent });
  }

  /** @param {string} id */
  remove(id) {
    try {
      localStorage.removeItem(`${KEY}.${id}`);
    } catch {
      // nothing is kept
    }
    if (id === this.#id) this.choose('');
  }
}

/** @returns {Record<string, unknown>} */
const localStorageOr = () => {
  try {
    return localStorage;
  } catch {
    return {}; // storage is blocked for this page
  }
};

/** @param {string} key */
function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null');
  } catch {
    return null; // blocked, or foreign data
  }
}

/** @param {string} key @param {unknown} value */
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // then it is forgotten with the page
  }
}

/** Whether it is of this version of the page. @param {any} kept */
const isWhole = (kept) => [kept?.project?.tools, kept?.project?.apps, kept?.transcript, kept?.actions].every(Array.isArray)
  && kept.project.apps.every((/** @type {any} */ a) => Array.isArray(a?.versions) && Array.isArray(a.files));

/** What a project is called: as its newest app, or as the wish. @param {Pick<Snapshot, 'project'|'transcript'>} kept */
export function nameOf({ project, transcript }) {
  const wish = transcript.find((t) => t.role === 'user')?.text.trim() ?? '';
  const letters = [...wish];
  const app = project.apps.at(-1);
  return app?.title ?? app?.name ?? (letters.length > BRIEF ? `${letters.slice(0, BRIEF - 1).join('').trimEnd()}…` : wish);
}

/** When a project was last open: today by the time, yesterday, or the date. @param {number} at */
function dayOf(at) {
  const [then, today] = [at, Date.now()].map((t) => new Date(t).setHours(0, 0, 0, 0));
  const days = Math.round((Number(then) - Number(today)) / 86_400_000);
  if (days < -1) return new Intl.DateTimeFormat(language(), { dateStyle: 'medium' }).format(at);
  const day = new Intl.RelativeTimeFormat(language(), { numeric: 'auto' }).format(days, 'day');
  const time = new Intl.DateTimeFormat(language(), { timeStyle: 'short' }).format(at);
  return `${day.charAt(0).toUpperCase()}${day.slice(1)}, ${time}`;
}

/** In the place of an app that is not written yet. @param {string} name */
function letterOf(name) {
  const box = make('span', 'thumb');
  const letter = make('i', '', [...name.replace(/^(a|an|the|ein|eine|der|die|das) /i, '')][0]?.toUpperCase() ?? '');
  letter.ariaHidden = 'true';
  box.append(letter);
  return box;
}

/**
 * The list of projects.
 * @param {Kept[]} all
 * @param {{word: (name: string, values?: Record<string, unknown>) => string, choose: (id: string) => void, remove: (id: string) => void}} page
 */
export function projectList(all, { word, choose, remove }) {
  return all.map((kept) => {
    const { id, at, project } = kept;
    const item = make('li', 'kept');
    const open = make('button', 'shot');
    const about = make('span', '');
    about.append(make('b', '', nameOf(kept) || word('project')), make('small', '', dayOf(at)));
    const url = project.apps.findLast((a) => a.url)?.url;
    open.append(url ? thumbnail(url) : letterOf(nameOf(kept)), about);
    open.addEventListener('click', () => choose(id));
    const drop = make('button', 'drop');
    const ask = (/** @type {boolean} */ isAsked) => {
      drop.classList.toggle('stop', isAsked);
      drop.textContent = word(isAsked ? 'sure' : 'remove');
      drop.ariaLabel = `${drop.textContent}: ${nameOf(kept)}`;
    };
    ask(false);
    drop.addEventListener('click', () => {
      if (drop.classList.contains('stop')) return remove(id);
      ask(true); // pressed twice it is meant
    });
    drop.addEventListener('blur', () => ask(false));
    item.append(open, drop);
    return item;
  });
}
