/** Pictures of the page in screenshots/, for people: node test/screenshot.mjs */
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gets, openPage, says, silence, speech, start, startGateway, type } from './harness.mjs';

const folder = fileURLToPath(new URL('../../screenshots/', import.meta.url));
mkdirSync(folder, { recursive: true });

const gateway = await startGateway();
const phone = { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
const canvas = [
  { type: 'text', value: '<h3>Your table</h3><p>Two questions before I book it for <b>eight</b>:</p>' },
  { type: 'input', id: 'name', label: 'Name', hint: 'As on the reservation' },
  { type: 'input', id: 'guests', label: 'Guests', kind: 'number', value: '2' },
  { type: 'button', label: 'Book it', action: 'submit' },
  { type: 'button', label: 'Not now', action: 'dismiss' },
];
const kinds = {
  desktop: {},
  'desktop-dark': { colorScheme: 'dark' },
  phone,
  'phone-dark': { ...phone, colorScheme: 'dark' },
};
try {
  for (const [name, context] of Object.entries(kinds)) {
    const page = await openPage({ url: gateway.url, sounds: [silence(1), speech()], context });
    const picture = (what) => page.screenshot({ path: `${folder}${name}-${what}.png` });
    await page.waitForSelector('#notice:not([hidden])');
    await picture('ready');
    await start(page);
    await says(page, 'Gemini is speaking...');
    const { at } = await gets(page, 'TURN_COMPLETE');
    await type(page, '/tool get_current_time {}');
    await gets(page, 'ASSISTANT_SPEAKING', { after: at });
    await page.waitForFunction(() => Number(document.querySelector('#talk').style.getPropertyValue('--model')) > 0.4);
    await picture('speaking');
    await type(page, `/tool show_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForSelector('.canvas:not([hidden])');
    await picture('canvas');
    await page.quit();
  }
  const page = await openPage({ url: gateway.url, mic: 'denied', context: phone });
  await start(page);
  await says(page, 'The microphone is not allowed.');
  await page.screenshot({ path: `${folder}phone-no-microphone.png` });
  await page.quit();
  console.log(`pictures in ${folder}`);
} finally {
  await gateway.stop();
}
