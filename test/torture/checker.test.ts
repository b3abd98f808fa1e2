/** Each fault that the checker is to find, planted alone into a system that has settled, in a transaction that is rolled back. */
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MAKING_MODE } from '../../src/engine/disk/made-folder.js';
import { TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { noArchivePaths } from './archive-paths.js';
import { MAIL_RATES } from './check-mail.js';
import { check } from './checker.js';
import { READ_DOUBLE_CLAIMS, WATCH_CLAIMS } from './drive-claims.js';
import { nameDeed, type Outside, readFacts } from './facts.js';
import { type MoodyMail, startMail } from './mail.js';
import { createRandom } from './random.js';
import { bulkFaults, stagingFaults, stagingLeftovers } from './staging-faults.js';
import type { Stranger } from './stranger.js';
import { lookAtStranger, nothingStrange } from './stranger-scan.js';
import { type ViolationKind, violationKinds } from './violations.js';
import { addHooks, type MoodyHooks, startHooks, type ToldMessage } from './webhooks.js';

let app: TestApp;
let mail: MoodyMail;
let hooks: MoodyHooks;
let sources: Map<string, { size: bigint; sha256: string }>;
/** Of alice, complete; of bob, with a failed file and an unknown one; of alice, cancelled. */
let ids: { complete: number; partial: number; cancelled: number };
const backend = createMemoryBackend();
const linkRoot = makeTempDir();

beforeAll(async () => {
  mail = await startMail(createRandom(1));
  hooks = await startHooks(createRandom(2));
  const config = { smtpUrl: mail.url, webhookHosts: ['127.0.0.1'], linkRoot };
  app = await startApp({ backend, config, limits: MAIL_RATES });
  await addQuota(app.ctx, 'alice', 10_000n);
  await addHooks(app.ctx, hooks, 'alice');
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 3n) throw new TapeError('PERMANENT', 'nothing is there');
    return bytes;
  };
  const names = ['/s/a', '/s/b', '/s/bad', '/s/gone'];
  const contents = await addTaped(
    app.ctx,
    backend,
    names.map((name, index) => ({ path: name, position: BigInt(index + 1) })),
  );
  const hash = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
  sources = new Map([...contents].map(([name, bytes]) => [name, { size: BigInt(bytes.length), sha256: hash(bytes) }]));
  await addQuota(app.ctx, 'bob', 10_000n);
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
  await waitFor('the cancelled request to be released, and the mail', async () => {
    const { rows } = await app.ctx.db.pool.query(
      `SELECT FROM request r WHERE NOT is_released UNION ALL SELECT FROM notification WHERE state = 'PENDING'
       UNION ALL SELECT FROM webhook_message WHERE state = 'PENDING'
       UNION ALL SELECT FROM event_batch b WHERE b.last_number IS NULL OR b.last_number > (SELECT last FROM webhook_cursor)
       UNION ALL SELECT FROM tape_file WHERE disk_id IS NOT NULL AND stage <> 'RESTORED'
       UNION ALL SELECT FROM archive_link WHERE is_there AND look_at IS NOT NULL`,
    );
    return rows.length === 0;
  });
});
afterAll(async () => {
  await app.close();
  await mail.goAway();
  await hooks.goAway();
});

/** What a fault may be planted into. */
interface Soil {
  run(text: string): Promise<unknown>;
  read<Row extends object>(text: string): Promise<Row[]>;
  /** Tells of a request as it is now, so that the fault is not that its last event is old. */
  tell(requestId: number): Promise<unknown>;
  /** Tells that /s/gone has moved, by letters such as TA. */
  moveGone(...moves: string[]): Promise<void>;
  outside: { -readonly [Name in keyof Outside]: Outside[Name] };
  /** Takes what stands at a place in the restore area away, and puts other bytes there; undone afterwards. */
  replace(file: string, bytes?: Uint8Array): Promise<{ ino: bigint; mtimeNs: bigint }>;
  /** Makes and notes an empty folder, as if Tapegate had; undone afterwards. */
  makeFolder(folder: string): Promise<unknown>;
}

const STAGES: Record<string, string> = { U: 'UNVERIFIED', D: 'ONDISK', T: 'ONTAPE', A: 'RESTORING', R: 'RESTORED' };
const PROGRESS = 'request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk';
/** As the app does it, which may be doing it just now. */
const NUMBER = 'DO $$ BEGIN WHILE number_events(NULL) IS NULL LOOP PERFORM pg_sleep(0.01); END LOOP; END $$';

/** What is planted was told to no webhook: where that is not the fault, there is none. */
async function leaveNobodyTold({ run, outside }: Soil): Promise<void> {
  await run('DELETE FROM webhook');
  outside.told = [];
}

