/** What is made by talking: the app, its files and versions, and the tools. */
import { make } from '../dom.js';
import { homeOf, outlineOf, partOf, thumbnail, toolCard } from './cards.js';

/** @import { App, Snapshot } from './types.d.ts' */

const TABS = ['preview', 'studio', 'files', 'versions'];

/**
 * @typedef {object} Page
 * @property {HTMLElement} root
 * @property {(name: string, values?: Record<string, unknown>) => string} word
 * @property {(name: string) => string} translated what is said of a tool, in the language of the page
 * @property {(app: string, version: number) => boolean} use a version of an app
 * @property {(app?: string) => void} onView an app, or something else, is in sight
 */

export class ProjectView {
  #page;
  #tab = 'preview';
  #shown = ''; // the address of the app that is in the frame
  #file = ''; // of the app, that is read
  #isFree = false; // no text model writes, as in the example
  /** @type {App|undefined} the app that is shown */ #app;
  /** @type {App[]} */ #apps = [];
  /** @type {Snapshot['project']['tools']} */ #tools = [];
  /** @type {Map<string, any>} entries of the registry by their ids */ #known = new Map();
  /** @type {Map<string, HTMLElement>} small pictures of versions by their addresses */ #pictures = new Map();

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
    const tabs = this.#find('.tabs');
    for (const name of TABS) {
      const tab = make('button');
      tab.id = `tab-${name}`;
      tab.role = 'tab';
      tab.setAttribute('aria-controls', name);
      tab.addEventListener('click', () => this.show(name));
      tabs.append(tab);
    }
    tabs.addEventListener('keydown', ({ key }) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
      const next = TABS[(TABS.indexOf(this.#tab) + (by ?? 0) + TABS.length) % TABS.length] ?? '';
      if (by) this.show(next), this.#find(`#tab-${next}`).focus();
    });
    this.#find('#which').addEventListener('change', ({ target }) => this.#choose(/** @type {HTMLSelectElement} */ (target).value));
    this.#find('#undo').addEventListener('click', () => this.#app && page.use(this.#app.name, 0));
    this.#find('#reload').addEventListener('click', () => {
      this.#shown = '';
      this.#frame(this.#app);
    });
    this.#find('#narrow').addEventListener('click', () => this.#narrow(!this.#find('#preview').matches('.narrow')));
    const other = /** @type {HTMLDetailsElement} */ (this.#find('#other'));
    const shut = () => void (other.open = false);
    other.addEventListener('click', ({ target }) => /** @type {HTMLElement} */ (target).closest('.menu') && shut());
    other.addEventListener('focusout', ({ relatedTarget }) => relatedTarget && !other.contains(/** @type {Node} */ (relatedTarget)) && shut());
    other.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !other.open) return;
      event.preventDefault(); // the project stays
      shut();
      other.querySelector('summary')?.focus();
    });
    page.root.addEventListener('pointerdown', ({ target }) => other.contains(/** @type {Node} */ (target)) || shut());
    this.#find('#full').addEventListener('click', () => this.#find('iframe').requestFullscreen());
    this.#find('#share').addEventListener('click', () => this.#share());
    this.#find('#download').addEventListener('click', () => this.#download());
    this.show('preview');
  }

  /** @param {string} selector */
  #find(selector) {
    return /** @type {HTMLElement} */ (this.#page.root.querySelector(selector));
  }

  /** @param {string} tab */
  show(tab) {
    this.#tab = tab;
    for (const name of TABS) {
      this.#find(`#${name}`).hidden = name !== tab;
      const button = this.#find(`#tab-${name}`);
      button.ariaSelected = String(name === tab);
      button.tabIndex = name === tab ? 0 : -1;
      if (name === tab) button.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // where the tabs do not fit
    }
    if (tab === 'files') this.#read();
    this.#page.onView(tab === 'preview' ? this.#app?.name : undefined);
  }

  /** Shows an app. @param {string} name */
  open(name) {
    this.#choose(name);
    this.show('preview');
  }

  /** Forgets the project that was shown. */
  clear() {
    this.#app = undefined;
    this.#apps = [];
    this.#tools = [];
    this.#known.clear();
    this.#pictures.clear();
  }

  /** @param {Snapshot} now @param {Snapshot|undefined} before */
  update({ project: { tools, apps }, actions, isConnected, appModel }, before) {
    const { word } = this.#page;
    for (const a of actions) for (const t of [a.data?.['added'], ...(a.data?.['tools'] ?? [])]) if (t?.description) this.#known.set(t.id, t);
    this.#find('#added').replaceChildren(...(tools.length ? tools.map((t) => this.#tool(t)) : [make('li', 'none', word('no tools'))]),
      ...(apps.length ? [] : [make('li', 'none place', word('no app'))]));
    const changed = apps.find((a) => before?.project.apps.find((b) => b.name === a.name)?.url !== a.url);
    if (!this.#apps.length && !apps.length) this.show('studio');
    if (apps.length > this.#apps.length) this.show('preview');
    this.#apps = apps;
    this.#tools = tools;
    this.#isFree = !appModel;
    const which = /** @type {HTMLSelectElement} */ (this.#find('#which'));
    which.replaceChildren(...apps.map((a) => new Option(a.title ?? a.name, a.name)));
    which.hidden = apps.length < 2;
    this.#choose(changed?.name ?? this.#app?.name ?? apps.at(-1)?.name ?? '');
    const counts = { preview: 0, studio: tools.length, files: this.#app?.files.length ?? 0, versions: this.#app?.versions.length ?? 0 };
    for (const [name, count] of Object.entries(counts)) this.#find(`#tab-${name}`).textContent = `${word(`tab ${name}`)}${count > (name === 'studio' ? 0 : 1) ? ` ${count}` : ''}`; // each app has a file and a version
    const writing = apps.find((a) => a.bytes !== undefined && isConnected);
    const told = writing ? `${word(writing.url ? 'being changed' : 'being written', { name: writing.title ?? writing.name })} ${writing.bytes ? partOf(writing, word) : ''}`.trim() : '';
    if (this.#find('#progress').textContent !== told) this.#find('#progress').textContent = told;
  }

  /** Shows the app as wide as a phone. @param {boolean} on */
  #narrow(on) {
    this.#find('#preview').classList.toggle('narrow', on);
    this.#find('#narrow').ariaPressed = String(on);
  }

  /** @param {string} name of an app */
  #choose(name) {
    const { word } = this.#page;
    const app = this.#apps.find((a) => a.name === name) ?? this.#apps.at(-1);
    if (app?.name !== this.#app?.name) this.#narrow(false); // it was chosen for the other one
    this.#app = app;
    const which = /** @type {HTMLSelectElement} */ (this.#find('#which'));
    if (app) which.value = app.name;
    this.#find('h2').textContent = app?.url && which.hidden ? app.title ?? app.name : word('project');
    const undo = /** @type {HTMLButtonElement} */ (this.#find('#undo'));
    undo.hidden = !app?.url || !app.versions[app.version - 1]?.from; // there is nothing to go back to
    this.#find('#other').hidden = !app?.url;
    /** @type {HTMLAnchorElement} */ (this.#find('#tab')).href = app?.url ?? '';
    this.#frame(app);
    this.#showVersions(app);
    if (this.#tab === 'files') this.#read();
    this.#page.onView(this.#tab === 'preview' ? app?.name : undefined);
  }

  /**
   * Foreign code: its frame has no origin, so that it can reach neither this page nor the microphone.
   * @param {App} [app]
   */
  #frame(app) {
    const place = this.#find('#preview');
    if (!app?.url) {
      this.#shown = '';
      return app ? this.#showOutline(app) : place.replaceChildren(make('p', 'none place', this.#page.word('no app')));
    }
    if (this.#shown === app.url) return;
    this.#shown = app.url;
    const frame = document.createElement('iframe');
    frame.setAttribute('sandbox', 'allow-scripts allow-forms allow-modals');
    frame.title = this.#page.word('the app', { name: app.title ?? app.name });
    frame.src = app.url;
    place.replaceChildren(frame);
  }

  /** The outline of a page stands where the app that is being written will appear, with its name and what is being written of it. @param {App} app */
  #showOutline(app) {
    const { word } = this.#page;
    const place = this.#find('#preview');
    if (!place.querySelector('.outline')) {
      const about = make('span', 'coming');
      about.append(make('b'), make('span'), make('small', '', word(this.#isFree ? 'coming free' : 'coming')));
      const outline = outlineOf();
      outline.prepend(about);
      place.replaceChildren(outline);
    }
    for (const [part, text] of [['b', app.name], ['span', partOf(app, word)]]) {
      const e = this.#find(`.coming ${part}`);
      if (e.textContent !== text) e.textContent = text ?? '';
    }
  }

  /** @param {{id: string, name: string, prompt: string}} added */
  #tool({ id, name, prompt }) {
    const { word } = this.#page;
    const item = toolCard(this.#known.get(id) ?? { id, name }, this.#page);
    const copy = make('button', '', word('copy prompt'));
    copy.addEventListener('click', () =>
      navigator.clipboard.writeText(prompt).then(() => (copy.textContent = word('copied')), () => (copy.textContent = word('not copied'))));
    item.append(copy);
    return item;
  }

  /** The tools of the project, each with what it is, where it comes from and the command that adds it. */
  sources() {
    const { word, translated } = this.#page;
    return this.#tools.map(({ id, name }) => {
      const { role = '', homepage = '', add = '' } = this.#known.get(id) ?? {};
      const item = make('li');
      item.append(make('b', '', name), make('small', '', translated(id) || role));
      const link = homeOf(homepage);
      if (link) item.append(link);
      if (!add) return item;
      const copy = make('button', 'chip', word('copy command'));
      copy.ariaLabel = `${word('copy command')}: ${add}`;
      copy.addEventListener('click', () => navigator.clipboard.writeText(add).then(() => (copy.textContent = word('copied')), () => (copy.textContent = word('not copied'))));
      item.append(make('code', '', add), copy);
      return item;
    });
  }

  /** @param {App} [app] */
  #showVersions(app) {
    const { word, use } = this.#page;
    const rows = (app?.versions ?? []).map(({ url, wish, from, changes = [] }, i) => {
      const version = i + 1;
      const row = make('div', 'version');
      const about = make('p', '', '');
      about.append(make('b', '', word('version', { version })), ` ${wish}`);
      const done = changes.map(({ file, added, removed }) => `${file} +${added} −${removed}`).join(', ');
      about.append(make('small', '', from ? word('made of', { from, done }) : word('the first')));
      const picture = this.#pictures.get(url) ?? thumbnail(url);
      this.#pictures.set(url, picture);
      row.append(picture, about);
      if (version === app?.version) about.append(make('small', '', word('is shown')));
      else {
        const button = make('button', 'chip', word('show it'));
        button.ariaLabel = `${word('show it')}: ${word('version', { version })}`;
        button.addEventListener('click', () => app && use(app.name, version));
        row.append(button);
      }
      return row;
    });
    this.#find('#versions').replaceChildren(...(rows.length ? rows.reverse() : [make('p', 'none', word('no files'))]));
  }

  /** Shows a file of the app. */
  async #read() {
    const place = this.#find('#files');
    const app = this.#app;
    if (!app?.url) return place.replaceChildren(make('p', 'none', this.#page.word('no files')));
    if (!app.files.includes(this.#file)) this.#file = app.files[0] ?? '';
    const names = make('div', 'names');
    names.append(...app.files.map((file) => {
      const button = make('button', 'chip', file);
      button.ariaPressed = String(file === this.#file);
      button.addEventListener('click', () => {
        this.#file = file;
        this.#read();
      });
      return button;
    }));
    const text = make('pre', '', '');
    text.tabIndex = 0;
    text.role = 'region';
    text.ariaLabel = this.#file;
    place.replaceChildren(names, text);
    text.textContent = await textOf(app, this.#file).catch(() => this.#page.word('file gone'));
  }

  /** Gives the app's address to another app of the device, or to the clipboard. */
  async #share() {
    const { name = '', title = name, url = '' } = this.#app ?? {};
    try {
      if (navigator.share) return await navigator.share({ title, url });
      await navigator.clipboard.writeText(url);
      this.#find('#progress').textContent = this.#page.word('link copied');
    } catch (e) {
      if (/** @type {Error} */ (e).name !== 'AbortError') this.#find('#progress').textContent = this.#page.word('not copied'); // else the person has changed their mind
    }
  }

  async #download() {
    const app = this.#app;
    if (!app) return;
    const files = await Promise.all(app.files.map(async (name) => ({ name, text: await textOf(app, name) }))).catch(() => undefined);
    if (!files) return;
    const { zip } = await import('./zip.js');
    const link = document.createElement('a');
    link.href = URL.createObjectURL(zip(files));
    link.download = `${app.title ?? app.name}.zip`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}

/** @param {App} app @param {string} file */
async function textOf(app, file) {
  const answer = await fetch(new URL(file, app.url));
  if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
  return answer.text();
}
