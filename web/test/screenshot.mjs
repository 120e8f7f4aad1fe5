/** Pictures of the pages in screenshots/, for people: node test/screenshot.mjs */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { awaitAnimations, gets, openPage, says, silence, speech, start, startGateway, stop, type, TALKS } from './harness.mjs';

const folder = fileURLToPath(new URL('../../screenshots/', import.meta.url));
mkdirSync(folder, { recursive: true });

const apps = mkdtempSync(join(tmpdir(), 'voxgate-apps-'));
const gateway = await startGateway({ VOXGATE_WORKSPACE: apps });
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
  'phone-on-its-side': { ...phone, viewport: { width: 740, height: 360 } },
  wide: { viewport: { width: 1920, height: 1080 } },
  'enlarged-four-times': { viewport: { width: 320, height: 256 } },
};

/** Takes a picture once nothing glides or scrolls any more. */
async function takePicture(page, name) {
  await awaitAnimations(page);
  await page.evaluate(async () => {
    const main = document.querySelector('main');
    const frame = () => new Promise(requestAnimationFrame);
    for (let same = 0, at = -1; same < 12; same = main.scrollTop === at ? same + 1 : 0) {
      at = main.scrollTop;
      await frame();
    }
  });
  await page.screenshot({ path: `${folder}${name}.png` });
}

/** Phones do not share their screen. */
const asPhone = () => void (navigator.mediaDevices.getDisplayMedia = undefined);

/** The page of VOX: empty, with a tool, with a question, with an app. */
async function vox(name, context) {
  const page = await openPage({ url: gateway.url, query: 'vox/', context });
  const picture = (what) => takePicture(page, `${name}-vox-${what}`);
  await page.waitForSelector('.leaves:visible');
  await picture('ready');
  await start(page);
  await says(page, TALKS);
  await type(page, 'A list for my family');
  await page.waitForSelector('.cards .tool');
  await picture('cards');
  await type(page, 'Add Supabase');
  await page.waitForSelector('#added .tool', { state: 'attached' });
  await type(page, 'Build it');
  await page.waitForSelector('#questions .question');
  await picture('question');
  await page.click('.question .yes');
  await page.waitForSelector('#preview iframe', { state: 'attached' });
  if (await page.isVisible('#open')) await page.click('#open');
  await page.frameLocator('#preview iframe').locator('button').first().waitFor();
  await picture('app');
  await page.quit();
}

try {
  for (const [name, context] of Object.entries(kinds)) {
    const page = await openPage({ url: gateway.url, sounds: [silence(1), speech()], context, init: context.isMobile && asPhone });
    const picture = (what) => takePicture(page, `${name}-${what}`);
    await page.waitForSelector('#notice:not([hidden])');
    await picture('ready');
    await start(page);
    await says(page, 'Speaking');
    const { at } = await gets(page, 'TURN_COMPLETE');
    await type(page, '/tool get_current_time {}');
    await gets(page, 'ASSISTANT_SPEAKING', { after: at });
    await page.waitForFunction(() => Number(document.querySelector('#glow').style.getPropertyValue('--model')) > 0.4);
    await picture('speaking');
    await type(page, `/tool show_canvas_tool ${JSON.stringify({ schema: JSON.stringify(canvas) })}`);
    await page.waitForSelector('.canvas:not([hidden])');
    await picture('canvas');
    await page.click('.canvas >> text=Not now');
    await type(page, '/tool take_photo {}');
    await page.waitForFunction(() => document.querySelector('.canvas video')?.videoWidth > 0);
    await picture('photo');
    await page.click('.canvas >> text=Cancel');
    await page.click('#mute');
    await picture('muted');
    for (const [button, sheet] of [['#settings', 'settings'], ['#detail', 'statistics']]) {
      if (!(await page.isVisible(button))) continue; // enlarged that much, there is no room for the number
      await page.click(button);
      await page.locator(`.${sheet} :is(.number, section)`).first().waitFor();
      await picture(sheet);
      await page.keyboard.press('Escape');
    }
    await stop(page);
    await picture('ended');
    await page.quit();
    await vox(name, context);
  }
  const page = await openPage({ url: gateway.url, mic: 'denied', context: phone });
  await start(page);
  await says(page, 'The microphone is not allowed.');
  await takePicture(page, 'phone-no-microphone');
  await page.quit();
  console.log(`pictures in ${folder}`);
} finally {
  await gateway.stop();
  rmSync(apps, { recursive: true });
}
