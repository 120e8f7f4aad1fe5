/** What the tools of native.js do with the camera, the contacts and the apps of the device. It is loaded when it is used. */
import { AddressBook, asContact } from './contacts.js';
import { make } from './dom.js';
import { dataURL, declinedError } from './calls.js';
import { asks, canvas as words } from './en.js';
import { fill } from './strings.js';
import { withPicture } from './voxgate.js';

/**
 * @import { Contact } from './contacts.js'
 * @import { ToolContext } from './types.d.ts'
 */

/** @typedef {{name: string, phones: string[], emails: string[]}} Person */
/** @typedef {{keep: (ref: string, blob: Blob) => void, kept: (ref: string) => Blob|undefined}} Album */

const SIDE = 1024; // px, of a photo: print can be read, and as base64 it fits into a message of the protocol, 1 MiB
const QUALITY = 0.85; // of the photo's JPEG
const CHOICES = 8; // contacts: a phone's screen of buttons

/** @type {Record<string, string>} what getUserMedia throws */
const NO_CAMERA = {
  NotAllowedError: 'the camera is not allowed; the person can allow it in the browser',
  SecurityError: 'the camera is not allowed here',
  NotFoundError: 'there is no camera',
  OverconstrainedError: 'there is no such camera',
};

/** @type {AddressBook|undefined} */
let made;
const book = () => (made ??= new AddressBook()); // in the language of then
export const openContacts = () => book().open();

// --- what is asked on the canvas

/**
 * Lines above the buttons. They are shown as text, never as HTML.
 * @param {(string|Element)[]} lines
 */
function view(...lines) {
  const box = make('div', 'canvas-view');
  box.append(...lines.map((l) => (typeof l === 'string' ? make('p', '', l) : l)));
  return box;
}

/** @param {string} [label] @param {string} [action] */
const button = (label, action = 'submit') => ({ type: 'button', label, action });
/** @param {string} [label] */
const no = (label = words['cancel']) => button(label, 'dismiss');

// --- the camera

let photos = 0;

/**
 * @param {string} facing
 * @param {Album} album gets the photo
 * @param {ToolContext} context
 */
export async function takePhoto(facing, album, { signal, ask }) {
  if (!navigator.mediaDevices) throw new Error('the camera needs https or localhost, which this page does not have');
  const size = { width: { ideal: SIDE }, height: { ideal: SIDE } };
  const opened = navigator.mediaDevices.getUserMedia({ video: { facingMode: { ideal: facing }, ...size } });
  const stop = () => opened.then((s) => s.getTracks().forEach((t) => t.stop()), () => {}); // once it is there
  signal.addEventListener('abort', stop, { once: true });
  const video = document.createElement('video');
  try {
    video.srcObject = await opened.catch(({ name }) => {
      throw new Error(NO_CAMERA[name] ?? 'the camera does not work; another program may be using it');
    });
    video.muted = video.playsInline = video.autoplay = true;
    video.ariaLabel = words['camera view'] ?? '';
    video.classList.toggle('mirrored', facing === 'user');
    for (;;) {
      await video.play();
      const { action } = await ask([button(words['take photo']), no()], video);
      if (action !== 'submit') throw declinedError('the person did not take a photo');
      const photo = await shoot(video);
      if (!(await isGood(photo.blob, ask))) continue;
      signal.throwIfAborted(); // or the next conversation would have it
      const ref = `photo:${++photos}`;
      album.keep(ref, photo.blob);
      return withPicture({ photo: ref, width: photo.width, height: photo.height }, photo.blob);
    }
  } finally {
    await stop();
    video.srcObject = null;
  }
}

/**
 * The person looks at the photo before anybody else does. False: they want another one.
 * @param {Blob} blob
 * @param {ToolContext['ask']} ask
 */
async function isGood(blob, ask) {
  const img = Object.assign(document.createElement('img'), { src: await dataURL(blob), alt: words['the photo'] ?? '' });
  const { action } = await ask([button(words['use photo']), button(words['retake'], 'again'), no()], view(fill(words['show photo']), img));
  if (action !== 'submit' && action !== 'again') throw declinedError('the person did not give the photo');
  return action === 'submit';
}

/** @param {HTMLVideoElement} video */
async function shoot(video) {
  const { videoWidth, videoHeight } = video;
  const scale = Math.min(1, SIDE / Math.max(videoWidth, videoHeight));
  const canvas = document.createElement('canvas');
  const width = (canvas.width = Math.round(videoWidth * scale));
  const height = (canvas.height = Math.round(videoHeight * scale));
  canvas.getContext('2d')?.drawImage(video, 0, 0, width, height);
  /** @type {Blob|null} */
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/jpeg', QUALITY));
  if (!blob) throw new Error('the camera shows nothing');
  return { blob, width, height };
}

