/** `retry`: files of a request that have failed are tried again. */
import type { Command } from 'commander';
import { plural } from '../plural.js';
import { readId } from './arguments.js';
import { askChange, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printResult } from './output.js';

export function registerRetry(program: Command): void {
  program
    .command('retry <id>')
    .option(...jsonOption)
    .option('--quota <user>', 'refuse unless the request is of this user')
    .action((id, options) => retryRequest(readUrl(), readId(id), options));
}

interface RetryOptions extends OutputOptions {
  quota?: string;
}

/** A request whose failed files wait again. */
interface RetriedNode {
  requestId: number;
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
}

async function retryRequest(url: string, id: number, options: RetryOptions): Promise<void> {
  const input = { id, quota: options.quota };
  const made = 'Request { requestId state filesTotal filesOnDisk filesFailed }';
  const request = await askChange<RetriedNode>(url, ['retryRequest(input: RetryRequestInput!)', made], { input });
  const { filesTotal, filesOnDisk, filesFailed } = request;
  const waiting = filesTotal - filesOnDisk - filesFailed;
  const state = `request ${request.requestId} is ${request.state.toLowerCase()}`;
  const files = `${filesOnDisk} of ${plural(filesTotal, 'file')} on disk, ${waiting} to be tried, ${filesFailed} failed`;
  printResult(request, `${state}: ${files}`, options);
}
