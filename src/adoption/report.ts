/**
 * Types for the results of an adoption, and functions for the database records by which a repeated adoption recognizes
 * adopted objects.
 */
import { createHash } from 'node:crypto';
import { type Sql, sql } from '../db/sql.js';

export interface Difference {
  /** The kind of difference, as a stable name for scripts, such as `quota-differs` or `copy-size`. */
  kind: string;
  /** The user, path, request id or mount point that the difference concerns. */
  object: string;
  there: string;
  here: string;
}

export interface Adoption {
  disks: number;
  quotas: number;
  files: number;
  copies: number;
  bytes: bigint;
  requests: number;
  changed: number;
  /** Number of previously adopted requests that no longer exist in the source. */
  ended: number;
  same: number;
  differences: number;
}

export const nothingAdopted: Adoption = {
  ...{ disks: 0, quotas: 0, files: 0, copies: 0, bytes: 0n, requests: 0 },
  ...{ changed: 0, ended: 0, same: 0, differences: 0 },
};

export interface Adopting {
  isTrial: boolean;
  report(difference: Difference): void;
  counts: Adoption;
}

export function digestOf(values: readonly (string | null)[]): string {
  return createHash('sha256').update(JSON.stringify(values)).digest('hex');
}

export function adoptedRow(what: { kind: 'QUOTA' | 'REQUEST'; id: bigint; digest: string; now: string }): Sql {
  return sql`INSERT INTO adopted (kind, id, digest, at) VALUES (${what.kind}, ${what.id}, ${what.digest}, ${what.now})
    ON CONFLICT (kind, id) DO UPDATE SET digest = excluded.digest, at = excluded.at`;
}

/** Yields pages of at most `limit` rows. `read` receives the last row of the previous page. */
export async function* readPages<Row>(
  limit: number,
  read: (last: Row | undefined) => Promise<Row[]>,
): AsyncGenerator<Row[]> {
  for (let last: Row | undefined; ; ) {
    const page = await read(last);
    yield page;
    if (page.length < limit) return;
    last = page.at(-1);
  }
}