// --- contacts

/** The browser's Contact Picker: Chrome has it on Android. @returns {any} */
function picker() {
  const { contacts } = /** @type {any} */ (navigator);
  return contacts?.select && contacts;
}

/**
 * Lets the person choose in the browser's own contact picker, which the page cannot read. It opens only in a user gesture.
 * @param {string} query
 * @param {ToolContext} context
 * @returns {Promise<Person>}
 */
async function pickContact(query, { signal, ask }) {
  const { action } = await ask([button(words['choose contact']), no()], view(fill(words['looks'], { query }), fill(words['picks'])));
  if (action !== 'submit') throw declinedError('the person did not open their contacts');
  const chosen = await picker().select(['name', 'tel', 'email']).catch((/** @type {Error} */ e) => {
    throw new Error(`the contacts could not be opened: ${e.message}`);
  });
  signal.throwIfAborted();
  if (!chosen.length) throw declinedError('the person chose no contact');
  const [{ name = [], tel = [], email = [] }] = chosen;
  return { name: name[0] ?? '', phones: tel, emails: email };
}

/**
 * @param {string} query
 * @param {ToolContext} context
 * @returns {Promise<Person>}
 */
export const findContact = (query, context) => (picker() ? pickContact(query, context) : lookUp(query, context));

/**
 * @param {string} query
 * @param {ToolContext} context
 * @returns {Promise<Person>}
 */
async function lookUp(query, context) {
  const added = book().all().length ? undefined : await addContact(query, context);
  const found = added ? [added] : book().find(query);
  const [first] = found;
  if (!first) throw new Error(`no contact matches “${query}”`);
  const contact = found.length > 1 ? await chooseContact(query, found, context) : first;
  if (found.length === 1) {
    const about = view(fill(words['give'], { details: detailsOf(first), name: first.name }), ...linesOf(first));
    const { action } = await context.ask([button(asks['yes']), no(asks['no'])], about);
    if (action !== 'submit') throw declinedError(`the person does not give the contact for “${query}”`);
  }
  const { name, phone, email } = contact;
  return { name, phones: [phone].filter(Boolean), emails: [email].filter(Boolean) };
}

/**
 * @param {string} query
 * @param {ToolContext} context
 */
async function addContact(query, { signal, ask }) {
  const added = await ask(
    [
      { type: 'input', id: 'name', label: words['name'], value: query, required: true },
      { type: 'input', id: 'phone', label: words['phone'], kind: 'tel' },
      { type: 'input', id: 'email', label: words['email'], kind: 'email' },
      button(words['save']),
      no(),
    ],
    view(fill(words['add to empty'], { query }), fill(words['stays here'])),
  );
  signal.throwIfAborted();
  const contact = asContact(added);
  if (!contact || added['action'] !== 'submit') throw declinedError('the address book is empty, and the person added no contact');
  book().add(contact);
  return contact;
}

/**
 * @param {string} query
 * @param {Contact[]} found
 * @param {ToolContext} context
 */
async function chooseContact(query, found, { ask }) {
  const offered = found.slice(0, CHOICES);
  const alike = (/** @type {Contact} */ c) => found.filter(({ name }) => name === c.name).length > 1;
  const labels = offered.map((c) => (alike(c) ? [c.name, c.phone || c.email].filter(Boolean).join(', ') : c.name));
  const about = view(fill(words['whom'], { query }), fill(words['whom gives']));
  if (found.length > CHOICES) about.append(make('p', '', fill(words['some of'], { some: CHOICES, all: found.length })));
  const { action } = await ask([...labels.map((l, i) => button(l, `contact-${i}`)), no(words['none of these'])], about);
  const chosen = offered[Number(/^contact-(\d)$/.exec(String(action))?.[1] ?? -1)];
  if (!chosen) throw declinedError(`the person chose none of the contacts that match “${query}”`);
  return chosen;
}

/** @param {Contact} c */
const linesOf = ({ phone, email }) => [phone, email].filter(Boolean);
/** @param {Contact} c */
const detailsOf = ({ phone, email }) =>
  words[phone && email ? 'number and address' : phone ? 'the number' : email ? 'the address' : 'the name'];

// --- messages

/**
 * @param {{to: string, text: string, photo?: string}} message `photo` is the reference of one in the album
 * @param {Album} album
 * @param {ToolContext} context
 */
