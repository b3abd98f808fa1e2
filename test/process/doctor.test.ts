/**
 * `tapegate doctor` finds each planted fault, reports the expected and the found value, repairs the fault, and then
 * finds nothing.
 */
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Finding } from '../../src/domain/doctor/findings.js';
import { examine, type Report } from '../../src/engine/doctor/doctor.js';
import { openCopyDirectory } from '../../src/restore-area/made-directories.js';
import { startApp, type TestApp } from '../support/app.js';
import { withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readRestored, readStage } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const library = createMemoryLibrary();
const onRead = library.onRead;
let volumes = 0;

// tests run an engine only briefly, so that no engine repairs the planted faults
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
beforeEach(() => {
  library.onRead = onRead;
});
afterAll(async () => {
  // one test sets the stage of this file with SQL
  expect((await findIllegalMoves(app)).filter((move) => !move.startsWith('/queue/ahead:'))).toEqual([]);
  await cleanUp();
  await app.close();
});

const place = (file: string) => path.join(app.restoreDir, file);
const sql = (text: string, values: unknown[] = []) => app.ctx.db.pool.query(text, values);
const fileId = `(SELECT id FROM tape_file WHERE path = $1)`;

async function tape(...files: string[]): Promise<Map<string, Uint8Array>> {
  const volume = `V${++volumes}`;
  return await addTaped(
    app.ctx,
    library,
    files.map((file, index) => ({ path: file, volume, position: BigInt(index + 1) })),
  );
}

const ask = (...files: string[]) => makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });

/** Restores files. @returns the id of the request, and the bytes of each file */
async function restore(...files: string[]): Promise<{ id: number; contents: Map<string, Uint8Array> }> {
  const contents = await tape(...files);
  const id = await ask(...files);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  return { id, contents };
}

/** Parses `kind | object | expected | found`. */
function parseFault(text: string) {
  const [kind = '', object = '', expected = '', found = ''] = text.split(' | ');
  return { kind, object, expected, found };
}

const fault = (kind: string, object: string, expected: string, found: string) => ({ kind, object, expected, found });

/** Runs the doctor as the command does. @param options command-line options */
async function doctor(...options: string[]): Promise<{ findings: Finding[]; report: Report }> {
  const findings: Finding[] = [];
  const given = { repair: options.includes('--repair'), checksums: options.includes('--checksums') };
  const report = await examine(app.ctx, given, (finding) => findings.push(finding));
  return { findings, report };
}

async function runDoctor(...args: string[]) {
  return await runCli(['doctor', ...args], { env: { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir } });
}

const sorted = (findings: object[]) => findings.map((finding) => JSON.stringify(finding)).sort();
const as = (faults: object[], isRepaired: boolean) => faults.map((each) => ({ ...each, isRepaired }));

/** Expects that the doctor finds exactly these faults, repairs them only with --repair, and then finds nothing. */
async function expectRepaired(faults: { kind: string }[], ...options: string[]): Promise<void> {
  const inOrder = (findings: { kind: string }[]) => findings.sort((a, b) => (a.kind < b.kind ? -1 : 1));
  const due = inOrder(faults);
  expect(inOrder((await doctor(...options)).findings)).toEqual(as(due, false));
  expect(inOrder((await doctor('--repair', ...options)).findings)).toEqual(as(due, true));
  expect(await doctor('--repair', ...options)).toMatchObject({ findings: [] });
}

test('without findings, the command reports what it checked, and ends with 0', async () => {
  const { id } = await restore('/well/a', '/well/b');
  const examined = {
    ...{ quotas: 1, requests: 1, requestFiles: 2, recalls: 0, disks: 1, copies: 2 },
    ...{ checksums: 2, notCompared: 0, files: 2, directories: 2, links: 0 },
  };
  const { code, stdout } = await runDoctor('--json', '--checksums');
  expect({ code, report: JSON.parse(stdout) }).toEqual({ code: 0, report: { examined, found: 0, repaired: 0 } });
  expect((await runDoctor('--repair')).stdout).toBe(
    'checked 1 quota, 1 request, 2 request files, 0 recalls, 1 disk, 2 recorded copies (0 read), 2 files in 2 directories: no findings\n',
  );
  await cancel(app, id);
});

