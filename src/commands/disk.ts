/** `disk add`, `disk list`, `disk remove`: restore disks. */
import path from 'node:path';
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import type { DiskState } from '../engine/disk/setup.js';
import { readSize } from './arguments.js';
import { readEnvironment, withContext } from './context.js';
import { CommandError } from './failure.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { formatSuspension } from './suspensions.js';

export function registerDisk(program: Command): void {
  const disk = program.command('disk').description('restore disks');
  disk
    .command('add <mountpoint>')
    .description('add a restore disk, or change its allocation')
    .option(...jsonOption)
    .requiredOption('--size <size>', 'bytes, such as 500G or 10T')
    .option('--create', 'make the mount point where it is not there, as a folder')
    .option('--mark', 'what is mounted there now is the disk, even without the copies that should be on it')
    .action((mountpoint, options) => addDisk(readEnvironment(), mountpoint, options));
  disk
    .command('list')
    .description('all restore disks')
    .option(...jsonOption)
    .action((options) => listDisks(readEnvironment(), options));
  disk
    .command('remove <mountpoint>')
    .description('take a restore disk that holds no copies out of use for good')
    .option(...jsonOption)
    .action((mountpoint, options) => removeDisk(readEnvironment(), mountpoint, options));
}

async function removeDisk(config: Config, mountpoint: string, options: OutputOptions): Promise<void> {
  const setup = await import('../engine/disk/setup.js');
  const { disk, problem } = await withContext(config, (ctx) => setup.removeDisk(ctx, path.resolve(mountpoint)));
  if (options.json) printJson(disk);
  else printLine(`restore disk ${disk.mountpoint} is removed; what stands there is left alone`);
  if (problem !== undefined) noteLine(`its marker stays: ${problem}`);
}

interface DiskOptions extends OutputOptions {
  size: string;
  create?: boolean;
  mark?: boolean;
}

async function addDisk(config: Config, mountpoint: string, options: DiskOptions): Promise<void> {
  const size = readSize('--size', options.size);
  const input = {
    mountpoint: path.resolve(mountpoint),
    size,
    create: options.create === true,
    mark: options.mark === true,
  };
  const setup = await import('../engine/disk/setup.js');
  const { disk, problem } = await withContext(config, (ctx) => setup.addDisk(ctx, input));
  if (options.json) printJson(disk);
  else printLine(`restore disk ${disk.mountpoint}: ${disk.size} bytes`);
  if (problem !== undefined) throw new CommandError(problem);
}

async function listDisks(config: Config, options: OutputOptions): Promise<void> {
  const { describeDisks } = await import('../engine/disk/setup.js');
  const disks = await withContext(config, describeDisks);
  if (options.json) for (const disk of disks) printJson(disk);
  else {
    printTable(
      ['MOUNTPOINT', 'SIZE', 'USED', 'RESERVED', 'REALLY FREE', 'STATE'],
      disks.map((disk) => [
        disk.mountpoint,
        formatBytes(disk.size),
        formatBytes(disk.used),
        formatBytes(disk.reserved),
        disk.free === null ? 'unknown' : formatBytes(disk.free),
        formatState(disk),
      ]),
    );
  }
}

function formatState({ suspension, problem }: DiskState): string {
  const suspended = suspension && formatSuspension(suspension);
  return [suspended, problem].filter((part) => part !== null).join('; ') || 'in service';
}
