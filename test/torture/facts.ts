/**
 * All that the checker judges: the database in one snapshot, the restore areas, and what the test itself knows of the
 * world outside.
 */
import type {
  AwaitedReason,
  ErrorClass,
  HoldState,
  NotificationKind,
  NotificationState,
  RecallState,
  RequestForm,
  RequestState,
  StagingState,
} from '../../src/generated/prisma/enums.js';
import type { Stage } from '../../src/stages.js';
import { type ArchivePaths, scanHalfMade, scanLinks } from './archive-paths.js';
import type { BulkPoll } from './bulk-polls.js';
import type { Callers } from './callers.js';
import type { LeftFile } from './remote-left.js';
import { type Copy, type FolderFact, scanDisk, scanFolders } from './restore-scan.js';
import type { Strange } from './stranger-scan.js';
import type { Watch } from './watchers.js';
import { readWebhooks, type ToldMessage, type WebhookFacts } from './webhooks.js';

/** Of one statement, as the pool of the program gives it: exact integers, times as text. */
export type Query = <Row extends object>(text: string) => Promise<Row[]>;

export interface RequestFact {
  id: number;
  user: string;
  pattern: string;
  state: RequestState;
  requestDate: string;
  retention: string;
  first: string | null;
  last: string | null;
  start: string | null;
  end: string | null;
  firstFiles: string | null;
  lastFiles: string | null;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
  isReleased: boolean;
  maxFiles: number | null;
  maxBytes: bigint | null;
  /** Of a file that was left out of it and is not noted, where there is any. */
  leftOutSize: bigint | null;
  /** What it says that its files are kept in, and what they are kept in. */
  form: RequestForm;
  hasRows: boolean;
  hasBundles: boolean;
  label: string;
}

export interface HoldFact {
  requestId: number;
  fileId: bigint;
  size: bigint;
  state: HoldState;
  errorClass: ErrorClass | null;
  error: string | null;
}

export interface FileFact {
  id: bigint;
  path: string;
  /** Where its copy is to be, below its mount point. */
  place: string;
  size: bigint;
  stage: Stage;
  diskId: number | null;
  ino: bigint | null;
  mtimeNs: bigint | null;
  verified: string | null;
  /** The catalogue says where on tape it is, and which checksum it has there. */
  isReadable: boolean;
  checksum: string | null;
  /** Nobody has told it: its first restore gave it. */
  isChecksumTaken: boolean;
  /** Of the bytes that were put on disk. */
  copyChecksum: string | null;
  /** Its place on tape. */
  volume: string | null;
  position: bigint | null;
  /** Nobody can ask for it. */
  isWithdrawn: boolean;
  /** It is on tape once more, and nobody has tried that copy in vain. */
  hasOther: boolean;
}

export interface DiskFact {
  id: number;
  mountpoint: string;
  used: bigint;
  reserved: bigint;
}

export interface NotificationFact {
  requestId: number;
  kind: NotificationKind;
  recipient: string;
  messageId: string;
  state: NotificationState;
}

export interface StageEventFact {
  /** Its number. */
  id: bigint;
  fileId: bigint;
  from: Stage;
  to: Stage;
  requestIds: number[];
}

export interface ProgressEventFact {
  id: bigint;
  requestId: number;
  state: RequestState;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
}

export interface Stored {
  /** By the clock of the database. */
  now: string;
  requests: RequestFact[];
  holds: HoldFact[];
  awaited: { requestId: number; path: string; reason: AwaitedReason }[];
  files: FileFact[];
  /** Of tape copies that could not be confirmed. */
  verifications: { fileId: bigint; error: string; isTriedAgain: boolean }[];
  recalls: { fileId: bigint; state: RecallState; size: bigint; diskId: number | null }[];
  leftBehind: { fileId: bigint; diskId: number }[];
  /** What clients of the WLCG Tape REST API have staged. */
  bulks: { id: string }[];
  /** Of those in a request. */
  bulkFiles: { bulkId: string; path: string; requestId: number; fileId: bigint; wasOnDisk: boolean }[];
  /** Of what staging libraries were asked for. */
  staging: { library: string; path: string; state: StagingState; readyUntil: string | null }[];
  disks: DiskFact[];
  /** On retired volumes, be it by their first or their second copy. */
  onRetired: { volume: string; path: string }[];
  quotas: {
    user: string;
    size: bigint;
    used: bigint;
    openRequests: number;
    awaitedPaths: number;
    standingPatterns: number;
  }[];
  notifications: NotificationFact[];
  /** Of each user, and of all together (null): how often a letter was tried, since when, and up to when their rate is used. */
  mailTurns: { user: string | null; tries: number; since: string; usedUntil: string | null }[];
  webhooks: WebhookFacts;
  stageEvents: StageEventFact[];
  progressEvents: ProgressEventFact[];
  /** Which folders of disks are noted as made by Tapegate. */
  folderNotes: { diskId: number; path: string; ino: bigint | null }[];
  /** How often the audit says that something was done with a request, or a token. */
  deeds: { operation: string; id: number; rows: number }[];
  /** Ids of committed events that nobody is told of. */
  unnumbered: { id: bigint }[];
}

