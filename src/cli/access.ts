/** Commands for API tokens, quota members, and path rules. */
import { fstatSync } from 'node:fs';
import { Argument, type Command, Option } from 'commander';
import { describeNoQuota, quote } from '../core/errors.js';
import { plural } from '../core/text/plural.js';
import {
  type AddPathRuleInput,
  CreateTokenDocument,
  type MemberKind,
  type MemberRowFragment,
  MembersDocument,
  type PathAction,
  QuotaDocument,
  RemoveQuotaMemberDocument,
  RemoveRuleDocument,
  RevokeTokenDocument,
  type RuleRowFragment,
  RulesDocument,
  SetQuotaMemberDocument,
  SetRuleDocument,
  type TokenRole,
  type TokenRowFragment,
  TokensDocument,
} from '../generated/operations.js';
import { ask, askChange, askNodes, askNow, askPages } from './connection/gateway-client.js';
import { findSite } from './connection/where.js';
import { readNumber, readRetention } from './terminal/arguments.js';
import { CommandError, UsageError } from './terminal/failure.js';
import { stdout } from './terminal/io.js';
import { type OutputOptions, printJson, printLine, printResult, printRows, printToStderr } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  registerToken(program);
  registerMember(program);
  registerRule(program);
}

function registerToken(program: Command): void {
  const token = program.command('token');
  token
    .command('create <name>')
    .description('Create a token for a user, service, viewer or operator')
    .addOption(
      new Option('--role <role>', 'role of the token')
        .choices(['user', 'viewer', 'operator', 'service'])
        .default('user'),
    )
    .option('--quota <users...>', 'users whose quotas a service may use')
    .option('--read-only', 'allow no changes')
    .option('--expires <time>', 'expire at a UTC date or time, or after a period such as 90d (default: never)')
    .option('--note <text>', 'purpose of the token')
    .addHelpText('after', CREATE_HELP)
    .action((name, options) => createToken(findSite(), name, options));
  token
    .command('list')
    .description('List all tokens, without their secrets')
    .action((options) => listTokens(findSite(), options));
  token
    .command('revoke <id>')
    .description('Revoke a token')
    .action((id, options) => revokeToken(findSite(), readNumber('<id>', id), options));
}

const CREATE_HELP = `
The command prints only the token. Tapegate cannot show the token again, so
store it in a file:
  (umask 077; tapegate token create ann > ann.token)
The user then runs "tapegate login < ann.token".`;

interface CreateOptions extends OutputOptions {
  role: string;
  quota?: string[];
  readOnly?: boolean;
  expires?: string;
  note?: string;
}

async function createToken(url: string, name: string, options: CreateOptions): Promise<void> {
  const { role, quota: quotas, readOnly: isReadOnly, note, expires } = options;
  const expiresAt = expires === undefined ? undefined : await readRetention('--expires', expires, () => askNow(url));
  const input = { name, role: role.toUpperCase() as TokenRole, quotas, isReadOnly, note, expiresAt };
  const { secret, token } = await askChange(url, CreateTokenDocument, { input }, { name: '<name>' });
  if (options.json) return printJson({ ...token, secret });
  printLine(secret);
  const end = token.expiresAt === null ? 'until it is revoked' : `until ${formatTime(token.expiresAt)}`;
  printToStderr(
    `token ${token.tokenId} of ${token.role.toLowerCase()} ${token.name} is valid ${end}; Tapegate does not show the token again`,
  );
  warnIfReadable();
  for (const user of token.role === 'USER' ? [token.name] : token.quotas) await warnIfUnknown(url, user);
}

/**
 * Warns if standard output is a file that other users can read, because the command writes the token to standard
 * output.
 */
function warnIfReadable(): void {
  const { fd } = stdout();
  if (fd === undefined) return;
  const stats = fstatSync(fd);
  if (stats.isFile() && (stats.mode & 0o077) !== 0) {
    printToStderr(
      `other users can read the file with the token (mode ${(stats.mode & 0o777).toString(8)}): run "chmod 600" on the file`,
    );
  }
}

