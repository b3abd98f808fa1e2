/** `rule`: who may list, request and fetch the files below a folder. */
import { Argument, type Command } from 'commander';
import { askChange, askNodes, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine, printResult, printTable } from './output.js';

export function registerRule(program: Command): void {
  const rule = program.command('rule');
  for (const [verb, description, act] of [
    ['set', 'let somebody do it, and from now on only those who are named for the folder', setRule],
    ['remove', 'take a rule back; without any for a folder, the folder above decides', removeRule],
  ] as const) {
    rule
      .command(verb)
      .description(description)
      .addArgument(new Argument('<action>', 'what is done').choices(['list', 'request', 'fetch']))
      .argument('<folder>', 'absolute; / is everything')
      .option('--user <name>', 'a user; service:<name> for a service')
      .option('--group <name>', 'every user of a group')
      .option('--everybody', 'any caller')
      .option(...jsonOption)
      .addHelpText('after', HELP)
      .action((action, prefix, options) => act(readUrl(), { action, prefix }, options));
  }
  rule
    .command('list')
    .description('list all rules')
    .option(...jsonOption)
    .action((options) => listRules(readUrl(), options));
}

const HELP = `
Of the folders above a file, the longest that has rules for what is done decides; where none has, everybody may.
list     to see that there is a file
request  to have it restored; files that appear later join a request only as its maker may
fetch    to be told where its restored copy is
Operators and viewers are under no rule. What is in a request already stays there.`;

interface Rule {
  prefix: string;
  action: string;
  kind: 'EVERYBODY' | 'USER' | 'GROUP';
  name: string;
}

/** A rule, and what it meets in the catalogue. */
interface MetRule extends Rule {
  filesBelow: number;
  alike: { prefix: string; filesBelow: number }[];
}

interface RuleOptions extends OutputOptions {
  user?: string;
  group?: string;
  everybody?: boolean;
}

const FIELDS = 'prefix action kind name';
const MET = 'filesBelow alike { prefix filesBelow }';

interface Given {
  action: string;
  prefix: string;
}

function readRule({ action, prefix }: Given, { user, group, everybody }: RuleOptions) {
  if ([user, group, everybody].filter((given) => given !== undefined).length !== 1) {
    throw new UsageError('give one of --user, --group and --everybody');
  }
  const kind = user !== undefined ? 'USER' : group !== undefined ? 'GROUP' : 'EVERYBODY';
  return { prefix, action: action.toUpperCase(), kind, name: user ?? group ?? null };
}

/** What its fields are called here. */
const argumentsOf = ({ user }: RuleOptions) => ({
  prefix: '<folder>',
  name: user === undefined ? '--group' : '--user',
});

const whoOf = ({ kind, name }: Rule) => (kind === 'EVERYBODY' ? 'everybody' : `${kind.toLowerCase()} ${name}`);

async function setRule(url: string, given: Given, options: RuleOptions): Promise<void> {
  const call = ['setPathRule(input: PathRuleInput!)', `PathRule { ${FIELDS} ${MET} }`] as const;
  const rule = await askChange<MetRule>(url, call, { input: readRule(given, options) }, argumentsOf(options));
  const found = rule.filesBelow === 0 ? '' : `: ${formatCount(rule.filesBelow)} now`;
  const may = `${whoOf(rule)} may ${rule.action.toLowerCase()} what is below ${rule.prefix}${found}`;
  printResult(rule, may, options);
  if (rule.kind !== 'EVERYBODY') noteLine(`nobody else may, but whom other rules for ${rule.prefix} name`);
  if (rule.filesBelow === 0)
    noteLine(`the catalogue has no file below ${rule.prefix} now: see that it is the one that is meant`);
  for (const { prefix, filesBelow } of rule.alike) {
    noteLine(
      `${formatCount(filesBelow)} below a folder that looks the same and is written otherwise (Unicode), for which this rule does not hold: ${quoteForShell(prefix)}`,
    );
  }
}

/** A gateway counts no further. */
const MOST_COUNTED = 10_000;

function formatCount(files: number): string {
  if (files >= MOST_COUNTED) return '10,000 files or more';
  return files === 1 ? '1 file' : `${files.toLocaleString('en')} files`;
}

/** As bash takes it, and so that one sees what it is made of. */
function quoteForShell(text: string): string {
  const narrow = (c: string) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`;
  const wide = (c: string) => `\\U${(c.codePointAt(0) ?? 0).toString(16).padStart(8, '0')}`;
  const quoted = text.replace(/[\\']/g, '\\$&').replace(/[^\x20-\x7e]/gu, (c) => (c.length > 1 ? wide(c) : narrow(c)));
  return `$'${quoted}'`;
}

async function removeRule(url: string, given: Given, options: RuleOptions): Promise<void> {
  const call = ['removePathRule(input: PathRuleInput!)', `PathRule { ${FIELDS} }`] as const;
  const rule = await askChange<Rule>(url, call, { input: readRule(given, options) }, argumentsOf(options));
  const may = `${whoOf(rule)} may ${rule.action.toLowerCase()} what is below ${rule.prefix}`;
  printResult(rule, `there is no rule any more by which ${may}`, options);
}

async function listRules(url: string, options: OutputOptions): Promise<void> {
  const rules = await askNodes<Rule>(url, ['pathRules', FIELDS]);
  if (options.json) return printJson(rules);
  if (rules.length === 0) return printLine('there is no rule: everybody may list, request and fetch everything');
  printTable(
    ['FOLDER', 'ACTION', 'WHO'],
    rules.map((rule) => [rule.prefix, rule.action.toLowerCase(), whoOf(rule)]),
  );
}
