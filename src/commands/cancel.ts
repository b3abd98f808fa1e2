/** `cancel`: requests are ended before their time. */
import type { Command } from 'commander';
import { messageOf } from '../errors.js';
import { readId } from './arguments.js';
import { askChange, readUrl } from './client.js';
import { CommandError, ConnectionError } from './failure.js';
import { jsonOption, type OutputOptions, printResult } from './output.js';

export function registerCancel(program: Command): void {
  program
    .command('cancel <ids...>')
    .option(...jsonOption)
    .action((ids, options) => cancelRequests(readUrl(), ids.map(readId), options));
}

/** One that cannot be ended holds up no other. @throws CommandError with what could not be ended */
async function cancelRequests(url: string, ids: readonly number[], options: OutputOptions): Promise<void> {
  const failures: string[] = [];
  for (const id of ids) {
    try {
      await cancelRequest(url, id, options);
    } catch (error) {
      if (!(error instanceof CommandError) || error instanceof ConnectionError) throw error;
      failures.push(messageOf(error));
    }
  }
  if (failures.length > 0) throw new CommandError(failures.join('\n'));
}

async function cancelRequest(url: string, id: number, options: OutputOptions): Promise<void> {
  type Cancelled = { requestId: number; state: string };
  const call = ['cancelRequest(id: Int!)', 'Request { requestId state }'] as const;
  const request = await askChange<Cancelled>(url, call, { id });
  printResult(request, `request ${request.requestId} is ${request.state.toLowerCase()}`, options);
}
