/** The library type `ltfs`, with scripts that simulate the changer, the drives and LTFS. */
import { closeSync, existsSync, mkdirSync, openSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { DriveError, type DriveLibrary, LibraryError, VolumeError } from '../../src/tape/drive-library.js';
import { expectFailure } from '../support/failure.js';
import { createLtfsBench, type LtfsBench, SLOTS } from '../support/ltfs/bench.js';
import { errorOf } from '../support/staging-bench.js';
import { at, describeLibrary, mount, quiet, readAll, text } from '../support/tape-library.js';
import { waitFor } from '../support/wait.js';

describeLibrary('ltfs', () => createLtfsBench({ drives: 4 }));

/** Creates a bench with two drives. The cartridges V1 and V2 are in slots 1 and 2, each with a file at position 1. */
async function makeBench(options?: Parameters<typeof createLtfsBench>[0]): Promise<LtfsBench> {
  const bench = createLtfsBench(options);
  onTestFinished(() => bench.close());
  for (const volume of ['V1', 'V2']) await bench.put(volume, 1n, text(1n), at(1n).path);
  return bench;
}

/** Mounts a cartridge, reads its file, and unmounts it. */
async function visit(library: DriveLibrary, volume: string, drive?: string): Promise<void> {
  const mounted = await mount(library, volume, drive);
  expect(await readAll(mounted, 1n)).toEqual(text(1n));
  await mounted.unmount();
}

const volumesIn = (bench: LtfsBench) => {
  const { slots, drives } = bench.readChanger();
  return { slots: slots.map(({ volume }) => volume), drives: drives.map(({ volume }) => volume) };
};
const slotsOf = (...volumes: (string | null)[]) =>
  [...volumes, ...Array.from({ length: SLOTS }, () => null)].slice(0, SLOTS);
const ALL_IN_SLOTS = { slots: slotsOf('V1', 'V2'), drives: [null, null] };

/** Moves V1 from its slot to a drive without the library. */
const moveToDrive = (bench: LtfsBench, drive: number) =>
  bench.changeChanger(({ slots, drives }) => {
    drives[drive] = { volume: 'V1', source: 1 };
    slots[0] = { volume: null };
  });

const withCommands = (bench: LtfsBench, commands: object) =>
  bench.reopen({ commands: { ...(bench.settings.commands as object), ...commands } });

describe('a cartridge', () => {
  test('is in the drive while it is mounted, and in its slot afterwards', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.library, 'V2', 'drive-2');
    expect(volumesIn(bench)).toEqual({ slots: slotsOf('V1'), drives: [null, 'V2'] });
    await mounted.unmount();
    expect(volumesIn(bench)).toEqual(ALL_IN_SLOTS);
    expect(bench.mounts()).toBe('');
  });

  test('in the drive already is mounted there; an unused one is unloaded for another', async () => {
    const bench = await makeBench();
    moveToDrive(bench, 0);
    await visit(bench.library, 'V1');
    expect(bench.log()).not.toContain('begin load');
    moveToDrive(bench, 0);
    await visit(bench.library, 'V2');
    expect(volumesIn(bench)).toEqual(ALL_IN_SLOTS);
  });

  test('is taken from another drive if that is unused, and waited for otherwise', async () => {
    const bench = await makeBench();
    moveToDrive(bench, 1);
    await visit(bench.library, 'V1');
    const mounted = await mount(bench.library, 'V1', 'drive-2');
    const says = 'the cartridge V1 is in drive 1 of the changer (drive-2), which another process uses';
    await expectFailure(mount(bench.reopen(), 'V1', 'drive-1'), VolumeError, 'TRANSIENT', says);
    expect(await readAll(mounted, 1n)).toEqual(text(1n));
    await mounted.unmount();
  });

  test('stays in a drive that is not of this library', async () => {
    const bench = await makeBench();
    moveToDrive(bench, 2);
    const says = 'the cartridge V1 is in drive 2 of the changer, a drive that does not belong to this library';
    await expectFailure(mount(bench.library, 'V1'), VolumeError, 'TRANSIENT', says);
    expect(volumesIn(bench).drives).toEqual([null, null, 'V1']);
  });

  test('goes to a free slot, and to no import/export slot, if its own is occupied or unknown', async () => {
    const bench = await makeBench();
    const first = await mount(bench.library, 'V1', 'drive-1');
    const second = await mount(bench.library, 'V2', 'drive-2');
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
    const says = 'the changer has no free slot for the cartridge V2, which is in drive 1';
    await expectFailure(second.unmount(), LibraryError, 'TRANSIENT', says);
    expect(volumesIn(bench)).toMatchObject({ drives: [null, 'V2'] });
  });

  test('from an import/export slot returns there', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ slots }) => {
      slots[0] = { volume: null };
      slots[SLOTS - 1] = { volume: 'V1', isPort: true };
    });
    await visit(bench.library, 'V1');
    expect(volumesIn(bench).slots.at(-1)).toBe('V1');
  });

  test('for cleaning stays in its drive', async () => {
    const bench = await makeBench();
    bench.changeChanger(({ drives }) => {
      drives[0] = { volume: 'CLN001L1', source: 5 };
    });
    const says = 'the cleaning cartridge CLN001L1 is in drive-1';
    await expectFailure(mount(bench.library, 'V1'), DriveError, 'TRANSIENT', says);
    expect(volumesIn(bench).drives[0]).toBe('CLN001L1');
  });
});

