/** What thousands of files cost the systems behind: each call to them counts, but for the bytes. */
import { expect, onTestFinished, test } from 'vitest';
import { askData } from '../support/graphql.js';
import { openCommand, openWlcg, type RealKind } from '../support/real-kinds.js';
import { openSite, type Site } from '../support/restores.js';
import { waitFor } from '../support/wait.js';

const LIMIT_MS = 600_000;

/** So many that each call is made several times: a storage element takes up to 1000 files with one, these scripts 50. */
const kinds: [number, string, number, () => Promise<RealKind>][] = [
  [1200, 'a storage element', 20, () => openWlcg('dcache')],
  [150, 'scripts', 20, async () => openCommand({}, { stageBatch: 50, pollBatch: 50, releaseBatch: 50 })],
];

test.each(kinds)(
  '%i files through %s take %i calls at most, beyond their bytes',
  { timeout: LIMIT_MS },
  async (count, _name, mostCalls, open) => {
    const site = await openSite(await open());
    onTestFinished(() => site.close());
    const { kind, clock } = site;
    const paths = Array.from({ length: count }, (_, n) => `/many/${n % 100}/file ${n}.nc`);
    await site.put(paths.map((path) => ({ path, size: 100 })));
    clock.freeze(); // no tape comes before all of them are asked for
    const id = await site.request('/many/');
    await waitFor('all to be asked for', async () => (await countStates(site)).ASKED === count);
    await kind.bench.arrive(paths);
    clock.goOn();
    clock.advance(60);
    const { filesOnDisk } = await untilEnded(site, id);
    expect(filesOnDisk).toBe(count);
    await waitFor('them to be let go', async () => {
      clock.advance(5);
      return Object.keys(await countStates(site)).length === 0;
    });
    expect(kind.calls().length).toBeLessThanOrEqual(mostCalls);
    expect(kind.countDemands()).toBe(0);
    expect(await kind.bench.isStaged(paths[7] ?? '')).toBe(false);
  },
);

async function countStates({ app }: Site): Promise<Record<string, number>> {
  const { rows } = await app.ctx.db.pool.query<{ state: string; files: number }>(
    'SELECT state, count(*)::int AS files FROM staging GROUP BY state',
  );
  return Object.fromEntries(rows.map(({ state, files }) => [state, files]));
}

async function untilEnded({ app }: Site, id: number): Promise<{ filesOnDisk: number }> {
  const query = 'query ($id: Int!) { request(id: $id) { state filesOnDisk } }';
  return await waitFor(
    'the request to be complete',
    async () => {
      const { request } = await askData<{ request: { state: string; filesOnDisk: number } }>(app, query, { id });
      return request.state === 'COMPLETED' && request;
    },
    LIMIT_MS,
  );
}
