/** A copy of the database changes no restore disk and sends nothing, until an operator takes over. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { readSystem } from '../../src/domain/ownership.js';
import { startEngine } from '../../src/engine/runner.js';
import { planTakeover } from '../../src/engine/takeover.js';
import { readOwner as readRecord, writeOwner } from '../../src/restore-area/owner.js';
import { ownershipOf, watching } from '../../src/restore-area/ownership.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { ownerName } from '../../src/tape/directory/index.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';
import { withEngine } from '../support/engine-by-hand.js';
import { askData } from '../support/graphql.js';
import { type Gateway, send } from '../support/http.js';
import { startMailServer } from '../support/mail-server.js';
import { useMemorySite } from '../support/memory-site.js';
import { cleanUp, makeDataDir, runCli, serveHere } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { waitForEnd } from '../support/server.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { workHere } from '../support/work.js';

type Owner = Parameters<typeof writeOwner>[1];
const readFence = async (gateway: Gateway) =>
  (await askData<{ fence: { reason: string } | null }>(gateway, '{ fence { reason } }')).fence?.reason ?? null;
const waitForFence = (gateway: Gateway, reason: RegExp) =>
  waitFor(`the fence: ${reason}`, async () => reason.test((await readFence(gateway)) ?? ''));

describe('a site with one engine', () => {
  const site = useMemorySite({ isIdle: true });
  const { returnMs } = watching;
  afterEach(() => void Object.assign(watching, { returnMs }));
  const ownerFile = () => path.join(site.app.restoreDir, ownerName);
  const readOwner = () => JSON.parse(readFileSync(ownerFile(), 'utf8'));
  const isOwned = async () => (await readFence(site.app)) === null && existsSync(ownerFile());

  test('a stamp that the database never recorded stops the engine, and the owner record stays', async () => {
    await withEngine(site.app, site.library, async () => {
      await waitFor('the owner record', isOwned);
      const own = readOwner();
      const other = `${JSON.stringify({ ...own, epoch: '00000000-0000-4000-8000-000000000001', number: 1 })}\n`;
      await waitFor('the fence', async () => {
        writeFileSync(ownerFile(), other); // written repeatedly, because the engine may be replacing the record
        return (await readFence(site.app))?.includes('another copy of this database');
      });
      writeFileSync(ownerFile(), other);
      const id = await site.ask(...(await site.tape('/stamp/1')).keys());
      const ready = await send(site.app, '/health/ready');
      expect([ready.status, ready.body, readFileSync(ownerFile(), 'utf8')]).toEqual([
        200,
        expect.objectContaining({ fenced: true }),
        other,
      ]);
      await expect(addDisk(site.app.ctx, { mountpoint: makeTempDir(), size: 10n })).rejects.toThrow(/is fenced: /);
      watching.returnMs = 3_600_000;
      rmSync(ownerFile()); // an operator removes the owner record
      const { ctx } = site.app;
      await waitFor('the wait for the other one', async () =>
        /belonged to another Tapegate: waiting 3600 s/.test((await ownershipOf(ctx).check()) ?? ''),
      );
      expect([await readFence(site.app), existsSync(ownerFile())]).toEqual([expect.any(String), false]);
      watching.returnMs = 0;
      await waitForEnd(site.app, id);
      expect(await readFence(site.app)).toBeNull();
    });
  });

  test('a damaged owner record stops the engine until it is removed', async () => {
    await withEngine(site.app, site.library, async () => {
      await waitFor('the owner record', isOwned);
      await waitFor('the fence', async () => {
        writeFileSync(ownerFile(), ''); // written repeatedly, because the engine may be replacing the record
        return (await readFence(site.app))?.includes('is damaged');
      });
      expect((await planTakeover(site.app.ctx)).reason).toContain('remove the record');
      rmSync(ownerFile());
      watching.returnMs = 0;
      await waitFor('the end of the fence', isOwned);
    });
  });

  test("another host's library, and a disk that only a host that is gone has found, fence no other host", async () => {
    await site.query('INSERT INTO restore_disk (mountpoint, size) VALUES ($1, 1)', ['/absent/disk']);
    const record = (file: string, age: string) =>
      site.query(
        `INSERT INTO foreign_directory (path, host, problem, seen_at)
         VALUES ($1, 'far', $1 || ' belongs to another Tapegate', timezone('utc', clock_timestamp()) - $2::interval)
         ON CONFLICT (path, host) DO UPDATE SET seen_at = excluded.seen_at`,
        [file, age],
      );
    const look = async () => [await ownershipOf(site.app.ctx).check(), await readFence(site.app)];
    await record(path.join(site.app.ctx.config.dataDir, 'library'), '0 s');
    await record('/elsewhere/library', '0 s');
    await record('/absent/disk', '1 hour');
    expect(await look()).toEqual([undefined, null]);
    await record('/absent/disk', '0 s');
    const problem = '/absent/disk belongs to another Tapegate';
    expect(await look()).toEqual([problem, problem]);
    await site.query('DELETE FROM foreign_directory');
    await site.query('DELETE FROM restore_disk WHERE mountpoint = $1', ['/absent/disk']);
    expect(await look()).toEqual([undefined, null]);
  });

  test('a stamp whose bytes were written during a takeover does not replace the new record', async () => {
    const root = makeTempDir();
    const [own, other] = [1, 2].map((n) => {
      const id = `00000000-0000-4000-8000-00000000000${n}`;
      return { identity: id, epoch: id, number: 1, at: '2026-11-29T12:00:00' };
    }) as [Owner, Owner];
    expect(await writeOwner(root, own, { isFirst: true })).toBe(true);
    expect(await writeOwner(root, { ...own, number: 2 })).toBe(true);
    expect(await writeOwner(root, other, { takes: true })).toBe(true);
    expect(await writeOwner(root, { ...own, number: 3 })).toBe(false);
    expect([(await readRecord(root))?.identity, readdirSync(root)]).toEqual([other.identity, [ownerName]]);
  });

  test('a disk of another Tapegate is not added', async () => {
    const mountpoint = makeTempDir();
    const identity = '00000000-0000-4000-8000-000000000002';
    const record = { identity, epoch: identity, number: 1, host: 'far', at: '2026-11-29T12:00:00' };
    writeFileSync(path.join(mountpoint, ownerName), JSON.stringify(record));
    await expect(addDisk(site.app.ctx, { mountpoint, size: 10n, mark: true })).rejects.toThrow(
      /belongs to another Tapegate, last used at 2026-11-29T12:00:00Z on far: if that Tapegate no longer exists, remove /,
    );
  });

  test('a database whose server was copied works only after it has watched the owner records', async () => {
    const library = path.join(site.app.ctx.config.dataDir, 'library');
    mkdirSync(library); // as if the library were not mounted
    await withEngine(site.app, site.library, () => waitFor('the owner record', isOwned));
    expect(readdirSync(library)).toEqual([]);
    const started = `jsonb_set(location, '{started}', '"1"')`;
    const { ctx } = site.app;
    const copied = { ...ctx, db: { ...ctx.db } }; // a new process
    await site.query(`UPDATE site_identity SET location = ${started}, is_stamping = true`);
    renameSync(site.app.restoreDir, `${site.app.restoreDir}-unmounted`);
    const engine = await startEngine(copied, createFirstLibrary(ctx.config), { drainMs: 0 });
    await waitForFence(site.app, /^the database server was restarted or copied, and no owner record can be read/);
    renameSync(`${site.app.restoreDir}-unmounted`, site.app.restoreDir);
    await waitForFence(site.app, /^the database server was restarted or copied: checking for 20 s/);
    await engine.stop();
    // engines that stopped normally leave no owner record to watch
    await site.query('UPDATE site_identity SET is_stamping = false');
    await withEngine(site.app, site.library, () => waitFor('no fence', isOwned));
  });

  test('a connection to another database is refused', async () => {
    const { db } = site.app.ctx;
    await db.keepDatabase();
    await site.query('UPDATE site_identity SET database = gen_random_uuid()');
    const client = new db.Client(db.config);
    client.on('error', () => {});
    await expect(client.connect()).rejects.toThrow(/the database was replaced with another one/);
    await db.keepDatabase();
    const other = new db.Client(db.config);
    await other.connect();
    await other.end();
  });

  test('a role that may not read the control data works', async () => {
    const denied = Object.assign(new Error('permission denied'), { code: '42501' });
    const db = { ...site.app.ctx.db, rows: () => Promise.reject(denied) };
    expect(await readSystem({ ...site.app.ctx, db })).toBeNull();
  });
});

describe('a backup that is restored beside production', () => {
  afterAll(cleanUp);

  test('changes no disk and sends no email until it takes over, which stops production', async () => {
    const mail = await startMailServer();
    const [dataDir, copyDir, backup] = [makeDataDir(), makeDataDir(), path.join(makeTempDir(), 'backup')];
    const env = { DATA_DIR: dataDir, LOG_LEVEL: 'silent' };
    const copyEnv = { DATA_DIR: copyDir, LOG_LEVEL: 'silent', SMTP_URL: mail.url };
    const server = await serveHere({ ...env, ENGINE: 'off', DEMO: 'off' }, { command: 'start' });
    const engine = await workHere(env);
    const source = makeTempDir();
    writeFileSync(path.join(source, 'one'), 'first');
    for (const args of [
      ['quota', 'set', 'alice', '--size', '1G', '--email', 'alice@example.org'],
      ['archive', source, '--move'],
    ])
      expect(await runCli(args, { env })).toMatchObject({ code: 0 });
    const id = await makeRequest(server, { quota: 'alice', files: ['/one'], retention: '2099-01-01' });
    await waitForEnd(server, id);
    const made = await runCli(['backup', backup], { env });
    const [, asOf = ''] = / contains the database as of (\S+Z), /.exec(made.stdout) ?? [];
    const restored = await runCli(['restore', backup], { env: copyEnv });
    expect(restored).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(` contains the database as of ${asOf}\n`),
    });

    const copy = await serveHere({ ...copyEnv, ENGINE: 'off', DEMO: 'off' }, { command: 'start' });
    const copyEngine = await workHere(copyEnv);
    const file = path.join(dataDir, 'restore/one');
    const inCopy = (...args: string[]) => runCli(args, { env: copyEnv });
    expect(JSON.parse((await inCopy('status', '--json')).stdout).fence).toEqual({
      reason: `the database was restored from a backup of ${asOf}`,
    });
    expect(copy.stdout()).toContain(`fenced     the database was restored from a backup of ${asOf}`);
    await makeRequest(copy, {
      quota: 'alice',
      files: ['/one'],
      retention: '2099-01-01',
      notify_on_last_file: 'alice@example.org',
    }); // the request is complete at once
    expect(await inCopy('cancel', String(id), String(id + 1_000_000))).toMatchObject({ code: expect.any(Number) });
    for (const args of [
      ['doctor', '--adopt'],
      ['archive', source],
      ['disk', 'add', makeTempDir(), '--size', '1G'],
    ]) {
      const { code, stderr } = await inCopy(...args);
      expect([args, code, stderr]).toEqual([
        args,
        1,
        expect.stringContaining('this Tapegate is fenced: the database was restored'),
      ]);
    }
    expect(await inCopy('doctor')).toMatchObject({ code: 1, stdout: expect.stringContaining('fenced: this Tapegate') });
    const plan = await inCopy('takeover');
    expect(plan).toMatchObject({ code: 1, stderr: expect.stringContaining('tapegate takeover --yes') });
    expect(plan.stdout).toContain(`${dataDir}/restore: last used at`);
    expect([readFileSync(file, 'utf8'), mail.mails, await readFence(server)]).toEqual(['first', [], null]);

    expect(await inCopy('takeover', '--yes')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('taken over: '),
    });
    await waitForFence(server, /belongs to another Tapegate/);
    await mail.waitForMail('alice@example.org', '');
    expect(await readFence(copy)).toBeNull();
    expect((await inCopy('audit', '--json')).stdout).toContain('"operation":"takeover"');
    expect((await runCli(['doctor', '--repair'], { env })).stderr).toContain('belongs to another Tapegate');
    await copyEngine.stop();
    await engine.stop();
    await mail.close();
  });
});
