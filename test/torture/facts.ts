/** Facts that the checker compares: a snapshot of the database, the files on disk, and observations of the test. */
import type { Context } from '../../src/domain/context.js';
import type {
  Event,
  Notification,
  Quota,
  Recall,
  Request,
  RequestFile,
  RestoreDisk,
  StageRequest,
  StageRequestFile,
  Staging,
  StalePartialFile,
  TapeFile,
  UnresolvedPath,
  Verification,
  Webhook,
  WebhookMessage,
} from '../../src/generated/prisma/client.js';
import { type Copy, type Directory, readLinks, scanCopies, scanDirectories } from './disk-scan.js';
import type { WrongResponse } from './gateway.js';
import type { Source } from './random.js';
import type { DeliveredMail, DeliveredMessage } from './receivers.js';
import type { RemovedCopy } from './removed-copies.js';
import type { StageRequestStatus } from './stage-requests.js';
import type { StagedFile } from './staging-systems.js';
import type { Watch } from './watchers.js';

/** Runs a statement. Integers are exact, and times are texts. */
export type Query = <Row extends object>(text: string) => Promise<Row[]>;

export type RequestFact = Request & { user: string };
/** A catalogue row. `copyPath` is the path of the copy below its mount point. */
export type FileFact = TapeFile & { copyPath: string; volume: string | null };
type Required<T> = { [Name in keyof T]: NonNullable<T[Name]> };
export type StageEvent = Required<Pick<Event, 'fileId' | 'fromStage' | 'toStage' | 'requestIds'>> & { number: bigint };
export const progressFields = [
  'state',
  'filesTotal',
  'filesOnDisk',
  'filesFailed',
  'bytesTotal',
  'bytesOnDisk',
] as const;
export type ProgressEvent = Pick<Request, (typeof progressFields)[number]> & { number: bigint; requestId: number };

export interface Stored {
  requests: RequestFact[];
  requestFiles: RequestFile[];
  unresolved: UnresolvedPath[];
  files: FileFact[];
  verifications: Verification[];
  recalls: Recall[];
  /** Stale partial files that an engine has not yet searched for. */
  stalePartials: StalePartialFile[];
  stageRequests: StageRequest[];
  stageRequestFiles: (StageRequestFile & { requestId: number })[];
  staging: (Staging & { library: string; path: string })[];
  disks: RestoreDisk[];
  filesOnRetired: { volume: string; path: string }[];
  quotas: Quota[];
  notifications: (Notification & { requestId: number })[];
  webhooks: (Webhook & { user: string | null })[];
  messages: WebhookMessage[];
  stageEvents: StageEvent[];
  progressEvents: ProgressEvent[];
  /** Number of successful changes in the audit, by operation and id of the request or token. */
  audit: { operation: string; id: number; rows: number }[];
  unnumberedEvents: Event[];
}

const STATEMENTS: Record<keyof Stored, string> = {
  requests: 'SELECT r.*, q."user" FROM request r JOIN quota q ON q.id = r.quota_id ORDER BY r.id',
  requestFiles: 'SELECT * FROM request_file ORDER BY request_id, file_id',
  unresolved: 'SELECT * FROM unresolved_path ORDER BY request_id, path',
  files: `SELECT f.*, coalesce(f.disk_path, f.path) AS copy_path, v.name AS volume
     FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id ORDER BY f.id`,
  verifications: 'SELECT * FROM verification ORDER BY file_id',
  recalls: 'SELECT * FROM recall ORDER BY file_id',
  stalePartials: 'SELECT * FROM stale_partial_file ORDER BY id',
  stageRequests: 'SELECT * FROM stage_request ORDER BY made_at, id',
  stageRequestFiles: 'SELECT * FROM stage_request_file WHERE request_id IS NOT NULL ORDER BY stage_request_id, path',
  staging: `SELECT s.*, b.name AS library, f.path FROM staging s JOIN tape_file f ON f.id = s.file_id
     JOIN library b ON b.id = s.library_id ORDER BY s.library_id, s.file_id`,
  disks: 'SELECT * FROM restore_disk ORDER BY id',
  filesOnRetired: `SELECT v.name AS volume, f.path FROM tape_file f JOIN volume v ON v.id IN (f.volume_id, f.copy_volume_id)
     WHERE v.retired_at IS NOT NULL ORDER BY v.id, f.id`,
  quotas: 'SELECT * FROM quota ORDER BY id',
  notifications: 'SELECT * FROM notification ORDER BY id',
  webhooks: 'SELECT w.*, q."user" FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id ORDER BY w.id',
  messages: 'SELECT * FROM webhook_message ORDER BY id',
  stageEvents: 'SELECT * FROM numbered_event WHERE file_id IS NOT NULL ORDER BY number',
  progressEvents: 'SELECT * FROM numbered_event WHERE request_id IS NOT NULL ORDER BY number',
  audit: `SELECT operation, object::int AS id, count(*)::int AS rows FROM audit
     WHERE kind IN ('REQUEST', 'TOKEN') AND result = 'DONE' GROUP BY 1, 2 ORDER BY 2, 1`,
  unnumberedEvents:
    'SELECT * FROM event e WHERE NOT EXISTS (SELECT FROM numbered_event n WHERE n.id = e.id) ORDER BY id',
};

