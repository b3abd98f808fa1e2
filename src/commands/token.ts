/** `token create`, `token list`, `token revoke`: API tokens. Always over GraphQL, so that none is made without a gateway's word. */
import { fstatSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { quote } from '../errors.js';
import { readNumber, readRetention } from './arguments.js';
import { ask, askChange, askNodes, askNow, readUrl } from './client.js';
import { stdout } from './io.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine, printResult, printRows } from './output.js';
import { formatTime } from './times.js';

export function registerToken(program: Command): void {
  const token = program.command('token');
  token
    .command('create <name>')
    .description('make a token of a user, or of a service, viewer or operator that is called so')
    .option(...jsonOption)
    .addOption(
      new Option('--role <role>', 'what its bearer is')
        .choices(['user', 'viewer', 'operator', 'service'])
        .default('user'),
    )
    .option('--quota <users...>', 'of a service: the users for whom it acts')
    .option('--read-only', 'it changes nothing, whatever its role')
    .option(
      '--expires <time>',
      'a UTC date or time, or how long from now, such as 90d; unless given, when it is revoked',
    )
    .option('--note <text>', 'what it is for')
    .addHelpText('after', CREATE_HELP)
    .action((name, options) => createToken(readUrl(), name, options));
  token
    .command('list')
    .description('all tokens, without what proves them')
    .option(...jsonOption)
    .action((options) => listTokens(readUrl(), options));
  token
    .command('revoke <id>')
    .description('end a token: its bearer is known no longer')
    .option(...jsonOption)
    .action((id, options) => revokeToken(readUrl(), readNumber('<id>', id), options));
}

const CREATE_HELP = `
The token is all that goes to standard output, and is shown once: "(umask 077; tapegate token create ann > ann.token)" keeps
it, and "tapegate login < ann.token" has the commands of a user show it.`;

interface TokenNode {
  tokenId: number;
  name: string;
  role: string;
  quotas: string[];
  isReadOnly: boolean;
  note: string;
  madeAt: string;
  madeBy: string;
  expiresAt: string | null;
  revokedAt: string | null;
  usedAt: string | null;
}

const FIELDS = 'tokenId name role quotas isReadOnly note madeAt madeBy expiresAt revokedAt usedAt';

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
  const input = { name, role: role.toUpperCase(), quotas, isReadOnly, note, expiresAt };
  const made = `CreatedToken { secret token { ${FIELDS} } }`;
  const { secret, token } = await askChange<{ secret: string; token: TokenNode }>(
    url,
    ['createToken(input: CreateTokenInput!)', made],
    { input },
    { name: '<name>', quotas: '--quota', expiresAt: '--expires', note: '--note' },
  );
  if (options.json) return printJson({ ...token, secret });
  printLine(secret);
  const end = token.expiresAt === null ? 'until it is revoked' : `until ${formatTime(token.expiresAt)}`;
  noteLine(
    `token ${token.tokenId} of ${token.role.toLowerCase()} ${token.name} is good ${end}, and is not shown again`,
  );
  warnOfReaders();
  for (const user of token.role === 'USER' ? [token.name] : token.quotas) await warnOfUnknown(url, user);
}

/** Where the token has gone to a file that others may read. */
function warnOfReaders(): void {
  const { fd } = stdout();
  if (fd === undefined) return;
  const stats = fstatSync(fd);
  if (stats.isFile() && (stats.mode & 0o077) !== 0) {
    noteLine(`others may read that file (mode ${(stats.mode & 0o777).toString(8)}): "chmod 600" takes that from them`);
  }
}

/** It may come later; a name that is mistyped never does. */
async function warnOfUnknown(url: string, user: string): Promise<void> {
  const { quota } = await ask<{ quota: object | null }>(url, 'query ($user: String!) { quota(user: $user) { user } }', {
    user,
  });
  if (quota === null) noteLine(`there is no quota of user ${quote(user)} now`);
}

async function listTokens(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes<TokenNode>(url, ['tokens', FIELDS]), options, {
    header: ['ID', 'NAME', 'ROLE', 'MADE', 'BY', 'LAST USED', 'ENDS', 'NOTE'],
    cells: (token) => [
      String(token.tokenId),
      token.name,
      formatRole(token),
      formatTime(token.madeAt),
      token.madeBy,
      token.usedAt === null ? 'never' : formatTime(token.usedAt),
      formatEnd(token),
      token.note,
    ],
  });
}

function formatRole({ role, isReadOnly, quotas }: TokenNode): string {
  const ofWhom = quotas.length > 0 ? ` for ${quotas.join(', ')}` : '';
  return `${role.toLowerCase()}${ofWhom}${isReadOnly ? ', reads only' : ''}`;
}

function formatEnd({ revokedAt, expiresAt }: TokenNode): string {
  if (revokedAt !== null) return `revoked ${formatTime(revokedAt)}`;
  return expiresAt === null ? 'never' : formatTime(expiresAt);
}

async function revokeToken(url: string, id: number, options: OutputOptions): Promise<void> {
  const token = await askChange<TokenNode>(url, ['revokeToken(id: Int!)', `Token { ${FIELDS} }`], { id });
  printResult(token, `token ${token.tokenId} of ${token.role.toLowerCase()} ${token.name} is revoked`, options);
}
