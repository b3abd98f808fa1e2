/** Changes of requests that only GraphQL offers, and what they answer. */
import { type TestApp, waitFor } from './app.js';
import { graphql } from './engine-watch.js';

/** The request as it is afterwards, or the failure. */
export interface MutationResult {
  __typename: string;
  message?: string;
  field?: string;
  requestId: number;
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesReleased: number;
  filesRefused: number;
  filesOverLimit: number;
  bytesTotal: number;
  maxFiles: number | null;
  maxBytes: number | null;
}

const RESULT = `__typename ... on Request {
    requestId state filesTotal filesOnDisk filesReleased filesRefused filesOverLimit bytesTotal maxFiles maxBytes
  } ... on Failure { message } ... on InvalidInput { field }`;

async function mutate(app: TestApp, field: string, input: object): Promise<MutationResult> {
  const type = `${field[0]?.toUpperCase()}${field.slice(1)}Input`;
  const query = `mutation ($input: ${type}!) { result: ${field}(input: $input) { ${RESULT} } }`;
  return (await graphql<{ result: MutationResult }>(app, query, { input })).result;
}

export const create = (app: TestApp, input: object) => mutate(app, 'createRequest', input);
export const update = (app: TestApp, input: object) => mutate(app, 'updateRequest', input);
export const release = (app: TestApp, input: object) => mutate(app, 'releaseFiles', input);

/** Makes a request that must succeed. */
export async function made(app: TestApp, input: object): Promise<number> {
  const { __typename, requestId, message } = await create(app, input);
  if (__typename !== 'Request') throw new Error(`${__typename}: ${message}`);
  return requestId;
}

/**
 * Holds rows of the database locked while `work` begins, so that what races for them waits, in the order in which it came.
 * @param sql a SELECT that locks
 */
export async function whileLocked<T>(
  app: TestApp,
  sql: string,
  work: (waiters: (count: number) => Promise<void>) => Promise<T>,
): Promise<T> {
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query('BEGIN');
    await client.query(sql);
    return await work(async (count) => {
      await waitFor(`${count} to wait for a lock`, async () => {
        const { rowCount } = await app.ctx.db.pool.query(
          `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        );
        return (rowCount ?? 0) >= count;
      });
    });
  } finally {
    await client.query('COMMIT');
    client.release();
  }
}