/** A present or former position of a file on tape, with size and checksum of the bytes. */
export interface Version {
  volume: string;
  position: bigint;
  size: bigint;
  sha256: string;
}

/** Observations that only the test can make. Changes are recorded before the call, because responses may be lost. */
const nothing = () => ({
  /** Size and checksum of archived bytes, by path. */
  sources: new Map<string, Source>(),
  /** Messages that the SMTP server and the webhook receiver have accepted, including repeats. */
  mails: [] as DeliveredMail[],
  messages: [] as DeliveredMessage[],
  /** Absolute paths on restore disks that were changed outside Tapegate. */
  changedPaths: new Set<string>(),
  /** Ids of requests that responses have returned. */
  acknowledged: new Set<number>(),
  /** Ids of stage requests that responses have returned, except those that a client tried to delete. */
  stageRequests: new Set<string>(),
  /** Status of each stage request, as its client sees it. */
  stageRequestStatus: [] as StageRequestStatus[],
  /** Maximum number of revivals of each request: the number of later retentions that users have sent. */
  revivals: new Map<number, number>(),
  /** Number of requested and of confirmed changes, by `nameAction`. */
  actions: new Map<string, { requested: number; confirmed: number }>(),
  watches: [] as Watch[],
  /** Paths that were registered with a wrong checksum. */
  miswritten: new Set<string>(),
  /** Paths that an operator tried to withdraw, one by one or with a complete list. */
  withdrawn: new Set<string>(),
  /** Later positions of moved and replaced files, by path. */
  versions: new Map<string, Version[]>(),
  /** Volumes whose retirement was requested but not confirmed. */
  openRetirements: new Set<string>(),
  /** TAPEGATE_LINK_ROOT, and lost files and links of another user below this directory. */
  archivePaths: { root: undefined as string | undefined, losses: [] as string[] },
  /** Files that staging systems hold for Tapegate. */
  staged: [] as StagedFile[],
  /** Processes that did not end after SIGTERM. */
  stuck: [] as string[],
  /** Claims of drives that another engine had leased. */
  doubleClaims: [] as string[],
  /** Requests that expired before their retention. */
  earlyEnds: [] as string[],
  removedCopies: [] as RemovedCopy[],
  /** Forbidden actions of database copies before a takeover. */
  cloneActions: [] as string[],
  wrongResponses: [] as WrongResponse[],
});

export type Observed = ReturnType<typeof nothing>;
export const createObserved = (known: Partial<Observed> = {}): Observed => ({ ...nothing(), ...known });

/** `cancelRequest 17` */
export const nameAction = (operation: string, id: number): string => `${operation} ${id}`;

export interface Facts extends Stored {
  /** Time of the snapshot, by the database's clock. */
  now: string;
  copies: Copy[];
  directories: Directory[];
  /** Targets of links, by archive path. */
  links: ReadonlyMap<string, string>;
  observed: Observed;
}

