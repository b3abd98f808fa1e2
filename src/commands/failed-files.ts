/** What of a request has failed, for the end of a command that waited for it. */
import { plural } from '../plural.js';
import { ask, type Page } from './client.js';
import { CommandError, exitCodes } from './failure.js';
import { printable } from './output.js';

/** Reasons that are told; `show` has all. */
const NAMED = 2;

const FAILED = `query ($id: Int!, $first: Int!) { request(id: $id) {
  holds(states: [FAILED], first: $first) { edges { node { error file { path } } } pageInfo { hasNextPage endCursor } }
} }`;

interface FailedNode {
  error: string | null;
  file: { path: string };
}

interface Counts {
  requestId: number;
  filesTotal: number;
  filesFailed: number;
}

/** The end of a request of which files have failed: how many, why the first of them did, and what there is to be done. */
export async function describePartial(
  url: string,
  { requestId, filesTotal, filesFailed }: Counts,
): Promise<CommandError> {
  type Answer = { request: { holds: Page<FailedNode> } | null };
  const { request } = await ask<Answer>(url, FAILED, { id: requestId, first: NAMED });
  const named = request?.holds.edges.map(({ node }) => `  ${node.file.path}: ${node.error ?? 'failed'}`) ?? [];
  const more = filesFailed > named.length && named.length > 0 ? [`  and ${filesFailed - named.length} more`] : [];
  const lines = [
    `request ${requestId} is partial: ${filesFailed} of ${plural(filesTotal, 'file')} failed`,
    ...named,
    ...more,
    `"tapegate show ${requestId}" tells of each, "tapegate retry ${requestId}" has them tried again`,
  ];
  return new CommandError(lines.map(printable).join('\n'), exitCodes.incomplete);
}
