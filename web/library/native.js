/**
 * Tools that run in the page: the clock, the camera, the contacts, a message. Whatever of them leaves the device, the person has seen
 * and allowed on the canvas, but for the time and the time zone. Here they are declared; what they do is in device.js.
 */

import { canvas as words } from './en.js';
import { fill, language, speak } from './strings.js';

/**
 * @import { Tool } from './types.d.ts'
 * @import { Album } from './device.js'
 */

speak({ canvas: words });

const TIMEOUT = '5m'; // as long as the canvas waits for the person

/** What runs is loaded when it is used. */
const device = () => import('./device.js');

/**
 * The tools, for `connect`.
 * @param {{canvas: Album, contacts?: HTMLElement}} o the canvas keeps the photos; `contacts` is a button that opens the address book, and
 *   is hidden where the browser lets the person choose from the device's contacts instead
 * @returns {Record<string, Tool>}
 */
export function nativeTools({ canvas, contacts }) {
  if (contacts) {
    contacts.hidden = /** @type {any} */ (navigator).contacts?.select !== undefined;
    contacts.addEventListener('click', async () => (await device()).openContacts());
  }
  return {
    get_current_time: {
      description: 'The date and time where the person is, and their time zone.',
      get title() { return words['clock']; },
      get doneTitle() { return fill(words['clock done'], { time: new Date().toLocaleTimeString(language(), { hour: 'numeric', minute: '2-digit' }) }); },
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
      get title() { return words['taking photo']; },
      get doneTitle() { return words['photo taken']; },
      get wants() { return fill(words['wants photo']); },
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
      run: async ({ facing = 'environment' }, context) => (await device()).takePhoto(facing, canvas, context),
    },
    find_contact: {
      description:
        'Looks somebody up among the person’s contacts and returns their name, phone numbers and e-mail addresses. The person is ' +
        'asked before you get them, and chooses if several match. Use it whenever you need a number or an address; never make one up.',
      get title() { return words['finding contact']; },
      get doneTitle() { return words['contact found']; },
      get wants() { return fill(words['wants contact']); },
      parameters: {
        type: 'object',
        properties: { query: { type: 'string', description: 'The name or some of its words, as “Ada” or “Ada Lovelace”.' } },
        required: ['query'],
      },
      timeout: TIMEOUT,
      foreground: 'asks',
      run: async ({ query }, context) => (await device()).findContact(query, context),
    },
    send_message: {
      description:
        'Prepares a message and hands it to an app of the person’s: their share sheet, messages or e-mail. They see all of it, may ' +
        'change it, and send it themselves. Leave out what you do not know: they are asked for it. Whether it was sent in the end ' +
        'cannot be known.',
      get title() { return words['sending message']; },
      get doneTitle() { return words['message sent']; },
      get wants() { return fill(words['wants message']); },
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
      run: async ({ to = '', text = '', photo }, context) => (await device()).sendMessage({ to, text, photo }, canvas, context),
    },
  };
}
