/** A settled system for the checker's tests. Each test adds a violation in a transaction that is rolled back. */
import { chmodSync, cpSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type pg from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped, checksumOf } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { MemoryTapeSystem } from '../support/memory-staging.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { MAIL_RATES } from './check-messages.js';
import { check, type ViolationKind } from './checker.js';
import { createObserved, nameAction, type Observed, readFacts, type Version } from './facts.js';
import { createRandom } from './random.js';
import { addWebhooks, type FaultyMail, type FaultyWebhooks, startMail, startWebhooks } from './receivers.js';
import { type Demand, findStaged, READ_DEMANDS, WATCH_DEMANDS } from './staging-systems.js';

export let app: TestApp;
export let mail: FaultyMail;
let webhooks: FaultyWebhooks;
export let sources: Observed['sources'];
/**
 * Ids of three requests. Alice's first request is complete and her second one cancelled, and bob's has a failed and an
 * unknown file.
 */
export let ids: { complete: number; partial: number; cancelled: number };
export const library = createMemoryLibrary();
const linkRoot = makeTempDir();

/** Starts a system before the tests, and waits until no work remains. */
export function useSettledSystem(): void {
  beforeAll(async () => {
    mail = await startMail(createRandom(1));
    webhooks = await startWebhooks(createRandom(2));
    const config = { smtpUrl: mail.url, webhookHosts: ['127.0.0.1'], linkRoot };
    app = await startApp({ library, config, limits: MAIL_RATES });
    await addQuota(app.ctx, 'alice', 10_000n);
    await addQuota(app.ctx, 'bob', 10_000n);
    await addWebhooks(app.ctx, webhooks, 'alice');
    library.onRead = async (_volume, position) => {
      if (position === 3n) throw new TapeError('PERMANENT', 'nothing is there');
    };
    const names = ['/s/a', '/s/b', '/s/bad', '/s/gone'];
    const contents = await addTaped(
      app.ctx,
      library,
      names.map((name, index) => ({ path: name, position: BigInt(index + 1) })),
    );
    const sourceOf = (bytes: Uint8Array) => ({
      size: BigInt(bytes.length),
      sha256: checksumOf(bytes).replace('sha256:', ''),
    });
    sources = new Map([...contents].map(([name, bytes]) => [name, sourceOf(bytes)]));
    const addresses = { notify_on_first_file: 'a@example.org', notify_on_last_file: 'a@example.org' };
    const complete = await makeRequest(app, { quota: 'alice', patterns: '/s/a', ...addresses });
    const files = ['/s/b', '/s/bad', '/s/never'];
    const partial = await makeRequest(app, { quota: 'bob', files, notify_on_last_file: 'b@example.org' });
    const cancelled = await makeRequest(app, { quota: 'alice', files: ['/s/gone'] });
    await waitForState(app, complete, 'COMPLETED');
    await waitForState(app, partial, 'PARTIAL');
    await waitForState(app, cancelled, 'COMPLETED');
    await cancel(app, cancelled);
    ids = { complete, partial, cancelled };
    await waitFor('the system to settle', async () => {
      const { rows } = await app.ctx.db.pool.query(
        `SELECT FROM request r WHERE NOT is_released UNION ALL SELECT FROM notification WHERE state = 'PENDING'
         UNION ALL SELECT FROM webhook_message WHERE state = 'PENDING'
         UNION ALL SELECT FROM event_batch b WHERE b.last_number IS NULL OR b.last_number > (SELECT last FROM webhook_cursor)
         UNION ALL SELECT FROM tape_file WHERE disk_id IS NOT NULL AND stage <> 'RESTORED'
         UNION ALL SELECT FROM archive_link WHERE is_there AND check_at IS NOT NULL`,
      );
      return rows.length === 0;
    });
  });
  afterAll(async () => {
    await app.close();
    await mail.goAway();
    await webhooks.goAway();
  });
}

/** Functions for steps that add a violation. */
interface Soil {
  run<Row extends object = object>(sql: string): Promise<Row[]>;
  observed: Observed;
  /** Replaces or removes the file at a path on the restore disk until the test ends. */
  replace(file: string, bytes?: Uint8Array): { ino: bigint; mtimeNs: bigint };
  /** Creates an empty directory as Tapegate does, until the test ends. */
  makeDirectory(directory: string): void;
}

