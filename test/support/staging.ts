/** Adds staging libraries on simulated tape systems, adds their files to the catalogue, and reads the staging table. */
import { randomBytes } from 'node:crypto';
import type { Context } from '../../src/domain/context.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { readWait, settingsOf, type Wait, waitSettings } from '../../src/tape/kind.js';
import { kinds } from '../../src/tape/kinds.js';
import { addFiles, checksumOf } from './factories.js';
import { createMemoryStaging, MemoryTapeSystem } from './memory-staging.js';

/** Simulated tape systems, by library name. */
const systems = new Map<string, MemoryTapeSystem>();

/** Library type for tests. */
kinds['memory-staging'] = {
  contract: 'staging',
  settings: settingsOf(waitSettings).transform((settings, ctx) => readWait(ctx, settings)),
  terms: (wait) => (wait ? { waitSeconds: wait as Wait } : {}),
  create: (_settings, { name }) => {
    const system = systems.get(name);
    if (!system) throw new Error(`library ${name} has no system in memory`);
    return createMemoryStaging(system);
  },
};

/** Adds a library for engines of this process, with one volume of the same name. */
export async function addMemoryLibrary(
  ctx: Context,
  library: { name: string; drives?: number; depthFiles?: number },
  system = new MemoryTapeSystem(),
): Promise<MemoryTapeSystem> {
  systems.set(library.name, system);
  const { id } = await addLibrary(ctx, { ...library, kind: 'memory-staging', settings: {} });
  await ctx.db.pool.query('INSERT INTO volume (name, library_id) VALUES ($1, $2)', [library.name, id]);
  return system;
}

/**
 * Adds the database rows of a library without an engine, with one volume of the same name. @returns the library's id
 */
export async function addStagingLibrary(
  ctx: Context,
  { name, drives = 2, depthFiles = null }: { name: string; drives?: number; depthFiles?: number | null },
): Promise<number> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    `WITH library AS (
       INSERT INTO library (name, kind, contract, drives, depth_files, added_at)
       VALUES ($1, 'memory-staging', 'STAGING', $2, $3, now()) RETURNING id
     ), drives AS (
       INSERT INTO drive (name, library_id) SELECT $1 || '-' || n, id FROM library, generate_series(1, $2) AS n
     )
     INSERT INTO volume (name, library_id) SELECT $1, id FROM library RETURNING library_id AS id`,
    [name, drives, depthFiles],
  );
  return rows[0]?.id ?? 0;
}

interface RemoteFile {
  path: string;
  size?: number;
  bytes?: Uint8Array;
  /** Volume of the file; default: the library's only volume. */
  volume?: string;
}

/**
 * Writes files to the tapes of a system, and adds the files to the catalogue without positions. @returns the bytes by
 * path
 */
export async function addRemote(
  ctx: Context,
  system: MemoryTapeSystem,
  { library, files }: { library: string; files: readonly RemoteFile[] },
): Promise<Map<string, Uint8Array>> {
  const contents = new Map<string, Uint8Array>();
  for (const { path, size = 1000, bytes = randomBytes(size) } of files) {
    contents.set(path, bytes);
    system.put(path, bytes);
  }
  await addFiles(
    ctx,
    files.map(({ path, volume = library }) => {
      const bytes = contents.get(path) ?? new Uint8Array();
      return { path, volume, position: null, size: BigInt(bytes.length), checksum: checksumOf(bytes) };
    }),
  );
  return contents;
}

interface StagingView {
  path: string;
  state: string;
  remoteId: string | null;
  attempts: number;
}

/** Returns the rows of the staging table, by path. */
export async function readStaging(ctx: Context): Promise<StagingView[]> {
  const { rows } = await ctx.db.pool.query<StagingView>(
    `SELECT f.path, s.state, s.remote_id AS "remoteId", s.attempts FROM staging s JOIN tape_file f ON f.id = s.file_id ORDER BY f.path`,
  );
  return rows;
}

/** Returns the states in the staging table, by path. */
export async function readStates(ctx: Context): Promise<Record<string, string>> {
  return Object.fromEntries((await readStaging(ctx)).map(({ path, state }) => [path, state]));
}
