/** `start`, `serve`, `work`: the processes that stay. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Command } from 'commander';
import { readEnvironment } from '../../cli/connection/context.js';
import type { Makes, Runtime } from '../../cli/connection/runtime.js';
import { environment, ownLog, whenStopped } from '../../cli/terminal/io.js';
import { printLine, printText } from '../../cli/terminal/output.js';
import type { Config } from '../../config/config.js';
import { defaultServerUrl, readDataDir } from '../../core/environment.js';
import { codeOf, logFailure, messageOf } from '../../core/errors.js';
import { packageRoot } from '../../core/package-root.js';
import { printable } from '../../core/printable.js';
import type { Context } from '../../domain/context.js';
import type { Metrics } from '../../telemetry/metrics.js';
import type { Gateway } from '../app.js';
import type { Demo } from '../demo.js';

export function register(program: Command): void {
  for (const command of ['start', 'serve', 'work'] as const) {
    program
      .command(command)
      .addHelpText('after', ENVIRONMENT_HELP)
      .action(async () => {
        const isStart = command === 'start';
        const gateway = command !== 'work';
        const config = await readEnvironment({ listens: gateway });
        const engine = isStart ? config.engine : !gateway;
        const demo = isStart && config.demo && !config.databaseUrl;
        return runUntilSignal(config, { makes: isStart ? 'database' : 'schema', gateway, engine, demo });
      });
  }
}

/** Names all settings; a test compares them with the document. Descriptions would load the schema of the settings. */
const ENVIRONMENT_HELP = `
Settings are variables of the environment. docs/reference/settings.md describes them:
  HOST, PORT                       where the gateway listens: 127.0.0.1 and 8080 by default
  TAPEGATE_AUTH                    how callers are authenticated: token, oidc, proxy, certificate, legacy, open
  TAPEGATE_PUBLIC_URL, TAPEGATE_ALLOWED_HOSTS  where users find the gateway, and its other names
  TAPEGATE_TLS_CERT, TAPEGATE_TLS_KEY          files of its certificate and key, for https
  DATABASE_URL, DATA_DIR           a PostgreSQL, or the directory of an embedded one: ./data by default
  DEMO, ENGINE                     for start: off for no demo archive, and for no engine
  DRIVES                           drives of the first library: 2 by default
Authentication:
  TAPEGATE_OIDC_ISSUER, TAPEGATE_OIDC_AUDIENCE, TAPEGATE_OIDC_CLIENT_ID, TAPEGATE_OIDC_USER_CLAIM,
  TAPEGATE_OIDC_GROUPS_CLAIM, TAPEGATE_OIDC_ROLES, TAPEGATE_PROXY_ADDRESSES, TAPEGATE_PROXY_SECRET_FILE,
  TAPEGATE_PROXY_HEADERS, TAPEGATE_PROXY_ROLES, TAPEGATE_PROXY_CERT_USERS, TAPEGATE_LEGACY
Gateway:
  TAPEGATE_PAGES, TAPEGATE_INTROSPECTION, TAPEGATE_TRUSTED_DOCUMENTS,
  TAPEGATE_CORS_ORIGINS, TAPEGATE_SITE_NAME, TAPEGATE_WEBDAV, TAPEGATE_BYTES_GATEWAYS, TAPEGATE_RATE_LIMIT,
  TAPEGATE_STREAMS, TAPEGATE_REQUEST_FILES, TAPEGATE_PATTERN_LENGTH, TAPEGATE_DATABASE_READ_URL,
  TAPEGATE_READ_WAIT_MS, TAPEGATE_LEAVE_SECONDS
Engine:
  TAPEGATE_LIBRARY_DIR, TAPEGATE_TAPE_TIMEOUT, TAPEGATE_DISK_TIMEOUT, TAPEGATE_ENGINE_WEIGHT,
  TAPEGATE_RESTORE_MODE, TAPEGATE_RESTORE_GROUP, TAPEGATE_LINK_ROOT
Mail, webhooks and records:
  SMTP_URL, TAPEGATE_MAIL_FROM, TAPEGATE_MAIL_TO, TAPEGATE_MAIL_RATE, TAPEGATE_EXPIRY_NOTICE_HOURS,
  TAPEGATE_WEBHOOK_HOSTS, TAPEGATE_EVENT_DAYS, TAPEGATE_REQUEST_DAYS, TAPEGATE_AUDIT_DAYS, LOG_LEVEL,
  TAPEGATE_ACCESS_LOG, TAPEGATE_METRICS_LISTEN, OTEL_EXPORTER_OTLP_ENDPOINT
Other commands use a gateway (TAPEGATE_URL, TAPEGATE_TOKEN) or the database: see docs/reference/commands.md.`;

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
    const { openRuntime } = await import('../../cli/connection/runtime.js');
    const runtime = await openRuntime(config, parts.makes, ownLog());
    closers.unshift(() => runtime.close());
    await warnOfOthers(runtime.ctx);
    if (config.databaseUrl !== undefined) await checkConnections(runtime.ctx, parts);
    await startParts(config, parts, runtime, closers);
    await stopped;
  } finally {
    await closeAll(closers);
  }
}

