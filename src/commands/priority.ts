/** `priority`: which requests go first. */
import type { Command } from 'commander';
import { readId } from './arguments.js';
import { askChange, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printResult } from './output.js';

export function registerPriority(program: Command): void {
  program
    .command('priority <id> <n>')
    .option(...jsonOption)
    .addHelpText('after', '\nA negative one is given after --: tapegate priority 7 -- -5')
    .action((id, priority, options) => setPriority(readUrl(), { id, priority }, options));
}

async function setPriority(
  url: string,
  given: { id: string; priority: string },
  options: OutputOptions,
): Promise<void> {
  const priority = readPriority(given.priority);
  const id = readId(given.id);
  type Changed = { requestId: number; priority: number };
  const call = ['setPriority(id: Int!, priority: Int!)', 'Request { requestId priority }'] as const;
  const request = await askChange<Changed>(url, call, { id, priority });
  printResult(request, `request ${request.requestId} has priority ${request.priority}`, options);
}

/** Which ones there are, the server says. */
function readPriority(text: string): number {
  if (/^-?\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`a priority is a whole number, not ${JSON.stringify(text)}`);
}
