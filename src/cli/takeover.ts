/** The command `takeover` makes this Tapegate the owner of another Tapegate's restore disks and libraries. */
import type { Command } from 'commander';
import { plural } from '../core/text/plural.js';
import type { TakeoverPlan } from '../engine/takeover.js';
import { openContext } from './connection/context.js';
import { CommandError } from './terminal/failure.js';
import { type OutputOptions, printJson, printLine, printToStderr } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('takeover')
    .option('--yes', 'take over (default: only print the plan)')
    .option('--skip-missing', 'skip directories that this host cannot reach')
    .option('--reuse-ids', 'take over even if "tapegate restore --as-of" has not run since the dump was restored')
    .action((options) => takeOver(options));
}

interface TakeoverOptions extends OutputOptions {
  yes?: boolean;
  skipMissing?: boolean;
  reuseIds?: boolean;
}

const SETTLE =
  'first run "tapegate restore --as-of <time of the dump>": otherwise new requests get the ids of lost requests';

async function takeOver(options: TakeoverOptions): Promise<void> {
  const { yes = false, skipMissing = false, reuseIds = false, json = false } = options;
  const { planTakeover, takeOverSite } = await import('../engine/takeover.js');
  const ctx = await openContext();
  const plan = await planTakeover(ctx);
  if (plan.reason === null) {
    if (json) printJson({ taken: [], missing: [] });
    else printLine('this Tapegate owns its restore disks and libraries: there is nothing to take over');
    return;
  }
  if (!json) printPlan(plan);
  if (plan.dump === 'certain' && !reuseIds)
    throw new CommandError(
      `the database was restored from a dump: ${SETTLE} (--reuse-ids takes over without this step)`,
    );
  if (plan.dump === 'possible') printToStderr(`if the database was restored from a dump, ${SETTLE}`);
  if (!yes) throw new CommandError('nothing was changed: run "tapegate takeover --yes" to take over');
  const { taken, missing } = await takeOverSite(ctx, { skipsMissing: skipMissing });
  if (json) return printJson({ taken, missing });
  printLine(
    `taken over: ${taken.join(', ') || 'only the database'}. Any other Tapegate that used the same directories has stopped`,
  );
  for (const problem of missing) printLine(`not taken over: ${problem}`);
}

function printPlan({ reason, directories, waiting: { emails, messages } }: TakeoverPlan): void {
  printLine(`this Tapegate is fenced: ${reason}`);
  printLine('A takeover claims the directories below. Another Tapegate that uses them stops within 10 s:');
  for (const { mountpoint, owner, problem } of directories) {
    const used = owner ? `last used at ${owner.at}Z on ${owner.host}` : 'without an owner';
    printLine(`  ${mountpoint}: ${problem ?? used}`);
  }
  const waiting = `${plural(emails, 'email')} and ${plural(messages, 'webhook message')}`;
  printLine(`The engines of this Tapegate will then work on the requests in its database, and send ${waiting}.`);
}
