/** Restores through scripts of a site's own, as processes. */
import { expect, test } from 'vitest';
import { readRestored } from '../support/engine-watch.js';
import { openCommand } from '../support/real-kinds.js';
import { describeRestores } from '../support/real-restores.js';
import { viewRequest } from '../support/request-view.js';
import { LIBRARY, openSite } from '../support/restores.js';
import { readStates } from '../support/staging.js';
import { resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

describeRestores('scripts', async () => openCommand(), { release: true, ids: true, until: false, offsets: true });
describeRestores('scripts that know no names and keep all', async () => openCommand({ nameless: true }), {
  release: false,
  ids: false,
  until: true,
  offsets: false,
  isShort: true,
});

test('what nobody could read before its time there was over is asked for again', async () => {
  const kind = openCommand({ nameless: true, until: 2 });
  const site = await openSite(kind);
  const { app } = site;
  const file = '/late.nc';
  const right = await site.put([{ path: file }]);
  const id = await site.request(file);
  const untilState = (state: string) =>
    waitFor(`the file to be ${state}`, async () => (await readStates(app.ctx))[file] === state);
  const countStages = () => kind.calls().filter((call) => call === 'stage').length;
  await untilState('ASKED');
  await suspend(app, { kind: 'VOLUME', name: LIBRARY, mode: 'HELD' });
  await kind.bench.arrive([file]);
  await untilState('READY');
  await waitFor('it to be asked for again', async () => countStages() > 1);
  await kind.bench.evict(file);
  await resume(app, 'VOLUME', LIBRARY);
  await waitFor('it to be restored', async () => {
    await kind.bench.arrive([file]);
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
  expect(readRestored(app, file)).toEqual(right.get(file));
  await site.close();
});
