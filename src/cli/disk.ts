/** The command `disk` manages restore disks. */
import path from 'node:path';
import type { Command } from 'commander';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import type { DiskRow, RemovedDisk } from '../domain/disks/disks.js';
import { RemoveRestoreDiskDocument, ResizeRestoreDiskDocument, RestoreDisksDocument } from '../generated/operations.js';
import type { DiskState } from '../restore-area/setup.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { describeHosts, findOperatedSite, LOCAL, operate, withSerial } from './connection/where.js';
import { formatSuspension } from './suspensions.js';
import { toSize } from './terminal/arguments.js';
import { CommandError, UsageError } from './terminal/failure.js';
import { type OutputOptions, printResult, printRows, printToStderr } from './terminal/output.js';

export function register(program: Command): void {
  const disk = program.command('disk');
  disk
    .command('add <mountpoint>')
    .description('Add a restore disk, or change its allocation')
    .requiredOption(...sizeOption)
    .option('--create', 'create the mount point as a directory if it does not exist')
    .option('--mark', 'accept the mounted file system as this disk, even if recorded copies are missing from it')
    .action((mountpoint, options) => addDisk(mountpoint, options));
  disk
    .command('list')
    .description('List restore disks')
    .action((options) => listDisks(options));
  disk
    .command('resize <mountpoint>')
    .description('Change the allocation of a restore disk')
    .requiredOption(...sizeOption)
    .action((mountpoint, options) => resizeRestoreDisk(mountpoint, options));
  disk
    .command('remove <mountpoint>')
    .description('Remove a restore disk that contains no copies')
    .action((mountpoint, options) => removeRestoreDisk(mountpoint, options));
}

const sizeOption = ['--size <size>', 'allocation in bytes, for example 500G or 10T', toSize('--size')] as const;

interface DiskOptions extends OutputOptions {
  size: bigint;
  create?: boolean;
  mark?: boolean;
}

/**
 * Adds or resizes a disk. A command that adds a disk, or that uses `--create` or `--mark`, must run on a host that
 * mounts the disk.
 */
async function addDisk(mountpoint: string, options: DiskOptions): Promise<void> {
  const { size, create = false, mark = false } = options;
  const { disk, problem } = await operate<{ disk: DiskRow; problem: string | undefined }>({
    local: async (ctx) => {
      const setup = await import('../restore-area/setup.js');
      const added = await setup.addDisk(ctx, { mountpoint: path.resolve(mountpoint), size, create, mark });
      await warnOfExcess(added.disk);
      return added;
    },
    remote: async (url) => {
      const absolute = readAbsolute(mountpoint);
      const hosts = (await askHosts(url)).get(absolute);
      if (hosts === undefined) {
        throw new CommandError(describeHosts(`a gateway cannot add restore disk ${JSON.stringify(absolute)}`));
      }
      if (create || mark)
        throw new CommandError(describeHosts('--create and --mark do not work through a gateway', hosts));
      return { disk: await resizeAt(url, absolute, size), problem: undefined };
    },
  });
  printSize(disk, options);
  if (problem !== undefined) throw new CommandError(problem);
}

/** Returns, by mount point, the hosts whose engines have recently checked each restore disk. */
export async function askHosts(url: string): Promise<Map<string, string[]>> {
  const disks = await askNodes(url, RestoreDisksDocument, {});
  return new Map(disks.map(({ mountpoint, hosts }) => [mountpoint, hosts]));
}

async function resizeRestoreDisk(mountpoint: string, options: DiskOptions): Promise<void> {
  const url = findOperatedSite();
  const absolute = url === LOCAL ? path.resolve(mountpoint) : readAbsolute(mountpoint);
  const disk = await resizeAt(url, absolute, options.size);
  if (url === LOCAL) await warnOfExcess(disk);
  printSize(disk, options);
}

/**
 * Warns if the size allocated to Tapegate exceeds the size of the disk's file system. This host must mount the disk.
 */
async function warnOfExcess(disk: DiskRow): Promise<void> {
  const warning = await (await import('../restore-area/setup.js')).findExcess(disk);
  if (warning !== undefined) printToStderr(warning);
}

async function resizeAt(url: string, mountpoint: string, size: bigint): Promise<DiskRow> {
  return withSerial(await askChange(url, ResizeRestoreDiskDocument, { input: { mountpoint, size } }));
}

function printSize(disk: DiskRow, options: OutputOptions): void {
  printResult(disk, `restore disk ${disk.mountpoint}: ${plural(disk.size, 'byte')}`, options);
}

/** Rejects a relative mount point, because another host could not resolve a relative path. */
function readAbsolute(mountpoint: string): string {
  if (path.isAbsolute(mountpoint)) return path.resolve(mountpoint);
  throw new UsageError(`a mount point on another host must be an absolute path, not ${JSON.stringify(mountpoint)}`);
}

async function removeRestoreDisk(mountpoint: string, options: OutputOptions): Promise<void> {
  const { disk, problem } = await operate<{ disk: RemovedDisk; problem: string | undefined }>({
    local: async (ctx) => (await import('../restore-area/setup.js')).removeDiskAndMarker(ctx, path.resolve(mountpoint)),
    remote: async (url) => {
      const removed = await askChange(url, RemoveRestoreDiskDocument, { mountpoint: readAbsolute(mountpoint) });
      const problem = 'a gateway cannot change restore disks; to add the disk again, use "tapegate disk add --mark"';
      return { disk: withSerial(removed), problem };
    },
  });
  printResult(disk, `restore disk ${disk.mountpoint} is removed; its directory is unchanged`, options);
  for (const path of disk.stalePartialFiles)
    printToStderr(`the disk is failing, and may contain a partial copy of ${path}`);
  if (problem !== undefined) printToStderr(`the marker file was not removed: ${problem}`);
}

async function listDisks(options: OutputOptions): Promise<void> {
  const disks = await operate<DiskState[]>({
    local: async (ctx) => (await import('../restore-area/setup.js')).describeDisks(ctx),
    remote: async (url) => {
      const disks = (await askNodes(url, RestoreDisksDocument, {})).map(({ hosts: _, ...disk }) => withSerial(disk));
      return disks.sort((a, b) => (a.mountpoint < b.mountpoint ? -1 : 1));
    },
  });
  printRows(disks.map(withRoom), options, {
    header: ['MOUNTPOINT', 'SIZE', 'USED', 'RESERVED', 'FREE ON DISK', 'ROOM', 'STATE'],
    cells: (disk) => [
      disk.mountpoint,
      formatBytes(disk.size),
      formatBytes(disk.used),
      formatBytes(disk.reserved),
      disk.free === null ? 'unknown' : formatBytes(disk.free),
      formatBytes(disk.room),
      formatState(disk),
    ],
  });
}

function withRoom(disk: DiskState): DiskState & { room: bigint } {
  const { size, used, reserved, free } = disk;
  const allocated = size - used - reserved;
  const room = free !== null && free - reserved < allocated ? free - reserved : allocated;
  return { ...disk, room: room > 0n ? room : 0n };
}

function formatState({ suspension, problem }: DiskState): string {
  const suspended = suspension && formatSuspension(suspension);
  const other = problem === suspension?.reason ? null : problem;
  return [suspended, other].filter((part) => part !== null).join('; ') || 'in service';
}
