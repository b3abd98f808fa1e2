/** `start`, `serve`, `work`: the processes that stay. */
import path from 'node:path';
import { startGateway } from '../app.js';
import type { Config } from '../config.js';
import { makeDemo } from '../demo.js';
import { startEngine } from '../engine/runner.js';
import { openRuntime, type Runtime } from '../runtime.js';
import { createBackend } from '../tape/index.js';
import { printLine } from './output.js';

/** Gateway and engine in one process. */
export async function start(config: Config): Promise<void> {
  await runUntilSignal(config, { gateway: true, engine: config.engine, demo: config.demo && !config.databaseUrl });
}

/** The gateway alone. */
export async function serve(config: Config): Promise<void> {
  await runUntilSignal(config, { gateway: true, engine: false, demo: false });
}

/** The engine alone. */
export async function work(config: Config): Promise<void> {
  await runUntilSignal(config, { gateway: false, engine: true, demo: false });
}

interface Parts {
  gateway: boolean;
  engine: boolean;
  demo: boolean;
}

/** The first signal ends the process in good order; a second one ends it at once, which loses nothing either. */
async function runUntilSignal(config: Config, parts: Parts): Promise<void> {
  const stopped = new Promise<void>((resolve) => {
    let isStopping = false;
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(1);
        isStopping = true;
        resolve();
      });
    }
  });
  const closers: (() => Promise<void>)[] = [];
  try {
    const runtime = await openRuntime(config);
    closers.unshift(() => runtime.close());
    await startParts(config, parts, runtime, closers);
    await stopped;
  } finally {
    for (const close of closers) await close();
  }
}

async function startParts(
  config: Config,
  parts: Parts,
  runtime: Runtime,
  closers: (() => Promise<void>)[],
): Promise<void> {
  const { ctx } = runtime;
  await ctx.events.open();
  const backend = createBackend(config.tapeBackend, { dataDir: config.dataDir });
  const isDemo = parts.demo && (await makeDemo(ctx, backend));
  if (parts.engine) {
    const engine = await startEngine(ctx, backend);
    closers.unshift(() => engine.stop());
  }
  if (!parts.gateway) {
    printLine('Tapegate engine is working; stop it with Ctrl-C');
    return;
  }
  const gateway = await startGateway(ctx);
  closers.unshift(() => gateway.close());
  announce(config, gateway.url, isDemo);
}

function announce(config: Config, url: string, isDemo: boolean): void {
  const dataDir = path.resolve(config.dataDir);
  const lines = [
    `Tapegate is ready at ${url}`,
    `  REST       ${url}/tape_control/api/v1/requests`,
    `  GraphQL    ${url}/graphql`,
    `  tapes      ${path.join(dataDir, 'library')}`,
    `  restored   ${path.join(dataDir, 'restore')}`,
    `  database   ${config.databaseUrl ? 'DATABASE_URL' : path.join(dataDir, 'postgres')}`,
  ];
  if (isDemo)
    lines.push(
      '',
      'A demo archive was made: 24 files on 3 volumes, users alice and bob. In another terminal, try:',
      '',
    );
  else lines.push('', 'In another terminal:', '');
  const port = url.endsWith(':8080') ? '' : `TAPEGATE_URL=${url} `;
  lines.push(
    isDemo
      ? `  ${port}npx tapegate request --quota alice --pattern /demo/ocean/2024 --watch`
      : `  ${port}npx tapegate --help`,
    '',
  );
  printLine(lines.join('\n'));
}