test('changer commands of several drives and processes never overlap', async () => {
  const bench = await makeBench();
  for (const step of ['load', 'unload', 'status'] as const) bench.behave(step, { slowMs: 20 });
  await Promise.all([visit(bench.library, 'V1', 'drive-1'), visit(bench.reopen(), 'V2', 'drive-2')]);
  const moves = bench.log().filter((line) => /^(begin|end) (status|load|unload)$/.test(line));
  expect(moves.length).toBeGreaterThan(10);
  for (let at = 0; at < moves.length; at += 2) expect(moves[at + 1]).toBe(moves[at]?.replace('begin', 'end'));
});

describe('failures', () => {
  test('a missing cartridge is MEDIA, and so are two of one name; cartridges without a barcode are counted', async () => {
    const bench = await makeBench();
    await expectFailure(mount(bench.library, 'V3'), TapeError, 'MEDIA', /^the changer has no cartridge V3$/);
    bench.changeChanger(({ slots }) => {
      slots[3] = { volume: '?' };
      slots[4] = { volume: 'V1' };
    });
    await expectFailure(mount(bench.library, 'V3'), TapeError, 'MEDIA', 'V3; cartridges without a known barcode: 1');
    const twice = 'the changer has several cartridges with the barcode V1: in slot 1 and slot 5';
    await expectFailure(mount(bench.library, 'V1'), VolumeError, 'MEDIA', twice);
  });

  test('a name that is no barcode reaches no command', async () => {
    const bench = await makeBench();
    for (const name of ['-f', '', '../V1', 'V1 V2', 'V1\n']) {
      expect(await errorOf(mount(bench.library, name))).toMatchObject({ errorClass: 'PERMANENT' });
    }
    expect(existsSync(path.join(bench.state, 'log'))).toBe(false);
  });

  test('a drive that another process uses is an error of the drive', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.library, 'V1');
    const other = bench.reopen({}, { lock: 0.1 });
    await expectFailure(mount(other, 'V2'), DriveError, 'TRANSIENT', 'another process uses drive-1');
    await mounted.unmount();
    await visit(bench.library, 'V2');
  });

  test('a changer that stays locked, or does not answer, is an error of the library', async () => {
    const bench = await makeBench();
    bench.behave('status', { hold: 'before' });
    const first = mount(bench.library, 'V1');
    await bench.waitUntilHeld('status');
    const locked = mount(bench.reopen({}, { lock: 0.1 }), 'V2', 'drive-2');
    await expectFailure(locked, LibraryError, 'TRANSIENT', /the changer .* was in use by another process for 0.1 s/);
    bench.goOn('status');
    await (await first).unmount();
    bench.behave('status', { fail: 'mtx: Request Sense: Sense Key = Not Ready' });
    await expectFailure(mount(bench.library, 'V1'), LibraryError, 'TRANSIENT', 'Sense Key = Not Ready');
  });

  test('a missing program is an error of the library, and an unknown drive one of the drive', async () => {
    const bench = await makeBench();
    const missing = mount(withCommands(bench, { load: ['no-such-mtx', '{slot}'] }), 'V1');
    await expectFailure(missing, LibraryError, 'POLICY', /programs\/no-such-mtx 1" cannot be run: .*ENOENT/);
    const says = 'the library has no drive drive-9 in its settings, only drive-1, drive-2';
    await expectFailure(mount(bench.library, 'V1', 'drive-9'), DriveError, 'POLICY', says);
  });

  test('an unreadable cartridge is MEDIA with the message of LTFS, and returns to its slot', async () => {
    const bench = await makeBench();
    rmSync(path.join(bench.state, 'cartridges/V1.blocks'));
    const says = 'LTFS11009E Cannot read volume: failed to read partition labels.';
    await expectFailure(mount(bench.library, 'V1'), VolumeError, 'MEDIA', says);
    expect(volumesIn(bench)).toEqual(ALL_IN_SLOTS);
    await visit(bench.library, 'V2');
  });

  test.each([
    ['LTFS12113E Cannot open device: it is reserved.', DriveError, 'TRANSIENT'],
    ["fuse: bad mount point `/mnt/0': No such file or directory", DriveError, 'TRANSIENT'],
    ['fusermount: user has no write access to mountpoint /mnt/0', DriveError, 'TRANSIENT'],
    ['fuse: device not found, try "modprobe fuse" first', LibraryError, 'TRANSIENT'],
    ['LTFS17285E Failed to search the final index in IP (1)', VolumeError, 'MEDIA'],
  ] as const)('a mount that fails with "%s" has its type and class', async (fail, type, errorClass) => {
    const bench = await makeBench();
    bench.behave('mount', { fail });
    await expectFailure(mount(bench.library, 'V1'), type, errorClass);
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });

  test('a load that fails is TRANSIENT, unless the cartridge is in the drive afterwards', async () => {
    const bench = await makeBench();
    bench.behave('load', { fail: 'MOVE MEDIUM from Element Address 1001 to 256 Failed' });
    await expectFailure(mount(bench.library, 'V1'), VolumeError, 'TRANSIENT', 'MOVE MEDIUM');
    bench.goOn('load');
    const { load } = bench.settings.commands as { load: string[] };
    await visit(withCommands(bench, { load: ['sh', '-c', '"$@"; exit 1', 'sh', ...load] }), 'V1');
  });

  test('a step that takes too long is ended and can be repeated', async () => {
    const bench = await makeBench();
    bench.behave('mount', { hold: 'before' });
    const late = mount(bench.reopen({}, { mount: 0.2 }), 'V1');
    await expectFailure(late, VolumeError, 'TRANSIENT', 'did not exit within 0.2 s');
    bench.goOn('mount');
    expect(volumesIn(bench).drives).toEqual([null, null]);
    await visit(bench.library, 'V1');
  });

  test('a mount command that mounts nothing is POLICY', async () => {
    const bench = await makeBench();
    const mounted = mount(withCommands(bench, { mount: ['true'] }), 'V1');
    await expectFailure(mounted, DriveError, 'POLICY', 'nothing is mounted at');
  });

  test('a mount point of another file system is refused and stays mounted', async () => {
    const bench = await makeBench();
    const place = path.join(bench.state, 'mnt/0');
    const table = `36 35 8:1 / ${place} rw,relatime shared:1 - ext4 /dev/sda1 rw\n`;
    writeFileSync(path.join(bench.state, 'mounts'), table);
    await expectFailure(
      mount(bench.library, 'V1'),
      DriveError,
      'POLICY',
      `type ext4 is mounted at ${place} instead of LTFS`,
    );
    const kept = bench.mounts();
    writeFileSync(path.join(bench.state, 'mounts'), '');
    rmSync(place, { recursive: true });
    symlinkSync('/proc', place);
    await expectFailure(
      mount(bench.library, 'V1'),
      DriveError,
      'POLICY',
      `type proc is mounted at ${place} instead of LTFS`,
    );
    expect([kept, bench.mounts(), existsSync('/proc/self')]).toEqual([table, '', true]);
  });

  test('a mount that disappears during a read is no error of the file', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.library, 'V1');
    const place = path.join(bench.state, 'mnt/0');
    unlinkSync(place);
    mkdirSync(place);
    writeFileSync(path.join(bench.state, 'mounts'), '');
    rmSync(path.join(bench.state, 'cartridges/V1'), { recursive: true });
    await expectFailure(readAll(mounted, 1n), VolumeError, 'TRANSIENT', 'V1 is no longer mounted');
    await mounted.unmount();
  });

  test('a busy mount stays and is reported, and the next mount removes it', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.library, 'V1');
    const fd = openSync(path.join(bench.state, 'mnt/0', at(1n).path), 'r');
    await expectFailure(mounted.unmount(), DriveError, 'TRANSIENT', 'target is busy');
    closeSync(fd);
    await visit(bench.reopen(), 'V2');
    expect(volumesIn(bench)).toEqual(ALL_IN_SLOTS);
  });

  test('an aborted mount rejects at once, and the next mount waits for the step that runs', async () => {
    const bench = await makeBench();
    bench.behave('load', { hold: 'before' });
    const abort = new AbortController();
    const reason = new Error('enough');
    const mounting = errorOf(bench.library.mount('V1', 'drive-1', abort.signal));
    await bench.waitUntilHeld('load');
    abort.abort(reason);
    expect(await mounting).toBe(reason);
    const next = visit(bench.library, 'V2');
    bench.goOn('load');
    await next;
    expect(volumesIn(bench)).toEqual(ALL_IN_SLOTS);
  });
});

