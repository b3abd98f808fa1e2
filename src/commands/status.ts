/** `status`: the gateways and engines of the site, whether they live, and what is kept of what was. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { messageOf } from '../errors.js';
import { plural } from '../plural.js';
import { ask, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { formatTime } from './times.js';

export function registerStatus(program: Command): void {
  program
    .command('status')
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

interface KeptNode {
  kind: string;
  days: number;
  rows: number | null;
  bytes: bigint;
  oldest: string | null;
}

const PROCESSES = '{ processes { kind host pid version startedAt seenAt isAlive lagSeconds } }';
const KEPT = '{ kept { kind days rows bytes oldest } }';

async function showStatus(url: string, options: OutputOptions): Promise<void> {
  const { processes } = await ask<{ processes: ProcessNode[] }>(url, PROCESSES);
  const kept = await readKept(url);
  if (options.json) return printJson({ processes, kept: typeof kept === 'string' ? null : kept });
  if (processes.length === 0) printLine('no process says that it runs');
  else printProcesses(processes);
  printLine('');
  if (typeof kept === 'string') return printLine(`what is kept cannot be told: ${kept}`);
  printTable(
    ['KEPT', 'FOR', 'ROWS', 'SIZE', 'SINCE'],
    kept.map(({ kind, days, rows, bytes, oldest }) => [
      kind.toLowerCase().replaceAll('_', ' '),
      plural(days, 'day'),
      rows === null ? '-' : String(Math.round(rows)),
      formatBytes(bytes),
      oldest === null ? '-' : formatTime(oldest),
    ]),
  );
}

/** @returns why it cannot be told; what runs is told all the same */
async function readKept(url: string): Promise<KeptNode[] | string> {
  try {
    return (await ask<{ kept: KeptNode[] }>(url, KEPT)).kept;
  } catch (error) {
    return messageOf(error);
  }
}

function printProcesses(processes: readonly ProcessNode[]): void {
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
