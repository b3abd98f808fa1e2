/** The views for viewers and operators: live, with the keyboard alone, and with their filters in the address. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectEachLook, signIn, useBrowser, type Window } from '../support/chromium.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

const open = useBrowser();
const gate = createGate();
let app: TestApp;
let viewer: string;
/** Names of a volume that a drive reads, and of a volume that waits. */
let mounted: string;
let waiting: string;

const VOLUMES = ['SITE00', 'SITE01', 'SITE02', 'SITE03', 'SITE04'];

beforeAll(async () => {
  const library = createMemoryLibrary();
  // the drives read two volumes during all tests, and the other volumes wait
  library.onRead = async () => await gate.opened;
  app = await startApp({ library, config: { drives: 2 } });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
  const files = VOLUMES.flatMap((volume) =>
    [1, 2].map((n) => ({ path: `/site/${volume}/${n}.nc`, volume, size: 1000 })),
  );
  await addTaped(app.ctx, library, files);
  await createRequest(app.ctx, { quota: 'alice', pattern: '/site/' });
  const query =
    'SELECT v.name, d.id IS NOT NULL AS "isMounted" FROM volume v LEFT JOIN drive d ON d.volume_id = v.id ORDER BY 1';
  const { rows } = await waitFor('reads in two drives', async () => {
    const found = await app.ctx.db.pool.query<{ name: string; isMounted: boolean }>(query);
    const { rows: running } = await app.ctx.db.pool.query(
      `SELECT DISTINCT drive_id FROM recall WHERE state = 'RUNNING'`,
    );
    return running.length === 2 && found;
  });
  const namesOf = (isMounted: boolean) => rows.filter((row) => row.isMounted === isMounted).map(({ name }) => name);
  [mounted = ''] = namesOf(true);
  [waiting = ''] = namesOf(false);
  await createRequest(app.ctx, { quota: 'bob', pattern: `/site/${mounted}/` });
  await app.ctx.db.pool.query(`INSERT INTO verification (file_id, attempts, error_class, error, at)
    SELECT id, 3, 'PERMANENT', 'the checksum differs', timezone('utc', now()) FROM tape_file WHERE path = '/site/SITE03/1.nc'`);
  await app.ctx.db.pool.query(`UPDATE request_file SET state = 'FAILED', error_class = 'MEDIA', error = 'the drive lost the tape'
    WHERE file_id = (SELECT id FROM tape_file WHERE path = '/site/SITE04/1.nc')`);
  await app.ctx.db.pool.query(`INSERT INTO running_process (id, kind, host, pid, version, started_at, seen_at, lag_seconds)
    VALUES (gen_random_uuid(), 'ENGINE', 'tape-2', 7, '1.0.0', timezone('utc', now()) - interval '2 hours', timezone('utc', now()) - interval '1 hour', 0)`);
  viewer = (await createToken(app.ctx, { name: 'watcher', role: 'VIEWER' })).secret;
});
afterAll(async () => {
  gate.open();
  await app?.close();
});

const openAs = async (token: string, view: string): Promise<Window> => {
  const window = await open(`${app.url}/#/sign-in`);
  await signIn(window, token);
  await window.page.goto(`${app.url}/${view}`);
  return window;
};

/** A view, and a text that the complete view shows. */
type View = [address: string, text: string | RegExp];

