/** `verify`: tape copies that could not be confirmed. */
import { readLimit } from './arguments.js';
import { ask } from './client.js';
import { CommandError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

interface Node {
  file: { path: string; volume: { name: string } | null; position: bigint | number | null };
  attempts: number;
  errorClass: string;
  error: string;
  at: string;
  nextTry: string | null;
}

const LIST = `query ($match: String, $first: Int, $after: String) {
  verifications(match: $match, first: $first, after: $after) {
    totalCount
    edges { node { file { path volume { name } position } attempts errorClass error at nextTry } }
    pageInfo { hasNextPage endCursor }
  }
}`;

const AGAIN = `mutation ($match: String!) {
  verifyAgain(match: $match) { __typename ... on VerifyAgain { files } ... on Failure { message } }
}`;

interface Page {
  totalCount: number;
  edges: { node: Node }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

export async function verify(
  url: string,
  match: string | undefined,
  options: OutputOptions & { again?: boolean; limit: string },
): Promise<void> {
  if (options.again) return await tryAgain(url, match ?? '', options);
  const limit = Math.max(readLimit(options.limit), 1);
  const nodes: Node[] = [];
  let total = 0;
  for (let after: string | null = null; nodes.length < limit; ) {
    const variables = { match, first: Math.min(1000, limit - nodes.length), after };
    const page: Page = (await ask<{ verifications: Page }>(url, LIST, variables)).verifications;
    total = page.totalCount;
    nodes.push(...page.edges.map(({ node }) => node));
    after = page.pageInfo.endCursor;
    if (!page.pageInfo.hasNextPage) break;
  }
  if (options.json) return nodes.forEach(printJson);
  if (total === 0) return printLine('no tape copy has failed to be confirmed');
  printTable(
    ['PATH', 'VOLUME', 'POSITION', 'TRIES', 'NEXT TRY', 'WHY'],
    nodes.map(({ file, attempts, error, nextTry }) => [
      file.path,
      file.volume?.name ?? '-',
      String(file.position ?? '-'),
      String(attempts),
      nextTry?.slice(0, 19) ?? 'none',
      error,
    ]),
  );
  if (nodes.length < total) printLine(`${nodes.length} of ${total} files; --limit shows more`);
}

async function tryAgain(url: string, match: string, options: OutputOptions): Promise<void> {
  type Answer = { verifyAgain: { __typename: string; files: number; message?: string } };
  const { verifyAgain } = await ask<Answer>(url, AGAIN, { match });
  if (verifyAgain.__typename !== 'VerifyAgain') throw new CommandError(verifyAgain.message ?? verifyAgain.__typename);
  if (options.json) printJson({ files: verifyAgain.files });
  else printLine(`${verifyAgain.files} files are tried again`);
}
