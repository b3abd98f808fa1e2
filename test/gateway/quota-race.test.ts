import { expect, test } from 'vitest';
import { addFiles, addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { makeRequest, post, put, read, readUsed } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const FILE_BYTES = 1_000_003n;
const ROOM = 4;
const RACERS = 20;

const app = useApp({}, async () => {
  const files = Array.from({ length: RACERS }, (_, n) => ({ path: `/race/${n}.nc`, size: FILE_BYTES }));
  await addFiles(app.ctx, files);
});

const CREATE = `mutation ($input: CreateRequestInput!) {
  createRequest(input: $input) { request { requestId } errors { __typename message } } }`;

type End = 'taken' | 'refused' | string;

/** Creates a request by REST or by GraphQL, with a list or with a pattern, depending on `n`. */
async function race(quota: string, n: number): Promise<End> {
  const path = `/race/${n}.nc`;
  const isPattern = n % 4 > 1;
  if (n % 2 === 0) {
    const { status, text } = await post(app, { quota, ...(isPattern ? { patterns: path } : { files: [path] }) });
    if (status === 200) return 'taken';
    return status === 403 && text.includes('is full') ? 'refused' : text;
  }
  const input = { quota, ...(isPattern ? { pattern: path } : { files: [path] }) };
  const { body, text } = await sendGraphql(app, { query: CREATE, variables: { input } });
  type Data = { createRequest: { request: object | null; errors: { __typename: string }[] } } | undefined;
  const { request, errors } = (body.data as Data)?.createRequest ?? {};
  if (request) return 'taken';
  return errors?.[0]?.__typename === 'QuotaExceeded' ? 'refused' : text;
}

/** Counts the outcomes. `others` lists unexpected outcomes. */
const count = (ends: End[]) => ({
  taken: ends.filter((end) => end === 'taken').length,
  refused: ends.filter((end) => end === 'refused').length,
  others: ends.filter((end) => end !== 'taken' && end !== 'refused'),
});

/** Returns the charge of a quota, and the total size of the files in its requests. */
async function readCharge(user: string) {
  const { requests } = await read<{ requests: { id: number }[] }>(app, `/quota/${user}`);
  const { rows } = await app.ctx.db.pool.query<{ held: bigint }>(
    `SELECT coalesce(sum(h.size), 0)::bigint AS held FROM request_file h
     JOIN request r ON r.id = h.request_id JOIN quota q ON q.id = r.quota_id WHERE q."user" = $1`,
    [user],
  );
  return { requests: requests.length, used: await readUsed(app, user), held: Number(rows[0]?.held) };
}

const FULL = { requests: ROOM, used: ROOM * Number(FILE_BYTES), held: ROOM * Number(FILE_BYTES) };

test('of 20 concurrent requests by REST and GraphQL exactly the 4 that fit are taken, also of the same files', async () => {
  await addQuota(app.ctx, 'alice', BigInt(ROOM + 1) * FILE_BYTES - 1n); // one byte less than five files
  await addQuota(app.ctx, 'bob', BigInt(ROOM) * FILE_BYTES);
  for (const [user, files] of [['alice', RACERS] as const, ['bob', ROOM] as const]) {
    const ends = await Promise.all(Array.from({ length: RACERS }, (_, n) => race(user, n % files)));
    expect([user, count(ends)]).toEqual([user, { taken: ROOM, refused: RACERS - ROOM, others: [] }]);
    expect([user, await readCharge(user)]).toEqual([user, FULL]);
  }
});

test('revived and new requests that race for the last bytes never exceed the quota', async () => {
  await addQuota(app.ctx, 'erin', BigInt(ROOM) * FILE_BYTES);
  const ended: number[] = [];
  for (let n = 0; n < ROOM; n++) {
    const id = await makeRequest(app, { quota: 'erin', files: [`/race/${n}.nc`] });
    await put(app, id, { quota: 'erin', retention: '2001-01-01' });
    ended.push(id);
  }
  const revive = async (id: number): Promise<End> => {
    const { status, text } = await put(app, id, { quota: 'erin', retention: '2999-01-01' });
    if (status === 200) return 'taken';
    return status === 403 && text.includes('is full') ? 'refused' : text;
  };
  const ends = await Promise.all([...ended.map(revive), ...ended.map((_, n) => race('erin', n))]);
  expect(count(ends)).toEqual({ taken: ROOM, refused: ROOM, others: [] });
  expect(await readUsed(app, 'erin')).toBe(FULL.used);
});