/** What only the test knows. */
export interface Outside {
  /** Path to the bytes that were archived. */
  sources: ReadonlyMap<string, { size: bigint; sha256: string }>;
  /** What the SMTP server took, repeated deliveries included. */
  mails: readonly { messageId: string; to: string }[];
  /** What the receiver of webhooks was told. */
  told: readonly ToldMessage[];
  /** Places (mount point and path) at which something was changed by hand. */
  touched: ReadonlySet<string>;
  /** Requests that were answered with their id. */
  acknowledged: ReadonlySet<number>;
  /** Bulks that were answered with their ids, and that nobody has asked to go. */
  bulks: ReadonlySet<string>;
  /** Each bulk that there is, as its client is told of it. */
  polls: readonly BulkPoll[];
  /** How often a request may have been revived: the retentions that users have sent for it. */
  revivals: ReadonlyMap<number, number>;
  /** How often somebody asked for a change of a request or a token, and how often they were told that it is done: by `nameDeed`. */
  asked: ReadonlyMap<string, { times: number; confirmed: number }>;
  watches: readonly Watch[];
  /** Paths of tape copies that were registered with a checksum that they do not have. */
  miswritten: ReadonlySet<string>;
  /** Paths that somebody has asked to be withdrawn, by hand or by a list. */
  withdrawn: ReadonlySet<string>;
  /** Of files that were moved or replaced, by path: what stands at each of the places they have had since. */
  versions: ReadonlyMap<string, readonly { volume: string; position: bigint; sha256: string }[]>;
  /** Volumes that are being retired as far as anybody was told. */
  openRetirements: ReadonlySet<string>;
  archivePaths: ArchivePaths;
  /** What another user of the host has, and what became of it. */
  strange: Strange;
  /** What the systems behind staging libraries hold for Tapegate. */
  staged: readonly LeftFile[];
  /** Processes that were asked to end, and did not. */
  stuck: readonly string[];
  /** Of each claim of a drive that another engine had, a sentence. */
  doubleClaims: readonly string[];
  /** What was answered, and should not have been. */
  wrong: Callers['wrong'];
}

/** `cancelRequest 17` */
export const nameDeed = (operation: string, id: number): string => `${operation} ${id}`;

export interface Facts extends Stored {
  copies: Copy[];
  folders: FolderFact[];
  /** What the links at archive paths lead to, by these paths. */
  links: ReadonlyMap<string, string>;
  /** Folders for them whose making was broken off, and that are used. */
  halfMade: readonly string[];
  outside: Outside;
}

export async function readFacts(query: Query, outside: Outside): Promise<Facts> {
  const stored = await readStored(query);
  const copies = await Promise.all(stored.disks.map((disk) => scanDisk(disk.mountpoint)));
  const folders = await Promise.all(
    stored.disks.map(({ id, mountpoint }) =>
      scanFolders(
        mountpoint,
        stored.folderNotes.filter(({ diskId }) => diskId === id),
      ),
    ),
  );
  const links = await scanLinks(outside.archivePaths.root);
  const halfMade = await scanHalfMade(outside.archivePaths.root);
  return { ...stored, copies: copies.flat(), folders: folders.flat(), links, halfMade, outside };
}