describe('an unmount', () => {
  test('moves the cartridge only after LTFS has ended', async () => {
    const bench = await makeBench();
    const mounted = await mount(bench.library, 'V1');
    bench.behave('end', { hold: 'before' });
    const unmounting = mounted.unmount();
    await bench.waitUntilHeld('end');
    bench.goOn('end');
    await unmounting;
    const log = bench.log();
    expect(log.indexOf('end end')).toBeLessThan(log.indexOf('begin unload'));
    expect(log.filter((line) => line === 'begin unload')).toHaveLength(1);
  });

  test('retries the unload if LTFS has not inherited the lock', async () => {
    const bench = await makeBench();
    const { mount: ltfs } = bench.settings.commands as { mount: string[] };
    const mounted = await mount(withCommands(bench, { mount: ['sh', '-c', 'exec "$@" 3>&-', 'sh', ...ltfs] }), 'V1');
    bench.behave('end', { hold: 'before' });
    const unmounting = mounted.unmount();
    await waitFor('a retry', async () => bench.log().filter((line) => line === 'begin unload').length > 1);
    bench.goOn('end');
    await unmounting;
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });
});

describe('paths', () => {
  test('below the prefix are looked for below the root of the cartridge', async () => {
    const bench = await makeBench();
    await bench.put('V1', 7n, text(7n), '/data/a/b');
    const mounted = await mount(bench.reopen({ root: '/data/', prefix: '/archive' }), 'V1');
    const read = async (file: string) => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of mounted.read({ path: file, position: 7n, size: 0n }, quiet())) chunks.push(chunk);
      return Buffer.concat(chunks);
    };
    expect(await read('/archive/a/b')).toEqual(text(7n));
    const others = ['/archives/a/b', '/a/b', '/archive', '/archive/../data/a/b', '/archive//a/b', '/archive/a/c'];
    for (const other of [...others, '/archive/a']) await expectFailure(read(other), TapeError, 'PERMANENT');
    await mounted.unmount();
    await expectFailure(mount(bench.reopen({ root: '/other' }), 'V1'), VolumeError, 'MEDIA', 'has no directory /other');
    expect(volumesIn(bench).drives).toEqual([null, null]);
  });

  test('with links are followed within the cartridge only', async () => {
    const bench = await makeBench();
    writeFileSync(path.join(bench.state, 'secret'), 'secret');
    await bench.put('V1', 5n, text(5n), '/suite/directory/5');
    symlinkSync(bench.state, path.join(bench.state, 'cartridges/V1/suite/out'));
    symlinkSync('directory', path.join(bench.state, 'cartridges/V1/suite/in'));
    symlinkSync(path.join(bench.state, 'secret'), path.join(bench.state, 'cartridges/V1/suite/4'));
    const mounted = await mount(bench.library, 'V1');
    const open = (file: string) =>
      mounted.read({ path: file, position: 1n, size: 0n }, quiet())[Symbol.asyncIterator]();
    const says = 'outside the cartridge';
    await expectFailure(open('/suite/out/secret').next(), TapeError, 'PERMANENT', says);
    await expectFailure(readAll(mounted, 4n), TapeError, 'PERMANENT');
    const linked = open('/suite/in/5');
    expect((await linked.next()).value).toEqual(text(5n));
    await linked.return?.();
    await mounted.unmount();
  });
});
