/** The command `doctor` compares the database, its counters and the restore disks, and repairs differences. */
import type { Command } from 'commander';
import { type Done, present } from '../../clients/typescript/responses.js';
import { plural } from '../core/text/plural.js';
import type { Finding } from '../domain/doctor/findings.js';
import type { Report } from '../engine/doctor/doctor.js';
import {
  DoctorFindingsDocument,
  DoctorRowsDocument,
  RepairFindingsDocument,
  type RepairFindingsMutation,
  type RowFindingFragment,
} from '../generated/operations.js';
import { ask, askChange, askPages } from './connection/gateway-client.js';
import { describeHosts, operate } from './connection/where.js';
import { askHosts } from './disk.js';
import { CommandError, exitCodes } from './terminal/failure.js';
import { commandState } from './terminal/io.js';
import { type OutputOptions, printJson, printLine, printToStderr } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('doctor')
    .option('--repair', 'repair the reported problems; Tapegate can keep running')
    .option('--checksums', 'read each restored copy and verify its checksum')
    .option(
      '--adopt',
      "repair, and record files of unknown origin as Tapegate's copies if their checksums match the catalogue",
    )
    .action((options) => runDoctor(options));
}

interface DoctorOptions extends OutputOptions {
  repair?: boolean;
  checksums?: boolean;
  adopt?: boolean;
}

/** Runs the checks and prints the findings. Sets the exit code to 1 if any finding has not been repaired. */
async function runDoctor(options: DoctorOptions): Promise<void> {
  const { json = false, repair = false, checksums = false, adopt = false } = options;
  const kinds = new Map<string, number>();
  const print = (finding: Finding) => {
    kinds.set(finding.kind, (kinds.get(finding.kind) ?? 0) + 1);
    if (json) printJson(finding);
    else printLine(formatFinding(finding));
  };
  const report = await operate<Report>({
    local: async (ctx) => {
      const { examine } = await import('../engine/doctor/doctor.js');
      return await examine(ctx, { repair: repair || adopt, checksums, adopt }, print);
    },
    remote: async (url) => {
      if (checksums || adopt) {
        const hosts = new Set([...(await askHosts(url)).values()].flat());
        throw new CommandError(describeHosts('--checksums and --adopt need access to the restore disks', [...hosts]));
      }
      return await examineRemotely(url, { repair, print });
    },
  });
  if (json) printJson(report);
  else printLine(formatReport(report, kinds));
  if (report.repaired < report.found) commandState().exitCode = exitCodes.failed;
}

/**
 * For some kinds of findings, the word that the output shows after a repair. For all other kinds, the output shows
 * `repaired`.
 */
const repairs: Readonly<Record<string, string>> = {
  'copy-not-ours': 'registered',
  'orphan-copy': 'removed',
  'partial-file': 'removed',
  'recall-without-request': 'removed',
  'request-file-ahead': 'queued',
  'request-file-without-recall': 'queued',
  'restored-without-request': 'removed',
  'staging-without-recall': 'released',
};

function formatFinding({ kind, object, expected, found, isRepaired }: Finding): string {
  const repair = isRepaired ? ` (${repairs[kind] ?? 'repaired'})` : '';
  return `${kind}: ${object}: expected ${expected}; found ${found}${repair}`;
}

function formatReport({ examined, found, repaired }: Report, kinds: ReadonlyMap<string, number>): string {
  const of = (name: string) => examined[name] ?? 0;
  const count = (name: string, one = name.replace(/s$/, ''), many = name) => plural(of(name), one, many);
  const requestFiles = count('requestFiles', 'request file', 'request files');
  const rows = `checked ${count('quotas')}, ${count('requests')}, ${requestFiles}, ${count('recalls')}`;
  const skipped = of('notCompared') === 0 ? '' : `, ${of('notCompared')} not compared`;
  const copies = `${count('copies', 'recorded copy', 'recorded copies')} (${of('checksums')} read${skipped})`;
  const onDisks = `, ${count('disks')}, ${copies}, ${count('files')} in ${count('directories', 'directory', 'directories')}`;
  const links = of('links') === 0 ? '' : `, ${count('links')}`;
  const checked = examined.copies === undefined ? `${rows}, no disk` : `${rows}${onDisks}${links}`;
  if (found === 0) return `${checked}: no findings`;
  const perKind = [...kinds].map(([kind, count]) => `${count} ${kind}`).join(', ');
  return `${checked}: ${plural(found, 'finding')} (${perKind}), ${repaired} repaired`;
}

/** @param print receives each finding as soon as the check has found it */
async function examineRemotely(
  url: string,
  { repair, print }: { repair: boolean; print: (finding: Finding) => void },
): Promise<Report> {
  let [found, repaired, left] = [0, 0, 0];
  for await (const findings of repair ? repairPages(url) : findPages(url)) {
    for (const { needsHost, ...finding } of findings) {
      found++;
      if (finding.isRepaired) repaired++;
      if (needsHost) left++;
      print(finding);
    }
  }
  const { examined, notExamined } = present((await ask(url, DoctorRowsDocument)).doctorFindings);
  if (left > 0) {
    const findings = plural(left, 'finding');
    printToStderr(`${findings} not repaired: run "tapegate doctor --repair" on a host that has the restore disks`);
  }
  if (notExamined !== null) printToStderr(notExamined);
  return { examined, found, repaired };
}

async function* findPages(url: string): AsyncGenerator<RowFindingFragment[]> {
  for await (const { edges } of askPages(url, DoctorFindingsDocument, {}, ({ list }) => list))
    yield edges.map(({ node }) => node);
}

async function* repairPages(url: string): AsyncGenerator<RowFindingFragment[]> {
  for (let after: string | null | undefined; after !== null; ) {
    const { findings, next }: Done<NonNullable<RepairFindingsMutation['result']>> = await askChange(
      url,
      RepairFindingsDocument,
      {
        first: 500,
        after,
      },
    );
    yield findings;
    after = next;
  }
}
