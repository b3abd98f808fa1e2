import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { DriveError, LibraryError, type TapeBackend, VolumeError } from '../../src/tape/backend.js';
import { createLtfsBench, type LtfsBench, SLOTS } from '../support/ltfs/bench.js';
import { at, describeBackend, mount, quiet, readAll, text } from '../support/tape-backend.js';
import { waitFor } from '../support/wait.js';

describeBackend('ltfs', () => createLtfsBench({ drives: 4 }));

/** Two drives, and the cartridges V1 and V2 in slots 1 and 2 with a file each, at position 1. */
async function makeBench(options?: Parameters<typeof createLtfsBench>[0]): Promise<LtfsBench> {
  const bench = createLtfsBench(options);
  onTestFinished(() => bench.close());
  for (const volume of ['V1', 'V2']) await bench.put(volume, 1n, text(1n), at(1n).path);
  return bench;
}

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => undefined,
    (error: unknown) => error,
  );

/** Mounts a cartridge, reads its file, and puts it back. */
async function visit(backend: TapeBackend, volume: string, drive?: string): Promise<void> {
  const mounted = await mount(backend, volume, drive);
  expect(await readAll(mounted, 1n)).toEqual(text(1n));
  await mounted.unmount();
}

const volumesIn = (bench: LtfsBench) => {
  const { slots, drives } = bench.readChanger();
  return { slots: slots.map(({ volume }) => volume), drives: drives.map(({ volume }) => volume) };
};
const slotsOf = (...volumes: (string | null)[]) =>
  [...volumes, ...Array.from({ length: SLOTS }, () => null)].slice(0, SLOTS);

describe('what becomes of cartridges', () => {
  test('a cartridge is in its slot, in the drive while it is mounted, and in its slot again', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.backend, 'V2', 'drive-2');
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1'), drives: [null, 'V2'] });
    await mounted.unmount();
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1', 'V2'), drives: [null, null] });
    expect(bench.mounts()).toBe('');
  });

  test('one that is in a drive already is mounted there, and one that nobody uses gives it its place', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ slots, drives }) => {
      drives[0] = { volume: slots[0]?.volume ?? null, source: 1 };
      slots[0] = { volume: null };
    });
    await visit(bench.backend, 'V1');
    expect(bench.log().filter((line) => line === 'begin load')).toEqual([]);
    bench.changeChanger(({ slots, drives }) => {
      drives[0] = { volume: slots[0]?.volume ?? null, source: 1 };
      slots[0] = { volume: null };
    });
    await visit(bench.backend, 'V2');
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1', 'V2'), drives: [null, null] });
  });

  test('one in another drive that nobody uses comes from there, and one that is used there is waited for', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ slots, drives }) => {
      drives[1] = { volume: 'V1', source: 1 };
      slots[0] = { volume: null };
    });
    await visit(bench.backend, 'V1');
    const mounted = await mount(bench.backend, 'V1', 'drive-2');
    const failure = await failureOf(mount(bench.reopen(), 'V1', 'drive-1'));
    expect(failure).toBeInstanceOf(VolumeError);
    expect(failure).toMatchObject({
      errorClass: 'TRANSIENT',
      message: 'the cartridge V1 is in drive 1 of the changer, drive-2, which another process uses',
    });
    expect(await readAll(mounted, 1n)).toEqual(text(1n));
    await mounted.unmount();
  });

  test('one in a drive of somebody else is left there', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ slots, drives }) => {
      drives[2] = { volume: 'V1', source: 1 };
      slots[0] = { volume: null };
    });
    expect(await failureOf(mount(bench.backend, 'V1'))).toMatchObject({
      errorClass: 'TRANSIENT',
      message: 'the cartridge V1 is in drive 2 of the changer, which is none of this library',
    });
    expect(volumesIn(bench).drives).toEqual([null, null, 'V1']);
  });

  test('one whose slot is taken, or not known, goes to a free one, and to no port for people', async () => {
    const bench = await makeBench();
    const first = await mount(bench.backend, 'V1', 'drive-1');
    const second = await mount(bench.backend, 'V2', 'drive-2');
    bench.changeChanger(({ slots, drives }) => {
      slots[0] = { volume: 'NEW' };
      drives[1] = { volume: 'V2', source: null };
      for (const slot of slots.slice(3, SLOTS - 1)) slot.volume = 'OTHER';
    });
    await first.unmount();
    expect(volumesIn(bench).slots.slice(0, 3)).toEqual(['NEW', 'V1', null]);
    bench.changeChanger(({ slots }) => {
      slots[2] = { volume: 'MORE' };
    });
    await expect(second.unmount()).rejects.toMatchObject({
      errorClass: 'TRANSIENT',
      message: 'no slot is free for the cartridge V2 in drive 1 of the changer',
    });
    expect(volumesIn(bench)).toMatchObject({ drives: [null, 'V2'] });
  });

  test('one in a port comes from there, and goes back there', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ slots }) => {
      slots[0] = { volume: null };
      slots[SLOTS - 1] = { volume: 'V1', isPort: true };
    });
    await visit(bench.backend, 'V1');
    expect(volumesIn(bench).slots.at(-1)).toBe('V1');
  });

  test('a cleaning cartridge in the drive is left to its work', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ drives }) => {
      drives[0] = { volume: 'CLN001L1', source: 5 };
    });
    const failure = await failureOf(mount(bench.backend, 'V1'));
    expect(failure).toBeInstanceOf(DriveError);
    expect(failure).toMatchObject({ message: 'the cleaning cartridge CLN001L1 is in drive-1' });
    expect(volumesIn(bench).drives[0]).toBe('CLN001L1');
  });

  test('changer commands never overlap, over drives and over processes', async () => {
    const bench = await makeBench();
    for (const step of ['load', 'unload', 'status'] as const) bench.behave(step, { slowMs: 20 });
    const other = bench.reopen();
    await Promise.all([visit(bench.backend, 'V1', 'drive-1'), visit(other, 'V2', 'drive-2')]);
    const moves = bench.log().filter((line) => /^(begin|end) (status|load|unload)$/.test(line));
    expect(moves.length).toBeGreaterThan(10);
    for (let at = 0; at < moves.length; at += 2) expect(moves[at + 1]).toBe(moves[at]?.replace('begin', 'end'));
  });
});