export async function sendMessage({ to, text, photo }, album, context) {
  const blob = photo ? album.kept(photo) : undefined;
  if (photo && !blob) throw new Error(`there is no photo “${photo}”; take_photo takes one and returns its reference`);
  const files = blob && [new File([blob], 'photo.jpg', { type: blob.type })];
  const shares = canShare({ text: 'text', files });
  for (let wrong = ''; ; wrong = fill(words['bad recipient'], { to })) {
    const answer = await context.ask(
      [
        { type: 'input', id: 'to', label: words['to'], hint: words['to hint'], value: to, required: !shares },
        { type: 'input', id: 'text', label: words['text'], kind: 'multiline', value: text, required: !photo },
        ...(photo ? [{ type: 'image', src: photo, alt: words['photo with it'] }] : []),
        button(words['send']),
        ...(shares && !photo && linkOf(to, text) ? [button(fill(words['send with'], { app: words[linkOf(to, text)?.app ?? ''] }), 'directly')] : []),
        no(),
      ],
      view(...(wrong ? [wrong] : []), whatSendDoes(shares, Boolean(photo))),
    );
    if (!answer['action']) throw notSent();
    to = String(answer['to']).trim();
    text = String(answer['text']);
    if (shares && answer['action'] === 'submit') return { ...(await share({ text: text || undefined, files })), text };
    const link = linkOf(to, text);
    if (link) return { ...(await openLink(link, to, blob, context)), to, text };
  }
}

const notSent = () => declinedError('the person did not send it');

/** @param {boolean} shares @param {boolean} photo */
function whatSendDoes(shares, photo) {
  if (shares) return fill(words['shares']);
  return photo ? `${fill(words['prepares'])} ${fill(words['photo stays'])}` : fill(words['prepares']);
}

/** @param {ShareData} data */
function canShare(data) {
  if (!navigator.share) return false;
  return navigator.canShare ? navigator.canShare(data) : !data.files;
}

/** @param {ShareData} data */
async function share(data) {
  try {
    await navigator.share(data);
  } catch (e) {
    const { name, message } = /** @type {Error} */ (e);
    throw name === 'AbortError' ? notSent() : new Error(`the share sheet could not be opened: ${message}`);
  }
  return { sent: 'shared', note: 'It was handed to the app that the person chose in the share sheet. Whether it was sent is not known.' };
}

/**
 * @param {string} to
 * @param {string} text
 */
function linkOf(to, text) {
  const body = text && `body=${encodeURIComponent(text.replace(/\r?\n/g, '\r\n'))}`;
  if (/^\+?[\d\s()./-]{3,40}$/.test(to)) {
    const number = to.replace(/^(\+.*)\(0\)/, '$1').replace(/[^\d+]/g, ''); // +44 (0)20 is +44 20
    // iPhones want an & before the body, RFC 5724 a ?; both together are fine for both.
    return { sent: 'sms', app: 'messages app', href: `sms:${number}${body && `?&${body}`}` };
  }
  if (!/^[^\s@,;\p{C}]+@[^\s@,;\p{C}]+$/u.test(to)) return undefined; // nothing that is seen otherwise than it is
  const address = to.split('@').map(encodeURIComponent).join('@');
  return { sent: 'mailto', app: 'e-mail app', href: `mailto:${address}${body && `?${body}`}` };
}

/**
 * The person presses a link of their own will: nothing can block it, and they see what it opens.
 * @param {{sent: string, app: string, href: string}} link
 * @param {string} to
 * @param {Blob|undefined} photo
 * @param {ToolContext} context
 */
async function openLink({ sent, app, href }, to, photo, { ask }) {
  const open = Object.assign(document.createElement('a'), { href, textContent: fill(words['open'], { app: words[app] }) });
  open.dataset['action'] = 'submit';
  const lines = [fill(words['to whom'], { to })];
  const save = document.createElement('a');
  const button = make('div');
  button.dataset['element'] = 'button'; // stands beside the other
  button.append(open);
  const shown = new DocumentFragment();
  shown.append(view(...lines, ...(photo ? [save] : [])), button);
  if (photo) Object.assign(save, { href: URL.createObjectURL(photo), download: 'photo.jpg', textContent: words['save photo'] ?? '' });
  try {
    const { action } = await ask([no()], shown);
    if (action !== 'submit') throw notSent();
  } finally {
    URL.revokeObjectURL(save.href);
  }
  const note = `It was handed to the ${app}. Whether it was sent is not known.`;
  return { sent, note: photo ? `${note} The photo could not go along; the person was asked to attach it.` : note };
}
