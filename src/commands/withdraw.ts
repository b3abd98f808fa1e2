/** `withdraw` and `reinstate`: files that nobody can ask for any more, and that come back. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { askChange, readUrl } from './client.js';
import { dryRunOption, jsonOption, type OutputOptions, printJson, printLine } from './output.js';

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

const fields = {
  withdrawFiles: { call: 'withdrawFiles(input: WithdrawFilesInput!)', done: 'withdrawn' },
  reinstateFiles: { call: 'reinstateFiles(input: ReinstateFilesInput!)', done: 'back' },
};

async function choose(field: keyof typeof fields, path: string, { json, dryRun, why }: ChooseOptions): Promise<void> {
  const { call, done } = fields[field];
  const input = { path, dryRun, ...(why === undefined ? {} : { why }) };
  const made = 'ChosenFiles { files bytes requests }';
  const chosen = await askChange<Chosen>(readUrl(), [call, made], { input }, { path: '<path>', why: '--why' });
  if (json) return printJson(chosen);
  const { files, bytes, requests } = chosen;
  const would = dryRun ? 'would be ' : '';
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${would}${done}`);
  if (requests > 0) printLine(`${plural(requests, 'live request is', 'live requests are')} concerned`);
}