describe('what goes wrong', () => {
  test('a cartridge that is not there is MEDIA, and cartridges without a barcode are told', async () => {
    const bench = await makeBench();
    expect(await failureOf(mount(bench.backend, 'V3'))).toMatchObject({
      errorClass: 'MEDIA',
      message: 'the changer has no cartridge V3',
    });
    bench.changeChanger(({ slots }) => {
      slots[3] = { volume: '?' };
      slots[4] = { volume: 'V1' };
    });
    expect(await failureOf(mount(bench.backend, 'V3'))).toMatchObject({
      message: 'the changer has no cartridge V3; of 1 cartridges it knows no barcode',
    });
    expect(await failureOf(mount(bench.backend, 'V1'))).toMatchObject({
      errorClass: 'MEDIA',
      message: 'the changer has several cartridges V1, in slot 1 and slot 5',
    });
  });

  test('a name that is no barcode reaches no command', async () => {
    const bench = await makeBench();
    for (const name of ['-f', '', '../V1', 'V1 V2', 'V1\n']) {
      expect(await failureOf(mount(bench.backend, name))).toMatchObject({ errorClass: 'PERMANENT' });
    }
  });

  test('a drive that another process uses is to be waited for, and no volume’s or library’s fault', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.backend, 'V1');
    const failure = await failureOf(mount(bench.reopen({}, { lock: 0.1 }), 'V2'));
    expect(failure).toBeInstanceOf(DriveError);
    expect(failure).toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining('another process uses drive-1'),
    });
    await mounted.unmount();
    await visit(bench.backend, 'V2');
  });

  test('a changer that does not come free, or does not answer, is the library’s', async () => {
    const bench = await makeBench();
    bench.behave('status', { hold: 'before' });
    const first = mount(bench.backend, 'V1');
    await bench.waitUntilHeld('status');
    const failure = await failureOf(mount(bench.reopen({}, { lock: 0.1 }), 'V2', 'drive-2'));
    expect(failure).toBeInstanceOf(LibraryError);
    expect(failure).toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringMatching(/the changer .* was in use by another process for 0.1 s/),
    });
    bench.goOn('status');
    await (await first).unmount();
    bench.behave('status', { fail: 'mtx: Request Sense: Sense Key = Not Ready' });
    const silent = await failureOf(mount(bench.backend, 'V1'));
    expect(silent).toBeInstanceOf(LibraryError);
    expect(silent).toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining('Sense Key = Not Ready'),
    });
  });

  test('a program that there is not is told as the library’s, and a drive that there is not as that drive’s', async () => {
    const bench = await makeBench();
    const commands = { ...(bench.settings.commands as object), load: ['/nowhere/mtx', '{slot}'] };
    const failure = await failureOf(mount(bench.reopen({ commands }), 'V1'));
    expect(failure).toBeInstanceOf(LibraryError);
    expect(failure).toMatchObject({
      errorClass: 'POLICY',
      message: expect.stringMatching(/"\/nowhere\/mtx 1" cannot be run: .*ENOENT/),
    });
    const nowhere = await failureOf(mount(bench.backend, 'V1', 'drive-9'));
    expect(nowhere).toBeInstanceOf(DriveError);
    expect(nowhere).toMatchObject({
      errorClass: 'POLICY',
      message: 'the settings of the library have no drive drive-9, only drive-1, drive-2',
    });
  });

  test('a cartridge that cannot be read is MEDIA with what LTFS said, and goes back to its slot', async () => {
    const bench = await makeBench();
    rmSync(path.join(bench.state, 'cartridges/V1.blocks'));
    const failure = await failureOf(mount(bench.backend, 'V1'));
    expect(failure).toBeInstanceOf(VolumeError);
    expect(failure).toMatchObject({
      errorClass: 'MEDIA',
      message: expect.stringContaining('LTFS11009E Cannot read volume: failed to read partition labels.'),
    });
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1', 'V2'), drives: [null, null] });
    await visit(bench.backend, 'V2');
  });

  test.each([
    ['LTFS12113E Cannot open device: it is reserved.', DriveError, 'TRANSIENT'],
    ["fuse: bad mount point `/mnt/0': No such file or directory", DriveError, 'TRANSIENT'],
    ['fusermount: user has no write access to mountpoint /mnt/0', DriveError, 'TRANSIENT'],
    ['fuse: device not found, try "modprobe fuse" first', LibraryError, 'TRANSIENT'],
    ['LTFS17285E Failed to search the final index in IP (1)', VolumeError, 'MEDIA'],
  ])('a mount that fails with "%s" is told as what it is', async (fail, type, errorClass) => {
    const bench = await makeBench();
    bench.behave('mount', { fail });
    const failure = await failureOf(mount(bench.backend, 'V1'));
    expect([failure?.constructor, failure]).toEqual([type, expect.objectContaining({ errorClass })]);
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });

  test('a cartridge that cannot be loaded is tried again; one that is there all the same is mounted', async () => {
    const bench = await makeBench();
    bench.behave('load', { fail: 'MOVE MEDIUM from Element Address 1001 to 256 Failed' });
    const failure = await failureOf(mount(bench.backend, 'V1'));
    expect(failure).toBeInstanceOf(VolumeError);
    expect(failure).not.toBeInstanceOf(LibraryError);
    expect(failure).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringContaining('MOVE MEDIUM') });
    bench.goOn('load');
    const load = (bench.settings.commands as { load: string[] }).load;
    const commands = { ...(bench.settings.commands as object), load: ['sh', '-c', '"$@"; exit 1', 'sh', ...load] };
    await visit(bench.reopen({ commands }), 'V1');
  });

  test('a step that takes too long is ended, and tried again', async () => {
    const bench = await makeBench();
    bench.behave('mount', { hold: 'before' });
    const failure = await failureOf(mount(bench.reopen({}, { mount: 0.2 }), 'V1'));
    expect(failure).toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining('has not ended within 0.2 s'),
    });
    bench.goOn('mount');
    expect(volumesIn(bench).drives).toEqual([null, null]);
    await visit(bench.backend, 'V1');
  });

  test('a mount command that mounts nothing is found out before any file is missed', async () => {
    const bench = await makeBench();
    const commands = { ...(bench.settings.commands as object), mount: ['true'] };
    expect(await failureOf(mount(bench.reopen({ commands }), 'V1'))).toMatchObject({
      errorClass: 'POLICY',
      message: expect.stringContaining('nothing is mounted at'),
    });
  });

  test('a mount that goes away under a reader is no fault of a file', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.backend, 'V1');
    const place = path.join(bench.state, 'mnt/0');
    unlinkSync(place);
    mkdirSync(place);
    writeFileSync(path.join(bench.state, 'mounts'), '');
    rmSync(path.join(bench.state, 'cartridges/V1'), { recursive: true });
    const failure = await failureOf(readAll(mounted, 1n));
    expect(failure).toBeInstanceOf(VolumeError);
    expect(failure).toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining('the mount of V1 has gone'),
    });
    await mounted.unmount();
  });

  test('a mount in use stays, is told, and is cleared by the next one', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.backend, 'V1');
    const fd = openSync(path.join(bench.state, 'mnt/0', at(1n).path), 'r');
    await expect(mounted.unmount()).rejects.toMatchObject({
      errorClass: 'TRANSIENT',
      message: expect.stringContaining('target is busy'),
    });
    closeSync(fd);
    await visit(bench.reopen(), 'V2');
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1', 'V2'), drives: [null, null] });
  });

  test('an aborted mount is not waited for, and the next one waits for what it has begun', async () => {
    const bench = await makeBench();
    bench.behave('load', { hold: 'before' });
    const abort = new AbortController();
    const reason = new Error('enough');
    const mounting = failureOf(bench.backend.mount('V1', 'drive-1', abort.signal));
    await bench.waitUntilHeld('load');
    abort.abort(reason);
    expect(await mounting).toBe(reason);
    const next = visit(bench.backend, 'V2');
    bench.goOn('load');
    await next;
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1', 'V2'), drives: [null, null] });
  });
});