/** A function, or an SQL statement. In SQL, `:complete`, `:partial` and `:cancelled` are the ids of requests. */
type Step = string | ((soil: Soil) => unknown);
export type Steps = Step | Step[];

export async function findPlanted(steps: Steps, { keepsWebhooks = false } = {}): Promise<ViolationKind[]> {
  const client = await app.ctx.db.pool.connect();
  const undo: (() => void)[] = [];
  const run = async <Row extends object>(sql: string) => {
    const text = sql.replace(/(?<!:):(complete|partial|cancelled)\b/g, (_all, name: keyof typeof ids) =>
      String(ids[name]),
    );
    return ((await client.query(text)) as pg.QueryResult<Row>).rows;
  };
  const soil: Soil = {
    run,
    observed: createObserved({
      sources: new Map(sources),
      mails: [...mail.mails],
      messages: keepsWebhooks ? webhooks.messages.map((message) => ({ ...message })) : [],
      archivePaths: { root: linkRoot, losses: [] },
    }),
    replace: (file, bytes) => {
      const place = placeOf(file);
      const moved = path.join(app.dataDir, 'moved');
      const before = lstatSync(place, { throwIfNoEntry: false });
      if (before) renameSync(place, moved);
      undo.push(() => (before ? renameSync(moved, place) : rmSync(place, { force: true })));
      if (!bytes) return { ino: 0n, mtimeNs: 0n };
      writeFileSync(place, bytes);
      return lstatSync(place, { bigint: true });
    },
    makeDirectory: (directory) => {
      mkdirSync(placeOf(directory));
      chmodSync(placeOf(directory), 0o755);
      undo.push(() => rmSync(placeOf(directory), { recursive: true }));
    },
  };
  try {
    await client.query('BEGIN');
    // without webhooks, the steps cause no missing webhook messages as side effects
    if (!keepsWebhooks) await run('DELETE FROM webhook');
    for (const step of [steps].flat()) await (typeof step === 'string' ? run(step) : step(soil));
    return [...new Set(check(await readFacts(run, soil.observed)).map(({ kind }) => kind))];
  } finally {
    for (const step of undo) step();
    await client.query('ROLLBACK');
    client.release();
  }
}

export const placeOf = (file: string) => path.join(app.restoreDir, file);
export const bytesOf = (file: string) => readFileSync(placeOf(file));
export const OTHER = Buffer.from('not of the archive');
export const ZEROS = '0'.repeat(64);
export const VERSION: Version = { volume: 'V00001', position: 1n, size: 1000n, sha256: ZEROS };

const PROGRESS = 'request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk';
/** Numbers events as the app does, perhaps at the same time. */
const NUMBER = 'DO $$ BEGIN WHILE number_events(NULL) IS NULL LOOP PERFORM pg_sleep(0.01); END LOOP; END $$';
export const addEvent = (name: keyof typeof ids) => `INSERT INTO event (at, request_ids, ${PROGRESS})
  SELECT now(), '{}', ${PROGRESS.replace('request_id', 'id')} FROM request WHERE id = :${name}`;
/** Adds a progress event of a request, so that an outdated event is not reported as another violation. */
export const publish = (name: keyof typeof ids) => `${addEvent(name)}; ${NUMBER}`;
export const set = (name: keyof typeof ids, values: string) => `UPDATE request SET ${values} WHERE id = :${name}`;
export const setComplete = (values: string) => set('complete', values);
/** Changes a request, and adds its progress event. */
export const change = (name: keyof typeof ids, values: string) => `${set(name, values)}; ${publish(name)}`;
export const setFailed = (values: string) => `UPDATE request_file SET ${values} WHERE state = 'FAILED'`;
export const setFile = (file: string, values: string) => `UPDATE tape_file SET ${values} WHERE path = '${file}'`;

const STAGES: Record<string, string> = { U: 'UNVERIFIED', D: 'ONDISK', T: 'ONTAPE', A: 'RESTORING', R: 'RESTORED' };
/** Adds stage moves of the file /s/gone. Each move is a pair of letters such as TA. */
export const moveGone = (...moves: string[]) =>
  [
    ...moves.map(
      ([from = '', to = '']) => `INSERT INTO event (at, request_ids, file_id, from_stage, to_stage)
        SELECT now(), '{}', id, '${STAGES[from]}', '${STAGES[to]}' FROM tape_file WHERE path = '/s/gone'`,
    ),
    NUMBER,
  ].join('; ');