/** Warns if a user has no quota, because the name might be mistyped. */
async function warnIfUnknown(url: string, user: string): Promise<void> {
  const { quota } = await ask(url, QuotaDocument, { user });
  if (quota === null) printToStderr(`user ${quote(user)} does not have a quota`);
}

async function listTokens(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes(url, TokensDocument, {}), options, {
    header: ['ID', 'NAME', 'ROLE', 'CREATED', 'BY', 'LAST USED', 'EXPIRES', 'NOTE'],
    cells: (token) => [
      token.tokenId,
      token.name,
      formatRole(token),
      formatTime(token.createdAt),
      token.createdBy,
      token.usedAt === null ? 'never' : formatTime(token.usedAt),
      formatTokenEnd(token),
      token.note,
    ],
  });
}

function formatRole({ role, isReadOnly, quotas }: TokenRowFragment): string {
  const users = quotas.length > 0 ? ` for ${quotas.join(', ')}` : '';
  return `${role.toLowerCase()}${users}${isReadOnly ? ', read-only' : ''}`;
}

function formatTokenEnd({ revokedAt, expiresAt }: TokenRowFragment): string {
  if (revokedAt !== null) return `revoked ${formatTime(revokedAt)}`;
  return expiresAt === null ? 'never' : formatTime(expiresAt);
}

async function revokeToken(url: string, id: number, options: OutputOptions): Promise<void> {
  const token = await askChange(url, RevokeTokenDocument, { id });
  printResult(token, `token ${token.tokenId} of ${token.role.toLowerCase()} ${token.name} is revoked`, options);
}

function registerMember(program: Command): void {
  const member = program.command('member');
  member
    .command('set <user> <name>')
    .description("Allow a user or group to use another user's quota")
    .option('--group', 'treat <name> as a group')
    .option('--manager', 'also allow the member to change all requests and members of the quota')
    .action((user, name, options) => setQuotaMember(findSite(), { user, name }, options));
  member
    .command('remove <user> <name>')
    .description("Remove a member from a quota, but keep the member's requests")
    .option('--group', 'treat <name> as a group')
    .action((user, name, options) => removeQuotaMember(findSite(), { user, name }, options));
  member
    .command('list <user>')
    .description('List the members of a quota')
    .action((user, options) => listMembers(findSite(), user, options));
}

interface MemberOptions extends OutputOptions {
  group?: boolean;
  manager?: boolean;
}

const MEMBER_ARGUMENTS = { quota: '<user>', name: '<name>' };

const kindOf = ({ group = false }: MemberOptions): MemberKind => (group ? 'GROUP' : 'USER');
const describe = ({ kind, name }: MemberRowFragment) => `${kind.toLowerCase()} ${name}`;

async function setQuotaMember(
  url: string,
  given: { user: string; name: string },
  options: MemberOptions,
): Promise<void> {
  const input = { quota: given.user, kind: kindOf(options), name: given.name, isManager: options.manager ?? false };
  const member = await askChange(url, SetQuotaMemberDocument, { input }, MEMBER_ARGUMENTS);
  const role = member.isManager ? 'manager' : 'member';
  printResult(member, `${describe(member)} is a ${role} of quota ${given.user}`, options);
}

async function removeQuotaMember(
  url: string,
  given: { user: string; name: string },
  options: MemberOptions,
): Promise<void> {
  const input = { quota: given.user, kind: kindOf(options), name: given.name };
  const member = await askChange(url, RemoveQuotaMemberDocument, { input }, MEMBER_ARGUMENTS);
  printResult(member, `${describe(member)} is no longer a member of quota ${given.user}`, options);
}

async function listMembers(url: string, user: string, options: OutputOptions): Promise<void> {
  const pages = askPages(url, MembersDocument, { user }, ({ quota }) => {
    if (!quota) throw new CommandError(describeNoQuota(user));
    return quota.members;
  });
  const members: MemberRowFragment[] = [];
  for await (const { edges } of pages) members.push(...edges.map(({ node }) => node));
  printRows(members, options, {
    none: `quota ${user} has no members`,
    header: ['MEMBER', 'ROLE'],
    cells: (member) => [describe(member), member.isManager ? 'manager' : 'member'],
  });
}

