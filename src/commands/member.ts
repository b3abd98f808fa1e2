/** `member`: who may use a quota beside its user. */
import type { Command } from 'commander';
import { ask, askChange, readUrl } from './client.js';
import { CommandError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine, printResult, printTable } from './output.js';

export function registerMember(program: Command): void {
  const member = program.command('member');
  member
    .command('set <user> <name>')
    .description('let somebody use the quota of a user')
    .option('--group', 'the name is that of a group')
    .option('--manager', 'let it also change what others have asked for, and say who uses the quota')
    .option(...jsonOption)
    .action((user, name, options) => setMember(readUrl(), { user, name }, options));
  member
    .command('remove <user> <name>')
    .description('take the quota from somebody; what was asked for with it stays')
    .option('--group', 'the name is that of a group')
    .option(...jsonOption)
    .action((user, name, options) => removeMember(readUrl(), { user, name }, options));
  member
    .command('list <user>')
    .description('list who may use the quota of a user')
    .option(...jsonOption)
    .action((user, options) => listMembers(readUrl(), user, options));
}

interface Member {
  kind: 'USER' | 'GROUP';
  name: string;
  isManager: boolean;
}

interface MemberOptions extends OutputOptions {
  group?: boolean;
  manager?: boolean;
}

const FIELDS = 'QuotaMember { kind name isManager }';
const LIST = 'query ($user: String!) { quota(user: $user) { members { kind name isManager } } }';

/** What its fields are called here. */
const ARGUMENTS = { quota: '<user>', name: '<name>' };

const kindOf = ({ group = false }: MemberOptions) => (group ? 'GROUP' : 'USER');
const describe = ({ kind, name }: Member) => `${kind.toLowerCase()} ${name}`;

async function setMember(url: string, given: { user: string; name: string }, options: MemberOptions): Promise<void> {
  const input = { quota: given.user, kind: kindOf(options), name: given.name, isManager: options.manager ?? false };
  const member = await askChange<Member>(url, ['setMember(input: SetMemberInput!)', FIELDS], { input }, ARGUMENTS);
  const is = member.isManager ? 'manager' : 'member';
  printResult(member, `${describe(member)} is a ${is} of the quota of ${given.user}`, options);
}

async function removeMember(url: string, given: { user: string; name: string }, options: MemberOptions): Promise<void> {
  const input = { quota: given.user, kind: kindOf(options), name: given.name };
  const call = ['removeMember(input: RemoveMemberInput!)', FIELDS] as const;
  const member = await askChange<Member>(url, call, { input }, ARGUMENTS);
  printResult(member, `${describe(member)} may use the quota of ${given.user} no longer`, options);
}

async function listMembers(url: string, user: string, options: OutputOptions): Promise<void> {
  const { quota } = await ask<{ quota: { members: Member[] } | null }>(url, LIST, { user });
  if (!quota) throw new CommandError(`there is no user ${JSON.stringify(user)}`);
  const { members } = quota;
  if (options.json) return printJson(members);
  if (members.length === 0) return printLine(`nobody but ${user} uses its quota`);
  printTable(
    ['MEMBER', 'IS'],
    members.map((member) => [describe(member), member.isManager ? 'manager' : 'member']),
  );
}
