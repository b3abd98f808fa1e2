/**
 * What it costs to be known: 16 clients in another process read a request of 25 files again and again, for SECONDS (5) a turn and ROUNDS
 * (5) turns each way, in alternating order: as anybody, with an API token, and with the token as password of Basic.
 *
 *   npm run compile && node dist/bench/callers.js
 */
import { startGateway } from '../src/app.js';
import { createToken } from '../src/operations/access/tokens.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { inTurns, tellFigure } from './figures.js';
import { withBench } from './kit.js';
import { startLoad } from './load.js';

const CLIENTS = 16;
const FILES = 25;
const seconds = Number(process.env.SECONDS ?? 5);
const rounds = Number(process.env.ROUNDS ?? 5);

await withBench(
  async (ctx) => {
    const gateway = await startGateway(ctx);
    await setQuota(ctx, { user: 'alice', size: 10n ** 12n });
    const files = Array.from({ length: FILES }, (_, n) => `/bench/${n}`);
    const id = await createRequest(ctx, { quota: 'alice', files });
    const { secret } = await createToken(ctx, { name: 'alice', role: 'USER' });
    const url = `${gateway.url}/tape_control/api/v1/requests/${id}`;
    const load = startLoad();
    const as = (headers: Record<string, string>) => async () =>
      (await load.run({ url, headers, clients: CLIENTS, seconds, holds: `/bench/${FILES - 1}` })).perSecond;
    const rates = await inTurns(
      {
        anybody: as({}),
        token: as({ Authorization: `Bearer ${secret}` }),
        password: as({ Authorization: `Basic ${Buffer.from(`alice:${secret}`).toString('base64')}` }),
      },
      rounds,
    );
    load.close();
    const common = { beside: 'as anybody', reference: rates.anybody.median, unit: '/s', bound: 0.9 };
    tellFigure({ work: 'GET /requests/{id} with a token', ours: rates.token.median, ...common });
    tellFigure({ work: 'GET /requests/{id} with a token as password', ours: rates.password.median, ...common });
    await gateway.close();
  },
  { PORT: '0', RATE_LIMIT: '1000000' },
);