/**
 * Records several times that the copy of /s/a is missing and was restored again.
 * @param removals number of removals outside Tapegate that the test observed
 */
export function loseCopy({ times, removals }: { times: number; removals: number }): Step[] {
  const move = ([from = '', to = '']: string) => `INSERT INTO event (at, request_ids, file_id, from_stage, to_stage)
    SELECT now(), ARRAY[:complete], id, '${STAGES[from]}', '${STAGES[to]}' FROM tape_file WHERE path = '/s/a'; ${NUMBER}`;
  const once = [
    move('RT'),
    change('complete', `state = 'QUEUED', files_on_disk = 0, bytes_on_disk = 0`),
    move('TA'),
    move('AR'),
    change('complete', `state = 'COMPLETED', files_on_disk = 1, bytes_on_disk = bytes_total`),
  ];
  const observeRemovals: Step = async ({ run, observed }) => {
    const rows = await run<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/s/a'`);
    const copies = rows.map(({ id }) => ({ fileId: id, mountpoint: app.restoreDir, place: placeOf('s/a') }));
    for (let n = 0; n < removals; n++) observed.removedCopies.push(...copies);
  };
  return [observeRemovals, ...Array.from({ length: times }, () => once).flat()];
}

/** Makes the request's unresolved path a path of a catalogue file, which stays excluded from the request. */
export const exclude = (reason: string) =>
  `UPDATE unresolved_path SET path = '/s/gone', reason = '${reason}'; UPDATE quota SET unresolved_paths = 0`;
export const addRecall = (file: string, state: string) =>
  `INSERT INTO recall (file_id, size, state, created_at) SELECT id, size, '${state}', now() FROM tape_file WHERE path = '${file}'`;
export const addTapeCopy = (stage: string, verified: string) =>
  `INSERT INTO tape_file (path, size, stage, verified, checksum, volume_id, position)
   VALUES ('/u/copy', 1, '${stage}', ${verified}, 'md5:00', 1, 99)`;
export const addSecondCopy = (file: string, retiredAt = 'NULL::timestamp') =>
  `WITH other AS (INSERT INTO volume (name, retired_at) VALUES ('V00009', ${retiredAt}) RETURNING id)
   UPDATE tape_file SET copy_volume_id = other.id, copy_position = 99 FROM other WHERE path = '${file}'`;

export const observe =
  (known: Partial<Observed>): Step =>
  ({ observed }) =>
    Object.assign(observed, known);
export const act = (operation: string, name: keyof typeof ids, times: number): Step => {
  return ({ observed }) =>
    observed.actions.set(nameAction(operation, ids[name]), { requested: times, confirmed: times });
};
export const deleteAudit = (operation: string, name: keyof typeof ids) =>
  `ALTER TABLE audit DISABLE TRIGGER audit_guard_rows; DELETE FROM audit WHERE operation = '${operation}' AND object = ':${name}'`;

/** Changes links in a copy of the link directory. */
export function changeLinks(change: (root: string) => void): Step {
  const root = makeTempDir();
  return ({ observed }) => {
    cpSync(linkRoot, root, { recursive: true, verbatimSymlinks: true });
    change(root);
    observed.archivePaths = { root, losses: [] };
  };
}

export async function readEvents({ run }: Soil, requestId?: number): Promise<bigint[]> {
  const condition = requestId === undefined ? 'file_id IS NOT NULL' : `request_id = ${requestId}`;
  const rows = await run<{ number: bigint }>(`SELECT number FROM numbered_event WHERE ${condition} ORDER BY 1`);
  return rows.map(({ number }) => number);
}

/** Adds a watch of all files or of a request. `change` returns the events that the watch received. */
export function watch(
  change: (received: bigint[], soil: Soil) => bigint[] | Promise<bigint[]>,
  name?: keyof typeof ids,
  isCut = false,
): Step {
  return async (soil) => {
    const requestId = name && ids[name];
    const received = await change(await readEvents(soil, requestId), soil);
    soil.observed.watches.push({ requestId, received, isOver: false, isCut });
  };
}

