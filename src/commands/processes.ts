/** `start`, `serve`, `work`: the processes that stay. */
import type { Command } from 'commander';
import type { Gateway } from '../app.js';
import type { Config } from '../config.js';
import type { Context } from '../context.js';
import type { Demo } from '../demo.js';
import { codeOf, messageOf } from '../errors.js';
import type { Metrics } from '../metrics/metrics.js';
import type { Makes, Runtime } from '../runtime.js';
import type { TapeBackend } from '../tape/backend.js';
import { announce } from './announcement.js';
import { readEnvironment } from './context.js';
import { environment, ownLog, whenStopped } from './io.js';
import { printLine } from './output.js';

export function registerProcesses(program: Command): void {
  program
    .command('start')
    .addHelpText('after', ENVIRONMENT_HELP)
    .action(() => {
      const config = readEnvironment({ listens: true });
      const demo = config.demo && !config.databaseUrl;
      return runUntilSignal(config, { makes: 'database', gateway: true, engine: config.engine, demo });
    });
  program
    .command('serve')
    .addHelpText('after', ENVIRONMENT_HELP)
    .action(() => {
      const config = readEnvironment({ listens: true });
      return runUntilSignal(config, { makes: 'schema', gateway: true, engine: false, demo: false });
    });
  program
    .command('work')
    .addHelpText('after', ENVIRONMENT_HELP)
    .action(() => runUntilSignal(readEnvironment(), { makes: 'schema', gateway: false, engine: true, demo: false }));
}

/** All variables: a test holds them to the document. */
const ENVIRONMENT_HELP = `
The environment says the rest; "Configuration" in src/commands/README.md says it in full:
  PORT, HOST                                 where the gateway listens: 8080 of 127.0.0.1 unless set
  PUBLIC_URL, ALLOWED_HOSTS, CORS_ORIGINS    where users find it, its other names, and the origins whose pages may ask
  TLS_CERT, TLS_KEY                          files of its certificate and its key: it speaks https then
  DASHBOARD, GRAPHIQL, INTROSPECTION         off for no page for people, no GraphiQL, and no questions about the schema
  TRUSTED_DOCUMENTS, TRUSTED_ONLY            a file of GraphQL documents that clients may name; on: no others are run
  AUTH                                       how callers are known: token, oidc, proxy, certificate, legacy, open
  OIDC_ISSUER, OIDC_AUDIENCE, OIDC_CLIENT_ID an identity provider, what its tokens are for, and a client of it
  OIDC_USER_CLAIM, OIDC_GROUPS_CLAIM         where a token has the user and the groups
  OIDC_ROLES, OIDC_CLOCK_SKEW                who is more than a user, and how far the provider's clock may be off
  PROXY_ADDRESSES, PROXY_ROLES               reverse proxies whose word is taken, and who is more than a user
  PROXY_USER_HEADER, PROXY_GROUPS_HEADER     where they say who asks
  PROXY_CERT_HEADER, PROXY_CERT_VERIFY_HEADER, PROXY_CERT_USERS
                                             where they say whose certificate they have verified, and who that is
  SITE_NAME                                  what transfer tools call this site
  WEBDAV, DOWNLOADS                          whose bytes are served at /webdav, and how many files are read there at once
  BYTES_GATEWAYS, UV_THREADPOOL_SIZE         gateways that serve other disks, and threads for calls on files
  LEGACY                                     what is open to callers who show nothing
  DATABASE_URL, DATA_DIR                     a PostgreSQL; or unset an embedded one in DATA_DIR, ./data unless set
  DATABASE_READ_URL, READ_WAIT_MS            standbys of it to read lists from, and how long a list waits for one
  DEMO, ENGINE                               of start: off for no demo archive, and for no engine
  DRIVES, ENGINE_WEIGHT                      how many drives work, and how many of them are this engine's among others
  TAPE_BACKEND, TAPE_TIMEOUT                 the first library, and when a drive counts as hung
  DISK_TIMEOUT, RESTORE_MODE, RESTORE_GROUP, LINK_ROOT  when a restore disk counts as hung; how files are restored
  SMTP_URL, MAIL_FROM, MAIL_TO, WEBHOOK_HOSTS  the mail server, the sender, where mail may go, and private webhooks
  CONNECTIONS, STREAMS, BODIES_MB            what may be open at once; of one caller CALLER_STREAMS, CALLER_REQUESTS
  LONG_LISTS                                 how many may read long lists at once
  RATE_LIMIT, RATE_LOCAL                     how often a caller may ask, and whether those of this host count
  MAIL_RATE, USER_MAIL_RATE, EXPIRY_NOTICE_HOURS  letters a minute, in all and of a user; when an end is told
  REQUEST_PATHS, REQUEST_FILES, PATTERN_LENGTH
                                             how many paths a request may name, and files have; how short a pattern may be
  OPEN_REQUESTS, STANDING_PATTERNS, AWAITED_PATHS, LEFT_OUT_PATHS
                                             what a user may have at once: requests, those by a pattern, unknown paths, and
                                             paths noted as left out
  IMPORT_JOINS                               how many files join a user's requests within an import; the rest joins after it
  STATEMENT_SECONDS                          how long a question to the database may take
  GRAPHQL_DEPTH, GRAPHQL_BREADTH, GRAPHQL_COMPLEXITY, STREAM_OPERATIONS
                                             how large a query may be, and how many operations a stream may have
  EVENT_DAYS, REQUEST_DAYS, AUDIT_DAYS       how long events, ended requests in full, and the audit are kept
  READER_SECONDS, LEAVE_SECONDS              when a client that neither reads nor sends is disconnected, and how long balancers have to leave
  LOG_LEVEL, ACCESS_LOG                      what is logged, and on for a line for each answer
  OTEL_EXPORTER_OTLP_ENDPOINT                a collector that traces are sent to
  METRICS_PORT, METRICS_HOST                 where metrics are read beside the gateway's /metrics; an engine has them there alone
Other commands find the server by TAPEGATE_URL, show it TAPEGATE_TOKEN, and find the database as this one does.`;

