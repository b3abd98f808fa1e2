/** The library type `tar`, on archives that GNU tar writes. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'vitest';
import { tar } from '../../docs/developers/examples/tar-library.js';
import { VolumeError } from '../../src/tape/drive-library.js';
import { parseSettings } from '../../src/tape/kind.js';
import { expectFailure } from '../support/failure.js';
import { describeLibrary, mount } from '../support/tape-library.js';
import { makeTempDir } from '../support/temp-dir.js';

function createTarBench() {
  const directory = makeTempDir('tars');
  const tree = makeTempDir('tree');
  return {
    directory,
    library: tar.create(parseSettings(tar.settings, { directory }), { name: 'tars', dataDir: '/data', env: {} }),
    put: async (volume: string, _position: bigint, bytes: Uint8Array, file: string) => {
      mkdirSync(path.join(tree, path.dirname(file)), { recursive: true });
      writeFileSync(path.join(tree, file), bytes);
      const archive = path.join(directory, `${volume}.tar`);
      execFileSync('tar', ['--format=ustar', '-C', tree, '-rf', archive, file.slice(1)]);
    },
  };
}

describeLibrary('tar', createTarBench);

test('a tar file without ustar headers is MEDIA', async () => {
  const { library, directory } = createTarBench();
  writeFileSync(path.join(directory, 'V1.tar'), Buffer.alloc(1024, 'x'));
  await expectFailure(mount(library, 'V1'), VolumeError, 'MEDIA', 'volume V1: no ustar header at byte 0');
});