describe('the end of LTFS', () => {
  test('is waited for before the cartridge is moved', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.backend, 'V1');
    bench.behave('end', { hold: 'before' });
    const unmounting = mounted.unmount();
    await bench.waitUntilHeld('end');
    bench.goOn('end');
    await unmounting;
    const log = bench.log();
    expect(log.indexOf('end end')).toBeLessThan(log.indexOf('begin unload'));
    expect(log.filter((line) => line === 'begin unload')).toHaveLength(1);
  });

  test('is found out by trying where it has not inherited the lock', async () => {
    const bench = await makeBench();
    const { mount: ltfs } = bench.settings.commands as { mount: string[] };
    const withoutLock = ['sh', '-c', 'exec "$@" 3>&-', 'sh', ...ltfs];
    const commands = { ...(bench.settings.commands as object), mount: withoutLock };
    const mounted = await mount(bench.reopen({ commands }), 'V1');
    bench.behave('end', { hold: 'before' });
    const unmounting = mounted.unmount();
    const tries = () => bench.log().filter((line) => line === 'begin unload').length;
    await waitFor('a second try', async () => tries() > 1 || undefined);
    bench.goOn('end');
    await unmounting;
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });
});

describe('paths', () => {
  test('are below the root of the cartridge, which stands for the prefix', async () => {
    const bench = await makeBench();
    await bench.put('V1', 7n, text(7n), '/data/a/b');
    const backend = bench.reopen({ root: '/data/', prefix: '/archive' });
    const mounted = await backend.mount('V1', 'drive-1', quiet());
    const read = async (file: string) => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of mounted.read({ path: file, position: 7n, size: 0n }, quiet())) chunks.push(chunk);
      return Buffer.concat(chunks);
    };
    expect(await read('/archive/a/b')).toEqual(text(7n));
    for (const other of [
      '/archives/a/b',
      '/a/b',
      '/archive',
      '/archive/../data/a/b',
      '/archive//a/b',
      '/archive/a/c',
      '/archive/a',
    ]) {
      expect(await failureOf(read(other))).toMatchObject({ errorClass: 'PERMANENT' });
    }
    await mounted.unmount();
    const failure = await failureOf(mount(bench.reopen({ root: '/other' }), 'V1'));
    expect(failure).toBeInstanceOf(VolumeError);
    expect(failure).toMatchObject({ errorClass: 'MEDIA', message: expect.stringContaining('has no folder /other') });
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });

  test('lead nowhere by links', async () => {
    const bench = await makeBench();
    writeFileSync(path.join(bench.state, 'secret'), 'secret');
    await bench.put('V1', 5n, text(5n), '/suite/folder/5');
    symlinkSync(bench.state, path.join(bench.state, 'cartridges/V1/suite/out'));
    symlinkSync('folder', path.join(bench.state, 'cartridges/V1/suite/in'));
    symlinkSync(path.join(bench.state, 'secret'), path.join(bench.state, 'cartridges/V1/suite/4'));
    const mounted = await mount(bench.backend, 'V1');
    const first = (file: string) =>
      mounted.read({ path: file, position: 1n, size: 0n }, quiet())[Symbol.asyncIterator]();
    expect(await failureOf(first('/suite/out/secret').next())).toMatchObject({
      errorClass: 'PERMANENT',
      message: expect.stringContaining('leads out of the cartridge'),
    });
    expect(await failureOf(readAll(mounted, 4n))).toMatchObject({ errorClass: 'PERMANENT' });
    const linked = first('/suite/in/5');
    expect((await linked.next()).value).toEqual(text(5n));
    await linked.return?.();
    await mounted.unmount();
  });
});

test.skipIf(!canMount())('what is mounted is told by the system itself', async () => {
  const bench = await makeBench();
  writeFileSync(path.join(bench.state, 'bind'), '');
  const backend = bench.reopen({ mountTable: '/proc/self/mountinfo' });
  const mounted = await mount(backend, 'V1');
  expect(await readAll(mounted, 1n)).toEqual(text(1n));
  expect(
    execFileSync('findmnt', ['--noheadings', '--mountpoint', path.join(bench.state, 'mnt/0')]).length,
  ).toBeGreaterThan(0);
  await mounted.unmount();
  await visit(backend, 'V2');
});

function canMount(): boolean {
  try {
    execFileSync('unshare', ['--mount', 'mount', '--bind', '/tmp', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