async function readStored(query: Query): Promise<Stored> {
  const [{ now } = { now: '' }] = await query<{ now: string }>("SELECT timezone('utc', clock_timestamp()) AS now");
  return {
    now,
    requests: await query(
      `SELECT r.id, q."user", r.pattern, r.state, r.request_date AS "requestDate", r.retention,
         r.notify_on_first_file AS first, r.notify_on_last_file AS last, r.tapestore_request_start AS start,
         r.tapestore_request_end AS end, r.first_files_on_disk AS "firstFiles", r.last_files_on_disk AS "lastFiles",
         r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed",
         r.bytes_total AS "bytesTotal", r.bytes_on_disk AS "bytesOnDisk", r.is_released AS "isReleased",
         r.max_files AS "maxFiles", r.max_bytes AS "maxBytes", r.left_out_size AS "leftOutSize", r.form, r.label,
         EXISTS (SELECT FROM hold h WHERE h.request_id = r.id)
           OR EXISTS (SELECT FROM awaited_path a WHERE a.request_id = r.id) AS "hasRows",
         EXISTS (SELECT FROM hold_bundle b WHERE b.request_id = r.id)
           OR EXISTS (SELECT FROM path_bundle b WHERE b.request_id = r.id) AS "hasBundles"
       FROM request r JOIN quota q ON q.id = r.quota_id ORDER BY r.id`,
    ),
    holds: await query(
      `SELECT request_id AS "requestId", file_id AS "fileId", size, state, error_class AS "errorClass", error
       FROM any_hold ORDER BY request_id, file_id`,
    ),
    awaited: await query(
      'SELECT request_id AS "requestId", path, reason FROM any_awaited_path ORDER BY request_id, path',
    ),
    files: await query(
      `SELECT id, path, coalesce(disk_path, path) AS place, size, stage, disk_id AS "diskId", disk_ino AS ino, disk_mtime_ns AS "mtimeNs", verified,
         volume_id IS NOT NULL AND position IS NOT NULL AND checksum IS NOT NULL AS "isReadable",
         checksum, checksum_taken AS "isChecksumTaken", disk_checksum AS "copyChecksum",
         (SELECT v.name FROM volume v WHERE v.id = f.volume_id) AS volume, position,
         withdrawn_at IS NOT NULL AS "isWithdrawn", copy_volume_id IS NOT NULL AND copy_error IS NULL AS "hasOther"
       FROM tape_file f ORDER BY id`,
    ),
    verifications: await query(
      `SELECT file_id AS "fileId", error, not_before IS NOT NULL AS "isTriedAgain" FROM verification ORDER BY file_id`,
    ),
    recalls: await query('SELECT file_id AS "fileId", state, size, disk_id AS "diskId" FROM recall ORDER BY file_id'),
    leftBehind: await query('SELECT file_id AS "fileId", disk_id AS "diskId" FROM left_behind ORDER BY id'),
    bulks: await query('SELECT id FROM bulk ORDER BY made_at, id'),
    bulkFiles: await query(
      `SELECT bulk_id AS "bulkId", path, request_id AS "requestId", file_id AS "fileId", was_on_disk AS "wasOnDisk"
       FROM bulk_file WHERE request_id IS NOT NULL ORDER BY bulk_id, path`,
    ),
    staging: await query(
      `SELECT b.name AS library, f.path, s.state, s.ready_until AS "readyUntil" FROM staging s JOIN tape_file f ON f.id = s.file_id JOIN library b ON b.id = s.library_id
       ORDER BY s.library_id, s.file_id`,
    ),
    onRetired: await query(
      `SELECT v.name AS volume, f.path FROM tape_file f JOIN volume v ON v.id IN (f.volume_id, f.copy_volume_id)
       WHERE v.retired_at IS NOT NULL ORDER BY v.id, f.id`,
    ),
    disks: await query('SELECT id, mountpoint, used, reserved FROM restore_disk ORDER BY id'),
    quotas: await query(
      `SELECT "user", size, used, open_requests AS "openRequests", awaited_paths AS "awaitedPaths",
         standing_patterns AS "standingPatterns" FROM quota ORDER BY id`,
    ),
    notifications: await query(
      `SELECT request_id AS "requestId", kind, recipient, message_id AS "messageId", state FROM notification ORDER BY id`,
    ),
    mailTurns: await query(
      `SELECT q."user", sum(n.attempts)::int AS tries, min(n.created_at) AS since,
         CASE WHEN q."user" IS NULL THEN (SELECT s.used_until FROM mail_sender s)
           ELSE (SELECT t.used_until FROM mail_turn t JOIN quota o ON o.id = t.quota_id WHERE o."user" = q."user") END AS "usedUntil"
       FROM notification n JOIN quota q ON q.id = n.quota_id WHERE n.attempts > 0 GROUP BY ROLLUP (q."user") HAVING count(*) > 0`,
    ),
    webhooks: await readWebhooks(query),
    stageEvents: await query(
      `SELECT number AS id, file_id AS "fileId", from_stage AS "from", to_stage AS "to", request_ids AS "requestIds"
       FROM numbered_event WHERE file_id IS NOT NULL ORDER BY 1`,
    ),
    progressEvents: await query(
      `SELECT number AS id, request_id AS "requestId", state, files_total AS "filesTotal", files_on_disk AS "filesOnDisk",
         files_failed AS "filesFailed", bytes_total AS "bytesTotal", bytes_on_disk AS "bytesOnDisk"
       FROM numbered_event WHERE request_id IS NOT NULL ORDER BY 1`,
    ),
    folderNotes: await query('SELECT disk_id AS "diskId", path, ino FROM made_folder ORDER BY 1, 2'),
    deeds: await query(
      `SELECT operation, object::int AS id, count(*)::int AS rows FROM audit
       WHERE kind IN ('REQUEST', 'TOKEN') AND result = 'DONE' GROUP BY 1, 2 ORDER BY 2, 1`,
    ),
    unnumbered: await query(
      'SELECT e.id FROM event e WHERE NOT EXISTS (SELECT FROM numbered_event n WHERE n.id = e.id) ORDER BY 1',
    ),
  };
}
