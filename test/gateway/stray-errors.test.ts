/** An error of a field is an answer to whoever asked for it, whatever else the operation asks for, and no end of the gateway. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { ask } from '../support/graphql.js';

let app: TestApp;
let user: TestApp & { token: string };
const unheard: unknown[] = [];
const note = (reason: unknown) => void unheard.push(reason);

beforeAll(async () => {
  app = await startApp();
  user = { ...app, token: (await createToken(app.ctx, { name: 'ann', role: 'USER' })).secret };
  const files = ['A', 'B', 'C'].map((name) => ({ path: `/stray/${name}`, volume: `STRAY${name}`, position: 1n }));
  await addFiles(app.ctx, files);
  await app.ctx.db.pool.query(
    `INSERT INTO drive (name, volume_id) SELECT 'drive-stray', id FROM volume WHERE name = 'STRAYA'`,
  );
});
beforeEach(() => {
  unheard.length = 0;
  process.on('unhandledRejection', note);
});
afterEach(() => void process.off('unhandledRejection', note));
afterAll(() => app.close());

test('a field that is refused at once beside one that is waited for, in some items of a list and not in others', async () => {
  // the first volume is in a drive, whose suspension is looked up; of the others all is known at once
  for (const fields of ['drive { suspension { mode } } files', 'files drive { suspension { mode } }']) {
    const { data, errors } = await ask(user, `{ volumes { edges { node { ${fields} } } } }`);
    expect(data).toBeNull();
    expect(errors?.[0]).toMatchObject({ path: ['volumes', 'edges', expect.any(Number), 'node', 'files'] });
  }
  await new Promise((resolve) => setImmediate(resolve)); // after which Node.js tells of what nobody has heard
  expect(unheard).toEqual([]);
});
