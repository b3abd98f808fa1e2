/** The commands `start`, `serve` and `work`, which run a gateway, an engine, or both. */
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
import { printable } from '../../core/text/printable.js';
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

/**
 * Help text that names all settings. The text is written out here, because loading the settings' schema to generate it
 * would be slow.
 */
const ENVIRONMENT_HELP = `
Settings are environment variables. docs/reference/settings.md describes them:
  HOST, PORT                       address of the gateway (default: 127.0.0.1, 8080)
  TAPEGATE_AUTH                    authentication: token, oidc, proxy, certificate, legacy, open
  TAPEGATE_PUBLIC_URL, TAPEGATE_ALLOWED_HOSTS  address of the gateway for users, and further host names
  TAPEGATE_TLS_CERT, TAPEGATE_TLS_KEY          certificate and key files for https
  DATABASE_URL, DATA_DIR           PostgreSQL server, or directory of an embedded one (default: ./data)
  DEMO, ENGINE                     set to "off" to start without a demo archive, or without an engine
  DRIVES                           number of drives of the first library (default: 2)
Authentication:
  TAPEGATE_OIDC_ISSUER, TAPEGATE_OIDC_AUDIENCE, TAPEGATE_OIDC_CLIENT_ID, TAPEGATE_OIDC_USER_CLAIM,
  TAPEGATE_OIDC_GROUPS_CLAIM, TAPEGATE_OIDC_ROLES, TAPEGATE_PROXY_ADDRESSES, TAPEGATE_PROXY_SECRET_FILE,
  TAPEGATE_PROXY_HEADERS, TAPEGATE_PROXY_ROLES, TAPEGATE_PROXY_CERT_USERS, TAPEGATE_LEGACY
Gateway:
  TAPEGATE_PAGES, TAPEGATE_INTROSPECTION, TAPEGATE_TRUSTED_DOCUMENTS,
  TAPEGATE_CORS_ORIGINS, TAPEGATE_CORS_EXPOSED_HEADERS, TAPEGATE_SITE_NAME, TAPEGATE_WEBDAV,
  TAPEGATE_BYTES_GATEWAYS, TAPEGATE_RATE_LIMIT, TAPEGATE_STREAMS, TAPEGATE_REQUEST_FILES, TAPEGATE_PATTERN_LENGTH, TAPEGATE_DATABASE_READ_URL,
  TAPEGATE_READ_WAIT_MS, TAPEGATE_LEAVE_SECONDS
Engine:
  TAPEGATE_LIBRARY_DIR, TAPEGATE_TAPE_TIMEOUT, TAPEGATE_DISK_TIMEOUT, TAPEGATE_ENGINE_WEIGHT,
  TAPEGATE_RESTORE_MODE, TAPEGATE_RESTORE_GROUP, TAPEGATE_LINK_ROOT
Email, webhooks and records:
  SMTP_URL, TAPEGATE_MAIL_FROM, TAPEGATE_MAIL_TO, TAPEGATE_MAIL_RATE, TAPEGATE_EXPIRY_NOTICE_HOURS,
  TAPEGATE_WEBHOOK_HOSTS, TAPEGATE_EVENT_DAYS, TAPEGATE_REQUEST_DAYS, TAPEGATE_AUDIT_DAYS, LOG_LEVEL,
  TAPEGATE_ACCESS_LOG, TAPEGATE_METRICS_LISTEN, OTEL_EXPORTER_OTLP_ENDPOINT
Other commands connect to a gateway (TAPEGATE_URL, TAPEGATE_TOKEN) or to the database. See docs/reference/commands.md.`;

interface ProcessParts {
  makes: Makes;
  gateway: boolean;
  engine: boolean;
  demo: boolean;
}

async function runUntilSignal(config: Config, parts: ProcessParts): Promise<void> {
  const stopped = whenStopped();
  const closers: (() => Promise<void>)[] = [];
  try {
    const { openRuntime } = await import('../../cli/connection/runtime.js');
    const runtime = await openRuntime(config, parts.makes, ownLog());
    closers.unshift(() => runtime.close());
    await warnIfReplaceable(runtime.ctx);
    if (config.databaseUrl !== undefined) await checkConnections(runtime.ctx, parts);
    await startParts(config, parts, runtime, closers);
    await stopped;
  } finally {
    await closeAll(closers);
  }
}

