/**
 * Tools that run in the page: the clock, the camera, the contacts, a message. Whatever of them leaves the device, the person has seen
 * and allowed on the canvas, but for the time and the time zone.
 */
import { AddressBook, asContact } from './contacts.js';
import { make } from './elements.js';
import { withPicture } from './voxgate.js';

/**
 * @import { Canvas } from './canvas.js'
 * @import { Contact } from './contacts.js'
 * @import { Tool, ToolContext } from './types.d.ts'
 */

/** @typedef {{name: string, phones: string[], emails: string[]}} Person */

const SIDE = 1024; // px, of a photo: print can be read, and as base64 it fits into a message of the protocol, 1 MiB
const QUALITY = 0.85; // likewise
const CHOICES = 8; // contacts: a phone's screen of buttons
const TIMEOUT = '5m'; // as long as the canvas waits for the person

/** @type {Record<string, string>} what getUserMedia throws */
const NO_CAMERA = {
  NotAllowedError: 'the camera is not allowed; the person can allow it in the browser',
  SecurityError: 'the camera is not allowed here',
  NotFoundError: 'there is no camera',
  OverconstrainedError: 'there is no such camera',
};

/**
 * The tools, for `connect`. The canvas keeps the photos.
 * @param {{canvas: Canvas, contacts?: HTMLElement}} o `contacts` is a button that opens the address book; it is hidden where the
 *   browser lets the person choose from the device's contacts instead
 * @returns {Record<string, Tool>}
 */
export function nativeTools({ canvas, contacts }) {
  const book = new AddressBook();
  if (contacts) {
    contacts.hidden = Boolean(picker());
    contacts.addEventListener('click', () => book.open());
  }
  let photos = 0;
  return {
    get_current_time: {
      description: 'The date and time where the person is, and their time zone.',
      title: 'Looking at the clock…',
      run() {
        const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
        return { time: new Date().toLocaleString('en', { dateStyle: 'full', timeStyle: 'medium' }), timeZone };
      },
    },
    take_photo: {
      description:
        'Takes a photo with a camera of the person’s device. They see what the camera sees and press the button themselves, so it ' +
        'takes a while, and they may decline. You see the photo. Its reference in the result, as photo:1, can be the src of an image ' +
        'on the canvas and the photo of send_message.',
      title: 'Taking photo…',
      parameters: {
        type: 'object',
        properties: {
          facing: {
            type: 'string',
            enum: ['user', 'environment'],
            description: 'user: the camera that sees the person. environment: the one that looks away from them, used if absent.',
          },
        },
      },
      timeout: TIMEOUT,
      foreground: 'asks',
      async run({ facing = 'environment' }, context) {
        const photo = await takePhoto(facing, context);
        context.signal.throwIfAborted(); // or the next conversation would have it
        const ref = `photo:${++photos}`;
        canvas.keep(ref, photo.blob);
        return withPicture({ photo: ref, width: photo.width, height: photo.height }, photo.blob);
      },
    },
    find_contact: {
      description:
        'Looks somebody up among the person’s contacts and returns their name, phone numbers and e-mail addresses. The person is ' +
        'asked before you get them, and chooses if several match. Use it whenever you need a number or an address; never make one up.',
      title: 'Finding contact…',
      parameters: {
        type: 'object',
        properties: { query: { type: 'string', description: 'The name or some of its words, as “Ada” or “Ada Lovelace”.' } },
        required: ['query'],
      },
      timeout: TIMEOUT,
      foreground: 'asks',
      run: ({ query }, context) => (picker() ? pickContact(query, context) : findContact(query, book, context)),
    },
    send_message: {
      description:
        'Prepares a message and hands it to an app of the person’s: their share sheet, messages or e-mail. They see all of it, may ' +
        'change it, and send it themselves. Leave out what you do not know: they are asked for it. Whether it was sent in the end ' +
        'cannot be known.',
      title: 'Sending message…',
      parameters: {
        type: 'object',
        properties: {
          to: { type: 'string', description: 'A phone number or an e-mail address, as find_contact returned it.' },
          text: { type: 'string' },
          photo: { type: 'string', description: 'The reference of a photo that goes along, as take_photo returned it: photo:1.' },
        },
      },
      timeout: TIMEOUT,
      foreground: 'asks',
      async run({ to = '', text = '', photo }, context) {
        const blob = photo ? canvas.kept(photo) : undefined;
        if (photo && !blob) throw new Error(`there is no photo “${photo}”; take_photo takes one and returns its reference`);
        return sendMessage({ to, text, photo, blob }, context);
      },
    },
  };
}

