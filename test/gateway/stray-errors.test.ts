import { expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { addFiles } from '../support/factories.js';
import { ask } from '../support/graphql.js';
import { useApp } from '../support/use-app.js';

const app = useApp();

test('a refused field beside one that waits is an error of its response, and no unhandled rejection', async () => {
  const { secret: token } = await createToken(app.ctx, { name: 'ann', role: 'USER' });
  await addFiles(
    app.ctx,
    ['A', 'B', 'C'].map((name) => ({ path: `/stray/${name}`, volume: `STRAY${name}` })),
  );
  // only the suspension of this drive needs a query, so this field waits while another field fails
  await app.ctx.db.pool.query(
    `INSERT INTO drive (name, volume_id) SELECT 'drive-stray', id FROM volume WHERE name = 'STRAYA'`,
  );
  const unhandled: unknown[] = [];
  const record = (reason: unknown) => void unhandled.push(reason);
  process.on('unhandledRejection', record);
  try {
    for (const fields of ['drive { suspension { mode } } fileCount', 'fileCount drive { suspension { mode } }']) {
      const { data, errors } = await ask({ url: app.url, token }, `{ volumes { edges { node { ${fields} } } } }`);
      expect(data).toMatchObject({ volumes: { edges: [{}, {}, {}] } });
      expect(errors?.[0]).toMatchObject({ path: ['volumes', 'edges', expect.any(Number), 'node', 'fileCount'] });
    }
    await new Promise((resolve) => setImmediate(resolve)); // by now Node.js has reported any unhandled rejection
    expect(unhandled).toEqual([]);
  } finally {
    process.off('unhandledRejection', record);
  }
});
