/** Reads all files of a request that match the filter of the list. */
import type { Client } from '@urql/core';
import { type RequestFileState, ShownFilesDocument, type ShownFilesQuery } from '../../../generated/operations.js';
import { formatNumber } from '../../format';
import { messageOf } from '../../parts/problem';
import type { ShownFile } from './shown-request';

/** Largest page that the gateway sends. */
const PAGE = 1000;

/** Maximum number of files that can be selected, because the page keeps them in memory. */
const MAX_FILES = 100_000;

/**
 * @param onRead called with the number of files read so far
 * @throws Error if the gateway does not answer, or there are too many files
 */
export async function readAllFiles(
  client: Client,
  filter: { id: number; states: RequestFileState[]; match: string },
  onRead: (count: number) => void,
): Promise<ShownFile[]> {
  const files: ShownFile[] = [];
  for (let after: string | null | undefined; ; ) {
    const variables = { ...filter, match: filter.match || undefined, first: PAGE, after, withFailed: false };
    const { data, error } = await client
      .query<ShownFilesQuery>(ShownFilesDocument.toString(), variables, { requestPolicy: 'network-only' })
      .toPromise();
    if (error) throw new Error(messageOf(error));
    const page = data?.request?.files;
    files.push(...(page?.edges ?? []).map(({ node }) => node));
    onRead(files.length);
    if (!page?.pageInfo.hasNextPage) return files;
    if (files.length >= MAX_FILES)
      throw new Error(`At most ${formatNumber(MAX_FILES)} files can be selected: use a narrower filter.`);
    after = page.pageInfo.endCursor;
  }
}
