/** A gateway that has parsed large bodies in a thread of its own ends when it is told to. */
import { afterAll, expect, test } from 'vitest';
import { createDatabase } from '../support/database.js';
import { cleanUp, startServer, stop } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

afterAll(cleanUp);

test('after a body of three megabytes a server ends as it does without', async () => {
  const database = await createDatabase();
  const server = await startServer('serve', { env: { DATABASE_URL: database.url, DATA_DIR: makeTempDir() } });
  const query = `{ __typename }#${'x'.repeat(3_000_000)}`;
  const headers = { 'Content-Type': 'application/json' };
  const answer = await fetch(`${server.url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query }) });
  expect(await answer.json()).toEqual({ data: { __typename: 'Query' } });
  expect(await stop(server)).toMatchObject({ code: 0 });
  await database.drop();
});
