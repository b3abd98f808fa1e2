/** `status`: the gateways and engines of the site, and whether they live. */
import type { Command } from 'commander';
import { ask, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { formatTime } from './times.js';

export function registerStatus(program: Command): void {
  program
    .command('status')
    .description(
      'the gateways and engines that run: their hosts, versions, and by how much they are behind; for operators',
    )
    .option(...jsonOption)
    .action((options) => showStatus(readUrl(), options));
}

interface ProcessNode {
  kind: string;
  host: string;
  pid: number;
  version: string;
  startedAt: string;
  seenAt: string;
  isAlive: boolean;
  lagSeconds: number;
}

const PROCESSES = '{ processes { kind host pid version startedAt seenAt isAlive lagSeconds } }';

async function showStatus(url: string, options: OutputOptions): Promise<void> {
  const { processes } = await ask<{ processes: ProcessNode[] }>(url, PROCESSES);
  if (options.json) return processes.forEach(printJson);
  if (processes.length === 0) return printLine('no process says that it runs');
  printTable(
    ['KIND', 'HOST', 'PID', 'VERSION', 'STATE', 'BEHIND', 'STARTED', 'SEEN'],
    processes.map((process) => [
      process.kind.toLowerCase(),
      process.host,
      String(process.pid),
      process.version,
      process.isAlive ? 'lives' : 'silent',
      `${process.lagSeconds.toFixed(1)} s`,
      formatTime(process.startedAt),
      formatTime(process.seenAt),
    ]),
  );
}