test('wrong counters are found and recalculated', async () => {
  const { id } = await restore('/count/a', '/count/b');
  const { rows } = await sql('SELECT used FROM restore_disk');
  const used = rows[0].used as bigint;
  await sql(`UPDATE quota SET used = used + 5, unresolved_paths = unresolved_paths + 3 WHERE "user" = 'alice'`);
  await sql('UPDATE restore_disk SET used = used + 7, reserved = reserved + 9');
  await sql('UPDATE request SET files_total = 3, bytes_on_disk = 1000 WHERE id = $1', [id]);
  const counts = await doctor();
  expect(counts.findings.map(({ kind }) => kind)).toEqual([
    'disk-used',
    'disk-reserved',
    'request-counts',
    'request-state', // because the request counts a file that does not exist
    'quota-used',
    'quota-counts',
  ]);
  await sql(`UPDATE request SET state = 'RESTORING' WHERE id = $1`, [id]);
  await expectRepaired([
    parseFault(`disk-used | ${app.restoreDir} | ${used} bytes of recorded copies | ${used + 7n} bytes used`),
    parseFault(`disk-reserved | ${app.restoreDir} | 0 bytes of running recalls | 9 bytes reserved`),
    parseFault(
      `request-counts | request ${id} | 2 files, 2 on disk, 0 failed, 2000 bytes, 2000 bytes on disk | 3 files, 2 on disk, 0 failed, 2000 bytes, 1000 bytes on disk`,
    ),
    parseFault('quota-used | user alice | 2000 bytes in requests | 2005 bytes used'),
    parseFault('quota-counts | user alice | 0 unresolved paths | 3 counted'),
  ]);
  expect((await viewRequest(app, id)).state).toBe('COMPLETED');
  await sql(`UPDATE request SET state = 'RESTORING' WHERE id = $1`, [id]);
  await expectRepaired([parseFault(`request-state | request ${id} | COMPLETED | RESTORING`)]);
  await cancel(app, id);
});

test('a queue that does not match the requests is repaired, and the files are restored', async () => {
  const { id: first } = await restore('/queue/ahead');
  const contents = await tape(
    '/queue/unserved',
    '/queue/orphan',
    '/queue/lost',
    '/queue/astray',
    '/queue/nobody',
    '/queue/elsewhere',
  );
  const second = await ask('/queue/unserved', '/queue/orphan', '/queue/lost', '/queue/astray', '/queue/elsewhere');
  await sql(`UPDATE tape_file SET stage = 'ONTAPE' WHERE path = $1`, ['/queue/ahead']);
  rmSync(place('/queue/ahead'));
  await sql(`DELETE FROM recall WHERE file_id = ${fileId}`, ['/queue/unserved']);
  await sql(`UPDATE tape_file SET stage = 'RESTORING' WHERE path = $1`, ['/queue/orphan']);
  await sql(`UPDATE tape_file SET stage = 'RESTORING' WHERE path = $1`, ['/queue/lost']);
  const run = `UPDATE recall SET state = 'RUNNING', drive_id = d.id, epoch = d.epoch - $2::int,
    started_at = created_at, disk_id = k.id FROM drive d, restore_disk k WHERE d.name = 'drive-1' AND file_id = ${fileId}`;
  await sql(run, ['/queue/lost', 1]);
  await sql(run, ['/queue/astray', 0]);
  await sql(`UPDATE drive SET engine_id = gen_random_uuid(), lease_until = '2020-01-01' WHERE name = 'drive-1'`);
  await sql('UPDATE restore_disk SET reserved = 2000');
  await sql(
    `INSERT INTO recall (file_id, volume_id, position, size, created_at)
     SELECT id, volume_id, position, size, '2026-01-02' FROM tape_file WHERE path = $1`,
    ['/queue/nobody'],
  );
  await sql(`UPDATE recall SET volume_id = NULL, position = 77 WHERE file_id = ${fileId}`, ['/queue/elsewhere']);
  const { rows } = await sql(`SELECT name, epoch FROM drive WHERE name = 'drive-1'`);
  const epoch = rows[0].epoch as bigint;
  const due = [
    parseFault(
      `recall-lost | /queue/lost | a drive that runs the recall in epoch ${epoch - 1n} | drive-1 in epoch ${epoch}`,
    ),
    parseFault(
      `recall-lost | /queue/astray | a drive that runs the recall in epoch ${epoch} | drive-1, whose lease expired at 2020-01-01T00:00:00`,
    ),
    parseFault(
      'restoring-without-recall | /queue/orphan | a running recall, since the file is RESTORING | a recall that is WAITING',
    ),
    parseFault('recall-astray | /queue/astray | RESTORING, since its recall runs | ONTAPE'),
    parseFault(
      `recall-misplaced | /queue/elsewhere | volume V${volumes}, position 6, 1000 bytes, as in the catalogue | volume unknown, position 77, 1000 bytes`,
    ),
    parseFault(`request-file-ahead | /queue/ahead | on disk, as in request ${first} | ONTAPE`),
    parseFault(
      `request-file-without-recall | /queue/unserved | a recall for request ${second} | no recall, and the file is ONTAPE`,
    ),
    parseFault(
      'recall-without-request | /queue/nobody | a live request that waits for the file | no such request, and a recall created at 2026-01-02T00:00:00',
    ),
  ];
  expect(sorted((await doctor()).findings)).toEqual(sorted(as(due, false)));
  // taking over the drive also repairs this fault
  const left = due.filter(({ kind }) => kind !== 'recall-astray');
  expect(sorted((await doctor('--repair')).findings)).toEqual(sorted(as(left, true)));
  expect(await doctor('--repair')).toMatchObject({ findings: [] });
  expect(await viewRequest(app, first)).toMatchObject({ filesOnDisk: 0, bytesOnDisk: '0' });
  await withEngine(app, library, () => Promise.all([first, second].map((id) => waitForState(app, id, 'COMPLETED'))));
  for (const [file, bytes] of contents) {
    expect(readRestored(app, file)).toEqual(file === '/queue/nobody' ? undefined : Buffer.from(bytes));
  }
  expect(await doctor('--checksums')).toMatchObject({ findings: [] });
  for (const id of [first, second]) await cancel(app, id);
});

