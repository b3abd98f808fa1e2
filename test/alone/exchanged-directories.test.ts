/**
 * An archive user replaces a directory with a symbolic link between two system calls. Nothing changes at the target of
 * the link.
 */
import { chmodSync, mkdirSync, readdirSync, readlinkSync, renameSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import type { AttributesOf } from '../../src/restore-area/links/directories.js';
import { lookAtLink, makeLink, removeLink, tidyLinkDirectories } from '../../src/restore-area/links/link.js';
import { foldsNames } from '../../src/restore-area/setup.js';
import { listTree } from '../support/engine-watch.js';
import { makeTempDir } from '../support/temp-dir.js';

/** Called before each file system call, except calls that resolve the path of an open directory. */
const hook = vi.hoisted(() => ({ before: (_call: string): void => {} }));

function watch<Calls extends object>(calls: Calls, names: readonly (keyof Calls & string)[]): Calls {
  const watched = names.map((name) => {
    const call = calls[name] as (...given: unknown[]) => unknown;
    return [
      name,
      (...given: unknown[]) => {
        if (!/^\/proc\/self\/fd\/\d+$/.test(String(given[0]))) hook.before(name);
        return call(...given);
      },
    ];
  });
  return { ...calls, ...Object.fromEntries(watched) };
}

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  return { ...watch(real, ['lstatSync', 'renameSync']), default: real };
});
vi.mock('node:fs/promises', async (original) =>
  watch(await original<typeof import('node:fs/promises')>(), [
    ...(['mkdir', 'readlink', 'rmdir', 'symlink', 'unlink', 'writeFile'] as const),
  ]),
);

let root: string;
const at = (file: string) => path.join(root, file);
const link = { at: '', target: '/restore/of/f' };

/** All users may write in `root` and replace `sub`. Only this process may write in `own`. */
beforeEach(() => {
  hook.before = () => {};
  root = makeTempDir();
  chmodSync(root, 0o777);
  mkdirSync(at('sub'));
  mkdirSync(at('own'));
  link.at = at('sub/f');
});

const exchange = (one = 'sub') => {
  hook.before = () => {};
  renameSync(at(one), at('was'));
  symlinkSync(at('own'), at(one));
};

function exchangeBefore(call: string): void {
  hook.before = (name) => {
    if (name === call) exchange();
  };
}

const attributesOf: AttributesOf = async (dirs) => dirs.map(() => ({ mode: 0o755, gid: null }));

const make = (file = link.at) =>
  makeLink({ ...link, at: file }, { fileId: 1n, mountpoints: ['/restore'], attributesOf });

test('a directory of links is made in the directory that was checked', async () => {
  exchangeBefore('mkdir');
  await expect(make(at('sub/new/f'))).rejects.toThrow(
    `does not follow the link ${at('sub')}, because other users can replace it`,
  );
  expect(listTree(root)).toEqual(['own', 'sub', 'was', 'was/new']);
});

test('a link is made in the directory that was checked', async () => {
  exchangeBefore('symlink');
  await make();
  expect(listTree(root)).toEqual(['own', 'sub', 'was', 'was/f']);
});

test.each(['unlink', 'symlink', 'lstatSync', 'renameSync'])(
  'a link is replaced in its directory before %s',
  async (call) => {
    symlinkSync('/restore/of/another', link.at);
    symlinkSync('/restore/of/another', at('own/f'));
    exchangeBefore(call);
    await make();
    expect(listTree(root)).toEqual(['own', 'own/f', 'sub', 'was', 'was/f']);
    expect([readlinkSync(at('own/f')), readlinkSync(at('was/f'))]).toEqual(['/restore/of/another', link.target]);
  },
);

test.each(['readlink', 'lstatSync'])('a link is removed from its directory before %s', async (call) => {
  await make();
  symlinkSync(link.target, at('own/f'));
  exchangeBefore(call);
  await removeLink(link);
  expect(listTree(root)).toEqual(['own', 'own/f', 'sub', 'was']);
});

test('a link is examined in the directory that was checked', async () => {
  await make();
  symlinkSync('/secret', at('own/f'));
  exchangeBefore('readlink');
  expect((await lookAtLink(link.at))?.target).not.toBe('/secret');
});

test('an empty directory of links is removed from the directory that was checked', async () => {
  for (const directory of ['sub/empty', 'own/empty']) mkdirSync(at(directory));
  exchangeBefore('rmdir');
  await tidyLinkDirectories(root, at('sub/empty/f'), attributesOf);
  expect(listTree(root)).toEqual(['own', 'own/empty', 'sub', 'was']);
});

test('a link of a directory is followed only if no other user may replace it', async () => {
  mkdirSync(at('shared'));
  symlinkSync('../own', at('shared/current'));
  await make(at('shared/current/f'));
  for (const [mode, problem] of [
    [0o777, 'every user may write to the directory (mode 0777)'],
    [0o1777, undefined],
  ] as const) {
    chmodSync(at('shared'), mode);
    const made = make(at('shared/current/g'));
    if (problem === undefined) await made;
    else await expect(made).rejects.toThrow(`untrusted directory ${at('shared')}: ${problem}`);
  }
  expect(listTree(at('own'))).toEqual(['f', 'g']);
});

test('a link of a directory that leads into the restore area is not followed', async () => {
  symlinkSync(at('own'), at('sub/current'));
  const made = makeLink({ ...link, at: at('sub/current/f') }, { fileId: 1n, mountpoints: [at('own')], attributesOf });
  await expect(made).rejects.toThrow('is on a restore disk, but links must be outside');
});

test('a probe for names that differ only in case writes in its own directory', async () => {
  hook.before = (call) => {
    if (call === 'writeFile') exchange(path.join('sub', readdirSync(at('sub'))[0] ?? ''));
  };
  await foldsNames(at('sub'));
  expect([listTree(at('own')), listTree(at('was'))]).toEqual([[], []]);
});
