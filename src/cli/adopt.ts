/** The command `adopt` migrates a site from django-nla_control. */
import type { Command } from 'commander';
import type { Adoption, Difference } from '../adoption/report.js';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import type { Context } from '../domain/context.js';
import { openContext } from './connection/context.js';
import { UsageError } from './terminal/failure.js';
import { type OutputOptions, printJson, printLine, printResult } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('adopt [source]')
    .option('--dry-run', 'report the changes without making them')
    .option(
      '--archive-root <directory>',
      'directory that contains links from archive paths to copies (default: TAPEGATE_LINK_ROOT if set, otherwise /)',
    )
    .option('--finish', 'after the switch to Tapegate: remove old names of copies, and copies that no request contains')
    .action((source, options) => adoptSite(source, options));
}

interface AdoptionOptions extends OutputOptions {
  dryRun?: boolean;
  archiveRoot?: string;
  finish?: boolean;
}

async function adoptSite(source: string | undefined, options: AdoptionOptions): Promise<void> {
  const isUrl = /^postgres(ql)?:\/\//.test(source ?? '');
  if (options.finish ? source !== undefined : !isUrl) {
    const isFile = source !== undefined && !options.finish;
    const remedy = isFile
      ? '; if you have a dump, restore it to a UTF-8 database first (docs/operators/moving-in.md)'
      : '';
    throw new UsageError(
      `give either a database URL such as postgresql://nla@db.example.org/nla, or --finish${remedy}`,
    );
  }
  const ctx = await openContext();
  const archiveRoot = options.archiveRoot ?? ctx.config.linkRoot ?? '/';
  if (options.finish) await finish(ctx, archiveRoot, options);
  else await adoptSource(ctx, archiveRoot, source ?? '', options);
}

async function adoptSource(ctx: Context, archiveRoot: string, source: string, options: AdoptionOptions): Promise<void> {
  const { adopt } = await import('../adoption/adopt.js');
  const { json = false, dryRun: isTrial = false } = options;
  const print = (difference: Difference) => {
    const { kind, object, there, here } = difference;
    printResult(difference, `${kind}: ${object}: source: ${there}; Tapegate: ${here}`, { json });
  };
  const adoption = await adopt(ctx, source, { isTrial, archiveRoot }, print);
  printResult(adoption, formatAdoption(adoption, isTrial), { json });
}

function formatAdoption(adoption: Adoption, isTrial: boolean): string {
  const { disks, quotas, files, copies, bytes, requests, changed, ended, same, differences } = adoption;
  const parts = [
    plural(disks, 'restore disk'),
    plural(quotas, 'user'),
    plural(files, 'file'),
    `${plural(copies, 'copy', 'copies')} (${formatBytes(bytes)})`,
    plural(requests, 'request'),
  ];
  const before = `users and requests of earlier adoptions: ${same} unchanged, ${changed} changed, ${ended} ended`;
  return `${isTrial ? 'would adopt' : 'adopted'} ${parts.join(', ')}; ${before}; ${plural(differences, 'difference')}`;
}

async function finish(ctx: Context, archiveRoot: string, { json = false }: OutputOptions): Promise<void> {
  const { finishAdoption } = await import('../adoption/finish.js');
  const print = (left: Difference) =>
    json ? printJson(left) : printLine(`${left.kind}: ${left.object}: ${left.here}`);
  const done = await finishAdoption(ctx, archiveRoot, print);
  if (json) return printJson(done);
  const { names, kept, left, released, bytes } = done;
  if (released > 0) {
    const copies = plural(released, 'copy', 'copies');
    printLine(`released ${copies} (${formatBytes(bytes)}) that no request contains; engines remove these copies`);
  }
  printLine(`${plural(names, 'old name')} of copies removed`);
  if (left > 0) printLine(`${plural(left, 'old name')} not removed, for the reasons listed above`);
  if (kept === 0) return;
  const remedy =
    'start an engine with TAPEGATE_LINK_ROOT to change the links, then run "tapegate adopt --finish" again';
  printLine(
    `${plural(kept, 'old name')} not removed, because links at archive paths still point to the old names: ${remedy}`,
  );
}
