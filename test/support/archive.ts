/**
 * Tests of `archive`: one app for the file, and for each test a directory with an empty tree and the path of a library.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { type ArchiveInput, archiveTree } from '../../src/engine/archive/archive.js';
import type { WritableLibrary } from '../../src/tape/drive-library.js';
import { findIllegalMoves } from './engine-watch.js';
import { emptyTables } from './tables.js';
import { makeTempDir } from './temp-dir.js';
import { useApp } from './use-app.js';

interface Directories {
  dataDir: string;
  /** Root of the tree to archive. */
  dir: string;
  library: string;
}

/** @param assign receives the directories of each test */
export function useArchive(assign: (directories: Directories) => void) {
  const app = useApp();
  let dataDir: string;
  let dir: string;
  beforeEach(() => {
    dataDir = makeTempDir();
    dir = path.join(dataDir, 'tree');
    mkdirSync(dir);
    assign({ dataDir, dir, library: path.join(dataDir, 'library') });
  });
  afterEach(async () => {
    expect(await findIllegalMoves(app)).toEqual([]);
    await emptyTables(app.ctx);
    rmSync(dataDir, { recursive: true, force: true });
  });
  return {
    app,
    archive: (
      library: WritableLibrary,
      input: Partial<ArchiveInput> = {},
      signal: AbortSignal = new AbortController().signal,
    ) => archiveTree(app.ctx, library, { dir, volumeSize: 10n ** 9n, ...input }, { signal }),
    writeTree: (files: Record<string, Uint8Array | string>): void => {
      for (const [name, bytes] of Object.entries(files)) {
        mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
        writeFileSync(path.join(dir, name), bytes);
      }
    },
  };
}
