/** `cancel`: a request is ended before its time. */
import type { Command } from 'commander';
import { readId } from './arguments.js';
import { ask, type Result, readUrl, unwrapResult } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerCancel(program: Command): void {
  program
    .command('cancel <id>')
    .description('end a request and let its files go')
    .option(...jsonOption)
    .action((id, options) => cancelRequest(readUrl(), readId(id), options));
}

const CANCEL = `mutation ($id: Int!) {
  cancelRequest(id: $id) { ... on Request { requestId state } ... on Failure { message } }
}`;

async function cancelRequest(url: string, id: number, options: OutputOptions): Promise<void> {
  type Answer = { cancelRequest: Result<{ requestId: number; state: string }> };
  const answer = await ask<Answer>(url, CANCEL, { id });
  const request = unwrapResult(answer.cancelRequest);
  if (options.json) printJson(request);
  else printLine(`request ${request.requestId} is ${request.state.toLowerCase()}`);
}
