/** `priority`: which requests go first. */
import type { Command } from 'commander';
import { readId } from './arguments.js';
import { ask, FAILURE, type Result, readUrl, unwrapResult } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerPriority(program: Command): void {
  program
    .command('priority <id> <n>')
    .option(...jsonOption)
    .addHelpText('after', '\nA negative one is given after --: tapegate priority 7 -- -5')
    .action((id, priority, options) => setPriority(readUrl(), { id, priority }, options));
}

const PRIORITY = `mutation ($id: Int!, $priority: Int!) {
  setPriority(id: $id, priority: $priority) { ... on Request { requestId priority } ${FAILURE} }
}`;

async function setPriority(
  url: string,
  given: { id: string; priority: string },
  options: OutputOptions,
): Promise<void> {
  const priority = readPriority(given.priority);
  const id = readId(given.id);
  type Answer = { setPriority: Result<{ requestId: number; priority: number }> };
  const answer = await ask<Answer>(url, PRIORITY, { id, priority });
  const request = unwrapResult(answer.setPriority);
  if (options.json) printJson(request);
  else printLine(`request ${request.requestId} has priority ${request.priority}`);
}

/** Which ones there are, the server says. */
function readPriority(text: string): number {
  if (/^-?\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`a priority is a whole number, not ${JSON.stringify(text)}`);
}
