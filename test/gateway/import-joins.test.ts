/** How many files an import lets join the standing requests of a user while it keeps everybody from making requests. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, buildRow } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { readStanding } from '../support/standing.js';

const JOINS = 25;

let app: TestApp;

beforeAll(async () => {
  app = await startApp({ limits: { importJoins: JOINS } });
});
afterAll(() => app.close());

async function add(folder: string, count: number, size: bigint): Promise<void> {
  const paths = Array.from({ length: count }, (_, n) => `/${folder}/f${100 + n}`);
  await importRows(
    app.ctx,
    paths.map((path) => buildRow({ path, size })),
  );
}

const look = (user: string) => readStanding(app.ctx, user);

async function findFaults(): Promise<string[]> {
  const faults: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false, adopt: false }, ({ kind }) => faults.push(kind));
  return faults.filter((kind) => kind.startsWith('quota') || kind.startsWith('request'));
}

test('many patterns with room for all of an import cost it so many rows, and get the rest after it', async () => {
  await addQuota(app.ctx, 'many', 10n ** 12n);
  await addQuota(app.ctx, 'few', 10n ** 12n);
  const ids: number[] = [];
  for (let n = 0; n < 20; n++) ids.push(await createRequest(app.ctx, { quota: 'many', pattern: '/next/' }));
  await createRequest(app.ctx, { quota: 'few', pattern: '/next/' });
  const tell = async () => {
    const query = `{ request(id: ${ids[19]}) { filesTotal hasMoreLeftOut } }`;
    return (await askData<{ request: object }>(app, query)).request;
  };
  await add('next', JOINS, 10n);
  expect(await look('many')).toEqual({ held: JOINS, noted: 0, more: 20, used: BigInt(10 * JOINS) });
  expect(await look('few')).toEqual({ held: JOINS, noted: 0, more: 0, used: BigInt(10 * JOINS) });
  expect(await tell()).toMatchObject({ hasMoreLeftOut: true });
  await joinAwaited(app.ctx);
  expect(await look('many')).toEqual({ held: 20 * JOINS, noted: 0, more: 0, used: BigInt(200 * JOINS) });
  expect(await tell()).toEqual({ filesTotal: JOINS, hasMoreLeftOut: false });
  expect(await findFaults()).toEqual([]);
});

test('one pattern takes the first files of a large import, and the others after it as far as there is room', async () => {
  await addQuota(app.ctx, 'one', 400n);
  await createRequest(app.ctx, { quota: 'one', pattern: '/large/' });
  await add('large', 60, 10n);
  expect(await look('one')).toEqual({ held: JOINS, noted: 0, more: 1, used: BigInt(10 * JOINS) });
  await joinAwaited(app.ctx);
  expect(await look('one')).toEqual({ held: 40, noted: 20, more: 0, used: 400n });
  expect(await findFaults()).toEqual([]);
});
