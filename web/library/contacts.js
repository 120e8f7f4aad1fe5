/**
 * The address book, for browsers without a Contact Picker: a person keeps it by hand, it stays in this browser, and nothing here
 * hands it to anybody.
 */
import { make } from './dom.js';
import { canvas as say } from './en.js';
import { fill, speak } from './strings.js';

/** @typedef {{name: string, phone: string, email: string}} Contact `phone` and `email` may be '' */

speak({ canvas: say });

const KEY = 'voxgate.contacts';
const FIELDS = [
  { name: 'name', type: 'text', required: true },
  { name: 'phone', type: 'tel', required: false },
  { name: 'email', type: 'email', required: false },
];

export class AddressBook {
  #dialog = /** @type {HTMLDialogElement} */ (make('dialog', 'contacts'));
  #list = make('ul');
  #form = /** @type {HTMLFormElement} */ (make('form'));
  #legend = make('h3');
  #editing = make('span', 'contacts-editing');
  #said = make('p', 'contacts-note');
  /** @type {Contact|undefined} */ #edited;

  constructor() {
    const close = make('button', '', say['close']);
    close.addEventListener('click', () => this.#dialog.close());
    const head = make('header');
    const title = make('h2', '', say['contacts']);
    title.id = 'contacts-title';
    head.append(title, close);
    const note = make('p', 'contacts-note', fill(say['contacts note']));
    this.#said.role = 'status';
    this.#fillForm();
    this.#dialog.setAttribute('aria-labelledby', title.id);
    this.#dialog.append(head, note, this.#form, this.#said, this.#list);
    // The page's keys start, mute and stop the conversation, and the canvas takes Esc before anybody else.
    this.#dialog.addEventListener('keydown', (e) => e.stopPropagation());
    const escape = (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== 'Escape' || e.isComposing || !this.#dialog.open) return;
      e.preventDefault();
      e.stopPropagation();
      this.#dialog.close();
    };
    addEventListener('keydown', escape, true);
  }

  #fillForm() {
    for (const attributes of FIELDS) {
      const box = make('label');
      const input = Object.assign(document.createElement('input'), attributes);
      input.maxLength = 200;
      input.autocomplete = 'off'; // the browser would offer the person's own
      box.append(make('span', '', say[attributes.name]), input);
      this.#form.append(box);
    }
    const save = /** @type {HTMLButtonElement} */ (make('button', 'contacts-save', say['save']));
    save.type = 'submit';
    const remove = make('button', '', say['remove']);
    const leave = make('button', '', say['cancel']);
    this.#editing.append(remove, leave);
    this.#form.prepend(this.#legend);
    this.#form.append(save, this.#editing);
    this.#form.addEventListener('submit', (e) => {
      e.preventDefault();
      const contact = asContact(Object.fromEntries(new FormData(this.#form)));
      if (contact) this.#change(fill(say['saved'], contact), contact);
    });
    remove.addEventListener('click', () => {
      this.#change(fill(say['removed'], this.#edited));
      this.#focus();
    });
    leave.addEventListener('click', () => {
      this.#edit();
      this.#focus();
    });
  }

  /** Everybody, by name. @returns {Contact[]} */
  all() {
    try {
      /** @type {unknown[]} */
      const kept = JSON.parse(localStorage.getItem(KEY) ?? '[]');
      return kept.flatMap((c) => asContact(c) ?? []).sort((a, b) => a.name.localeCompare(b.name));
    } catch {
      return []; // storage is blocked for this page, or holds foreign data
    }
  }

  /**
   * Finds contacts by the beginnings of words in their names, in any order, ignoring case and accents.
   * @param {string} query
   */
  find(query) {
    const asked = words(query);
    if (!asked.length) return [];
    return this.all().filter(({ name }) => {
      const own = words(name);
      return asked.every((word) => own.some((w) => w.startsWith(word)));
    });
  }

  /**
   * Throws if the browser does not keep it.
   * @param {Contact} contact
   */
  add(contact) {
    this.#put(contact);
  }

  /** Shows the book, to be changed. */
  open() {
    this.#edit();
    this.#said.textContent = '';
    if (!this.#dialog.isConnected) document.body.append(this.#dialog);
    this.#dialog.showModal();
  }

  /** @param {Contact} [contact] absent: a new contact */
  #edit(contact) {
    this.#edited = contact;
    this.#legend.textContent = fill(contact ? say['change contact'] : say['add contact'], contact);
    this.#editing.hidden = !contact;
    for (const input of this.#form.querySelectorAll('input')) input.value = contact?.[/** @type {keyof Contact} */ (input.name)] ?? '';
    const rows = this.all().map((c) => {
      const button = make('button', '', c.name);
      button.append(make('span', '', [c.phone, c.email].filter(Boolean).join(' · ')));
      button.addEventListener('click', () => {
        this.#edit(c);
        this.#focus();
      });
      const row = make('li');
      row.append(button);
      return row;
    });
    this.#list.replaceChildren(...rows);
    this.#list.hidden = !rows.length;
  }

  #focus() {
    this.#form.querySelector('input')?.focus();
  }

  /**
   * @param {string} said the message after saving
   * @param {Contact} [contact] replaces the contact that is edited
   */
  #change(said, contact) {
    try {
      this.#put(contact, this.#edited);
      this.#edit();
    } catch (e) {
      said = /** @type {Error} */ (e).message;
    }
    this.#said.textContent = said;
  }

  /**
   * @param {Contact} [contact] absent: `instead` is only removed
   * @param {Contact} [instead]
   */
  #put(contact, instead) {
    const others = this.all().filter((c) => !same(c, instead) && !same(c, contact));
    try {
      localStorage.setItem(KEY, JSON.stringify(contact ? [...others, contact] : others));
    } catch {
      throw new Error(say['not kept']);
    }
  }
}

/**
 * Undefined if it has no name.
 * @param {any} value
 * @returns {Contact|undefined}
 */
export function asContact(value) {
  const text = (/** @type {unknown} */ v) => (typeof v === 'string' ? v.trim() : '');
  const contact = { name: text(value?.name), phone: text(value?.phone), email: text(value?.email) };
  return contact.name ? contact : undefined;
}

/** @param {Contact} a @param {Contact} [b] */
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Letters that to Unicode are none with a mark. @type {Record<string, string>} */
const PLAIN = { ø: 'o', ł: 'l', đ: 'd', æ: 'ae', œ: 'oe' };

/** @param {string} text */
const words = (text) =>
  text
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toUpperCase() // makes two of ß
    .toLowerCase()
    .replace(/[øłđæœ]/g, (c) => PLAIN[c] ?? c)
    .split(/[^\p{L}\p{N}]+/u)
    .filter(Boolean);
