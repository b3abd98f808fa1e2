/** What watches a gateway asks it: whether its process lives, whether it is to be sent anybody, and how it goes. */
import type { Express, Request } from 'express';
import type { AnswersInHand } from './access/answers-in-hand.js';
import type { Context } from './context.js';
import type { Standbys } from './database/standbys.js';
import { ForbiddenError } from './errors.js';
import { HttpError } from './http-body.js';
import { tellMetrics } from './metrics/listener.js';
import type { Metrics } from './metrics/metrics.js';
import { allowMetrics } from './operations/site/figures.js';

interface Parts {
  answers: AnswersInHand;
  standbys: Standbys | undefined;
}

export function mountHealth(app: Express, ctx: Context, { answers, standbys }: Parts): void {
  app.get('/health/live', (_req, res) => void res.json({ status: 'live' }));
  app.get('/health/ready', (_req, res) => {
    if (answers.isStopping) return void res.status(503).json({ status: 'the gateway stops' });
    const isReady = ctx.db.pulse.isAnswering; // known without asking, which might not be answered
    const status = isReady ? 'ready' : 'the database does not answer';
    res.status(isReady ? 200 : 503).json({ status, ...tellStandbys(standbys) });
  });
}

/** Where there are standbys: at how many of them lists are read, and by how much the last of those that answer is behind. */
function tellStandbys(standbys: Standbys | undefined): object {
  if (!standbys) return {};
  const all = standbys.status;
  const used = all.filter(({ problem }) => problem === undefined).length;
  const behindBytes = Math.max(0, ...all.map((standby) => Number(standby.behindBytes ?? 0n)));
  return { standbys: { used, of: all.length, behindBytes } };
}

export const METRICS_PATH = '/metrics';

/** For viewers and operators, and on the open way for whoever is on this host. @param contextFor of a request whose caller is known */
export function mountMetrics(app: Express, metrics: Metrics, contextFor: (req: Request) => Context): void {
  app.get(METRICS_PATH, async (req, res) => {
    try {
      allowMetrics(contextFor(req));
    } catch (error) {
      throw error instanceof ForbiddenError ? new HttpError(403, error.message) : error;
    }
    await tellMetrics(metrics, res);
  });
}