async function findPlanted(plant: (soil: Soil) => Promise<unknown>, { isTold = false } = {}): Promise<ViolationKind[]> {
  const client = await app.ctx.db.pool.connect();
  const undo: (() => void)[] = [];
  const run = (text: string) => client.query(text);
  const soil: Soil = {
    run,
    read: async <Row extends object>(text: string) => (await client.query<Row>(text)).rows,
    tell: async (id) => {
      await run(`INSERT INTO event (at, request_ids, ${PROGRESS})
        SELECT now(), '{}', ${PROGRESS.replace('request_id', 'id')} FROM request WHERE id = ${id}`);
      await run(NUMBER);
    },
    moveGone: async (...moves) => {
      for (const [from = '', to = ''] of moves) {
        await run(`INSERT INTO event (at, request_ids, file_id, from_stage, to_stage)
          SELECT now(), '{}', id, '${STAGES[from]}', '${STAGES[to]}' FROM tape_file WHERE path = '/s/gone'`);
      }
      await run(NUMBER);
    },
    outside: {
      sources,
      mails: [...mail.mails],
      told: [...hooks.told],
      touched: new Set(),
      acknowledged: new Set(),
      bulks: new Set(),
      polls: [],
      revivals: new Map(),
      asked: new Map(),
      watches: [],
      miswritten: new Set(),
      withdrawn: new Set(),
      versions: new Map(),
      openRetirements: new Set(),
      archivePaths: { root: linkRoot, lost: [] },
      strange: nothingStrange,
      staged: [],
      stuck: [],
      doubleClaims: [],
      wrong: [],
    },
    replace: async (file, bytes) => {
      const place = path.join(app.restoreDir, file);
      const aside = path.join(app.dataDir, 'aside');
      const wasThere = await lstat(place).catch(() => undefined);
      if (wasThere) renameSync(place, aside);
      undo.push(() => (wasThere ? renameSync(aside, place) : rmSync(place, { force: true })));
      if (!bytes) return { ino: 0n, mtimeNs: 0n };
      writeFileSync(place, bytes);
      return await lstat(place, { bigint: true });
    },
    makeFolder: async (folder) => {
      const place = path.join(app.restoreDir, folder);
      mkdirSync(place);
      chmodSync(place, 0o755);
      undo.push(() => rmSync(place, { recursive: true }));
      const { ino } = await lstat(place, { bigint: true });
      await run(`INSERT INTO made_folder (disk_id, path, ino) VALUES (1, '${folder}', ${ino})`);
    },
  };
  try {
    await client.query('BEGIN');
    if (!isTold) await leaveNobodyTold(soil);
    await plant(soil);
    return await findKinds(client, soil.outside);
  } finally {
    for (const step of undo) step();
    await client.query('ROLLBACK');
    client.release();
  }
}

async function findKinds(client: pg.PoolClient, outside: Outside): Promise<ViolationKind[]> {
  const facts = await readFacts(
    async <Row extends object>(text: string) => (await client.query<Row>(text)).rows,
    outside,
  );
  return [...new Set(check(facts).map((violation) => violation.kind))];
}

const bytesOf = (file: string) => readFileSync(path.join(app.restoreDir, file));
const setComplete = (values: string) => `UPDATE request SET ${values} WHERE id = ${ids.complete}`;

/** The path that nobody knows is one of the catalogue, and stays out. */
const leaveOut = (reason: string) =>
  `UPDATE awaited_path SET path = '/s/gone', reason = '${reason}'; UPDATE quota SET awaited_paths = 0`;

/** A stranger who has nothing. */
const nobody: Stranger = {
  home: '/nowhere',
  grounds: [],
  belongings: new Map(),
  folders: new Map(),
  carried: new Set(),
  losses: new Set(),
  ask: async () => undefined,
  end: () => {},
};

const TEXT = Buffer.from('not of the archive');
const recallOf = (file: string, state: string) =>
  `INSERT INTO recall (file_id, size, state, created_at) SELECT id, size, '${state}', now() FROM tape_file WHERE path = '${file}'`;

const copyAt = (stage: string, verified: string) =>
  `INSERT INTO tape_file (path, size, stage, verified, checksum, volume_id, position)
   VALUES ('/u/copy', 1, '${stage}', ${verified}, 'md5:00', 1, 99)`;

/** Ids of the events of all files, or of a request, in order. */
async function readEventIds({ run }: Soil, requestId?: number): Promise<bigint[]> {
  const condition = requestId === undefined ? 'file_id IS NOT NULL' : `request_id = ${requestId}`;
  const { rows } = (await run(
    `SELECT number AS id FROM numbered_event WHERE ${condition} ORDER BY 1`,
  )) as pg.QueryResult<{ id: bigint }>;
  return rows.map((row) => row.id);
}

/** Has somebody watch who is told what `change` makes of the events that there are. */
async function plantWatch(soil: Soil, change: (ids: bigint[]) => bigint[], requestId?: number): Promise<void> {
  const told = change(await readEventIds(soil, requestId));
  soil.outside.watches = [{ requestId, told, isOver: false, isCut: false }];
}

