/** `doctor`: what is on disk, and what the database says of it. */
import type { Command } from 'commander';
import { plural } from '../core/plural.js';
import type { Finding } from '../domain/doctor/findings.js';
import type { Report } from '../engine/doctor/doctor.js';
import {
  DoctorFindings,
  DoctorRows,
  RepairFindings,
  type RepairFindingsMutation,
  type RowFindingFragment,
} from '../generated/command-operations.js';
import { ask, askChange, askPages, type Done } from './connection/client.js';
import { operate, runThere } from './connection/where.js';
import { askHosts } from './disk.js';
import { CommandError, exitCodes } from './terminal/failure.js';
import { present } from './terminal/io.js';
import { noteLine, type OutputOptions, printJson, printLine } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('doctor')
    .option('--repair', 'repair findings, also while Tapegate runs')
    .option('--checksums', 'read each restored copy and compare its checksum')
    .option('--adopt', 'repair, and record unknown files with the right bytes as copies of Tapegate')
    .action((options) => findFaults(options));
}

interface DoctorOptions extends OutputOptions {
  repair?: boolean;
  checksums?: boolean;
  adopt?: boolean;
}

/** Exit code 1 when something is wrong, and still is. */
async function findFaults(options: DoctorOptions): Promise<void> {
  const { json = false, repair = false, checksums = false, adopt = false } = options;
  const tell = (finding: Finding) => (json ? printJson(finding) : printLine(formatFinding(finding)));
  const report = await operate<Report>({
    here: async (ctx) => {
      const { examine } = await import('../engine/doctor/doctor.js');
      return await examine(ctx, { repair: repair || adopt, checksums, adopt }, tell);
    },
    afar: async (url) => {
      if (checksums || adopt) {
        const hosts = new Set([...(await askHosts(url)).values()].flat());
        throw new CommandError(runThere('--checksums and --adopt look at the restore disks', [...hosts]));
      }
      return await findAfar(url, { repair, tell });
    },
  });
  if (json) printJson(report);
  else printLine(formatReport(report));
  if (report.repaired < report.found) present().exitCode = exitCodes.failed;
}

function formatFinding({ kind, thing, expected, found, isRepaired }: Finding): string {
  return `${kind}: ${thing}: expected ${expected}; found ${found}${isRepaired ? ' (repaired)' : ''}`;
}

function formatReport({ lookedAt, found, repaired }: Report): string {
  const of = (name: string) => lookedAt[name] ?? 0;
  const count = (name: string) =>
    plural(
      of(name),
      ...(name === 'requestFiles'
        ? (['request file', 'request files'] as const)
        : ([name.replace(/s$/, ''), name] as const)),
    );
  const rows = `looked at ${['quotas', 'requests', 'requestFiles', 'recalls'].map(count).join(', ')}`;
  const notAt = of('notCompared') === 0 ? '' : `, but not at ${of('notCompared')}`;
  const noted = `${plural(of('copies'), 'noted copy', 'noted copies')} (${of('checksums')} of them read)${notAt}`;
  const onDisks = `, ${count('disks')}, ${noted}, ${count('files')} in ${count('folders')}`;
  const links = of('links') === 0 ? '' : `, ${count('links')}`;
  const looked = lookedAt.copies === undefined ? `${rows}, and at no disk` : `${rows}${onDisks}${links}`;
  if (found === 0) return `${looked}: nothing is wrong`;
  return `${looked}: ${plural(found, 'fault')}, ${repaired} repaired`;
}

/**
 * Checks rows through a gateway, and reports which restore disks were not checked.
 * @param tell receives each finding at once
 */
async function findAfar(
  url: string,
  { repair, tell }: { repair: boolean; tell: (finding: Finding) => void },
): Promise<Report> {
  let [found, repaired, left] = [0, 0, 0];
  for await (const findings of repair ? repairPages(url) : findPages(url)) {
    for (const { needsHost, ...finding } of findings) {
      found++;
      if (finding.isRepaired) repaired++;
      if (needsHost) left++;
      tell(finding);
    }
  }
  const { lookedAt, notLookedAt } = (await ask(url, DoctorRows)).doctorFindings;
  if (left > 0) {
    const mended = plural(left, 'fault is mended', 'faults are mended');
    noteLine(`${mended} by "tapegate doctor --repair" on a host that has the restore disks`);
  }
  if (notLookedAt !== null) noteLine(notLookedAt);
  return { lookedAt, found, repaired };
}

async function* findPages(url: string): AsyncGenerator<RowFindingFragment[]> {
  for await (const { edges } of askPages(url, DoctorFindings, {}, ({ list }) => list))
    yield edges.map(({ node }) => node);
}

async function* repairPages(url: string): AsyncGenerator<RowFindingFragment[]> {
  for (let after: string | null | undefined; after !== null; ) {
    const { findings, next }: Done<RepairFindingsMutation['result']> = await askChange(url, RepairFindings, {
      first: 500,
      after,
    });
    yield findings;
    after = next;
  }
}
