/** Generates the list of commands in docs/reference/commands.md from the commands' help. */
import type { Command, Option } from 'commander';
import { examples } from '../../cli/terminal/examples.js';
import { createProgram } from '../program.js';
import { installation } from '../table.js';

/** Options that several commands share. The generated page describes these options only once. */
const COMMON = ['--json', '--wide', '--print-paths', '--null'];

/** Returns a section in Markdown for each group of commands. */
export async function formatCommands(): Promise<string> {
  const program = await createProgram(installation.commands, '', ['completion']);
  const groups = new Map<string, string[]>();
  for (const command of program.commands) {
    const heading = command.helpGroup().replace(/:$/, '');
    groups.set(heading, [...(groups.get(heading) ?? []), ...formatFamily(command, [])]);
  }
  return [...groups].map(([heading, commands]) => `## ${heading}\n\n${commands.join('\n\n')}`).join('\n\n');
}

function formatFamily(command: Command, above: readonly string[]): string[] {
  const words = [...above, command.name()];
  if (command.commands.length > 0) return command.commands.flatMap((each) => formatFamily(each, words));
  const usage = command.usage().replace(/^\[options\] ?/, '');
  const examplesOf = examples[words.join(' ')];
  return [
    [
      `### ${words.join(' ')}`,
      usage && `\`tapegate ${words.join(' ')} ${usage}\``,
      toSentence(command.description()),
      formatLists(command),
      examplesOf && `\`\`\`\n${examplesOf.join('\n')}\n\`\`\``,
    ]
      .filter(Boolean)
      .join('\n\n'),
  ];
}

function formatLists(command: Command): string {
  const args = command.registeredArguments
    .filter(({ description }) => description)
    .map((each) => `- \`${each.required ? `<${each.name()}>` : `[${each.name()}]`}\`${noteOf(each.description)}`);
  const options = command.options
    .filter(({ long, hidden }) => !hidden && !COMMON.includes(long ?? ''))
    .map(formatOption);
  return [...args, ...options].join('\n');
}

function formatOption({ flags, description, argChoices, defaultValue, defaultValueDescription }: Option): string {
  const fallback = defaultValueDescription ?? (typeof defaultValue === 'string' ? defaultValue : undefined);
  const notes = [
    argChoices && `choices: ${argChoices.map((choice) => `\`${choice}\``).join(', ')}`,
    fallback !== undefined && `default: ${fallback}`,
  ].filter(Boolean);
  return `- \`${flags}\`${noteOf(description)}${notes.length > 0 ? ` (${notes.join('; ')})` : ''}`;
}

const toMarkdown = (text: string) => text.replaceAll('<', '\\<');

const noteOf = (description: string) => (description ? `: ${toMarkdown(description)}` : '');

const toSentence = (text: string) => `${toMarkdown(text)}${/[.!]$/.test(text) ? '' : '.'}`;
