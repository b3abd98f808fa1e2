/** Creates the gateway: its HTTP endpoints, its limits and its servers. */
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Express, type NextFunction, type Request, type RequestHandler, type Response } from 'express';
import type { Logger } from 'pino';
import { createGraphqlHandlers, type GraphqlHandlers } from '../../graphql/server.js';
import { createDiscovery, DISCOVERY_PATH, TAPE_PATH } from '../../rest/tape/discovery.js';
import { createProblemHandler, createTapeRouter } from '../../rest/tape/router.js';
import { createRestErrorHandler, createRestRouter } from '../../rest/v1/endpoints.js';
import { createOpenapi, REST_PREFIX as REST } from '../../rest/v1/openapi.js';
import { WEBDAV_ROOT } from '../../rest/v1/paths.js';
import { createArchiveHandler, DOWNLOADS_ROOT } from '../../rest/webdav/archive.js';
import { createBytesHandler } from '../../rest/webdav/router.js';
import { Standbys } from '../db/standby/standbys.js';
import type { Context } from '../domain/context.js';
import { readFence } from '../domain/ownership.js';
import { allowMetrics } from '../domain/site/figures.js';
import { createMetadataHandler, METADATA_PATH } from '../gateway/auth/credentials.js';
import { callerOf, createIdentifier, type Identifier } from '../gateway/auth/identify.js';
import { createBrowserGuard, createSecurityHeaders } from '../gateway/browser/browsers.js';
import { createDashboard } from '../gateway/browser/dashboard.js';
import { answerOf, createErrorHandler } from '../gateway/http/http-errors.js';
import { checkTarget } from '../gateway/http/http-target.js';
import { createImportHandler, IMPORT_PATH, isImport } from '../gateway/http/import-endpoint.js';
import { traceparentOf } from '../gateway/http/observed.js';
import { idOf } from '../gateway/http/request-ids.js';
import { openTls } from '../gateway/http/tls.js';
import { disconnectSignalOf, UnfinishedResponses } from '../gateway/http/unfinished-responses.js';
import { type CallerLimits, holdLimits, limitCallers, limitKey, Shares } from '../gateway/limits/limits.js';
import { createPlainServer, listen } from '../gateway/listen.js';
import { waitInTime } from '../restore-area/call-watch.js';
import { CopyReader } from '../restore-area/copies/copy-reader.js';
import { sendMetrics } from '../telemetry/listener.js';
import { type Metrics, openMetrics } from '../telemetry/metrics.js';

export interface Gateway {
  url: string;
  close(): Promise<void>;
  metrics: Metrics;
}

interface Handlers {
  graphql: GraphqlHandlers;
  identifier: Identifier;
  answers: UnfinishedResponses;
  limits: CallerLimits;
  standbys: Standbys | undefined;
  metrics: Metrics;
  contextFor(req: IncomingMessage): Context;
}

const GRAPHQL = '/graphql';
const METRICS_PATH = '/metrics';

function createApp(ctx: Context, handlers: Handlers): Express {
  const { graphql, identifier, answers, limits, standbys, metrics, contextFor } = handlers;
  const app = express();
  app.disable('x-powered-by');
  // do not send ETags, because express would have to keep a whole list in memory to compute the list's ETag
  app.disable('etag');
  const stalled = dropStalled(ctx.config.readerSeconds * 1000);
  const [headers, guard] = [createSecurityHeaders(ctx.config), createBrowserGuard(ctx.config)];
  app.use(answers.handler, stalled, headers, refuseBadTarget, guard);
  const known = [identifier.handler, ...limits.before];
  app.use(REST, known, createRestRouter(contextFor));
  app.use(GRAPHQL, known, graphql.handler);
  const takeImport = createImportHandler(contextFor, ctx.log);
  app.use(IMPORT_PATH, known, (req: Request, res: Response, next: NextFunction) =>
    req.path === '/' ? takeImport(req, res) : next(),
  );
  app.use(joinSlashes);
  app.use([...TRANSFER_PATHS], known);
  app.use(`${DOWNLOADS_ROOT}/:link`, [identifier.linkHandler, ...limits.before]);
  mountTransferTools(app, ctx, contextFor, answers);
  app.get(METADATA_PATH, createMetadataHandler(ctx.config));
  mountHealth(app, ctx, { answers, standbys });
  app.use(METRICS_PATH, known);
  app.get(METRICS_PATH, async (req, res) => {
    allowMetrics(contextFor(req));
    await sendMetrics(metrics, res);
  });
  app.all('/openapi.json', createOpenapi(ctx.config.publicUrl));
  app.use(createDashboard(ctx.config));
  app.use((req, res) => {
    res.status(404).json({ error: `there is nothing at ${req.path}` });
  });
  app.use(REST, createRestErrorHandler(ctx.log));
  app.use([...TRANSFER_PATHS, DOWNLOADS_ROOT], createProblemHandler(ctx.log));
  app.use(GRAPHQL, graphql.onError);
  app.use(createErrorHandler(ctx.log, 'HTTP', sendError));
  return app;
}