const views: View[] = [
  ['#/site', 'Engines and gateways'],
  ['#/plan', 'SITE04'],
  ['#/plan?sort=-name', 'SITE04'],
  ['#/what-if?drive=drive-1&volume=SITE02&add=directory%3A2', 'Files that cannot be recalled'],
  ['#/what-if?volume=NONE', /there is no volume "NONE": the volumes are "SITE0/],
  ['#/curves?hours=168', 'Charts'],
  ['#/volumes', 'SITE01'],
  ['#/volumes/SITE03', '/site/SITE03/1.nc'],
  ['#/volumes/SITE04?tab=failed', 'the drive lost the tape'],
  ['#/volumes/SITE03?tab=queue', '/site/SITE03/2.nc'],
  ['#/volumes/SITE03?tab=verifications', 'the checksum differs'],
  ['#/volumes/SITE03?tab=audit', 'No changes to this volume'],
  ['#/volumes/NONE', 'There is no volume NONE'],
  ['#/disks', /restore/],
  ['#/libraries', 'Libraries'],
  ['#/suspensions', 'Out of service'],
  ['#/users', 'alice'],
  ['#/failures', 'the drive lost the tape'],
  ['#/failures?tab=recalls', 'No recalls have errors'],
  ['#/failures?tab=verifications', 'the checksum differs'],
  ['#/processes', 'Silent'],
  ['#/audit?operation=createToken', 'createToken'],
];

test('each view of the site is accessible and fits at each width, light and dark', async () => {
  const window = await openAs(app.token, '#/site');
  for (const [address, text] of views) {
    await window.page.goto(`${app.url}/${address}`);
    await window.page.getByRole('main').getByText(text).first().waitFor();
    await expectEachLook(window);
  }
});

test('the overview shows what the drives read, for whom, and each change at once', async () => {
  const { page, faults } = await openAs(viewer, '#/site');
  const card = page.getByRole('listitem').filter({ hasText: 'drive-1' });
  await card.getByText('Reading', { exact: true }).waitFor();
  await page.getByText(/^\d files?, .* for alice, bob$/).waitFor();
  await page.getByRole('region', { name: 'Queue' }).getByText('6 files').waitFor();
  await page.getByRole('link', { name: '1 failed verification' }).waitFor();
  await page.getByRole('listitem').filter({ hasText: 'Engine on tape-2 (7)' }).getByText('Silent').waitFor();
  await suspend(app, { kind: 'DRIVE', name: 'drive-2', mode: 'DRAINING', reason: 'it is loud' });
  await page.getByText('it is loud').first().waitFor();
  await resume(app, 'DRIVE', 'drive-2');
  await page.getByText('it is loud').first().waitFor({ state: 'detached' });
  await page.getByRole('link', { name: /^\d files? failed permanently$/ }).click();
  await page
    .getByRole('row', { name: /SITE04\/1\.nc SITE04 \d+ of (alice|bob).* cartridge the drive lost the tape/ })
    .first()
    .waitFor();
  await page.goBack();
  await page.getByRole('link', { name: mounted }).click();
  await page.getByRole('heading', { name: `Volume ${mounted}` }).waitFor();
  expect(faults).toEqual([]);
});

test('a volume that an operator suspends, with a reason, and resumes elsewhere changes in all windows that show it', async () => {
  const operator = await openAs(app.token, '#/volumes');
  const watching = await openAs(viewer, '#/suspensions');
  const overview = await openAs(viewer, '#/site');
  const auditing = await openAs(app.token, '#/audit');
  await auditing.page.getByText('createToken').first().waitFor();
  await operator.page.getByRole('button', { name: 'Actions for SITE02' }).click();
  await operator.page.getByRole('menuitem', { name: 'Suspend …' }).click();
  const dialog = operator.page.getByRole('dialog', { name: 'Suspend SITE02' });
  await dialog.getByRole('button', { name: 'Suspend SITE02' }).click();
  await dialog.getByLabel('Reason for taking SITE02 out of service').fill('its label came off');
  await dialog.getByRole('button', { name: 'Suspend SITE02' }).click();
  await operator.page.getByText('SITE02 is suspended.').first().waitFor();
  const shown = [watching, operator, overview];
  for (const { page } of shown) await page.getByText('its label came off').waitFor();
  await auditing.page.getByRole('row', { name: /suspend volume SITE02/ }).waitFor();
  await resume(app, 'VOLUME', 'SITE02');
  for (const { page } of shown) await page.getByText('its label came off').waitFor({ state: 'detached' });
  for (const { faults } of [...shown, auditing]) expect(faults).toEqual([]);
});

test('a drive can be drained and resumed with the keyboard alone', async () => {
  const { page, faults } = await openAs(app.token, '#/plan');
  const actions = page.getByRole('button', { name: 'Actions for drive-2' });
  await actions.focus();
  await page.keyboard.press('Enter');
  const focused = () => expect.poll(() => page.evaluate('document.activeElement.textContent'));
  await focused().toBe('Suspend …');
  await page.keyboard.press('ArrowDown');
  await focused().toBe('Drain …');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Drain drive-2' }).waitFor();
  for (let n = 0; n < 5 && (await page.evaluate('document.activeElement.tagName')) !== 'INPUT'; n++)
    await page.keyboard.press('Tab');
  await page.keyboard.type('new belts');
  await page.keyboard.press('Enter');
  const row = page.getByRole('row').filter({ hasText: 'drive-2' });
  await row.getByText('Draining').waitFor();
  await expect.poll(() => page.evaluate('document.activeElement.ariaLabel')).toBe('Actions for drive-2');
  await page.keyboard.press('Enter');
  await focused().toBe('Resume');
  await page.keyboard.press('Enter');
  await page.getByText('drive-2 is in service again.').first().waitFor();
  await row.getByText('Draining').waitFor({ state: 'detached' });
  expect(faults).toEqual([]);
});

test('what would happen without a drive is shown beside the present, has an address, and changes nothing', async () => {
  const { page, faults } = await openAs(app.token, '#/volumes');
  await page.getByRole('button', { name: `Actions for ${waiting}` }).click();
  await page.getByRole('menuitem', { name: 'What if it is suspended?' }).click();
  const figure = (name: string) => page.getByRole('row', { name: new RegExp(`^${name} `) });
  await figure('Files that cannot be recalled').getByText('2 more').waitFor();
  await page.getByRole('checkbox', { name: 'drive-1' }).check();
  await figure('Working drives').getByText('1 fewer').waitFor();
  await page.getByRole('spinbutton').fill('3');
  await page.keyboard.press('Tab');
  await figure('Working drives').getByText('2 more').waitFor();
  const address = `${app.url}/#/what-if?drive=drive-1&volume=${waiting}&add=directory%3A3`;
  await expect.poll(() => page.url()).toBe(address);
  const other = await openAs(viewer, address.slice(address.indexOf('#')));
  await other.page.getByRole('row', { name: /^Working drives 2 4 2 more$/ }).waitFor();
  await page.getByLabel('Volume name').fill('NONE');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('alert').getByText('there is no volume "NONE"').waitFor();
  await expect.poll(() => page.url()).toBe(address);
  await page.goBack();
  await figure('Working drives').getByText('1 fewer').waitFor();
  await page.getByRole('button', { name: `Keep ${waiting} in service` }).click();
  await figure('Files that cannot be recalled').getByText('same').waitFor();
  const { suspensions } = await askData<{ suspensions: object }>(app, '{ suspensions { totalCount } }');
  expect(suspensions).toEqual({ totalCount: 0 });
  expect(faults).toEqual([]);
});

test('a volume shows the files of a stage, and the errors of its recalls', async () => {
  const { page } = await openAs(viewer, '#/volumes/SITE00');
  await page.getByText('2 files', { exact: true }).waitFor();
  await page.getByLabel('Stage').selectOption('Restored');
  await page.getByText('No file matches').waitFor();
  await expect.poll(() => page.url()).toBe(`${app.url}/#/volumes/SITE00?stage=RESTORED`);
  await page.goto(`${app.url}/#/volumes/SITE03?tab=errors`);
  await page.getByText('No recalls have errors').waitFor();
  await app.ctx.db.pool.query(`UPDATE recall SET attempts = 2, error_class = 'MEDIA', error = 'bad block', not_before = timezone('utc', now()) + interval '1 day'
    WHERE file_id = (SELECT id FROM tape_file WHERE path = '/site/SITE03/2.nc')`);
  await page.reload();
  await page.getByRole('row', { name: /\/site\/SITE03\/2\.nc.* Waiting 2 cartridge bad block/ }).waitFor();
});

test('the filters of the audit and the period of the charts are in the address, and Back returns to them', async () => {
  const { page } = await openAs(app.token, '#/audit');
  await page.getByLabel('Operation').fill('setQuota');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('cell', { name: 'createToken' }).first().waitFor({ state: 'detached' });
  await expect.poll(() => page.url()).toBe(`${app.url}/#/audit?operation=setQuota`);
  await page.goBack();
  await page.getByRole('cell', { name: 'createToken' }).first().waitFor();
  expect(await page.getByLabel('Operation').inputValue()).toBe('');
  await page.goto(`${app.url}/#/curves?hours=6`);
  await expect.poll(() => page.getByLabel('Period').inputValue()).toBe('6');
  await page.getByLabel('Period').selectOption('7 days');
  await expect.poll(() => page.url()).toBe(`${app.url}/#/curves?hours=168`);
});

test('the drives can be sorted, and the order is in the address', async () => {
  const { page } = await openAs(viewer, '#/plan');
  const first = page.getByRole('region', { name: 'Drives' }).getByRole('rowheader').first();
  await expect.poll(() => first.textContent()).toBe('drive-1');
  const sort = page.getByRole('button', { name: 'Drive', exact: true });
  await sort.click();
  await sort.click();
  await expect.poll(() => first.textContent()).toBe('drive-2');
  await expect.poll(() => page.url()).toBe(`${app.url}/#/plan?sort=-name`);
});

test('a viewer sees the volumes, but no controls and no audit', async () => {
  const { page } = await openAs(viewer, '#/volumes');
  await page.getByText('SITE01').waitFor();
  expect(await page.getByRole('button', { name: /suspend|drain|resume|actions/i }).count()).toBe(0);
  expect(await page.getByRole('link', { name: 'Audit' }).count()).toBe(0);
  await page.goto(`${app.url}/#/volumes/SITE01`);
  await page.getByText('/site/SITE01/1.nc').waitFor();
  expect(await page.getByRole('button', { name: /actions/i }).count()).toBe(0);
  expect(await page.getByRole('tab', { name: 'Changes' }).count()).toBe(0);
});

test('users do not download the views of the site', async () => {
  const user = await open(`${app.url}/#/requests`);
  await user.page.getByRole('heading', { name: 'Requests' }).waitFor();
  const loaded = async ({ page }: Window) =>
    await page.evaluate<number>(
      "performance.getEntriesByType('resource').filter(({ name }) => /site-view.*[.]js$/.test(name)).length",
    );
  expect(await loaded(user)).toBe(0);
  const operator = await openAs(app.token, '#/plan');
  await operator.page.getByRole('heading', { name: 'Drives and queue' }).waitFor();
  expect(await loaded(operator)).toBe(1);
});