async function closeAll(closers: (() => Promise<void>)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closers) await close().catch((error) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

async function warnIfReplaceable({ config, log }: Context): Promise<void> {
  const { findUntrustedMount } = await import('../../restore-area/exposure.js');
  const found = await findUntrustedMount(config.dataDir, {});
  if (!found) return;
  const risk = 'another user can replace the database and the tapes in DATA_DIR';
  log.warn(`${risk}: ${found.directory}: ${found.problem} (run chmod go-w, or change its owner)`);
}

/**
 * Warns if the database allows too few connections for this process under load.
 * @throws Error if the process cannot work with so few connections
 */
async function checkConnections({ config, db, log }: Context, { gateway, engine }: ProcessParts): Promise<void> {
  const { IDLE_CONNECTIONS: idle, mostConnections } = await import('../../db/pools.js');
  const connections = await import('../../db/connections.js');
  const children = engine ? config.drives + 1 : 0;
  const own = gateway ? mostConnections.gateway(config.limits.longLists) : idle;
  const needs = { least: idle * (1 + children), most: own + children * mostConnections.engine };
  const warning = await connections.checkConnections(db, needs);
  if (warning !== undefined) log.warn(warning);
}

/**
 * Starts the gateway, the engine, or both. Loads only the code of the parts that it starts, so that, for example, an
 * engine does not load GraphQL.
 */
async function startParts(
  config: Config,
  parts: ProcessParts,
  runtime: Runtime,
  closers: (() => Promise<void>)[],
): Promise<void> {
  const { ctx } = runtime;
  await ctx.events.open();
  const { metrics: address } = config.telemetry;
  if (parts.gateway || address) (await import('../../telemetry/metrics.js')).processMetrics();
  const { openTraces } = await import('../../telemetry/open-traces.js');
  const endTraces = await openTraces(config, ctx.log);
  if (endTraces) closers.unshift(endTraces);
  const { ClockWatch } = await import('../../domain/clock.js');
  await new ClockWatch(ctx).begin();
  closers.unshift(await keepHeartbeat(ctx, parts));
  let demo: Demo | undefined;
  if (parts.demo) {
    const { makeDemo } = await import('../demo.js');
    demo = await makeDemo(ctx, async () => {
      const { runDemoProcess } = await import('./supervised-process.js');
      // load the gateway's code meanwhile
      await Promise.all([runDemoProcess(runtime.connection), parts.gateway && import('../app.js')]);
    });
  }
  if (parts.engine) {
    const { startEngineProcesses } = await import('./engine-processes.js');
    const engine = await startEngineProcesses(runtime);
    closers.unshift(() => engine.stop());
  }
  const openListener = async (metrics?: Metrics) => {
    if (address) closers.unshift(await serveMetrics(ctx, address, metrics));
  };
  if (!parts.gateway) {
    await openListener();
    printLine('the Tapegate engine is running; press Ctrl-C to stop it');
    return await notify(ctx);
  }
  const gateway = await listen(ctx);
  closers.unshift(() => gateway.close());
  await openListener(gateway.metrics);
  const { readFence } = await import('../../domain/ownership.js');
  announce(config, gateway.url, { demo, hasEngine: parts.engine, fence: await readFence(ctx) });
  await notify(ctx);
}

async function notify({ log }: Context): Promise<void> {
  const { notifyReady } = await import('../../core/journal.js');
  const problem = await notifyReady(environment());
  if (problem !== undefined) log.error(problem);
}

/**
 * Serves metrics on a separate port.
 * @param given the gateway's metrics, if this process runs a gateway
 * @returns a function that closes the listener
 */
async function serveMetrics(
  ctx: Context,
  address: { port: number; host: string },
  given: Metrics | undefined,
): Promise<() => Promise<void>> {
  const { openMetrics } = await import('../../telemetry/metrics.js');
  const { listenForMetrics } = await import('../../telemetry/listener.js');
  const listener = await listenForMetrics(ctx, given ?? openMetrics(ctx), address).catch((error) => {
    throw cannotListen(error, { ...address, names: 'TAPEGATE_METRICS_LISTEN' });
  });
  ctx.log.info({ url: `${listener.url}/metrics` }, 'serving metrics');
  return () => listener.close();
}

async function listen(ctx: Context): Promise<Gateway> {
  const { startGateway } = await import('../app.js');
  try {
    return await startGateway(ctx);
  } catch (error) {
    // an error with a code, such as EADDRINUSE, means that the gateway cannot listen on its address
    if (codeOf(error) === undefined) throw error;
    throw cannotListen(error, { ...ctx.config, names: 'PORT, HOST' });
  }
}

function cannotListen(error: unknown, { port, host, names }: { port: number; host: string; names: string }): Error {
  const reason = codeOf(error) === 'EADDRINUSE' ? 'another process uses the port' : messageOf(error);
  return new Error(`cannot listen on ${host}, port ${port} (${names}): ${reason}`, { cause: error });
}

/**
 * Records in the database that this process is running, and repeats the record at regular intervals.
 * @returns a function that stops the heartbeat and removes the record
 */
async function keepHeartbeat(ctx: Context, parts: ProcessParts): Promise<() => Promise<void>> {
  const { BEAT_MS, deleteProcess, recordProcess } = await import('../../domain/site/processes.js');
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const kinds = [...(parts.gateway ? ['GATEWAY' as const] : []), ...(parts.engine ? ['ENGINE' as const] : [])];
  const processes = kinds.map((kind) => ({ id: randomUUID(), kind, host: hostname(), pid: process.pid, version }));
  const record = async () => {
    for (const each of processes) await recordProcess(ctx, each);
  };
  let last: Promise<unknown> = Promise.resolve();
  const beat = () => {
    last = record().catch((error) => logFailure(ctx.log, error, 'recording this process'));
  };
  beat();
  await last;
  const timer = setInterval(beat, BEAT_MS).unref();
  return async () => {
    clearInterval(timer);
    await last;
    // ignore an error, because other processes soon treat a record without new heartbeats as stale
    await Promise.all(processes.map(({ id }) => deleteProcess(ctx, id))).catch(() => {});
  };
}

const OPEN_ACCESS =
  '  access     open to all callers; TAPEGATE_AUTH=token requires tokens, see docs/operators/access.md';
const NO_ENGINE = '  engine     not started; run "tapegate work" on a host that has the tapes and the restore disks';

function announce(
  config: Config,
  url: string,
  { demo, hasEngine, fence }: { demo: Demo | undefined; hasEngine: boolean; fence: string | null },
): void {
  const dataDir = path.resolve(config.dataDir);
  const { auth } = config.access;
  const publicUrl = config.publicUrl ?? url;
  const server = publicUrl === defaultServerUrl ? '' : `TAPEGATE_URL=${publicUrl} `;
  const directory = dataDir === path.resolve(readDataDir({})) ? '' : `DATA_DIR=${dataDir} `;
  const directories = [
    `  tapes      ${path.join(dataDir, 'library')}`,
    `  restored   ${path.join(dataDir, 'restore')}`,
  ];
  // print the hints for new users only if this process is not a systemd service, because they do not belong in a
  // journal
  const isService = environment().NOTIFY_SOCKET !== undefined;
  // `npm start` runs in a checkout, where only npx finds the program
  const program = environment().npm_lifecycle_event === 'start' ? 'npx tapegate' : 'tapegate';
  const lines = [
    `Tapegate is ready at ${url}`,
    `  REST       ${publicUrl}/tape_control/api/v1/requests`,
    `  GraphQL    ${publicUrl}/graphql`,
    ...(isService ? [] : directories),
    `  database   ${config.databaseUrl ? 'DATABASE_URL' : path.join(dataDir, 'postgres')}`,
    ...(hasEngine ? [] : [NO_ENGINE]),
    ...(fence === null
      ? []
      : [`  fenced     ${fence}; restores, removals and messages are paused until you run "tapegate takeover"`]),
    auth.has('open') ? OPEN_ACCESS : `  access     ${[...auth].join(', ')} (TAPEGATE_AUTH)`,
    '',
  ];
  if (demo && !isService) {
    const state = demo === 'made' ? 'Created a demo archive' : 'Demo archive';
    lines.push(`${state}: 24 files on 3 volumes, users alice and bob. In another terminal, try:`);
    lines.push('', `  ${directory}${program} request --quota alice --pattern /demo/ocean/2024/ --watch`, '');
  } else if (!isService) lines.push('In another terminal:', '', `  ${server}${program} --help`, '');
  // print all lines in one write, so that a program that waits for one of the lines receives them all
  printText(`${lines.map(printable).join('\n')}\n`);
}