const refuseBadTarget: RequestHandler = (req, _res, next) => {
  checkTarget(req);
  next();
};

/**
 * Returns the context for handling a request. Copies each property by name, because an object spread would take as much
 * CPU time as a database lookup.
 */
function serve(ctx: Context, standbys: Standbys | undefined, req: IncomingMessage): Context {
  const { config, db, events, refusals, checkLibrary, stagingTermsOf, copies, recordMissing } = ctx;
  const res = (req as Request).res as Response;
  let log: Logger | undefined;
  return {
    config,
    db,
    standbys,
    events,
    refusals,
    checkLibrary,
    stagingTermsOf,
    copies,
    recordMissing,
    get log() {
      log ??= ctx.log.child(idOf(res));
      return log;
    },
    caller: callerOf(req),
    share: limitKey(req),
    get reader() {
      return disconnectSignalOf(res);
    },
    keep: () => holdLimits(res),
    traceparent: traceparentOf(res),
    now: () => ctx.now(),
  };
}

function sendError(res: Response, error: unknown): void {
  const { status, message, headers } = answerOf(error);
  res.status(status).set(headers).json({ error: message });
}

export async function startGateway(ctx: Context): Promise<Gateway> {
  const createTlsServer = await openTls(ctx.config, ctx.log);
  const standbys = openStandbys(ctx);
  const contextFor = (req: IncomingMessage): Context => serve(ctx, standbys, req);
  const identifier = createIdentifier(ctx);
  const graphql = createGraphqlHandlers(contextFor, ctx);
  const answers = new UnfinishedResponses();
  const limits = limitCallers(ctx.config);
  const metrics = openMetrics(ctx, { answers: () => answers.number });
  const app = createApp(ctx, { graphql, identifier, answers, limits, standbys, metrics, contextFor });
  const servers = await listen(app, ctx, createTlsServer ?? createPlainServer).catch(async (error) => {
    await standbys?.close();
    throw error;
  });
  for (const server of servers) limits.watch(server);
  const { port, family, address } = servers[0].address() as AddressInfo;
  return {
    metrics,
    url: `${createTlsServer ? 'https' : 'http'}://${family === 'IPv6' ? `[${address}]` : address}:${port}`,
    close: async () => {
      const endStreams = () => {
        // close the clients' streams before the event feed's readers, because clients would otherwise receive the
        // message `complete`, which ends their subscriptions
        graphql.close();
        ctx.events.endReaders();
      };
      await answers.finish(servers, { leaveMs: ctx.config.leaveSeconds * 1000, endStreams });
      identifier.close();
      limits.close();
      await identifier.finish();
      await standbys?.close();
    },
  };
}

function openStandbys({ config, db, log }: Context): Standbys | undefined {
  const { databaseReadUrl: url, readWaitMs: waitMs, limits } = config;
  if (url === undefined) return undefined;
  return new Standbys(db, { url, waitMs, log, longLists: limits.longLists });
}

/**
 * Closes a connection whose client neither reads nor sends. Does not limit how slowly a client reads: if other callers
 * wait for slots, db/lists/long-reads.ts takes the slots of slow clients.
 */