test('a missing copy is recalled again for all requests of its file', async () => {
  const { id, contents } = await restore('/missing/a', '/missing/b');
  const second = await ask('/missing/a');
  expect((await viewRequest(app, second)).state).toBe('COMPLETED');
  const { rows } = await sql('SELECT disk_mtime_ns AS ns FROM tape_file WHERE path = $1', ['/missing/a']);
  const time = new Date(Number(rows[0].ns / 1_000_000n)).toISOString().slice(0, 19);
  rmSync(place('/missing/a'));
  const missing = fault(
    'copy-missing',
    place('/missing/a'),
    expect.stringContaining(`1000 bytes of ${time}.`),
    'nothing',
  );
  const { used } = await readDisks(app);
  await expectRepaired([missing]);
  expect((await readDisks(app)).used).toBe(used - 1000n);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesOnDisk: 1, bytesOnDisk: '1000' });
  expect(await viewRequest(app, second)).toMatchObject({
    filesOnDisk: 0,
    files: [{ state: 'WAITING', stage: 'ONTAPE' }],
  });
  await withEngine(app, library, () =>
    Promise.all([id, second].map((request) => waitForState(app, request, 'COMPLETED'))),
  );
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(Buffer.from(bytes));
  for (const request of [id, second]) await cancel(app, request);
});

test('a copy that was changed outside Tapegate stays, and is UNVERIFIED once no request wants it', async () => {
  const { id } = await restore('/changed/a');
  appendFileSync(place('/changed/a'), 'by hand');
  utimesSync(place('/changed/a'), new Date(-1500), new Date(-1500));
  const late = BigInt.asIntN(64, BigInt(Date.parse('2446-05-10T22:38:55Z')) * 1_000_000n);
  await sql('UPDATE tape_file SET disk_mtime_ns = $2 WHERE path = $1', ['/changed/a', late]);
  const changed = fault(
    'copy-changed',
    place('/changed/a'),
    '1000 bytes of 2446-05-10T22:38:55.000000000',
    '1007 bytes of 1969-12-31T23:59:58.500000000',
  );
  for (const args of [[], ['--repair']]) {
    const held = await doctor(...args);
    expect(held).toMatchObject({ findings: [{ ...changed, isRepaired: false }] });
  }
  const { code, stdout } = await runDoctor('--repair');
  expect([code, stdout.split('\n').at(-2)]).toEqual([
    1,
    expect.stringMatching(/: 1 finding \(1 copy-changed\), 0 repaired$/),
  ]);
  expect(await readStage(app, '/changed/a')).toBe('R');
  await cancel(app, id);
  await expectRepaired([changed]);
  expect(await readStage(app, '/changed/a')).toBe('U');
  expect(readRestored(app, '/changed/a')).toHaveLength(1007);
});

