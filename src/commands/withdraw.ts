/** `withdraw` and `reinstate`: files that nobody can ask for any more, and that come back. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { ask, FAILURE, type Result, readUrl, unwrapResult } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerWithdraw(program: Command): void {
  program
    .command('withdraw <path>')
    .option(...jsonOption)
    .option('--why <text>', 'for people: those who wait for one of the files are told')
    .option(...dryRunOption)
    .addHelpText('after', WITHDRAW_HELP)
    .action((path, options) => choose('withdrawFiles', path, options));
  program
    .command('reinstate <path>')
    .option(...jsonOption)
    .option(...dryRunOption)
    .action((path, options) => choose('reinstateFiles', path, options));
}

const dryRunOption = ['--dry-run', 'say what would be done, and do nothing'] as const;

const WITHDRAW_HELP = `
Who waits for one of the files is told why it does not come, unless a drive reads it just then. What is on disk stays there as long as
requests have it. \`tapegate reinstate\` brings back what is withdrawn.`;

interface ChooseOptions extends OutputOptions {
  why?: string;
  dryRun?: boolean;
}

interface Chosen {
  files: number;
  bytes: bigint;
  requests: number;
}

const mutationOf = (field: string, input: string) => `mutation ($input: ${input}!) {
  result: ${field}(input: $input) { ... on ChosenFiles { files bytes requests } ${FAILURE} }
}`;

const fields = {
  withdrawFiles: { mutation: mutationOf('withdrawFiles', 'WithdrawFilesInput'), done: 'withdrawn' },
  reinstateFiles: { mutation: mutationOf('reinstateFiles', 'ReinstateFilesInput'), done: 'back' },
};

async function choose(field: keyof typeof fields, path: string, { json, dryRun, why }: ChooseOptions): Promise<void> {
  const { mutation, done } = fields[field];
  const input = { path, dryRun, ...(why === undefined ? {} : { why }) };
  const answer = await ask<{ result: Result<Chosen> }>(readUrl(), mutation, { input });
  const chosen = unwrapResult(answer.result, { path: '<path>', why: '--why' });
  if (json) return printJson(chosen);
  const { files, bytes, requests } = chosen;
  const would = dryRun ? 'would be ' : '';
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${would}${done}`);
  if (requests > 0) printLine(`${plural(requests, 'live request is', 'live requests are')} concerned`);
}
