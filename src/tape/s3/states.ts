/** What S3 says of an object, in the words of a staging library. Pure. */
import type { HeadObjectCommandOutput, ListObjectsV2CommandOutput } from '@aws-sdk/client-s3';
import { TapeError } from '../../errors.js';
import type { FileState } from '../staging.js';

/** An object as it was seen: whether it is archived, and what is known of a copy that can be read. */
export interface Seen {
  storageClass: string;
  /**
   * - `readable`: nothing has to be restored;
   * - `archived`: there is no copy, and none is on its way;
   * - `restoring`: one is on its way;
   * - `restored`: there is one, until then.
   */
  access: 'readable' | 'archived' | 'restoring' | 'restored';
  /** Of what is restored; null where S3 does not say. */
  until: Date | null;
  /** Objects of Intelligent-Tiering are not copied for days, but come back as they were. */
  isTiered: boolean;
  /** It is in a class or tier from which nothing comes within minutes. */
  isDeep: boolean;
}

type Entry = NonNullable<ListObjectsV2CommandOutput['Contents']>[number];

const ARCHIVED = ['GLACIER', 'DEEP_ARCHIVE'];
const TIERED = 'INTELLIGENT_TIERING';

/** @returns undefined where a list does not tell: whether an object of Intelligent-Tiering is archived */
export function seeEntry({ StorageClass = 'STANDARD', RestoreStatus }: Entry, now: Date): Seen | undefined {
  if (StorageClass === TIERED) return undefined;
  return seeCopy(StorageClass, {
    isComing: RestoreStatus?.IsRestoreInProgress === true,
    until: RestoreStatus?.RestoreExpiryDate,
    now,
  });
}

export function seeHead(head: HeadObjectCommandOutput, now: Date): Seen {
  const storageClass = head.StorageClass ?? 'STANDARD';
  const isComing = /ongoing-request="true"/.test(head.Restore ?? '');
  if (storageClass === TIERED) {
    const access = head.ArchiveStatus === undefined ? 'readable' : isComing ? 'restoring' : 'archived';
    return { storageClass, access, until: null, isTiered: true, isDeep: head.ArchiveStatus === 'DEEP_ARCHIVE_ACCESS' };
  }
  const [, expiry] = /expiry-date="([^"]*)"/.exec(head.Restore ?? '') ?? [];
  return seeCopy(storageClass, { isComing, until: expiry === undefined ? undefined : new Date(expiry), now });
}

function seeCopy(
  storageClass: string,
  { isComing, until, now }: { isComing: boolean; until: Date | undefined; now: Date },
): Seen {
  const seen = { storageClass, until: null, isTiered: false, isDeep: storageClass === 'DEEP_ARCHIVE' };
  if (!ARCHIVED.includes(storageClass)) return { ...seen, access: 'readable' };
  if (isComing) return { ...seen, access: 'restoring' };
  // what has ended is shown for a while, and cannot be relied on
  const isThere = until !== undefined && until > now;
  return isThere ? { ...seen, access: 'restored', until } : { ...seen, access: 'archived' };
}

/** @param seen undefined: there is no such object @param what names it, for people */
export function stateOf(path: string, seen: Seen | undefined, what: string): FileState {
  if (!seen) return { path, state: 'failed', error: new TapeError('PERMANENT', `${what}: there is no such object`) };
  if (seen.access === 'restoring') return { path, state: 'waiting' };
  if (seen.access === 'archived') return { path, state: 'forgotten' };
  return { path, state: 'ready', until: seen.until };
}