// --- what is asked on the canvas

/**
 * Lines above the buttons. They are text, whoever wrote them.
 * @param {(string|Element)[]} lines
 */
function view(...lines) {
  const box = make('div', 'canvas-view');
  box.append(...lines.map((l) => (typeof l === 'string' ? make('p', '', l) : l)));
  return box;
}

/** @param {string} label @param {string} [action] */
const button = (label, action = 'submit') => ({ type: 'button', label, action });
/** @param {string} [label] */
const no = (label = 'Cancel') => button(label, 'dismiss');

// --- the camera

/**
 * @param {string} facing
 * @param {ToolContext} context
 */
async function takePhoto(facing, { signal, ask }) {
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
    video.ariaLabel = 'What the camera sees';
    video.classList.toggle('mirrored', facing === 'user');
    await video.play();
    const { action } = await ask([button('Take photo'), no()], video);
    if (action !== 'submit') throw new Error('the person did not take a photo');
    return await shoot(video);
  } finally {
    await stop();
    video.srcObject = null;
  }
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
 * The person chooses in the browser's own list, which nobody else sees. It opens in a gesture only.
 * @param {string} query
 * @param {ToolContext} context
 * @returns {Promise<Person>}
 */
async function pickContact(query, { signal, ask }) {
  const what = 'It gets the name, the numbers and the e-mail addresses of whom you choose, and nothing else.';
  const { action } = await ask([button('Choose a contact'), no()], view(`Gemini looks for “${query}”.`, what));
  if (action !== 'submit') throw new Error('the person did not open their contacts');
  const chosen = await picker().select(['name', 'tel', 'email']).catch((/** @type {Error} */ e) => {
    throw new Error(`the contacts could not be opened: ${e.message}`);
  });
  signal.throwIfAborted();
  if (!chosen.length) throw new Error('the person chose no contact');
  const [{ name = [], tel = [], email = [] }] = chosen;
  return { name: name[0] ?? '', phones: tel, emails: email };
}

/**
 * @param {string} query
 * @param {AddressBook} book
 * @param {ToolContext} context
 * @returns {Promise<Person>}
 */
async function findContact(query, book, context) {
  const added = book.all().length ? undefined : await addContact(query, book, context);
  const found = added ? [added] : book.find(query);
  const [first] = found;
  if (!first) throw new Error(`no contact matches “${query}”`);
  const contact = found.length > 1 ? await chooseContact(query, found, context) : first;
  if (found.length === 1) {
    const about = view(`Give Gemini ${detailsOf(first)} of ${first.name}?`, ...linesOf(first));
    const { action } = await context.ask([button('Yes'), no('No')], about);
    if (action !== 'submit') throw new Error(`the person does not give the contact for “${query}”`);
  }
  const { name, phone, email } = contact;
  return { name, phones: [phone].filter(Boolean), emails: [email].filter(Boolean) };
}

/**
 * @param {string} query
 * @param {AddressBook} book
 * @param {ToolContext} context
 */
async function addContact(query, book, { signal, ask }) {
  const added = await ask(
    [
      { type: 'input', id: 'name', label: 'Name', value: query, required: true },
      { type: 'input', id: 'phone', label: 'Phone', kind: 'tel' },
      { type: 'input', id: 'email', label: 'E-mail', kind: 'email' },
      button('Save'),
      no(),
    ],
    view(`Gemini looks for “${query}”, but your address book is empty. Add a contact?`, 'It stays here until you allow more.'),
  );
  signal.throwIfAborted();
  const contact = asContact(added);
  if (!contact || added['action'] !== 'submit') throw new Error('the address book is empty, and the person added no contact');
  book.add(contact);
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
  const about = view(`Whom do you mean by “${query}”?`, 'Gemini gets the number and the e-mail address of whom you choose.');
  if (found.length > CHOICES) about.append(make('p', '', `These are ${CHOICES} of ${found.length}.`));
  const { action } = await ask([...labels.map((l, i) => button(l, `contact-${i}`)), no('None of these')], about);
  const chosen = offered[Number(/^contact-(\d)$/.exec(String(action))?.[1] ?? -1)];
  if (!chosen) throw new Error(`the person chose none of the contacts that match “${query}”`);
  return chosen;
}