/** By what is planted; each is the only fault then. */
const faults: [ViolationKind, what: string, plant: (soil: Soil) => Promise<unknown>][] = [
  [
    'hold-open',
    'a hold of a live request waits',
    async ({ run, tell, outside }) => {
      await run(`UPDATE hold SET state = 'WAITING' WHERE request_id = ${ids.complete}`);
      await run(setComplete('files_on_disk = 0, bytes_on_disk = 0'));
      await tell(ids.complete);
      outside.revivals = new Map([[ids.complete, 1]]);
    },
  ],
  [
    'hold-unexplained',
    'a failed hold has lost its text',
    ({ run }) => run(`UPDATE hold SET error = NULL WHERE state = 'FAILED'`),
  ],
  [
    'hold-unexplained',
    'a failed hold has lost its class',
    ({ run }) => run(`UPDATE hold SET error_class = NULL WHERE state = 'FAILED'`),
  ],
  [
    'hold-without-copy',
    'a hold says ON_DISK of a file on tape',
    async ({ run, tell }) => {
      await run(`UPDATE hold SET state = 'ON_DISK', error_class = NULL, error = NULL WHERE state = 'FAILED'`);
      await run(`UPDATE request SET state = 'COMPLETED', files_on_disk = 2, files_failed = 0, bytes_on_disk = bytes_total
        WHERE id = ${ids.partial}`);
      await tell(ids.partial);
    },
  ],
  [
    'hold-not-satisfied',
    'a hold says FAILED of a file on disk',
    async ({ run, tell }) => {
      await run(
        `UPDATE hold SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' WHERE request_id = ${ids.complete}`,
      );
      await run(setComplete(`state = 'PARTIAL', files_on_disk = 0, files_failed = 1, bytes_on_disk = 0`));
      await tell(ids.complete);
    },
  ],
  [
    'hold-size',
    'a hold is charged one byte more than its file has',
    async ({ run, tell }) => {
      await run(`UPDATE hold SET size = size + 1 WHERE request_id = ${ids.complete}`);
      await run(setComplete('bytes_total = bytes_total + 1, bytes_on_disk = bytes_on_disk + 1'));
      await run(`UPDATE quota SET used = used + 1 WHERE "user" = 'alice'`);
      await tell(ids.complete);
    },
  ],
  [
    'join-missed',
    'a path of the catalogue is awaited as unknown',
    ({ run }) => run(`UPDATE awaited_path SET path = '/s/gone'`),
  ],
  ['join-missed', 'a path is refused although the quota has room', ({ run }) => run(leaveOut('QUOTA_FULL'))],
  [
    'join-missed',
    'a pattern matches a file that its request does not hold',
    ({ run }) => run(setComplete(`pattern = '/s/'`)),
  ],
  [
    'join-missed',
    'a pattern was left out of something, and nobody looks whether there is room',
    ({ run }) => run(setComplete(`pattern = '/s/', left_out_size = 1`)),
  ],
  ['join-missed', 'a path is left out although the request has no limit', ({ run }) => run(leaveOut('LIMIT'))],
  [
    'join-missed',
    'a path is left out for a limit that is not reached',
    async ({ run }) => {
      await run(leaveOut('LIMIT'));
      await run('UPDATE request SET max_files = files_total + 1');
    },
  ],
  [
    'withdrawn-wanted',
    'a path that is withdrawn waits for room in the quota',
    async ({ run }) => {
      await run(leaveOut('QUOTA_FULL'));
      await run(`UPDATE tape_file SET withdrawn_at = now() WHERE path = '/s/gone'`);
    },
  ],
  [
    'copy-untried',
    'a file that has failed is on tape once more',
    ({ run }) =>
      run(`WITH other AS (INSERT INTO volume (name) VALUES ('V00009') RETURNING id)
        UPDATE tape_file SET copy_volume_id = other.id, copy_position = 99 FROM other WHERE path = '/s/bad'`),
  ],
  ['volume-left', 'a volume is retired that a file is on', ({ run }) => run('UPDATE volume SET retired_at = now()')],
  [
    'volume-left',
    'a volume is retired that a second copy is on',
    ({ run }) =>
      run(`WITH other AS (INSERT INTO volume (name, retired_at) VALUES ('V00009', now()) RETURNING id)
        UPDATE tape_file SET copy_volume_id = other.id, copy_position = 99 FROM other WHERE path = '/s/a'`),
  ],
  [
    'withdrawn-never',
    'a hold says that a file was withdrawn',
    ({ run }) =>
      run(`UPDATE hold SET error_class = 'POLICY', error = 'withdrawn from the archive' WHERE state = 'FAILED'`),
  ],
  [
    'hold-lost',
    'a bundle has another file than the request had',
    async ({ run }) => {
      await run(`WITH gone AS (DELETE FROM hold WHERE request_id = ${ids.cancelled} RETURNING *)
        INSERT INTO hold_bundle (request_id, first_ordinal, last_ordinal, file_ids, ordinals, sizes, states)
        SELECT request_id, ordinal, ordinal, ARRAY[(SELECT id FROM tape_file WHERE path = '/s/bad')], ARRAY[ordinal], ARRAY[size],
          ARRAY[state] FROM gone`);
      await run(`UPDATE request SET form = 'COMPACT' WHERE id = ${ids.cancelled}`);
    },
  ],
  [
    'request-form',
    'a request that is said to be compact has rows',
    ({ run }) => run(`UPDATE request SET form = 'COMPACT' WHERE id = ${ids.cancelled}`),
  ],
  [
    'request-early',
    'a request has expired days before its retention',
    async ({ run, tell }) => {
      await run(
        `UPDATE request SET state = 'EXPIRED', retention = now() + interval '3 days' WHERE id = ${ids.cancelled}`,
      );
      await tell(ids.cancelled);
    },
  ],
  [
    'request-times',
    'a request has its last file in a year to come',
    ({ run }) => run(setComplete(`last_files_on_disk = now() + interval '1 year'`)),
  ],
  [
    'copy-bytes',
    'a file that was moved has the bytes of its old place',
    async ({ outside }) => {
      const place = { volume: 'V00001', position: 1n, sha256: '0'.repeat(64) };
      outside.versions = new Map([['/s/a', [place]]]);
    },
  ],
  [
    'checksum-missing',
    'a restored file has lost its checksum',
    ({ run }) => run("UPDATE tape_file SET checksum = NULL WHERE path = '/s/a'"),
  ],
  [
    'checksum-wrong',
    'a first restore has given a file the checksum of other bytes',
    ({ run }) => run("UPDATE tape_file SET checksum = 'sha256:00', checksum_taken = true WHERE path = '/s/a'"),
  ],
  [
    'watch-cut',
    'a watch is completed while the request goes on',
    async (soil) => {
      await plantWatch(soil, (told) => told, ids.complete);
      for (const watch of soil.outside.watches) watch.isCut = true;
    },
  ],
  [
    'request-lost',
    'a request that was answered is not there',
    async ({ outside }) => {
      outside.acknowledged = new Set([ids.complete, 999_999]);
    },
  ],
  [
    'request-counts',
    'an ended request counts a file more than it holds',
    async ({ run, tell }) => {
      await run(`UPDATE request SET files_total = files_total + 1 WHERE id = ${ids.cancelled}`);
      await tell(ids.cancelled);
    },
  ],
  [
    'request-counts',
    'a live request counts a byte more than it holds',
    async ({ run, tell }) => {
      await run(setComplete('bytes_total = bytes_total + 1'));
      await tell(ids.complete);
    },
  ],
  [
    'request-state',
    'a request without failed files is PARTIAL',
    async ({ run, tell }) => {
      await run(setComplete(`state = 'PARTIAL'`));
      await tell(ids.complete);
    },
  ],
  [
    'request-times',
    'a request ends before it starts',
    ({ run }) => run(setComplete(`tapestore_request_end = tapestore_request_start - interval '1 microsecond'`)),
  ],
  [
    'request-times',
    'a request starts before it is made',
    ({ run }) => run(setComplete(`request_date = tapestore_request_start + interval '1 microsecond'`)),
  ],
  ['request-times', 'a done request has not ended', ({ run }) => run(setComplete('tapestore_request_end = NULL'))],
  ['request-times', 'a request ends without a start', ({ run }) => run(setComplete('tapestore_request_start = NULL'))],
  [
    'request-times',
    'the last file comes before the first',
    ({ run }) => run(setComplete(`last_files_on_disk = first_files_on_disk - interval '1 microsecond'`)),
  ],
  ['request-times', 'there is a last file and no first', ({ run }) => run(setComplete('first_files_on_disk = NULL'))],
  ['request-times', 'a done request has no last file', ({ run }) => run(setComplete('last_files_on_disk = NULL'))],
  [
    'request-unreleased',
    'an ended request is not released',
    ({ run }) => run(`UPDATE request SET is_released = false WHERE id = ${ids.cancelled}`),
  ],
  [
    'audit-missing',
    'a request that nobody has made',
    async ({ run }) => {
      await run('ALTER TABLE audit DISABLE TRIGGER audit_guard_rows');
      await run(`DELETE FROM audit WHERE operation = 'createRequest' AND object = '${ids.complete}'`);
    },
  ],
  [
    'audit-missing',
    'a change that was confirmed twice and has one row',
    async ({ outside }) => {
      outside.asked = new Map([[nameDeed('createRequest', ids.cancelled), { times: 2, confirmed: 2 }]]);
    },
  ],
  [
    'audit-missing',
    'a request is cancelled, and nobody has done it',
    async ({ run }) => {
      await run('ALTER TABLE audit DISABLE TRIGGER audit_guard_rows');
      await run(`DELETE FROM audit WHERE operation = 'cancelRequest' AND object = '${ids.cancelled}'`);
    },
  ],
  [
    'audit-twice',
    'a change that was asked for once and has two rows',
    async ({ run, outside }) => {
      outside.asked = new Map([[nameDeed('cancelRequest', ids.cancelled), { times: 1, confirmed: 1 }]]);
      const columns = 'at, who, way, operation, kind, object, result';
      await run(`INSERT INTO audit (${columns}) SELECT ${columns} FROM audit WHERE operation = 'cancelRequest'`);
    },
  ],
  [
    'quota-used',
    'a quota is charged a byte too much',
    ({ run }) => run('UPDATE quota SET used = used + 1 WHERE id = 1'),
  ],
  [
    'quota-counts',
    'a quota counts a request too many',
    ({ run }) => run('UPDATE quota SET open_requests = open_requests + 1 WHERE id = 1'),
  ],
  [
    'quota-counts',
    'a path that is let go is still counted',
    ({ run }) => run(`DELETE FROM awaited_path WHERE path = '/s/never'`),
  ],
  ['quota-counts', 'a pattern is not counted', ({ run }) => run('UPDATE quota SET standing_patterns = 0 WHERE id = 1')],
  ['copy-missing', 'a restored file is gone', ({ replace }) => replace('/s/a')],
  [
    'link-missing',
    'no link is at an archive path',
    async ({ outside }) => {
      outside.archivePaths = { root: makeTempDir(), lost: [] };
    },
  ],
  [
    'link-left',
    'a link leads to where a copy was',
    async ({ outside }) => {
      const root = makeTempDir();
      cpSync(linkRoot, root, { recursive: true, verbatimSymlinks: true });
      symlinkSync(path.join(app.restoreDir, 's/gone'), path.join(root, 's/gone'));
      outside.archivePaths = { root, lost: [] };
    },
  ],
  [
    'link-folder',
    'a folder for a link is half made',
    async ({ outside }) => {
      const root = makeTempDir();
      cpSync(linkRoot, root, { recursive: true, verbatimSymlinks: true });
      mkdirSync(path.join(root, 'half/made'), { recursive: true });
      chmodSync(path.join(root, 'half'), MAKING_MODE);
      outside.archivePaths = { root, lost: [] };
    },
  ],
  [
    'link-stranger',
    "somebody's file has gone",
    async ({ outside }) => {
      outside.archivePaths = { ...outside.archivePaths, lost: ['/archive/s/mine was file mine, and is nothing'] };
    },
  ],
  [
    'copy-bytes',
    'a restored file has one other bit, and its own time',
    async ({ run, replace }) => {
      const bytes = bytesOf('/s/a');
      bytes[500] = (bytes[500] ?? 0) ^ 1;
      const { ino, mtimeNs } = await replace('/s/a', bytes);
      await run(`UPDATE tape_file SET disk_ino = ${ino}, disk_mtime_ns = ${mtimeNs} WHERE path = '/s/a'`);
    },
  ],
  [
    'copy-inode',
    'a restored file is another one with the same bytes and time',
    async ({ run, replace }) => {
      const { mtimeNs } = await replace('/s/a', bytesOf('/s/a'));
      await run(`UPDATE tape_file SET disk_mtime_ns = ${mtimeNs} WHERE path = '/s/a'`);
    },
  ],
  [
    'copy-unseen',
    'what a recall left on a disk was not looked at',
    ({ run }) =>
      run(`INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size)
        SELECT id, 1, 1, 1, size FROM tape_file WHERE path = '/s/gone'`),
  ],
  ['copy-time', 'a restored file was written again', ({ replace }) => replace('/s/a', bytesOf('/s/a'))],
  [
    'copy-unknown',
    'a file stands in the restore area that no request asked for',
    ({ replace }) => replace('/s/x', TEXT),
  ],
  ['copy-unknown', 'a file on tape stands there', ({ replace }) => replace('/s/gone', TEXT)],
  ['copy-partial', 'a partial file is left', ({ replace }) => replace('/s/.tapegate-4-1.part', TEXT)],
  [
    'copy-left',
    'a copy of a file on tape is noted',
    async ({ run }) => {
      await run(`UPDATE tape_file SET disk_id = 1 WHERE path = '/s/gone'`);
      await run('UPDATE restore_disk SET used = used + 1000');
    },
  ],
  [
    'file-doubted',
    'a file that nobody touched went through UNVERIFIED',
    ({ moveGone }) => moveGone('TA', 'AR', 'RU', 'UD', 'DT'),
  ],
  [
    'file-doubted',
    'a file was served by what stood in its place, which nobody had put there',
    ({ moveGone }) => moveGone('TA', 'AU', 'UT'),
  ],
  [
    'file-doubted',
    'a file whose copy was leaving went to UNVERIFIED, and nobody touched it',
    ({ moveGone }) => moveGone('TA', 'AR', 'RT', 'TU', 'UT'),
  ],
  [
    'file-restoring',
    'a file is on its way although nothing brings it',
    async ({ run, moveGone }) => {
      await run(`UPDATE tape_file SET stage = 'RESTORING' WHERE path = '/s/gone'`);
      await moveGone('TA');
    },
  ],
  [
    'file-unheld',
    'a restored file is held by an ended request only',
    async ({ run, moveGone, replace, outside }) => {
      outside.archivePaths = noArchivePaths;
      const { ino, mtimeNs } = await replace('/s/gone', backend.volumes.get('V00001')?.get(4n));
      await run(
        `UPDATE tape_file SET stage = 'RESTORED', disk_id = 1, disk_ino = ${ino}, disk_mtime_ns = ${mtimeNs}
         WHERE path = '/s/gone'`,
      );
      await run('UPDATE restore_disk SET used = used + 1000');
      await moveGone('TA', 'AR');
    },
  ],
  [
    'file-unheld',
    'a restored file was let go early',
    async ({ run, tell }) => {
      await run(`UPDATE hold SET state = 'RELEASED' WHERE request_id = ${ids.complete}`);
      await run(setComplete('files_total = 0, files_on_disk = 0, bytes_total = 0, bytes_on_disk = 0'));
      await run(`UPDATE quota SET used = 0 WHERE "user" = 'alice'`);
      await tell(ids.complete);
    },
  ],
  [
    'hold-unnamed',
    'a hold has failed for something in the way, and nobody knows of what',
    ({ run }) =>
      run(`UPDATE hold SET error_class = 'POLICY', error = 'EACCES: permission denied' WHERE state = 'FAILED'`),
  ],
  [
    'hold-unnamed',
    'a hold has failed for a place that is a number',
    ({ run }) =>
      run(
        `UPDATE hold SET error_class = 'POLICY', error = 'EEXIST: /proc/self/fd/7/a, in ${app.restoreDir}' WHERE state = 'FAILED'`,
      ),
  ],
  ['folder-left', 'a folder that was made is empty', ({ makeFolder }) => makeFolder('/s/empty')],
  ['folder-unnoted', 'a folder of a copy is not noted', ({ run }) => run(`DELETE FROM made_folder`)],
  [
    'folder-note',
    'a folder that is noted is not there',
    ({ run }) => run(`INSERT INTO made_folder (disk_id, path, ino) VALUES (1, '/s/none', 1)`),
  ],
  ['folder-note', 'a folder is another one than was noted', ({ run }) => run('UPDATE made_folder SET ino = ino + 1')],
  ['folder-note', 'a folder is noted as being made', ({ run }) => run('UPDATE made_folder SET ino = NULL')],
  [
    'stranger-lost',
    'a pipe of a stranger is gone',
    async ({ outside }) => {
      const place = path.join(app.restoreDir, 's/pipe');
      const belongings = new Map([[place, { ino: 1n, kind: 'pipe' as const, content: '' }]]);
      outside.strange = await lookAtStranger({ ...nobody, belongings });
    },
  ],
  [
    'stranger-lost',
    'a file of a stranger has other bytes',
    async ({ outside, replace }) => {
      const place = path.join(app.restoreDir, 's/own');
      const { ino } = await replace('/s/own', TEXT);
      const belongings = new Map([[place, { ino, kind: 'file' as const, content: '0'.repeat(64) }]]);
      outside.strange = await lookAtStranger({ ...nobody, belongings });
    },
  ],
  [
    'stranger-taken',
    'a file of a stranger counts as a copy',
    async ({ outside }) => {
      const place = path.join(app.restoreDir, 's/a');
      const { ino } = await lstat(place, { bigint: true });
      const content = createHash('sha256').update(bytesOf('/s/a')).digest('hex');
      const belongings = new Map([[place, { ino, kind: 'file' as const, content }]]);
      outside.strange = await lookAtStranger({ ...nobody, belongings });
    },
  ],
  [
    'stranger-outside',
    'a copy has landed in a folder of a stranger',
    async ({ outside }) => {
      const home = path.join(app.dataDir, 'home');
      mkdirSync(home, { recursive: true });
      writeFileSync(path.join(home, 'copy'), TEXT);
      outside.strange = await lookAtStranger({ ...nobody, home });
    },
  ],
  [
    'drive-twice',
    'a drive is claimed, and goes to another engine at once',
    async ({ run, read, outside }) => {
      await run(WATCH_CLAIMS);
      const claim = (id: string) =>
        run(`UPDATE drive SET engine_id = '${id}', epoch = epoch + 1,
          lease_until = timezone('utc', clock_timestamp()) + interval '1 hour' WHERE name = 'drive-1'`);
      await run(`UPDATE drive SET engine_id = NULL, lease_until = NULL`);
      await claim('00000000-0000-4000-8000-000000000001');
      await claim('00000000-0000-4000-8000-000000000002');
      outside.doubleClaims = (await read<{ text: string }>(READ_DOUBLE_CLAIMS)).map(({ text }) => text);
    },
  ],
  ...stagingFaults,
  ...bulkFaults,
  [
    'process-stuck',
    'an engine does not end',
    async ({ outside }) => {
      outside.stuck = ['engine-1 has not ended'];
    },
  ],
  ...(['token-refused', 'token-revived', 'answer-internal'] as const).map((kind): (typeof faults)[number] => [
    kind,
    'a call was answered so',
    async ({ outside }) => {
      outside.wrong = [{ kind, text: 'a call was answered with another status' }];
    },
  ]),
  [
    'audit-missing',
    'a token was revoked, and nobody has done it',
    async ({ outside }) => {
      outside.asked = new Map([[nameDeed('revokeToken', 1), { times: 1, confirmed: 1 }]]);
    },
  ],
  ['recall-running', 'a recall runs', ({ run }) => run(recallOf('/s/gone', 'RUNNING'))],
  ['recall-unheld', 'a recall waits for an ended request', ({ run }) => run(recallOf('/s/gone', 'WAITING'))],
  ['recall-unheld', 'a recall waits for a hold that has failed', ({ run }) => run(recallOf('/s/bad', 'WAITING'))],
  ['disk-used', 'a disk has a byte too much in use', ({ run }) => run('UPDATE restore_disk SET used = used + 1')],
  ['disk-reserved', 'a disk has a byte reserved', ({ run }) => run('UPDATE restore_disk SET reserved = 1')],
  [
    'mail-missing',
    'mail was never queued',
    async ({ run, outside }) => {
      const { rows } = (await run('DELETE FROM notification WHERE id = 1 RETURNING message_id')) as pg.QueryResult;
      outside.mails = outside.mails.filter(({ messageId }) => messageId !== rows[0]?.message_id);
    },
  ],
  [
    'mail-unsent',
    'mail waits in the outbox',
    ({ run }) => run(`UPDATE notification SET state = 'PENDING' WHERE id = 1`),
  ],
  [
    'mail-unseen',
    'mail that is said to be sent never came',
    async ({ outside }) => {
      outside.mails = outside.mails.slice(1);
    },
  ],
  [
    'mail-unknown',
    'a second mail came under another Message-ID',
    async ({ outside }) => {
      outside.mails = [...outside.mails, { messageId: '<another@localhost>', to: 'a@example.org' }];
    },
  ],
  [
    'mail-unknown',
    'a mail came to somebody else as well',
    async ({ outside }) => {
      outside.mails = outside.mails.flatMap((sent) => [sent, { ...sent, to: 'x@example.org' }]);
    },
  ],
  [
    'mail-hurried',
    'two letters of a user went in one turn',
    ({ run }) =>
      run(`UPDATE mail_turn SET used_until = (SELECT min(created_at) + interval '2 ms' FROM notification)
      WHERE quota_id = (SELECT id FROM quota WHERE "user" = 'alice')`),
  ],
  ['mail-hurried', 'letters of all went in no turn', ({ run }) => run('UPDATE mail_sender SET used_until = NULL')],
  [
    'webhook-missing',
    'a message was never written',
    async ({ run, outside }) => {
      const { rows } = (await run(
        'DELETE FROM webhook_message WHERE id = 1 RETURNING message_id AS id',
      )) as pg.QueryResult;
      outside.told = outside.told.filter(({ messageId }) => messageId !== rows[0].id);
    },
  ],
  [
    'webhook-missing',
    'a request has failed, and is told as finished',
    ({ run }) => run(`UPDATE webhook_message SET type = 'request.finished' WHERE type = 'request.failed'`),
  ],
  [
    'webhook-twice',
    'a message was written twice',
    async ({ run, outside }) => {
      await run(`INSERT INTO webhook_message (webhook_id, message_id, type, request_id, body, state, created_at, next_try_at)
        SELECT webhook_id, 'msg_again', type, request_id, body, 'SENT', now(), now() FROM webhook_message WHERE type = 'request.started' ORDER BY id LIMIT 1`);
      const told = outside.told[0] as ToldMessage;
      const { rows } = (await run(
        `SELECT webhook_id AS id, body FROM webhook_message WHERE message_id = 'msg_again'`,
      )) as pg.QueryResult;
      outside.told = [...outside.told, { ...told, webhookId: rows[0].id, body: rows[0].body, messageId: 'msg_again' }];
    },
  ],
  [
    'webhook-twice',
    'a webhook of alice is told of bob',
    async ({ run, outside }) => {
      const { rows } =
        (await run(`INSERT INTO webhook_message (webhook_id, message_id, type, request_id, body, state, created_at, next_try_at)
        VALUES (2, 'msg_bob', 'request.finished', ${ids.partial}, '{}', 'SENT', now(), now()) RETURNING body`)) as pg.QueryResult;
      outside.told = [...outside.told, { webhookId: 2, messageId: 'msg_bob', body: rows[0].body, isSigned: true }];
    },
  ],
  ['webhook-unsent', 'a message waits', ({ run }) => run(`UPDATE webhook_message SET state = 'PENDING' WHERE id = 1`)],
  [
    'webhook-unsent',
    'a message was given up',
    ({ run }) => run(`UPDATE webhook_message SET state = 'GIVEN_UP' WHERE id = 1`),
  ],
  [
    'webhook-unseen',
    'a message that is said to be sent never came',
    async ({ outside }) => {
      outside.told = outside.told.slice(1);
    },
  ],
  [
    'webhook-unknown',
    'a message came that nobody has written',
    async ({ outside }) => {
      outside.told = [...outside.told, { webhookId: 1, messageId: 'msg_x', body: '{}', isSigned: true }];
    },
  ],
  [
    'webhook-unknown',
    'a message came otherwise than it was written',
    async ({ outside }) => {
      outside.told = outside.told.map((each, n) => (n === 0 ? { ...each, body: `${each.body} ` } : each));
    },
  ],
  [
    'webhook-unsigned',
    'a message is signed by somebody else',
    async ({ outside }) => {
      outside.told = outside.told.map((each, n) => (n === 0 ? { ...each, isSigned: false } : each));
    },
  ],
  ['webhook-off', 'a webhook is off', ({ run }) => run('UPDATE webhook SET disabled_at = now() WHERE id = 1')],
  [
    'mail-unasked',
    'mail was sent for a request without an address',
    async ({ run, outside }) => {
      await run(`INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, state, next_try_at, created_at)
        VALUES (${ids.partial}, 'FIRST_FILE', 'b@example.org', '', '', '<unasked@localhost>', 'SENT', now(), now())`);
      outside.mails = [...outside.mails, { messageId: '<unasked@localhost>', to: 'b@example.org' }];
    },
  ],
  [
    'progress-back',
    'an event tells of fewer files than the one before',
    async ({ run, tell }) => {
      await run(setComplete('files_on_disk = 0, bytes_on_disk = 0'));
      await tell(ids.complete);
      await run(setComplete('files_on_disk = 1, bytes_on_disk = bytes_total'));
      await tell(ids.complete);
    },
  ],
  [
    'progress-last',
    'the last event tells of fewer bytes than there are',
    async ({ run, tell }) => {
      await run(setComplete('bytes_on_disk = 0'));
      await tell(ids.complete);
      await run(setComplete('bytes_on_disk = bytes_total'));
    },
  ],
  [
    'event-unnumbered',
    'nobody is told of an event',
    ({ run }) =>
      run(`INSERT INTO event (at, request_ids, ${PROGRESS})
        SELECT now(), '{}', ${PROGRESS.replace('request_id', 'id')} FROM request WHERE id = ${ids.complete}`),
  ],
  ['stage-chain', 'a file leaves a stage that it was not at', ({ moveGone }) => moveGone('AR', 'RT')],
  ['stage-illegal', 'a file is restored without having been on its way', ({ moveGone }) => moveGone('TR', 'RT')],
  [
    'stage-last',
    'a file is where no event led it',
    ({ run }) => run(`UPDATE tape_file SET stage = 'ONDISK' WHERE path = '/s/gone'`),
  ],
  ['verify-missed', 'a tape copy is not confirmed', ({ run }) => run(copyAt('UNVERIFIED', 'NULL'))],
  [
    'verify-missed',
    'a tape copy that could not be confirmed waits for another try',
    async ({ run }) => {
      await run(copyAt('UNVERIFIED', 'NULL'));
      await run(`INSERT INTO verification (file_id, attempts, error_class, error, at, not_before)
        SELECT id, 1, 'MEDIA', 'torn', now(), now() FROM tape_file WHERE path = '/u/copy'`);
    },
  ],
  [
    'verify-wrong',
    'a tape copy with other bytes is confirmed',
    async ({ run, outside }) => {
      await run(copyAt('ONDISK', 'now()'));
      outside.miswritten = new Set(['/u/copy']);
    },
  ],
  ['watch-missed', 'an event in the middle is not told', (soil) => plantWatch(soil, (ids) => ids.toSpliced(1, 1))],
  [
    'watch-missed',
    'the last event of a request is not told',
    (soil) => plantWatch(soil, (ids) => ids.slice(0, -1), ids.complete),
  ],
  ['watch-order', 'an event is told twice', (soil) => plantWatch(soil, (ids) => [...ids, ...ids.slice(-1)])],
  ['watch-order', 'events are told in another order', (soil) => plantWatch(soil, (ids) => ids.toReversed())],
  [
    'watch-unknown',
    'an event of another request is told',
    async (soil) => {
      const others = await readEventIds(soil, ids.partial);
      await plantWatch(soil, (own) => [...own, ...others].sort((a, b) => Number(a - b)), ids.complete);
    },
  ],
];

