/** Estimates use the speed that drives have shown: the memory library needs 40 ms for each file, far more than its medium. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const FILES = 60;
const FILE_MS = 40;

const library = createMemoryLibrary();
library.onRead = async () => {
  await sleep(FILE_MS); // a slow library
};

const app = useApp({ library, config: { drives: 1 } }, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
  for (const directory of ['first', 'second']) {
    const paths = Array.from({ length: FILES }, (_, n) => `/${directory}/${n}`);
    await addTaped(
      app.ctx,
      library,
      paths.map((path, n) => ({ path, size: 100, volume: directory.toUpperCase(), position: BigInt(n + 1) })),
    );
  }
});

interface Estimated {
  estimateRequest: { estimate: { end: { planned: string; isMeasured: boolean } | null } };
}

async function estimate(directory: string) {
  const query = `{ estimateRequest(input: { quota: "alice", pattern: "/${directory}/" }) { estimate { end { planned isMeasured } } } }`;
  const { end } = (await askData<Estimated>(app, query)).estimateRequest.estimate;
  return end && { seconds: (Date.parse(end.planned) - Date.parse(`${app.ctx.now()}Z`)) / 1000, ...end };
}

test('the first estimate says that nothing was measured, and later ones know how slow the library is', async () => {
  const first = await waitFor('an estimate', async () => (await estimate('second')) ?? undefined);
  expect(first).toMatchObject({ isMeasured: false });
  expect(first.seconds).toBeLessThan(1);
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/first/' });
  await waitForState(app, id, 'COMPLETED');
  const later = await waitFor('a measured estimate', async () => {
    const end = await estimate('second');
    return end?.isMeasured && end;
  });
  expect(later.seconds).toBeGreaterThan((FILES * FILE_MS) / 1000 / 2);
});
