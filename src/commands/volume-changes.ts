/** `volume move`, `volume retire`, `volume reinstate`: cartridges that were copied onto others, and that leave the archive. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { ChosenFiles } from '../operations/catalogue/chosen-files.js';
import type { RetiredVolume } from '../operations/catalogue/retirements.js';
import { plural } from '../plural.js';
import { dryRunOption, jsonOption, type OutputOptions, printable, printJson, printLine } from './output.js';
import { changeAfar, operate } from './where.js';

export function registerVolumeChanges(volume: Command): void {
  volume
    .command('move <from> <to>')
    .description('say that a cartridge was copied 1:1 onto another one: its files are there from now on')
    .option(...jsonOption)
    .option(...dryRunOption)
    .addHelpText('after', MOVE_HELP)
    .action((from, to, options) => moveVolume({ from, to }, options));
  volume
    .command('retire <name>')
    .description('take a volume out of the archive: its files are read from their other copies')
    .option(...jsonOption)
    .option('--why <text>', 'for people: those who wait for a file that is withdrawn are told')
    .option('--withdraw', 'withdraw the files that can be read nowhere else')
    .option(...dryRunOption)
    .addHelpText('after', RETIRE_HELP)
    .action((name, options) => retireVolume(name, options));
  volume
    .command('reinstate <name>')
    .description('have a retired volume used again; its files do not come back by themselves')
    .option(...jsonOption)
    .action((name, options) => reinstateVolume(name, options));
}

const MOVE_HELP = `
Nothing is copied: the new cartridge has each file at the same position as the old one. A volume that is not known is made, in the same
library. What waits for the old one is read from the new one.`;

const RETIRE_HELP = `
Nothing is put on a retired volume any more. Without --withdraw a volume with files that can be read nowhere else is refused.
While a drive has it, hold or drain it first. A command that was broken off is repeated: it does the rest.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

async function moveVolume(names: { from: string; to: string }, { json, dryRun }: ChangeOptions): Promise<void> {
  const moved = await operate({
    here: async (ctx) => {
      const moves = await import('../operations/catalogue/volume-moves.js');
      return await moves.moveVolume(ctx, { ...names, isDryRun: dryRun });
    },
    afar: (url) => {
      const call = ['moveVolume(input: MoveVolumeInput!)', 'MovedVolume { files bytes requests }'] as const;
      return changeAfar<ChosenFiles>(url, call, { input: { ...names, dryRun } });
    },
  });
  const { files, bytes, requests } = moved;
  if (json) return printJson({ files, bytes, requests });
  const done = dryRun ? 'would be' : 'now';
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${done} on ${printable(names.to)}`);
  tellRequests(requests);
}

interface RetireOptions extends ChangeOptions {
  why?: string;
  withdraw?: boolean;
}

async function retireVolume(name: string, { json, dryRun, why, withdraw }: RetireOptions): Promise<void> {
  const retired = await operate({
    here: async (ctx) => {
      const retirements = await import('../operations/catalogue/retirements.js');
      return await retirements.retireVolume(ctx, { name, why, withdraw, isDryRun: dryRun });
    },
    afar: (url) => {
      const made = 'RetiredVolume { files bytes elsewhere withdrawn requests }';
      const input = { name, why, withdraw, dryRun };
      return changeAfar<RetiredVolume>(url, ['retireVolume(input: RetireVolumeInput!)', made], { input });
    },
  });
  const { files, bytes, elsewhere, withdrawn, requests } = retired;
  if (json) return printJson({ files, bytes, elsewhere, withdrawn, requests });
  const is = dryRun ? 'would be ' : 'is ';
  const are = (count: number) => (dryRun ? `${count} would be` : plural(count, 'is', 'are'));
  printLine(`volume ${printable(name)} ${is}retired: ${plural(files, 'file')}, ${formatBytes(bytes)}`);
  if (elsewhere > 0) printLine(`${are(elsewhere)} read from other copies`);
  if (withdrawn > 0) printLine(`${are(withdrawn)} withdrawn`);
  const before = files - elsewhere - withdrawn;
  if (before > 0) printLine(`${before} ${before === 1 ? 'was' : 'were'} withdrawn before, and on no volume any more`);
  tellRequests(requests);
}

function tellRequests(requests: number): void {
  if (requests > 0) printLine(`${plural(requests, 'live request is', 'live requests are')} concerned`);
}

async function reinstateVolume(name: string, { json }: OutputOptions): Promise<void> {
  await operate({
    here: async (ctx) => {
      const retirements = await import('../operations/catalogue/retirements.js');
      await retirements.reinstateVolume(ctx, name);
    },
    afar: async (url) => {
      await changeAfar(url, ['reinstateVolume(name: String!)', 'Volume { name }'], { name });
    },
  });
  if (json) return printJson({ name });
  printLine(
    `volume ${printable(name)} is used again; its files do not come back by themselves: import those that are to be there, and reinstate what was withdrawn`,
  );
}