test('a settled system has no violation', async () => {
  const found = await findPlanted(async (soil) => {
    const all = { requestId: undefined, told: await readEventIds(soil), isOver: false, isCut: false };
    const told = await readEventIds(soil, ids.cancelled);
    // it was complete, and was cancelled after that
    soil.outside.watches = [all, { requestId: ids.cancelled, told: told.slice(0, -1), isOver: true, isCut: false }];
  });
  expect(found).toEqual([]);
});

test.each([
  ['waits again where it was moved', true, false, []],
  ['waits again where it was moved, though it was let go later', true, true, []],
  ['stays so where it was not', false, false, ['progress-back']],
])('what has failed %s', async (_what, isMoved, isLetGo, kinds) => {
  const found = await findPlanted(async ({ run, tell, outside }) => {
    const { rows } = (await run(
      `SELECT f.path FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = ${ids.partial} AND h.state = 'FAILED'`,
    )) as { rows: { path: string }[] };
    const place = { volume: 'V00001', position: 1n, sha256: '0'.repeat(64) };
    if (isMoved) outside.versions = new Map([[rows[0]?.path ?? '', [place]]]);
    const set = (values: string) => run(`UPDATE request SET ${values} WHERE id = ${ids.partial}`);
    await set(`state = 'QUEUED', files_failed = files_failed - 1`);
    await tell(ids.partial);
    await set(`state = 'PARTIAL', files_failed = files_failed + 1`);
    await tell(ids.partial);
    if (!isLetGo) return;
    const size = `(SELECT size FROM hold WHERE request_id = ${ids.partial} AND state = 'FAILED')`;
    await run(`UPDATE quota SET used = used - ${size} WHERE "user" = 'bob'`);
    await set(
      `state = 'COMPLETED', files_total = files_total - 1, files_failed = files_failed - 1, bytes_total = bytes_total - ${size}`,
    );
    await run(
      `UPDATE hold SET state = 'RELEASED', error_class = NULL, error = NULL WHERE request_id = ${ids.partial} AND state = 'FAILED'`,
    );
    await tell(ids.partial);
  });
  expect(found).toEqual(kinds);
});