/** @param {Contact} c */
const linesOf = ({ phone, email }) => [phone, email].filter(Boolean);
/** @param {Contact} c */
const detailsOf = ({ phone, email }) =>
  [phone && 'the number', email && 'the e-mail address'].filter(Boolean).join(' and ') || 'the name';

// --- messages

/**
 * @param {{to: string, text: string, photo?: string, blob?: Blob}} message
 * @param {ToolContext} context
 */
async function sendMessage({ to, text, photo, blob }, context) {
  const files = blob && [new File([blob], 'photo.jpg', { type: blob.type })];
  const shares = canShare({ text: 'text', files });
  for (let wrong = ''; ; wrong = `“${to}” is neither a phone number nor an e-mail address.`) {
    const answer = await context.ask(
      [
        { type: 'input', id: 'to', label: 'To', hint: 'Phone number or e-mail address', value: to, required: !shares },
        { type: 'input', id: 'text', label: 'Text', kind: 'multiline', value: text, required: !photo },
        ...(photo ? [{ type: 'image', src: photo, alt: 'The photo that goes along' }] : []),
        button('Send'),
        ...(shares && !photo && linkOf(to, text) ? [button(`Send with ${linkOf(to, text)?.app}`, 'directly')] : []),
        no(),
      ],
      view(...(wrong ? [wrong] : []), whatSendDoes(shares, Boolean(photo))),
    );
    if (!answer['action']) throw notSent();
    to = String(answer['to']).trim();
    text = String(answer['text']);
    if (shares && answer['action'] === 'submit') return share({ text: text || undefined, files });
    const link = linkOf(to, text);
    if (link) return openLink(link, to, blob, context);
  }
}

const notSent = () => new Error('the person did not send it');

/** @param {boolean} shares @param {boolean} photo */
function whatSendDoes(shares, photo) {
  if (shares) return 'Send opens the share sheet of your device. There you choose the app and who gets it.';
  const first = 'Send prepares it for your messages or e-mail app. You send it there.';
  return photo ? `${first} The photo cannot go along from this browser: save it, and attach it there.` : first;
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
    return { sent: 'sms', app: 'your messages app', href: `sms:${number}${body && `?&${body}`}` };
  }
  if (!/^[^\s@,;\p{C}]+@[^\s@,;\p{C}]+$/u.test(to)) return undefined; // nothing that is seen otherwise than it is
  const address = to.split('@').map(encodeURIComponent).join('@');
  return { sent: 'mailto', app: 'your e-mail app', href: `mailto:${address}${body && `?${body}`}` };
}

/**
 * The person presses a link of their own will: nothing can block it, and they see what it opens.
 * @param {{sent: string, app: string, href: string}} link
 * @param {string} to
 * @param {Blob|undefined} photo
 * @param {ToolContext} context
 */
async function openLink({ sent, app, href }, to, photo, { ask }) {
  const open = Object.assign(document.createElement('a'), { href, textContent: `Open ${app}` });
  open.dataset['action'] = 'submit';
  const lines = [`To ${to}`];
  const save = document.createElement('a');
  if (photo) Object.assign(save, { href: URL.createObjectURL(photo), download: 'photo.jpg', textContent: 'Save the photo' });
  try {
    const { action } = await ask([no()], view(...lines, ...(photo ? [save] : []), open));
    if (action !== 'submit') throw notSent();
  } finally {
    URL.revokeObjectURL(save.href);
  }
  const note = `It was handed to ${app.replace('your', 'the')}. Whether it was sent is not known.`;
  return { sent, note: photo ? `${note} The photo could not go along; the person was told to attach it.` : note };
}