test('only --checksums finds other bytes in a copy of the same size and time', async () => {
  const { id, contents } = await restore('/damaged/a');
  writeFileSync(place('/damaged/a'), Buffer.alloc(1000));
  const { mtimeNs, ctimeNs } = lstatSync(place('/damaged/a'), { bigint: true });
  const note = 'UPDATE tape_file SET disk_mtime_ns = $2, disk_ctime_ns = $3 WHERE path = $1';
  await sql(note, ['/damaged/a', mtimeNs, ctimeNs]);
  expect(await doctor()).toMatchObject({ findings: [] });
  const { rows } = await sql('SELECT checksum FROM tape_file WHERE path = $1', ['/damaged/a']);
  const zeros = 'sha256:541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53';
  const damaged = fault('copy-damaged', place('/damaged/a'), rows[0].checksum, zeros);
  for (const args of [['--checksums'], ['--checksums', '--repair']]) {
    expect(await doctor(...args)).toMatchObject({ findings: [{ ...damaged, isRepaired: false }] });
  }
  // once the damaged copy is removed, the file is recalled
  rmSync(place('/damaged/a'));
  expect(await doctor('--repair')).toMatchObject({ findings: [{ kind: 'copy-missing' }] });
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, '/damaged/a')).toEqual(Buffer.from(contents.get('/damaged/a') ?? []));
  await cancel(app, id);
});