test('a volume has files that is being retired as far as anybody was told', async () => {
  const found = await findPlanted(async ({ run, outside }) => {
    await run('UPDATE volume SET retired_at = now()');
    outside.openRetirements = new Set(['V00001']);
  });
  expect(found).toEqual([]);
});

test('a copy has the bytes of a version that has left the archive with its volume', async () => {
  const found = await findPlanted(async ({ run, outside }) => {
    const source = sources.get('/s/a');
    if (!source) throw new Error('nothing is known of /s/a');
    outside.versions = new Map([['/s/a', [{ volume: 'V00001', position: 1n, sha256: source.sha256 }]]]);
    outside.sources = new Map(sources).set('/s/a', { ...source, sha256: '0'.repeat(64) });
    await run(`UPDATE tape_file SET volume_id = NULL, position = NULL, withdrawn_at = now() WHERE path = '/s/a'`);
    outside.withdrawn = new Set(['/s/a']);
  });
  expect(found).toEqual([]);
});

test('a folder is empty whose copy was taken away by somebody', async () => {
  const found = await findPlanted(async ({ run, replace, makeFolder, outside }) => {
    await makeFolder('/s/emptied');
    await replace('/s/a', undefined);
    await run(`UPDATE tape_file SET path = '/s/emptied/a' WHERE path = '/s/a'`);
    outside.touched = new Set([path.join(app.restoreDir, 's/emptied/a')]);
    outside.archivePaths = noArchivePaths;
  });
  expect(found).toEqual([]);
});

test.each(stagingLeftovers)('%s is no violation: its lifetime ends it', async (_what, plant) => {
  expect(await findPlanted(plant)).toEqual([]);
});

test.each(faults)('%s is found, and nothing else, when %s', async (kind, _what, plant) => {
  expect(await findPlanted(plant, { isTold: kind.startsWith('webhook') })).toEqual([kind]);
});

test('every kind of violation is planted', () => {
  const planted = new Set(faults.map(([kind]) => kind));
  // that nobody does the work that is left is found by waiting for it
  planted.add('unsettled');
  // what the doctor finds is planted in doctor.test.ts
  planted.add('doctor');
  expect([...planted].sort()).toEqual(Object.keys(violationKinds).sort());
});
