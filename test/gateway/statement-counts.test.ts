/** How many statements the single requests take that are asked for most: one more shows here. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { get, makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { emptyTables } from '../support/tables.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
beforeEach(async () => {
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(() => app.close());

const pathsOf = (count: number) => Array.from({ length: count }, (_, n) => `/many/${String(n).padStart(4, '0')}.nc`);

test('REST gives a request by one statement, whatever is in it', async () => {
  await addFiles(
    app.ctx,
    pathsOf(20).map((path) => ({ path, size: 1n })),
  );
  const ids = [
    await makeRequest(app, { quota: 'alice', files: pathsOf(25) }),
    await makeRequest(app, { quota: 'alice', patterns: '/many/' }),
    await makeRequest(app, { quota: 'alice', patterns: '/none/' }),
  ];
  for (const id of ids) {
    const statements = await recordStatements(async () => expect((await get(app, `/requests/${id}`)).status).toBe(200));
    expect(statements.map(({ text }) => text)).toEqual([expect.stringContaining('any_hold')]);
  }
  const unknown = await recordStatements(async () => expect((await get(app, '/requests/999')).status).toBe(404));
  expect(unknown).toHaveLength(1);
});
