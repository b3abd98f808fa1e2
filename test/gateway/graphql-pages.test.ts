/** Pages of every list, while rows leave them. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData, askErrors, type Connection, PAGE_INFO } from '../support/graphql.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(() => app.close());

const sql = (text: string, values: unknown[] = []) => app.ctx.db.pool.query(text, values);
const numbers = [1, 2, 3, 4, 5, 6];

/** A list of six rows or more, how a row is told, and how one leaves the list. */
interface List {
  /** Around the connection, which stands for `%`. */
  query: (id: number) => string;
  /** What tells a row from the others. */
  node: string;
  fill: (name: string) => Promise<number>;
  remove: (row: string) => Promise<unknown>;
}

const addRequest = async (user: string, input: object) => {
  await addQuota(app.ctx, user, 1_000_000n);
  return await createRequest(app.ctx, { quota: user, ...input } as Parameters<typeof createRequest>[1]);
};

const addSix = (name: string, volume = (n: number) => `${name}-${n}`) =>
  addFiles(
    app.ctx,
    numbers.map((n) => ({ path: `/${name}/${n}`, volume: volume(n) })),
  );

const lists: Record<string, List> = {
  tapeFiles: {
    query: () => '{ tapeFiles(match: "/tapeFiles/", stages: [ONTAPE], %',
    node: 'path',
    fill: async (name) => {
      await addSix(name);
      return 0;
    },
    remove: (path) => sql(`UPDATE tape_file SET stage = 'ONDISK' WHERE path = $1`, [path]),
  },
  requests: {
    query: () => '{ requests(quota: "requests", states: [QUEUED], %',
    node: 'requestId',
    fill: async (name) => {
      await addFiles(app.ctx, [{ path: `/${name}/1` }]);
      for (const _ of numbers) await addRequest(name, { files: [`/${name}/1`] });
      return 0;
    },
    remove: (id) => askData(app, `mutation { cancelRequest(id: ${id}) { __typename } }`),
  },
  verifications: {
    query: () => '{ verifications(match: "/verifications/", %',
    node: 'error',
    fill: async (name) => {
      await addSix(name);
      await sql(`INSERT INTO verification (file_id, attempts, error_class, error, at)
        SELECT id, 1, 'MEDIA', path, '2026-01-01' FROM tape_file WHERE path LIKE '/verifications/%'`);
      return 0;
    },
    remove: (error) => sql('DELETE FROM verification WHERE error = $1', [error]),
  },
  volumes: {
    query: () => '{ volumes(%',
    node: 'name',
    fill: async () => {
      for (const n of numbers) await sql('INSERT INTO volume (name) VALUES ($1)', [`000-${n}`]); // before all others
      return 0;
    },
    remove: (name) => sql('DELETE FROM volume WHERE name = $1', [name]),
  },
  quotas: {
    query: () => '{ quotas(%',
    node: 'user',
    fill: async () => {
      for (const n of numbers) await addQuota(app.ctx, `000-${n}`, 1n); // before all others
      return 0;
    },
    remove: (user) => sql('UPDATE quota SET removed_at = now() WHERE "user" = $1', [user]),
  },
  drives: {
    query: () => '{ drives(%',
    node: 'name',
    fill: async () => {
      for (const n of numbers) await sql('INSERT INTO drive (name) VALUES ($1)', [`drive-${n}`]);
      return 0;
    },
    remove: (name) => sql('DELETE FROM drive WHERE name = $1', [name]),
  },
  restoreDisks: {
    query: () => '{ restoreDisks(%',
    node: 'mountpoint',
    fill: async () => {
      for (const n of numbers) await setDisk(app.ctx, { mountpoint: `/mnt/${n}`, size: 1n });
      return 0;
    },
    remove: (mountpoint) => sql('DELETE FROM restore_disk WHERE mountpoint = $1', [mountpoint]),
  },
  suspensions: {
    query: () => '{ suspensions(%',
    node: 'name',
    fill: async (name) => {
      for (const n of numbers) {
        await sql(`INSERT INTO suspension (kind, name, mode, reason, since) VALUES ('VOLUME', $1, 'HELD', '', now())`, [
          `${name}-${n}`,
        ]);
      }
      return 0;
    },
    remove: (name) => sql('DELETE FROM suspension WHERE name = $1', [name]),
  },
  holds: {
    query: (id) => `{ request(id: ${id}) { holds(states: [WAITING], %`,
    node: 'lastError',
    fill: async (name) => {
      await addSix(name);
      const id = await addRequest(name, { pattern: `/${name}/` });
      await sql(`UPDATE hold h SET error = f.path FROM tape_file f WHERE f.id = h.file_id AND request_id = $1`, [id]);
      return id;
    },
    remove: (path) => sql(`UPDATE hold SET state = 'FAILED' WHERE error = $1`, [path]),
  },
  awaited: {
    query: (id) => `{ request(id: ${id}) { awaited(%`,
    node: 'path',
    fill: (name) => addRequest(name, { files: numbers.map((n) => `/${name}/${n}`) }),
    remove: (path) => sql('DELETE FROM awaited_path WHERE path = $1', [path]),
  },
  'requests of a quota': {
    query: () => '{ quota(user: "of-quota") { requests(%',
    node: 'requestId',
    fill: async () => {
      for (const n of numbers) await addRequest('of-quota', { files: [`/of-quota/${n}`] });
      return 0;
    },
    remove: async (id) => {
      await sql('DELETE FROM awaited_path WHERE request_id = $1', [id]);
      await sql('DELETE FROM event WHERE request_id = $1', [id]);
      await sql('DELETE FROM request WHERE id = $1', [id]);
    },
  },
  'the queue of the plan': {
    query: () => '{ plan { queue(%',
    node: 'volume',
    fill: async () => {
      await sql('DELETE FROM recall');
      await addSix('queue', (n) => `q${n}`);
      return await addRequest('queue', { pattern: '/queue/' });
    },
    remove: (name) => sql('DELETE FROM recall WHERE volume_id = (SELECT id FROM volume WHERE name = $1)', [name]),
  },
  'where a request waits': {
    query: (id) => `{ request(id: ${id}) { waiting { parts(%`,
    node: 'volume',
    fill: async () => {
      await addSix('parts', (n) => `p${n}`);
      return await addRequest('parts', { pattern: '/parts/' });
    },
    remove: (name) => sql('DELETE FROM recall WHERE volume_id = (SELECT id FROM volume WHERE name = $1)', [name]),
  },
};