export async function readFacts(query: Query, observed: Observed): Promise<Facts> {
  const [{ now } = { now: '' }] = await query<{ now: string }>("SELECT timezone('utc', clock_timestamp()) AS now");
  const stored: Record<string, object[]> = {};
  for (const [name, statement] of Object.entries(STATEMENTS)) stored[name] = (await query(statement)).map(toCamelCase);
  const { disks } = stored as unknown as Stored;
  const { root } = observed.archivePaths;
  return {
    ...(stored as unknown as Stored),
    now,
    copies: (await Promise.all(disks.map(({ mountpoint }) => scanCopies(mountpoint)))).flat(),
    directories: (await Promise.all(disks.map(({ mountpoint }) => scanDirectories(mountpoint)))).flat(),
    links: root === undefined ? new Map() : await readLinks(root),
    observed,
  };
}

function toCamelCase(row: object): object {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name.replace(/_(\w)/g, (_all, letter: string) => letter.toUpperCase()),
      value,
    ]),
  );
}

/** Reads the facts in one transaction. @param look makes more observations in the same transaction */
export async function readSnapshot(
  { db }: Pick<Context, 'db'>,
  observed: Observed,
  look: (query: Query) => Promise<void> = async () => {},
): Promise<Facts> {
  const client = await db.pool.connect();
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const query = async <Row extends object>(text: string) => (await client.query<Row>(text)).rows;
    await look(query);
    return await readFacts(query, observed);
  } finally {
    await client.query('ROLLBACK').catch(() => {}); // the connection may have failed
    client.release();
  }
}

/** Facts in maps for lookups. */
export interface Index {
  requests: ReadonlyMap<number, RequestFact>;
  files: ReadonlyMap<bigint, FileFact>;
  filesByPath: ReadonlyMap<string, FileFact>;
  mountpoints: ReadonlyMap<number | null, string>;
  /** Request files except released ones, which never join the request again. */
  requestFilesOf: ReadonlyMap<number, readonly RequestFile[]>;
  releasedOf: ReadonlyMap<number, readonly RequestFile[]>;
  progressOf: ReadonlyMap<number, readonly ProgressEvent[]>;
}

export function indexFacts({ requests, requestFiles, disks, files, progressEvents }: Facts): Index {
  const holdsIn = (isReleased: boolean) =>
    groupBy(
      requestFiles.filter(({ state }) => (state === 'RELEASED') === isReleased),
      ({ requestId }) => requestId,
    );
  return {
    requests: new Map(requests.map((request) => [request.id, request])),
    files: new Map(files.map((file) => [file.id, file])),
    filesByPath: new Map(files.map((file) => [file.path, file])),
    mountpoints: new Map(disks.map(({ id, mountpoint }) => [id, mountpoint])),
    requestFilesOf: holdsIn(false),
    releasedOf: holdsIn(true),
    progressOf: groupBy(progressEvents, ({ requestId }) => requestId),
  };
}

export function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group) group.push(item);
    else groups.set(keyOf(item), [item]);
  }
  return groups;
}

export function isLive(request: { state: Request['state'] } | undefined): boolean {
  return request !== undefined && request.state !== 'EXPIRED' && request.state !== 'CANCELLED';
}

export const isWithdrawn = (file: FileFact | undefined): boolean => typeof file?.withdrawnAt === 'string';

/** Returns the absolute path of a file's copy; undefined if the file has no copy on disk. */
export function copyPathOf(file: FileFact, { mountpoints }: Index): string | undefined {
  const mountpoint = mountpoints.get(file.diskId);
  return mountpoint === undefined ? undefined : mountpoint + file.copyPath;
}

/**
 * Returns the checksum of the bytes at a file's present or last position on tape; undefined if the test wrote no bytes
 * there.
 */
export function sha256Of({ observed }: Facts, file: FileFact): string | undefined {
  const versions = observed.versions.get(file.path) ?? [];
  const moved = versions.find(({ volume, position }) => volume === file.volume && position === file.position);
  // a file on a retired volume has no position: find its version by the checksum
  const checksum = file.volume === null ? (file.checksum ?? file.diskChecksum) : undefined;
  const retired = versions.find(({ sha256 }) => checksum === `sha256:${sha256}`);
  return (moved ?? retired ?? observed.sources.get(file.path))?.sha256;
}
