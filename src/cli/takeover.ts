/** The command `takeover` makes this Tapegate the owner of another Tapegate's restore disks and libraries. */
import type { Command } from 'commander';
import { plural } from '../core/text/plural.js';
import type { TakeoverPlan } from '../engine/takeover.js';
import { openContext } from './connection/context.js';
import { CommandError } from './terminal/failure.js';
import { type OutputOptions, printJson, printLine } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('takeover')
    .option('--yes', 'take over (default: only print the plan)')
    .option('--skip-missing', 'skip directories that this host cannot reach')
    .action((options) => takeOver(options));
}

interface TakeoverOptions extends OutputOptions {
  yes?: boolean;
  skipMissing?: boolean;
}

async function takeOver({ yes = false, skipMissing = false, json = false }: TakeoverOptions): Promise<void> {
  const { planTakeover, takeOverSite } = await import('../engine/takeover.js');
  const ctx = await openContext();
  const plan = await planTakeover(ctx);
  if (plan.reason === null) {
    if (json) printJson({ taken: [], missing: [] });
    else printLine('this Tapegate owns its restore disks and libraries: there is nothing to take over');
    return;
  }
  if (!json) printPlan(plan);
  if (!yes) throw new CommandError('nothing has changed: run "tapegate takeover --yes" to take over');
  const { taken, missing } = await takeOverSite(ctx, { skipsMissing: skipMissing });
  if (json) return printJson({ taken, missing });
  printLine(`taken over: ${taken.join(', ') || 'only the database'}. Any other Tapegate that used them has stopped`);
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
  printLine(`Its engines will then work on the requests in its database, and send ${waiting}.`);
}