function registerRule(program: Command): void {
  const rule = program.command('rule');
  for (const [verb, description, act] of [
    ['set', 'Restrict an action on files below a prefix to callers with a rule for the prefix', setRule],
    ['remove', 'Remove a rule; if a prefix has no rules left, the rules of a shorter prefix apply', removeRule],
  ] as const) {
    rule
      .command(verb)
      .description(description)
      .addArgument(new Argument('<action>', 'action to allow').choices(['list', 'request', 'fetch']))
      .argument('<prefix>', 'absolute path prefix; / matches all paths')
      .option('--user <name>', 'user to whom the rule applies, or service:<name> for a service')
      .option('--group <name>', 'group to whose members the rule applies')
      .option('--everybody', 'apply the rule to all callers')
      .addHelpText('after', RULE_HELP)
      .action((action, prefix, options) => act(findSite(), { action, prefix }, options));
  }
  rule
    .command('list')
    .description('List all rules')
    .action((options) => listRules(findSite(), options));
}

const RULE_HELP = `
For each action, the rules of the longest matching prefix apply. Without a rule,
all callers may perform the action.
list     see that a file exists
request  have a file restored; this also applies to files that an open pattern adds later
fetch    see where the restored copy is
Rules do not apply to operators and viewers. A new rule does not remove files
from existing requests.`;

interface RuleOptions extends OutputOptions {
  user?: string;
  group?: string;
  everybody?: boolean;
}

interface GivenRule {
  action: string;
  prefix: string;
}

function readRule({ action, prefix }: GivenRule, { user, group, everybody }: RuleOptions): AddPathRuleInput {
  if ([user, group, everybody].filter((given) => given !== undefined).length !== 1) {
    throw new UsageError('give exactly one of --user, --group and --everybody');
  }
  const kind = user !== undefined ? 'USER' : group !== undefined ? 'GROUP' : 'EVERYBODY';
  return { prefix, action: action.toUpperCase() as PathAction, kind, name: user ?? group ?? null };
}

const ruleArguments = ({ user }: RuleOptions) => ({
  prefix: '<prefix>',
  name: user === undefined ? '--group' : '--user',
});

const whoOf = ({ kind, name }: RuleRowFragment) =>
  kind === 'EVERYBODY' ? 'everybody' : `${kind.toLowerCase()} ${name}`;

async function setRule(url: string, given: GivenRule, options: RuleOptions): Promise<void> {
  const rule = await askChange(url, SetRuleDocument, { input: readRule(given, options) }, ruleArguments(options));
  const found = rule.filesBelow === 0 ? '' : `: ${formatCount(rule.filesBelow)} now`;
  const may = `${whoOf(rule)} may ${rule.action.toLowerCase()} files below ${rule.prefix}${found}`;
  printResult(rule, may, options);
  if (rule.kind !== 'EVERYBODY') {
    printToStderr(
      `other callers may ${rule.action.toLowerCase()} these files only if another rule for ${rule.prefix} allows it`,
    );
  }
  if (rule.filesBelow === 0) printToStderr(`the catalogue contains no files below ${rule.prefix}: check the prefix`);
}

/** The highest number of files that a gateway counts. If there are more files, the gateway also reports this number. */
const MOST_COUNTED = 10_000;

const formatCount = (files: number): string => plural(files, 'file') + (files >= MOST_COUNTED ? ' or more' : '');

async function removeRule(url: string, given: GivenRule, options: RuleOptions): Promise<void> {
  const rule = await askChange(url, RemoveRuleDocument, { input: readRule(given, options) }, ruleArguments(options));
  const may = `${whoOf(rule)} may ${rule.action.toLowerCase()} files below ${rule.prefix}`;
  printResult(rule, `rule removed: ${may}`, options);
}

async function listRules(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes(url, RulesDocument, {}), options, {
    none: 'there are no rules: all callers may list, request and fetch all files',
    header: ['PREFIX', 'ACTION', 'WHO'],
    cells: (rule) => [rule.prefix, rule.action.toLowerCase(), whoOf(rule)],
  });
}
