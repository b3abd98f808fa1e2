/** Creates the command line program, runs commands, and reports errors with their exit codes. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command, CommanderError, Help } from 'commander';
import { examples } from '../cli/terminal/examples.js';
import { CommandError, exitCodes, InterruptedError, nameOption } from '../cli/terminal/failure.js';
import {
  type CommandIo,
  commandState,
  environment,
  hideSecrets,
  type Output,
  runWith,
  stderr,
  stdout,
} from '../cli/terminal/io.js';
import { ConfigError, isDebug } from '../core/environment.js';
import { codeOf, InvalidInputError, messageOf, UnavailableError, UnconfirmedError } from '../core/errors.js';
import { createPrioritizer } from '../core/journal.js';
import { packageRoot } from '../core/package-root.js';
import { showSources } from '../core/source-positions.js';
import { printable } from '../core/text/printable.js';
import { hideSecretsOfCrashes } from './crash.js';

import type { CommandFile, Commands } from './table.js';

/**
 * Creates the program with the library `commander`. All commands share the settings for output, help and errors.
 * @param where the last line of the help, which mentions environment variables
 * @param args command-line arguments. Only the code of the named commands is loaded
 */
export async function createProgram(
  files: readonly CommandFile[],
  where: string,
  args: readonly string[],
): Promise<Command> {
  const program = new Command('tapegate')
    .description('Restores files from tape to disk, on request, within per-user quotas.')
    .version(JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')).version)
    .option('--utc', 'print times in UTC (default: local in a terminal)')
    .exitOverride()
    .configureHelp({ subcommandTerm: (command) => new Help().subcommandTerm(command).replace(' [options]', '') })
    .configureOutput({
      writeOut: (text) => stdout().write(fitTerminal(text)),
      writeErr: (text) => stderr().write(text),
      getOutHelpWidth: () => widthOf(stdout()),
      getErrHelpWidth: () => widthOf(stderr()),
      outputError: (text, write) => write(text.replace(/^error:/, 'tapegate:')),
    })
    .showHelpAfterError('(see --help)')
    .addHelpText(
      'after',
      '\nExit codes: 0 success, 1 failure, 2 wrong usage, 3 a request ended without all of its files, ' +
        '4 the gateway or its database does not respond.\n' +
        where,
    );
  await addCommands(program, files, args);
  showExamples(program, []);
  program.hook('preAction', (_program, command) => {
    commandState().isForPeople = stdout().isTTY === true && !program.opts().utc;
    commandState().isWide = command.opts().wide === true;
    commandState().options = command.options.flatMap(({ long }) => long ?? []);
  });
  return program;
}

async function addCommands(program: Command, files: readonly CommandFile[], args: readonly string[]): Promise<void> {
  const isForAll = args.includes('completion');
  for (const { group, commands, load } of files) {
    program.commandsGroup(group);
    const usages = Object.keys(commands);
    const isLoaded = isForAll || usages.some((usage) => args.includes(nameOf(usage)));
    if (isLoaded) (await load()).register(program);
    else for (const usage of usages) program.command(usage);
    for (const usage of usages) {
      const command = program.commands.find((each) => each.name() === nameOf(usage));
      const description = commands[usage] ?? '';
      const { line, help } = typeof description === 'string' ? { line: description, help: description } : description;
      command?.summary(line).description(help);
      if (command && isLoaded) addOutputOptions(command);
    }
  }
  program.helpCommand('help [command]', 'Show help for a command');
}

const nameOf = (usage: string): string => usage.split(' ')[0] ?? '';

const widthOf = ({ isTTY, columns }: Output) => (isTTY ? columns : undefined) as number;

/**
 * Wraps the text after a command's help, because commander does not wrap it. Does not wrap lines that begin with a
 * space, because they are part of a table or an example command.
 */
function fitTerminal(text: string): string {
  const columns = widthOf(stdout());
  if (!columns) return text;
  const fit = (line: string) => (line.startsWith(' ') ? line : new Help().boxWrap(line, columns));
  return text.split('\n').map(fit).join('\n');
}

const WITHOUT_JSON = ['start', 'serve', 'work', 'login', 'logout', 'completion'];

export function addOutputOptions(command: Command): void {
  for (const each of command.commands) addOutputOptions(each);
  const hasResult = command.commands.length === 0 && !WITHOUT_JSON.includes(command.name());
  if (!hasResult) return;
  command.option('--json', 'print JSON for scripts, one document per line');
  command.option('--wide', "do not shorten tables to the terminal's width");
}

function showExamples(command: Command, words: readonly string[]): void {
  for (const each of command.commands) showExamples(each, [...words, each.name()]);
  const own = examples[words.join(' ')];
  if (own) command.addHelpText('after', `\nExamples:\n${own.map((line) => `  ${line}`).join('\n')}`);
}

/** Prints an error, with its stack only if LOG_LEVEL is debug. Returns the exit code. */
function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
  const stack = isDebug(environment()) && error instanceof Error ? showSources(error.stack ?? '') : undefined;
  const message = error instanceof InvalidInputError ? nameOption(error.message, error.field) : messageOf(error);
  const text = stack || message || (error instanceof InterruptedError ? '' : String(error));
  const shown = `tapegate: ${hideSecrets(text).split('\n').map(printable).join('\n')}\n`;
  if (text !== '') stderr().write(createPrioritizer(environment())(shown));
  if (error instanceof ConfigError || error instanceof InvalidInputError) return exitCodes.usage;
  if (error instanceof UnconfirmedError) return exitCodes.failed;
  if (error instanceof UnavailableError) return exitCodes.unavailable;
  return error instanceof CommandError ? error.exitCode : exitCodes.failed;
}

/** Runs the command that the arguments name. Returns the command's exit code. */
export async function runCommand(given: Commands, args: readonly string[], io: CommandIo): Promise<number> {
  return await runWith(io, () => run(given, args).catch(fail));
}

async function run({ commands, where }: Commands, args: readonly string[]): Promise<number> {
  const program = await createProgram(commands, where, args);
  await program.parseAsync(args, { from: 'user' }).finally(() => commandState().close?.());
  return commandState().exitCode;
}

export async function runProgram(given: Commands): Promise<void> {
  hideSecretsOfCrashes();
  let unread: number | undefined;
  process.stdout.on('error', (error) => {
    if (unread !== undefined) return;
    // exit with code 0 on EPIPE, because it only means that the reader has closed the pipe
    unread = codeOf(error) === 'EPIPE' ? 0 : fail(error);
    if (process.emit('SIGINT')) return; // the command's own SIGINT handler ends the command
    void Promise.resolve(commandState().close?.()).finally(() => process.exit(unread));
  });
  process.stderr.on('error', () => {}); // ignore errors, because there is no other stream on which to report them
  const code = await run(given, process.argv.slice(2)).catch((error) => unread ?? fail(error));
  process.exitCode = unread ?? code;
  // exit without waiting for pending responses, because they might never arrive
  if (code === exitCodes.interrupted) process.exit();
}