function dropStalled(ms: number): RequestHandler {
  return (req, res, next) => {
    // do not disconnect a client that is sending an import, because the gateway itself pauses the import if the
    // database is slow
    const mayWait = isImport(req);
    res.setTimeout(ms, () => {
      if (res.writableLength > 0 || !(req.complete || mayWait)) res.destroy();
    });
    next();
  };
}

const TRANSFER_PATHS = [TAPE_PATH, WEBDAV_ROOT];

const SLASHES = /^\/{2,}(?=(?:webdav|tape_rest)(?:[/?]|$))/;

/**
 * Removes repeated slashes before `/webdav` and `/tape_rest`, because grid clients put a second slash between host and
 * path.
 */
const joinSlashes: RequestHandler = (req, _res, next) => {
  req.url = req.url.replace(SLASHES, '/');
  next();
};

function mountTransferTools(
  app: Express,
  ctx: Context,
  contextFor: (req: Request) => Context,
  answers: UnfinishedResponses,
): void {
  app.get(DISCOVERY_PATH, createDiscovery(ctx.config));
  app.use(TAPE_PATH, createTapeRouter(contextFor));
  const isStopping = () => answers.isStopping;
  const copies = new CopyReader({ calls: ctx.config.transfer.diskCalls, seconds: ctx.config.diskTimeout, isStopping });
  const { downloads, longLists } = ctx.config.limits;
  const shareOf = (what: string, all: number) => {
    const shares = new Shares(what, { all, one: Math.floor(all / 2) });
    return (req: Request) => shares.take(limitKey(req));
  };
  const [enter, enterDirectory] = [shareOf('file downloads', downloads), shareOf('directory listings', longLists)];
  app.use(WEBDAV_ROOT, createBytesHandler(contextFor, { copies, enter, enterDirectory }));
  app.all(`${DOWNLOADS_ROOT}/:link`, createArchiveHandler(contextFor, { copies, enter }));
}

function mountHealth(app: Express, ctx: Context, { answers, standbys }: Pick<Handlers, 'answers' | 'standbys'>): void {
  app.get('/health/live', (_req, res) => void res.json({ status: 'live' }));
  const fence = followFence(ctx);
  app.get('/health/ready', async (_req, res) => {
    if (answers.isStopping) return void res.status(503).json({ status: 'the gateway is stopping' });
    // read the database's state from memory, because a database query might hang
    const isReady = ctx.db.pulse.isAnswering;
    const status = isReady ? 'ready' : 'the database does not answer';
    const clock = ctx.db.clock.isPlausible ? {} : { clock: 'implausible: expiry and removal of files are paused' };
    // omit the reason, because all callers can read this response, and the reason contains paths
    const fenced = isReady && (await fence()) !== null ? { fenced: true } : {};
    res.status(isReady ? 200 : 503).json({ status, ...clock, ...fenced, ...describeStandbys(standbys) });
  });
}

const FENCE_MS = 2000;
const FENCE_ANSWER_MS = 500;

/**
 * Creates a function that returns the reason why engines have fenced this Tapegate; null if it is not fenced. If the
 * database is slow, the function returns the last known reason.
 */
function followFence(ctx: Context): () => Promise<string | null> {
  let fence: string | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<unknown> | undefined;
  const read = async () => {
    fence = await readFence(ctx);
    readAt = performance.now();
  };
  return async () => {
    if (performance.now() - readAt < FENCE_MS) return fence;
    reading ??= read()
      .catch(() => {})
      .finally(() => {
        reading = undefined;
      });
    await waitInTime(FENCE_ANSWER_MS, reading);
    return fence;
  };
}

function describeStandbys(standbys: Standbys | undefined): object {
  if (!standbys) return {};
  const all = standbys.status;
  const used = all.filter(({ problem }) => problem === undefined).length;
  const behindBytes = Math.max(0, ...all.map((standby) => Number(standby.behindBytes ?? 0n)));
  return { standbys: { used, of: all.length, behindBytes } };
}
