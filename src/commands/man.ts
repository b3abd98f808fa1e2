/** `man`: the pages of the manual, made from the help of each command. */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Argument, Command, Option } from 'commander';
import { examples } from './examples.js';
import { printLine } from './output.js';

export function registerMan(program: Command): void {
  program.command('man <folder>').action((folder: string) => writePages(program, folder));
}

async function writePages(program: Command, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const pages = listPages(program);
  for (const { name, text } of pages) await writeFile(path.join(folder, `${name}.1`), text);
  printLine(`${pages.length} pages in ${path.resolve(folder)}`);
}

interface Page {
  name: string;
  text: string;
}

function listPages(program: Command): Page[] {
  const version = program.version() ?? '';
  const walk = (command: Command, words: readonly string[]): Page[] => {
    const own = { name: words.join('-'), text: format(command, words, version) };
    const below = command.commands.filter((each) => each.name() !== 'help');
    return [own, ...below.flatMap((each) => walk(each, [...words, each.name()]))];
  };
  return walk(program, ['tapegate']);
}

function format(command: Command, words: readonly string[], version: string): string {
  const name = words.join('-');
  const help = command.createHelp();
  const below = help.visibleCommands(command).filter((each) => each.name() !== 'help');
  const args = help.visibleArguments(command).filter(({ description }) => description !== '');
  const after = afterHelp(command);
  const lines = [
    `.TH ${name.toUpperCase()} 1 "" "Tapegate ${toRoff(version)}" "Tapegate"`,
    '.SH NAME',
    `${toRoff(name)} \\- ${toRoff(firstLine(command.description()))}`,
    '.SH SYNOPSIS',
    `.B ${toRoff(words.join(' '))}`,
    toRoff(command.usage()),
    '.SH DESCRIPTION',
    toRoff(command.description()),
    ...section('COMMANDS', below, (each) => [
      `.BR ${toRoff(`${name}-${each.name()}`)} (1)`,
      toRoff(each.description()),
    ]),
    ...section('ARGUMENTS', args, (each: Argument) => [
      `.I ${toRoff(each.name())}`,
      toRoff(help.argumentDescription(each)),
    ]),
    ...section('OPTIONS', help.visibleOptions(command), (each: Option) => [
      `.B ${toRoff(each.flags)}`,
      toRoff(help.optionDescription(each)),
    ]),
    ...(after === '' ? [] : ['.SH NOTES', '.nf', ...after.split('\n').map(toRoff), '.fi']),
    ...section('EXAMPLES', examples[words.slice(1).join(' ')] ?? [], (each) => [`.B ${toRoff(each)}`, '']),
    ...(words.length === 1 ? [] : ['.SH SEE ALSO', `.BR ${toRoff(words.slice(0, -1).join('-'))} (1)`]),
  ];
  return `${lines.filter((line) => line !== '').join('\n')}\n`;
}

function section<Entry>(
  title: string,
  entries: readonly Entry[],
  format: (entry: Entry) => [string, string],
): string[] {
  if (entries.length === 0) return [];
  return [`.SH ${title}`, ...entries.flatMap((entry) => ['.TP', ...format(entry)])];
}

/** What a command says after its options; the examples have a section of their own. */
function afterHelp(command: Command): string {
  let shown = '';
  const { writeOut } = command.configureOutput();
  command.configureOutput({
    writeOut: (text) => {
      shown += text;
    },
  });
  command.outputHelp();
  if (writeOut) command.configureOutput({ writeOut });
  return shown.slice(command.helpInformation().length).split('\nExamples:')[0]?.trim() ?? '';
}

const firstLine = (text: string): string => text.split(/[;:]/)[0] ?? text;

/** A line of roff: a dot or a quote at its beginning is a command, a minus a hyphen, and a backslash begins an toRoff. */
function toRoff(text: string): string {
  const plain = text
    .replaceAll('\\', '\\e')
    .replaceAll('"', '\\(dq')
    .replaceAll('-', '\\-')
    .replace(/\s*\n\s*/g, ' ');
  return /^[.']/.test(plain) ? `\\&${plain}` : plain;
}
