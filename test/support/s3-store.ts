/** Objects of a simulated S3 server, with restores from archive classes. */
import { createHash } from 'node:crypto';

/** Error answer of S3, with status, code, and more members of the body. */
export class S3Error extends Error {
  readonly status: number;
  readonly code: string;
  readonly members: Record<string, string>;
  readonly headers: Record<string, string>;

  constructor(
    status: number,
    code: string,
    members: Record<string, string> = {},
    headers: Record<string, string> = {},
  ) {
    super(`${code} for a test`);
    this.status = status;
    this.code = code;
    this.members = members;
    this.headers = headers;
  }
}

export interface StoredObject {
  bytes: Buffer;
  storageClass: string;
  /** Whether the object must be restored before a read, whatever its storage class. */
  isArchived: boolean;
  /** Archive status of an object in Intelligent-Tiering. */
  archiveStatus: 'ARCHIVE_ACCESS' | 'DEEP_ARCHIVE_ACCESS' | undefined;
  etag: string;
  /** Checksum headers of the object, such as `x-amz-checksum-crc32` and `x-amz-checksum-type`. */
  checksum: Record<string, string>;
  /** Restored copy of the object. Without `until`, the restore is still running. */
  restore: { tier: string; days: number | undefined; until: Date | undefined } | undefined;
}

export interface RestoreDemand {
  days: number | undefined;
  tier: string;
}

const DAY_MS = 24 * 3600 * 1000;
const ARCHIVED = ['GLACIER', 'DEEP_ARCHIVE'];

interface Traits {
  storageClass?: string;
  /** Whether the object must be restored before a read; default: as in AWS for the storage class. */
  isArchived?: boolean;
  archiveStatus?: StoredObject['archiveStatus'];
  checksum?: Record<string, string>;
}

/** Restore tiers, from slow to fast. */
const TIERS = ['Bulk', 'Standard', 'Expedited'];

export class S3Store {
  readonly objects = new Map<string, StoredObject>();
  /**
   * Form of the restore header in HeadObject answers: `dated` as AWS sends the header, `dateless` without the expiry
   * date,
   * or `absent`.
   */
  restoreHeader: 'dated' | 'dateless' | 'absent' = 'dated';

  put(
    key: string,
    bytes: Uint8Array,
    {
      storageClass = 'GLACIER',
      isArchived = ARCHIVED.includes(storageClass),
      archiveStatus,
      checksum = {},
    }: Traits = {},
  ): void {
    const etag = `"${createHash('md5').update(bytes).digest('hex')}"`;
    this.objects.set(key, {
      bytes: Buffer.from(bytes),
      storageClass,
      isArchived,
      archiveStatus,
      etag,
      checksum,
      restore: undefined,
    });
  }

  remove(key: string): void {
    this.objects.delete(key);
  }

  /** Returns all keys in the order of insertion. */
  keys(): string[] {
    return [...this.objects.keys()];
  }

  /** @throws S3Error */
  find(key: string): StoredObject {
    const object = this.objects.get(key);
    if (!object) throw new S3Error(404, 'NoSuchKey', { Key: key });
    return object;
  }

  isReadable(key: string): boolean {
    const object = this.objects.get(key);
    if (!object) return false;
    if (!isArchived(object)) return true;
    return object.restore?.until !== undefined && object.restore.until > new Date();
  }

  /**
   * Starts or extends a restore.
   * @returns the status of the answer
   * @throws S3Error
   */
  restore(key: string, { days, tier }: RestoreDemand): 200 | 202 {
    const object = this.find(key);
    if (!isArchived(object)) throw invalidState(object);
    const isTiered = object.archiveStatus !== undefined;
    if (isTiered ? days !== undefined : days === undefined || days < 1) throw new S3Error(400, 'InvalidArgument');
    if (!TIERS.includes(tier)) throw new S3Error(400, 'MalformedXML');
    const isDeep = object.storageClass === 'DEEP_ARCHIVE' || object.archiveStatus === 'DEEP_ARCHIVE_ACCESS';
    if (isDeep && tier === 'Expedited') throw new S3Error(400, 'InvalidArgument');
    const { restore } = object;
    if (restore && !restore.until) {
      if (TIERS.indexOf(tier) <= TIERS.indexOf(restore.tier)) throw new S3Error(409, 'RestoreAlreadyInProgress');
      restore.tier = tier;
      return 202;
    }
    if (restore && this.isReadable(key)) {
      object.restore = { ...restore, until: endOf(days) };
      return 200;
    }
    object.restore = { tier, days, until: undefined };
    return 202;
  }

  /** Completes running restores of these objects. */
  arrive(keys: readonly string[]): void {
    for (const key of keys) {
      const object = this.objects.get(key);
      if (!object?.restore || object.restore.until) continue;
      if (object.archiveStatus === undefined) object.restore.until = endOf(object.restore.days);
      else Object.assign(object, { archiveStatus: undefined, restore: undefined });
    }
  }

  /** Removes the restored copy of an object. */
  expire(key: string): void {
    this.find(key).restore = undefined;
  }
}

function isArchived({ isArchived: isOfClass, archiveStatus }: StoredObject): boolean {
  return isOfClass || archiveStatus !== undefined;
}

export function invalidState({ storageClass }: StoredObject): S3Error {
  return new S3Error(403, 'InvalidObjectState', { StorageClass: storageClass });
}

/** Returns the midnight in GMT that ends a restore of `days` days. */
function endOf(days = 1): Date {
  return new Date(Math.ceil((Date.now() + days * DAY_MS) / DAY_MS) * DAY_MS);
}
