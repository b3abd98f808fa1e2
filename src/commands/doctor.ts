/** `doctor`: what is on disk, and what the database says of it. */
import type { Command } from 'commander';
import type { Config } from '../config.js';
import type { Report } from '../engine/doctor/doctor.js';
import type { Finding } from '../operations/doctor/findings.js';
import { readEnvironment, withContext } from './context.js';
import { exitCodes } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerDoctor(program: Command): void {
  program
    .command('doctor')
    .description('compare the restore disks, the database and its counters with each other')
    .option(...jsonOption)
    .option('--repair', 'mend what can be mended, also while Tapegate runs')
    .option('--checksums', 'read each restored copy and compare its checksum')
    .option(
      '--adopt',
      "as --repair, and take files with the right bytes that nobody has noted for copies of Tapegate's",
    )
    .action((options) => findFaults(readEnvironment(), options));
}

interface DoctorOptions extends OutputOptions {
  repair?: boolean;
  checksums?: boolean;
  adopt?: boolean;
}

/** Exit code 1 when something is wrong, and still is. */
async function findFaults(config: Config, options: DoctorOptions): Promise<void> {
  const { json = false, repair = false, checksums = false, adopt = false } = options;
  const { examine } = await import('../engine/doctor/doctor.js');
  const tell = (finding: Finding) => (json ? printJson(finding) : printLine(formatFinding(finding)));
  await withContext(config, async (ctx) => {
    const report = await examine(ctx, { repair: repair || adopt, checksums, adopt }, tell);
    if (json) printJson(report);
    else printLine(formatReport(report));
    if (report.repaired < report.found) process.exitCode = exitCodes.failed;
  });
}

function formatFinding({ kind, thing, expected, found, isRepaired }: Finding): string {
  return `${kind}: ${thing}: expected ${expected}; found ${found}${isRepaired ? ' (repaired)' : ''}`;
}

function formatReport({ lookedAt, found, repaired }: Report): string {
  const { quotas, requests, holds, recalls, disks, copies, checksums, notCompared, files, folders } = lookedAt;
  const looked = `looked at ${quotas} quotas, ${requests} requests, ${holds} holds, ${recalls} recalls, ${disks} disks, ${copies} noted copies (${checksums} of them read)${notCompared === 0 ? '' : `, but not at ${notCompared}`}, ${files} files in ${folders} folders`;
  if (found === 0) return `${looked}: nothing is wrong`;
  return `${looked}: ${found} faults, ${repaired} of them repaired`;
}
