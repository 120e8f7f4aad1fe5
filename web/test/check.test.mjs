/** ?check: the page says in words whether it works where a person is. */
import assert from 'node:assert/strict';
import { findBarriers, openPage, silence, startGateway, test, tone, withGateway } from './harness.mjs';

const spoken = Array(20).fill([silence(0.5), tone(1)]).flat();

/** Runs the check with these answers, and returns what each row says. */
async function checked(page, hears = 'Yes') {
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await page.locator('.check .asks').waitFor({ timeout: 60_000 });
  await page.getByRole('button', { name: hears, exact: true }).click();
  await page.getByRole('button', { name: 'Check again' }).waitFor();
  return page.$$eval('.check dd', (all) => Object.fromEntries(all.map((e) => [e.previousElementSibling.textContent, `${e.dataset.verdict}: ${e.lastChild.textContent}`])));
}

const inPage = withGateway();

inPage('?check says of each thing whether it works here, and what was found can be copied', { query: '/?check', sounds: spoken }, async (page) => {
  await page.getByRole('dialog', { name: 'Does it work here?' }).waitFor();
  const found = await checked(page);
  assert.equal(await page.textContent('.check .verdict'), 'All well. You can talk.');
  assert.match(found['The gateway'], /^well: It answers after \d+\sms\.$/);
  assert.match(found['Your microphone'], /^well: .* hears you\.$/);
  assert.match(found['The way of your voice'], /^well: Straight, by UDP: round trip \d+\sms\.$/);
  assert.match(found['Your network'], /^well: \d+\.\d\s% lost, jitter \d+\sms\.$/);
  assert.match(found['The way around firewalls'], /^not judged: There is no relay/);
  assert.equal(found['Your speaker'], 'well: You hear it.');
  assert.deepEqual(await findBarriers(page), []);
});

test('?check names a microphone that is not allowed, a gateway that takes nobody, and a speaker that is not heard', { timeout: 120_000 }, async () => {
  const gateway = await startGateway({ VOXGATE_LIMITS: 'sessions=1' });
  const page = await openPage({ url: gateway.url, query: '/?check', mic: 'denied' });
  try {
    const found = await checked(page, 'No');
    assert.match(await page.textContent('.check .verdict'), /^Not all is well/);
    assert.match(found['Your microphone'], /^wrong: It is not allowed/);
    assert.match(found['Your speaker'], /^wrong: Turn the volume up/);
    const other = await openPage({ url: gateway.url, query: '/?check' });
    try {
      await other.getByRole('dialog').waitFor();
      await gateway.stop();
      await other.getByRole('button', { name: 'Check', exact: true }).click();
      await other.locator('.check dd[data-verdict="wrong"]').waitFor({ timeout: 60_000 });
      assert.match(await other.textContent('.check dl'), /It is not reached/);
    } finally {
      await other.quit();
    }
  } finally {
    await page.quit();
    await gateway.stop();
  }
});
