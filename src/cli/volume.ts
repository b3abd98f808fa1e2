/** The command `volume` sets media types, records cartridge copies, and retires volumes. */
import type { Command } from 'commander';
import { mediumNames } from '../core/medium-names.js';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import { printable } from '../core/text/printable.js';
import {
  type Medium,
  MoveVolumeDocument,
  ReinstateVolumeDocument,
  RetireVolumeDocument,
  SetVolumeMediumDocument,
  VolumesDocument,
} from '../generated/operations.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { findOperatedSite } from './connection/where.js';
import { nameOfValue, toValue } from './terminal/arguments.js';
import { UsageError } from './terminal/failure.js';
import { dryRunOption, type OutputOptions, printJson, printLine, printResult, printRows } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  const volume = program.command('volume');
  volume
    .command('set [names...]')
    .description("Set the media type of volumes for the planner's cost estimates")
    .requiredOption('--medium <name>', 'lto-8, lto-9 or linear', toValue<Medium>('--medium', mediumNames))
    .option('--all', 'set all volumes')
    .action((names, options) => setMedium(names, options));
  volume
    .command('list')
    .description('List volumes')
    .option('--retired', 'include retired volumes, and show why each was retired')
    .action((options) => listVolumes(options));
  volume
    .command('move <from> <to>')
    .description('Record that a cartridge was copied 1:1 to another one')
    .option(...dryRunOption)
    .addHelpText('after', MOVE_HELP)
    .action((from, to, options) => moveVolume({ from, to }, options));
  volume
    .command('retire <name>')
    .description('Retire a volume: Tapegate reads its files from other copies')
    .option('--reason <text>', 'reason shown to users who wait for withdrawn files')
    .option('--withdraw', 'withdraw files that have no other copy')
    .option(...dryRunOption)
    .addHelpText('after', RETIRE_HELP)
    .action((name, options) => retireVolume(name, options));
  volume
    .command('reinstate <name>')
    .description('Use a retired volume again; its files must be imported again')
    .action((name, options) => reinstateVolume(name, options));
}

interface MediumOptions extends OutputOptions {
  medium: Medium;
  all?: boolean;
}

async function setMedium(names: string[], options: MediumOptions): Promise<void> {
  const all = options.all === true;
  if (names.length > 0 === all) throw new UsageError('give names of volumes, or --all');
  const input = { ...(all ? { all } : { names }), medium: options.medium };
  const medium = nameOfValue(options.medium);
  const { volumeCount } = await askChange(findOperatedSite(), SetVolumeMediumDocument, { input });
  printResult({ medium, volumeCount }, `${plural(volumeCount, 'volume')}: medium ${medium}`, options);
}

interface ListOptions extends OutputOptions {
  retired?: boolean;
}

async function listVolumes(options: ListOptions): Promise<void> {
  const retired = options.retired ?? false;
  printRows(await askNodes(findOperatedSite(), VolumesDocument, { retired }), options, {
    header: ['VOLUME', 'LIBRARY', 'MEDIUM', 'FILES', 'SIZE', ...(retired ? ['RETIRED'] : [])],
    cells: (volume) => [
      volume.name,
      volume.library.name,
      nameOfValue(volume.medium),
      volume.fileCount,
      formatBytes(volume.bytes ?? 0n),
      ...(retired ? [describeRetirement(volume)] : []),
    ],
    present: (volume) => ({ ...volume, library: volume.library.name, medium: nameOfValue(volume.medium) }),
  });
}

function describeRetirement({
  retiredAt,
  retiredReason,
}: {
  retiredAt?: string | null;
  retiredReason?: string | null;
}): string {
  if (!retiredAt) return '-';
  return `${formatTime(retiredAt)}${retiredReason ? `: ${retiredReason}` : ''}`;
}

const MOVE_HELP = `
The command does not copy data: each file must have the same position on the new
cartridge. An unknown volume is created in the same library. Waiting files are
read from the new volume.`;

const RETIRE_HELP = `
Tapegate adds no files to a retired volume. Without --withdraw, the command
fails if a file has no other copy. If a drive uses the volume, suspend or drain
the volume first. If the command is interrupted, repeat it to continue.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

async function moveVolume(names: { from: string; to: string }, { json, dryRun }: ChangeOptions): Promise<void> {
  const moved = await askChange(findOperatedSite(), MoveVolumeDocument, { input: { ...names, dryRun } });
  if (json) return printJson(moved);
  const { fileCount, bytes, requestCount } = moved;
  const done = dryRun ? 'would be' : 'now';
  printLine(`${plural(fileCount, 'file')}, ${formatBytes(bytes)}, ${done} on ${printable(names.to)}`);
  printAffected(requestCount);
}

interface RetireOptions extends ChangeOptions {
  reason?: string;
  withdraw?: boolean;
}

async function retireVolume(name: string, { json, dryRun, reason, withdraw }: RetireOptions): Promise<void> {
  const input = { name, reason, withdraw, dryRun };
  const retired = await askChange(findOperatedSite(), RetireVolumeDocument, { input });
  if (json) return printJson(retired);
  const { fileCount, bytes, filesElsewhere: elsewhere, filesWithdrawn: withdrawn, requestCount } = retired;
  const is = dryRun ? 'would be ' : 'is ';
  const are = (count: number) => (dryRun ? `${plural(count, 'file')} would be` : plural(count, 'file is', 'files are'));
  printLine(`volume ${printable(name)} ${is}retired: ${plural(fileCount, 'file')}, ${formatBytes(bytes)}`);
  if (elsewhere > 0) printLine(`${are(elsewhere)} read from other copies`);
  if (withdrawn > 0) printLine(`${are(withdrawn)} withdrawn`);
  const before = fileCount - elsewhere - withdrawn;
  if (before > 0)
    printLine(
      `${plural(before, 'file was', 'files were')} already withdrawn: the catalogue no longer names a volume for ${before === 1 ? 'it' : 'them'}`,
    );
  printAffected(requestCount);
}

export function printAffected(requests: number): void {
  if (requests > 0) printLine(`${plural(requests, 'active request is', 'active requests are')} affected`);
}

async function reinstateVolume(name: string, { json }: OutputOptions): Promise<void> {
  await askChange(findOperatedSite(), ReinstateVolumeDocument, { name });
  if (json) return printJson({ name });
  printLine(`volume ${printable(name)} is in use again; import its files again, and reinstate withdrawn files`);
}