const LIBRARY = 'silo';
export const LEAVES = new Date('2100-01-01T00:00:00.123Z');
export const ADD_LIBRARY = `INSERT INTO library (name, kind, contract, drives, added_at) VALUES ('${LIBRARY}', 'torture', 'STAGING', 2, now())`;
export const addStaging = (state: string, { name = 'NULL', until = 'NULL' } = {}) =>
  `INSERT INTO staging (file_id, library_id, state, batch, remote_id, size, asked_at, since, due_at, ready_until)
   SELECT f.id, b.id, '${state}', gen_random_uuid(), ${name}, f.size, now(), now(), now(), ${until}
   FROM tape_file f, library b WHERE f.path = '/s/gone' AND b.name = '${LIBRARY}'`;
export const FORGET = 'DELETE FROM staging';
export const DEMAND = { name: `'demand-1'` };

/**
 * Makes a staging system hold the file /s/gone, with a demand or on disk without a demand.
 * `recorded` inserts the matching database rows.
 */
export function stage(
  how: 'demanded' | 'kept',
  recorded: string[],
  options: ConstructorParameters<typeof MemoryTapeSystem>[0] = {},
): Step[] {
  const look: Step = async ({ run, observed }) => {
    const system = new MemoryTapeSystem(how === 'kept' ? { ids: false, releases: false } : options);
    system.put('/s/gone', new Uint8Array(10));
    if (how === 'kept') system.disk.set('/s/gone', LEAVES);
    else system.want(['/s/gone']);
    observed.staged = findStaged({ name: LIBRARY, url: '', system }, await run<Demand>(READ_DEMANDS)).files;
  };
  return [WATCH_DEMANDS, ADD_LIBRARY, ...recorded, look];
}

export const STAGE_REQUEST = '0b9f6f1e-0000-4000-8000-000000000000';
export const addStageRequest = (file: string) =>
  `WITH made AS (INSERT INTO stage_request (id, quota_id, made_at) SELECT '${STAGE_REQUEST}', quota_id, now() FROM request WHERE id = :complete RETURNING id)
   INSERT INTO stage_request_file (stage_request_id, path, given, ordinal, request_id, file_id)
   SELECT m.id, f.path, f.path, 1, :complete, f.id FROM made m, tape_file f WHERE f.path = '${file}'`;
export const showStageRequest = (isOver: boolean, state: string) =>
  observe({ stageRequestStatus: [{ id: STAGE_REQUEST, isOver, states: { '/s/a': state } }] });

export const receive = (known: Partial<FaultyWebhooks['messages'][number]>): Step => {
  return ({ observed }) => Object.assign(observed.messages[0] ?? {}, known);
};
export const addMessage = (webhookId: number, id: string, from: string) =>
  `INSERT INTO webhook_message (webhook_id, message_id, type, request_id, body, state, created_at, next_try_at)
   SELECT ${webhookId}, '${id}', ${from}`;
export const setMessage = (values: string) => `UPDATE webhook_message SET ${values} WHERE id = 1`;
export const wrong = (kind: Observed['wrongResponses'][number]['kind']) => ({
  'a call returned the wrong status': observe({ wrongResponses: [{ kind, text: 'wrong' }] }),
});

/**
 * Makes a failed file wait again and fail again.
 * @param isMoved whether the file got another position on tape
 * @param isReleased whether the request then releases the file
 */
export function waitAgain({ isMoved, isReleased = false }: { isMoved: boolean; isReleased?: boolean }): Step[] {
  const size = `(SELECT size FROM request_file WHERE request_id = :partial AND state = 'FAILED')`;
  const release = [
    `UPDATE quota SET used = used - ${size} WHERE "user" = 'bob'`,
    set(
      'partial',
      `state = 'COMPLETED', files_total = files_total - 1, files_failed = files_failed - 1, bytes_total = bytes_total - ${size}`,
    ),
    setFailed(`state = 'RELEASED', error_class = NULL, error = NULL`),
    publish('partial'),
  ];
  return [
    ({ observed }) => isMoved && observed.versions.set('/s/bad', [VERSION]),
    change('partial', `state = 'QUEUED', files_failed = files_failed - 1`),
    change('partial', `state = 'PARTIAL', files_failed = files_failed + 1`),
    ...(isReleased ? release : []),
  ];
}

/** Removes the first message from the database and from the deliveries. */
export const forget = (table: 'notification' | 'webhook_message', sent: 'mails' | 'messages'): Step => {
  return async ({ run, observed }) => {
    const [row] = await run<{ id: string }>(`DELETE FROM ${table} WHERE id = 1 RETURNING message_id AS id`);
    Object.assign(observed, { [sent]: observed[sent].filter(({ messageId }) => messageId !== row?.id) });
  };
};
