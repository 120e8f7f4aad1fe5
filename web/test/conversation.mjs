/** The picture of the README: a conversation with a model that keeps to a script. node test/conversation.mjs writes docs/page.png */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { gets, openPage, says, start, startGateway, stop, type } from './harness.mjs';

const table = [
  { type: 'text', value: '<h3>A table at Osteria Nove</h3><p>Tonight at <b>8 pm</b>. Two details before I book it:</p>' },
  { type: 'input', id: 'name', label: 'Name', value: 'Ada' },
  { type: 'input', id: 'guests', label: 'Guests', kind: 'number', value: '2' },
  { type: 'button', label: 'Book it', action: 'submit' },
  { type: 'button', label: 'Not now', action: 'dismiss' },
];

/** What the person says, and what the model does: it calls a tool, or it speaks. */
const script = [
  { hears: 'Where can I eat well near the station tonight?', says: 'Osteria Nove is four minutes on foot from the station. It is open until eleven, and it has free tables from eight.' },
  { hears: 'How much time do I have until eight?', calls: ['get_current_time', {}], says: 'A little more than an hour. That is enough to walk there along the river.' },
  { hears: 'Then book a table for two at eight.', calls: ['show_canvas_tool', { schema: JSON.stringify(table) }] },
];

/** Plays Gemini: says each word with half a second of sound, and gives the gateway's questions to the script. */
function playModel() {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  server.on('connection', (socket) => {
    const send = (message) => socket.send(JSON.stringify(message));
    let next;
    const speak = (text) => {
      for (const word of text.split(/(?<= )/)) {
        const sound = Int16Array.from({ length: 24 * 220 }, (_, i) => 6_000 * Math.sin(i / 20) * Math.sin((Math.PI * i) / (24 * 220)));
        const inlineData = { mimeType: 'audio/pcm;rate=24000', data: Buffer.from(sound.buffer).toString('base64') };
        send({ serverContent: { modelTurn: { parts: [{ inlineData }] }, outputTranscription: { text: word } } });
      }
      send({ serverContent: { generationComplete: true } });
      send({ serverContent: { turnComplete: true } });
    };
    socket.on('message', (data) => {
      const { setup, realtimeInput, clientContent, toolResponse } = JSON.parse(data);
      if (setup) send({ setupComplete: {} });
      const asked = realtimeInput?.text ?? clientContent?.turns?.at(-1)?.parts?.[0]?.text;
      if (asked) {
        next = script.find(({ hears }) => hears === asked);
        if (next?.calls) send({ toolCall: { functionCalls: [{ id: asked.slice(0, 4), name: next.calls[0], args: next.calls[1] }] } });
        else if (next) speak(next.says);
      }
      if (toolResponse && next?.says) speak(next.says);
    });
  });
  return server;
}

/** A quiet room: the page warns of a microphone that hears nothing at all. */
const hum = Int16Array.from({ length: 16_000 * 60 }, () => 80 * (Math.random() - 0.5));

const model = playModel();
await once(model, 'listening');
const gateway = await startGateway({ GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${model.address().port}` });
const phone = { viewport: { width: 360, height: 700 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
try {
  const pictures = [];
  for (const [context, last] of [[{ ...phone, colorScheme: 'dark' }, 1], [{ viewport: { width: 1080, height: 700 }, deviceScaleFactor: 2 }, -1], [phone, 2]]) {
    const page = await openPage({ url: gateway.url, sounds: [hum], context });
    if (last >= 0) {
      await start(page);
      await says(page, 'Listening');
    }
    let after = 0;
    for (const [i, { hears, says: answer }] of script.slice(0, last + 1).entries()) {
      await type(page, hears);
      if (!answer) {
        await page.waitForSelector('.canvas:not([hidden])');
      } else if (i < last) {
        after = (await gets(page, 'TURN_COMPLETE', { after })).at;
      } else {
        const most = answer.split(' ').slice(0, -2).join(' ');
        await page.waitForFunction((text) => document.querySelector('main').textContent.includes(text), most);
      }
    }
    await page.evaluate(() => document.activeElement.blur()); // a finger leaves no ring
    await page.waitForTimeout(400); // what moves comes to rest
    pictures.push(`data:image/png;base64,${(await page.screenshot()).toString('base64')}`);
    if (last >= 0) await stop(page);
    await page.quit();
  }
  const sheet = await openPage({ url: gateway.url, context: { viewport: { width: 1860, height: 724 }, bypassCSP: true } });
  await sheet.setContent(`<style>body{margin:12px;display:flex;gap:18px;background:#e9e9f2}img{height:700px;border-radius:16px;border:1px solid #ccd}</style>
    ${pictures.map((p) => `<img src="${p}">`).join('')}`);
  await sheet.waitForTimeout(300);
  await sheet.screenshot({ path: fileURLToPath(new URL('../../docs/page.png', import.meta.url)) });
  await sheet.quit();
} finally {
  await gateway.stop();
  model.close();
}
process.exit();