test('recorded stale partial files are removed; other files stay, regardless of their bytes', async () => {
  const contents = await tape('/left/copy', '/left/other', '/left/deep/copy', '/left/own');
  await withEngine(app, library, async () => {}); // a short engine run removes everything that earlier tests left
  const made = await openCopyDirectory(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/left/deep/copy' });
  await made.handle.close();
  writeFileSync(place('/left/copy'), contents.get('/left/copy') ?? '');
  writeFileSync(place('/left/deep/copy'), contents.get('/left/deep/copy') ?? '');
  writeFileSync(place('/left/own'), contents.get('/left/own') ?? '');
  for (const file of ['/left/copy', '/left/deep/copy']) {
    const { ino, mtimeNs } = lstatSync(place(file), { bigint: true });
    await sql(
      `INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size, ino, mtime_ns)
       SELECT f.id, k.id, 1, 1, f.size, $2, $3 FROM tape_file f, restore_disk k WHERE f.path = $1 AND k.mountpoint = $4`,
      [file, ino, mtimeNs, app.restoreDir],
    );
  }
  writeFileSync(place('/left/other'), 'other bytes');
  writeFileSync(place('/left/foreign'), 'foreign');
  writeFileSync(place('/left/.tapegate-999999-1-3.part'), 'half');
  const orphan = (file: string, found: string) => ({
    kind: 'orphan-copy',
    object: place(file),
    expected: 'no copy at this path; the file (1000 bytes) is ONTAPE',
    found,
  });
  const stay = [
    orphan('/left/other', '11 bytes'),
    orphan('/left/own', '1000 bytes'),
    parseFault(`unknown-file | ${place('/left/foreign')} | a path in the catalogue | a file`),
  ];
  const go = [
    orphan('/left/copy', '1000 bytes'),
    orphan('/left/deep/copy', '1000 bytes'),
    parseFault(
      `partial-file | ${place('/left/.tapegate-999999-1-3.part')} | a recall of file 999999 running on drive 1 in epoch 3 | a partial file of 4 bytes, but no such recall`,
    ),
  ];
  expect(sorted((await doctor()).findings)).toEqual(sorted(as([...stay, ...go], false)));
  expect(sorted((await doctor('--repair')).findings)).toEqual(sorted([...as(stay, false), ...as(go, true)]));
  expect(sorted((await doctor('--repair')).findings)).toEqual(sorted(as(stay, false)));
  expect(existsSync(place('/left/deep'))).toBe(false);
  expect(readFileSync(place('/left/own'))).toEqual(Buffer.from(contents.get('/left/own') ?? ''));
  expect(readFileSync(place('/left/foreign'), 'utf8')).toBe('foreign');
  expect(readFileSync(place('/left/other'), 'utf8')).toBe('other bytes');
  rmSync(place('/left'), { recursive: true });
});

test('a restored file that no request wants, and that no engine would remove, is removed', async () => {
  const { id } = await restore('/unheld/a');
  await cancel(app, id);
  expect(await doctor()).toMatchObject({ findings: [] }); // an engine is about to remove the copy
  await sql('UPDATE request SET is_released = true WHERE id = $1', [id]);
  await expectRepaired([
    parseFault(
      'restored-without-request | /unheld/a | a live request for a file that is RESTORED | no such request, and a copy of 1000 bytes',
    ),
  ]);
  expect(await readStage(app, '/unheld/a')).toBe('T');
  expect(readRestored(app, '/unheld/a')).toBeUndefined();
});

test('a directory gets the mode that the catalogue says now, unless someone else has set its mode', async () => {
  const dirs = ['/dir-mode', '/dir-mode/own', '/dir-mode/changed', '/dir-mode/unrecorded'];
  const { id } = await restore(...dirs.map((dir) => `${dir}/f`));
  expect((await doctor()).findings).toEqual([]);
  const record = (modes: string) =>
    sql(`INSERT INTO directory (path, mode) SELECT path, mode FROM unnest($1::text[], $2::int[]) AS n (path, mode)`, [
      dirs.slice(0, 3),
      Array(3).fill(Number.parseInt(modes, 8)),
    ]);
  await record('755');
  chmodSync(place('/dir-mode/changed'), 0o711);
  await expectRepaired(
    dirs.slice(0, 2).map((dir) => parseFault(`directory-mode | ${place(dir)} | mode 0755 | mode 0750`)),
  );
  expect(dirs.map((dir) => (statSync(place(dir)).mode & 0o7777).toString(8))).toEqual(['755', '755', '711', '750']);
  await cancel(app, id);
});

test('copies on a disk without its marker are not checked, and no repair creates the marker', async () => {
  const { id } = await restore('/marker/a');
  rmSync(place('.tapegate-disk'));
  rmSync(place('/marker/a')); // as if the disk were not mounted
  for (const args of [[], ['--repair', '--checksums']]) {
    const { findings, report } = await doctor(...args);
    expect(findings).toMatchObject([{ kind: 'disk-unavailable', object: app.restoreDir, isRepaired: false }]);
    expect(findings[0]?.found).toContain(
      `is not mounted, or lost its marker: ${place('.tapegate-disk')} does not exist`,
    );
    expect(report.examined).toMatchObject({ copies: 0, notCompared: 1, files: 0 });
  }
  expect(await readStage(app, '/marker/a')).toBe('R');
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const add = ['disk', 'add', app.restoreDir, '--size', '1G'];
  expect((await runCli(add, { env })).stderr).toContain('is not mounted, or lost its marker');
  expect(await runCli([...add, '--mark'], { env })).toMatchObject({ code: 0 });
  expect(await doctor('--repair')).toMatchObject({ findings: [{ kind: 'copy-missing', isRepaired: true }] });
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  await cancel(app, id);
});

test('the doctor finds nothing, and blocks nothing, while engines work and requests come and go', async () => {
  const files = Array.from({ length: 20 }, (_, n) => `/busy/${n}`);
  const contents = await tape(...files);
  const gate = createGate();
  library.onRead = async (_volume, position) => {
    if (position === 10n) await gate.opened;
  };
  await withEngine(app, library, async () => {
    const id = await ask(...files);
    await waitFor('a recall in hand', async () => library.log.some(({ position }) => position === 10n));
    let isOver = false;
    const users = (async () => {
      while (!isOver) await cancel(app, await ask(...files.slice(0, 10)));
    })();
    try {
      for (const args of [['--checksums'], ['--repair'], []]) {
        expect(await doctor(...args)).toMatchObject({ findings: [] });
      }
      gate.open();
      await waitForState(app, id, 'COMPLETED');
      expect(await doctor('--repair', '--checksums')).toMatchObject({ findings: [] });
    } finally {
      isOver = true;
      gate.open();
      await users;
    }
    for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(Buffer.from(bytes));
    await cancel(app, id);
    expect(await doctor('--repair')).toMatchObject({ findings: [] });
    await waitFor('the copies to go', async () => (await readDisks(app)).used === 0n);
  });
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('a copy that is back before its repair is not reported as repaired', async () => {
  await restore('/back/again');
  const copy = place('/back/again');
  const elsewhere = path.join(app.dataDir, 'taken-away');
  renameSync(copy, elsewhere);
  const { pool } = app.ctx.db;
  const query = async (statement: { text: string }) => {
    const answer = await pool.query(statement);
    if (/ORDER BY f\.id$/.test(statement.text) && /f\.id = ANY/.test(statement.text) && existsSync(elsewhere))
      renameSync(elsewhere, copy); // moves the copy back after the doctor has reread the row of the file
    return answer;
  };
  const watched = new Proxy(pool, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)?.bind?.(target)),
  });
  const findings: Finding[] = [];
  const ctx = { ...app.ctx, db: { ...app.ctx.db, pool: watched } };
  await examine(ctx, { repair: true, checksums: false }, (finding) => findings.push(finding));
  expect(findings).toEqual([expect.objectContaining({ kind: 'copy-missing', object: copy, isRepaired: false })]);
  expect(await doctor()).toMatchObject({ findings: [] });
});