describe.each(Object.entries(lists))('%s', (name, { query, node, fill, remove }) => {
  let id = 0;
  const write = (args: string) => {
    const selected = `edges { cursor node { row: ${node} } } ${PAGE_INFO} }`;
    const before = query(id).replace('%', `${args}) { `);
    return `${before}${selected}${'}'.repeat(before.split('{').length - before.split('}').length - 1)}`;
  };
  const read = async (args: string) => {
    let data: unknown = await askData(app, write(args));
    while (!(data as object as { edges?: unknown }).edges) [data] = Object.values(data as object);
    const { edges, pageInfo } = data as Connection<{ row: unknown }>;
    return { rows: edges.map((edge) => String(edge.node.row)), ...pageInfo };
  };

  beforeAll(async () => {
    id = await fill(name);
  });

  test('first with last is refused, and says why', async () => {
    const { errors } = await ask(app, write('first: 1, last: 1'));
    expect(errors).toMatchObject([
      { message: 'first and last exclude each other: give one of them', extensions: { code: 'BAD_USER_INPUT' } },
    ]);
  });

  test('a page begins right after its cursor, and ends right before it, where its row has gone', async () => {
    const all = (await read('first: 6')).rows;
    expect(all).toHaveLength(6);
    const first = await read('first: 2');
    expect(first.rows).toEqual(all.slice(0, 2));
    await remove(String(all[1]));
    const next = await read(`first: 2, after: "${first.endCursor}"`);
    expect(next.rows).toEqual(all.slice(2, 4));
    expect(next).toMatchObject({ hasNextPage: true, hasPreviousPage: true });
    await remove(String(all[2]));
    expect((await read(`last: 1, before: "${next.endCursor}"`)).rows).toEqual([all[0]]);
    expect((await read(`last: 2, before: "${next.startCursor}"`)).rows).toEqual([all[0]]);
  });

  test('an empty page leads on from where it was asked for', async () => {
    const first = await read('first: 1');
    const none = await read(`last: 1, before: "${first.startCursor}"`);
    expect(none).toMatchObject({ rows: [], startCursor: first.startCursor, endCursor: first.startCursor });
    expect((await read(`last: 1, before: "${none.startCursor}"`)).rows).toEqual([]);
    const second = await read(`first: 1, after: "${none.endCursor}"`);
    expect(second.rows).toEqual((await read('first: 2')).rows.slice(1));
    const nothing = await read('first: 0');
    expect(nothing).toMatchObject({ rows: [], startCursor: null, endCursor: null });
  });
});

test('a row that goes while its page is read takes no others with it', async () => {
  await addSix('going');
  await sql(`INSERT INTO verification (file_id, attempts, error_class, error, at)
    SELECT id, 1, 'MEDIA', path, '2026-01-01' FROM tape_file WHERE path LIKE '/going/%'`);
  const { prisma } = app.ctx.db;
  const original = prisma.verification.findMany.bind(prisma.verification);
  const reading = vi
    .spyOn(prisma.verification, 'findMany')
    .mockImplementationOnce(((args: never) =>
      sql(`DELETE FROM verification WHERE error = '/going/2'`).then(() => original(args))) as never);
  const query = '{ verifications(match: "/going/", first: 2) { edges { node { error } } pageInfo { hasNextPage } } }';
  expect(await askData(app, query)).toEqual({
    verifications: {
      edges: [{ node: { error: '/going/1' } }, { node: { error: '/going/3' } }],
      pageInfo: { hasNextPage: true },
    },
  });
  expect(reading).toHaveBeenCalledTimes(2);
});

test.each(['requests', 'restoreDisks'])('a cursor of %s that is no whole number is refused', async (list) => {
  const after = Buffer.from('GPC:N:1.5').toString('base64');
  expect(await askErrors(app, `{ ${list}(after: "${after}") { edges { cursor } } }`)).toEqual(['Invalid cursor: 1.5']);
});