interface Parts {
  makes: Makes;
  gateway: boolean;
  engine: boolean;
  demo: boolean;
}

async function runUntilSignal(config: Config, parts: Parts): Promise<void> {
  const stopped = whenStopped();
  const closers: (() => Promise<void>)[] = [];
  try {
    const { openRuntime } = await import('../runtime.js');
    const bounds = parts.gateway ? { statementMs: config.limits.statementSeconds * 1000 } : {};
    const runtime = await openRuntime(config, parts.makes, { ...bounds, ...ownLog() });
    closers.unshift(() => runtime.close());
    await warnOfOthers(runtime.ctx);
    await startParts(config, parts, runtime, closers);
    await stopped;
  } finally {
    await closeAll(closers);
  }
}

/** One that fails does not keep the others from closing. */
async function closeAll(closers: (() => Promise<void>)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closers) await close().catch((error) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

async function warnOfOthers({ config, log }: Context): Promise<void> {
  const { findUntrustedMount } = await import('../engine/disk/exposure.js');
  const found = await findUntrustedMount(config.dataDir, {});
  if (!found) return;
  const what = "the database, the tapes and the operator's token in DATA_DIR can be replaced by another user";
  log.warn(`${what}: ${found.directory}: ${found.problem} (run chmod go-w, or change its owner)`);
}

/** Each loads what only it needs: a gateway has no engine, and an engine no GraphQL. */
async function startParts(
  config: Config,
  parts: Parts,
  runtime: Runtime,
  closers: (() => Promise<void>)[],
): Promise<void> {
  const { ctx } = runtime;
  await openEvents(ctx, parts);
  const { metricsPort: port, metricsHost: host } = config.telemetry;
  if (parts.gateway || port !== undefined) await countFromNow();
  const { openTraces } = await import('../open-traces.js');
  const endTraces = await openTraces(config, ctx.log);
  if (endTraces) closers.unshift(endTraces);
  const { keepHeartbeat } = await import('./heartbeat.js');
  closers.unshift(await keepHeartbeat(ctx, parts));
  const { createBackend } = await import('../tape/kinds.js');
  const backend = createBackend(config.tapeBackend, { dataDir: config.dataDir });
  let demo: Demo | undefined;
  if (parts.demo) {
    const { makeDemo } = await import('../demo.js');
    demo = await makeDemo(ctx, backend);
  }
  if (parts.engine) {
    const engine = await startTheEngine(runtime, backend);
    closers.unshift(() => engine.stop());
  }
  const tellAt = async (metrics?: Metrics) => {
    if (port !== undefined) closers.unshift(await tellMetricsAt(ctx, { port, host }, metrics));
  };
  if (!parts.gateway) {
    await tellAt();
    return printLine('Tapegate engine is working; stop it with Ctrl-C');
  }
  const stopKeeping = await leaveOperatorToken(ctx);
  closers.unshift(async () => stopKeeping());
  const gateway = await listen(ctx);
  closers.unshift(() => gateway.close());
  await tellAt(gateway.metrics);
  closers.unshift(await noteListening(ctx, gateway));
  announce(config, gateway.url, { demo, hasEngine: parts.engine });
}

/** Before the first thing that is counted. */
async function countFromNow(): Promise<void> {
  const { processMetrics } = await import('../metrics/process.js');
  processMetrics();
}

/** @param given of a gateway, which has more to tell @returns what ends it */
async function tellMetricsAt(
  ctx: Context,
  place: { port: number; host: string },
  given: Metrics | undefined,
): Promise<() => Promise<void>> {
  const { openMetrics } = await import('../metrics/metrics.js');
  const { listenForMetrics } = await import('../metrics/listener.js');
  const listener = await listenForMetrics(ctx, given ?? openMetrics(ctx), place).catch((error) => {
    const names = 'METRICS_PORT, METRICS_HOST';
    throw cannotListen(error, { ...place, names });
  });
  ctx.log.info({ url: `${listener.url}/metrics` }, 'metrics are read here');
  return () => listener.close();
}

/** Whoever is kept out by one gateway comes in by another: an operator who starts it from another shell may not have meant that. */
async function openEvents(ctx: Context, { gateway }: Parts): Promise<void> {
  if (!gateway) return await ctx.events.open();
  const { findOtherDoors, nameOfDoor } = await import('../operations/access/doors.js');
  await ctx.events.open(nameOfDoor(ctx));
  const own = [...ctx.config.access.auth].join(',');
  for (const auth of await findOtherDoors(ctx)) {
    ctx.log.warn(
      `another gateway of this database runs with AUTH=${auth}, and this one with AUTH=${own}: who is kept out by one may come in by the other`,
    );
  }
}

/** For the commands that are run here, as long as this goes on. A folder that cannot be written keeps nobody from being served. */
async function leaveOperatorToken(ctx: Context): Promise<() => void> {
  if (!ctx.config.access.auth.has('token')) return () => {};
  const { ensureOperatorToken, keepOperatorToken } = await import('../access/operator-token.js');
  const onError = (error: unknown) =>
    ctx.log.warn(
      `no operator's token is left in DATA_DIR, so that operators need one of their own: ${messageOf(error)}`,
    );
  await ensureOperatorToken(ctx).catch(onError);
  return keepOperatorToken(ctx, onError);
}

/** So that commands run here show the operator's token to this gateway, and to nothing else that may listen on its port one day. */
async function noteListening(ctx: Context, { url }: Gateway): Promise<() => Promise<void>> {
  if (!ctx.config.access.auth.has('token')) return async () => {};
  const { noteGateway } = await import('../access/gateway-file.js');
  const { protocol, hostname, port } = new URL(url);
  const number = Number(port || (protocol === 'https:' ? 443 : 80));
  return await noteGateway(ctx.config.dataDir, { host: hostname, port: number }).catch((error) => {
    ctx.log.warn(
      `commands here need a token, since DATA_DIR does not say where this gateway listens: ${messageOf(error)}`,
    );
    return async () => {};
  });
}

/** In processes of its own, but for a back end whose volumes are in the memory of this one. */
async function startTheEngine(runtime: Runtime, backend: TapeBackend): Promise<{ stop(): Promise<void> }> {
  if (runtime.ctx.config.tapeBackend === 'memory') {
    const { startEngine } = await import('../engine/runner.js');
    return await startEngine(runtime.ctx, backend, { env: environment() });
  }
  const { startEngineProcesses } = await import('./engine-processes.js');
  return await startEngineProcesses(runtime);
}

async function listen(ctx: Context): Promise<Gateway> {
  const { startGateway } = await import('../app.js');
  try {
    return await startGateway(ctx);
  } catch (error) {
    if (codeOf(error) === undefined) throw error; // it has nothing to do with where it listens
    throw cannotListen(error, { ...ctx.config, names: 'PORT, HOST' });
  }
}

function cannotListen(error: unknown, { port, host, names }: { port: number; host: string; names: string }): Error {
  const reason = codeOf(error) === 'EADDRINUSE' ? 'another process has the port' : messageOf(error);
  return new Error(`cannot listen on port ${port} of ${host} (${names}): ${reason}`, { cause: error });
}