/** Closes all, also if one of them fails. */
async function closeAll(closers: (() => Promise<void>)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closers) await close().catch((error) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

async function warnOfOthers({ config, log }: Context): Promise<void> {
  const { findUntrustedMount } = await import('../../restore-area/exposure.js');
  const found = await findUntrustedMount(config.dataDir, {});
  if (!found) return;
  const what = 'the database and the tapes in DATA_DIR can be replaced by another user';
  log.warn(`${what}: ${found.directory}: ${found.problem} (run chmod go-w, or change its owner)`);
}

/** Warns if the database has too few connections for this process under load. @throws Error if it cannot work */
async function checkConnections({ config, db, log }: Context, { gateway, engine }: Parts): Promise<void> {
  const { IDLE_CONNECTIONS: idle, mostConnections } = await import('../../db/client.js');
  const connections = await import('../../db/connections.js');
  const children = engine ? config.drives + 1 : 0;
  const own = gateway ? mostConnections.gateway(config.limits.longLists) : idle;
  const needs = { least: idle * (1 + children), most: own + children * mostConnections.engine };
  const warning = await connections.checkConnections(db, needs);
  if (warning !== undefined) log.warn(warning);
}

/** Each loads what only it needs: a gateway has no engine, and an engine no GraphQL. */
async function startParts(
  config: Config,
  parts: Parts,
  runtime: Runtime,
  closers: (() => Promise<void>)[],
): Promise<void> {
  const { ctx } = runtime;
  await ctx.events.open();
  const { metrics: place } = config.telemetry;
  if (parts.gateway || place) (await import('../../telemetry/metrics.js')).processMetrics(); // counts from now
  const { openTraces } = await import('../../telemetry/open-traces.js');
  const endTraces = await openTraces(config, ctx.log);
  if (endTraces) closers.unshift(endTraces);
  const { ClockWatch } = await import('../../domain/clock.js');
  await new ClockWatch(ctx).begin();
  closers.unshift(await keepHeartbeat(ctx, parts));
  let demo: Demo | undefined;
  if (parts.demo) {
    const { makeDemo } = await import('../demo.js');
    const { createFirstLibrary } = await import('../../tape/kinds.js');
    demo = await makeDemo(ctx, createFirstLibrary(config));
  }
  if (parts.engine) {
    const { startEngineProcesses } = await import('./engine-processes.js');
    const engine = await startEngineProcesses(runtime);
    closers.unshift(() => engine.stop());
  }
  const tellAt = async (metrics?: Metrics) => {
    if (place) closers.unshift(await tellMetricsAt(ctx, place, metrics));
  };
  if (!parts.gateway) {
    await tellAt();
    printLine('Tapegate engine is working; stop it with Ctrl-C');
    return await notify(ctx);
  }
  const gateway = await listen(ctx);
  closers.unshift(() => gateway.close());
  await tellAt(gateway.metrics);
  const { readFence } = await import('../../domain/ownership.js');
  announce(config, gateway.url, { demo, hasEngine: parts.engine, fence: await readFence(ctx) });
  await notify(ctx);
}

async function notify({ log }: Context): Promise<void> {
  const { notifyReady } = await import('../../core/journal.js');
  const problem = await notifyReady(environment());
  if (problem !== undefined) log.error(problem);
}

/** @param given of a gateway, which has more to tell @returns what ends it */
async function tellMetricsAt(
  ctx: Context,
  place: { port: number; host: string },
  given: Metrics | undefined,
): Promise<() => Promise<void>> {
  const { openMetrics } = await import('../../telemetry/metrics.js');
  const { listenForMetrics } = await import('../../telemetry/listener.js');
  const listener = await listenForMetrics(ctx, given ?? openMetrics(ctx), place).catch((error) => {
    throw cannotListen(error, { ...place, names: 'TAPEGATE_METRICS_LISTEN' });
  });
  ctx.log.info({ url: `${listener.url}/metrics` }, 'metrics are read here');
  return () => listener.close();
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

/**
 * Records that this process runs, and what it is, until it ends. A failed attempt is repeated at the next beat.
 * @returns a function that ends this
 */
async function keepHeartbeat(ctx: Context, parts: Parts): Promise<() => Promise<void>> {
  const { BEAT_MS, forgetProcess, noteProcess } = await import('../../domain/site/processes.js');
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const kinds = [...(parts.gateway ? ['GATEWAY' as const] : []), ...(parts.engine ? ['ENGINE' as const] : [])];
  const processes = kinds.map((kind) => ({ id: randomUUID(), kind, host: hostname(), pid: process.pid, version }));
  let last: Promise<unknown> = Promise.resolve();
  const beat = () => {
    last = Promise.all(processes.map((each) => noteProcess(ctx, each))).catch((error) =>
      logFailure(ctx.log, error, 'that this process lives'),
    );
  };
  beat();
  await last;
  const timer = setInterval(beat, BEAT_MS).unref();
  return async () => {
    clearInterval(timer);
    await last;
    await Promise.all(processes.map(({ id }) => forgetProcess(ctx, id))).catch(() => {}); // its last word is old soon
  };
}

const OPEN_DOOR =
  '  access     open to whoever reaches it; TAPEGATE_AUTH=token closes the door, see src/gateway/README.md';
const NO_ENGINE =
  '  engine     none here; "tapegate work" runs one, on a host that has the tapes and the restore disks';

/** Prints what a ready process offers; how to try the demo, until the first request. */
function announce(
  config: Config,
  url: string,
  { demo, hasEngine, fence }: { demo: Demo | undefined; hasEngine: boolean; fence: string | null },
): void {
  const dataDir = path.resolve(config.dataDir);
  const { auth } = config.access;
  const found = config.publicUrl ?? url; // by whoever is not on this host
  const server = found === defaultServerUrl ? '' : `TAPEGATE_URL=${found} `;
  const place = dataDir === path.resolve(readDataDir({})) ? '' : `DATA_DIR=${dataDir} `;
  const lines = [
    `Tapegate is ready at ${url}`,
    `  REST       ${found}/tape_control/api/v1/requests`,
    `  GraphQL    ${found}/graphql`,
    `  tapes      ${path.join(dataDir, 'library')}`,
    `  restored   ${path.join(dataDir, 'restore')}`,
    `  database   ${config.databaseUrl ? 'DATABASE_URL' : path.join(dataDir, 'postgres')}`,
    ...(hasEngine ? [] : [NO_ENGINE]),
    ...(fence === null ? [] : [`  fenced     ${fence}; it changes nothing until "tapegate takeover"`]),
    auth.has('open') ? OPEN_DOOR : `  access     ${[...auth].join(', ')} (TAPEGATE_AUTH)`,
    '',
  ];
  if (demo) {
    const what = demo === 'made' ? 'A demo archive was made' : 'There is a demo archive';
    lines.push(`${what}: 24 files on 3 volumes, users alice and bob. In another terminal, try:`);
    lines.push('', `  ${place}npx tapegate request --quota alice --pattern /demo/ocean/2024 --watch`, '');
  } else lines.push('In another terminal:', '', `  ${server}npx tapegate --help`, '');
  printText(`${lines.map(printable).join('\n')}\n`); // at once: whoever waits for it has all of it
}
