/** Creates test data with the same operations that users call. */
import { createHash, randomBytes } from 'node:crypto';
import type { Context } from '../../src/domain/context.js';
import { importRows } from '../../src/domain/import/import.js';
import type { CatalogueRow } from '../../src/domain/import/import-rows.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import type { MemoryLibrary } from './memory-library.js';

export function buildRow(row: Partial<CatalogueRow> & { path: string }): CatalogueRow {
  return {
    line: 1,
    size: 1000n,
    stage: 'ONTAPE',
    verified: '2026-01-02T03:04:05.000006',
    spotName: 'spot-1',
    volume: 'V00001',
    position: 1n,
    checksum: null,
    ...row,
  };
}

/** Returns a checksum as the catalogue stores it. */
export function checksumOf(bytes: Uint8Array | string): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** Adds files to the catalogue without writing bytes to tape or disk. */
export async function addFiles(ctx: Context, rows: (Partial<CatalogueRow> & { path: string })[]): Promise<void> {
  await importRows(
    ctx,
    rows.map((row, index) => buildRow({ line: index + 1, position: BigInt(index + 1), ...row })),
  );
  const moved = rows.filter(({ stage }) => stage === 'RESTORING' || stage === 'RESTORED');
  if (moved.length === 0) return;
  await ctx.db.pool.query(
    `UPDATE tape_file f SET stage = s.stage FROM unnest($1::text[], $2::"Stage"[]) AS s (path, stage) WHERE f.path = s.path`,
    [moved.map(({ path }) => path), moved.map(({ stage }) => stage)],
  );
}

/** Adds files of 1000 bytes at stage ONTAPE. */
export async function addPaths(ctx: Context, ...paths: string[]): Promise<void> {
  await addFiles(
    ctx,
    paths.map((path) => ({ path })),
  );
}

export async function addQuota(ctx: Context, user: string, size: bigint, email = `${user}@example.org`): Promise<void> {
  await setQuota(ctx, { user, size, email });
}

interface TapedFile {
  path: string;
  volume?: string;
  position?: bigint;
  size?: number;
  bytes?: Uint8Array;
  /** Stage of the file; default: ONTAPE. */
  stage?: CatalogueRow['stage'];
  /** Time of verification; default: a fixed time. */
  verified?: string | null;
}

/** Writes bytes to a position of a volume in a memory library. Replaces bytes that are already at the position. */
export function putOnTape(library: MemoryLibrary, copy: { volume: string; position: bigint; bytes: Uint8Array }): void {
  const positions = library.volumes.get(copy.volume) ?? new Map<bigint, Uint8Array>();
  library.volumes.set(copy.volume, positions.set(copy.position, copy.bytes));
}

/** Adds files with bytes to a memory library and to the catalogue. @returns the bytes by path */
export async function addTaped(
  ctx: Context,
  library: MemoryLibrary,
  files: TapedFile[],
): Promise<Map<string, Uint8Array>> {
  const contents = new Map<string, Uint8Array>();
  const rows = files.map((file, index) => {
    const bytes = file.bytes ?? randomBytes(file.size ?? 1000);
    const { volume = 'V00001', position = BigInt(index + 1) } = file;
    putOnTape(library, { volume, position, bytes });
    contents.set(file.path, bytes);
    const checksum = checksumOf(bytes);
    const { stage = 'ONTAPE', verified } = file;
    const dated = verified === undefined ? {} : { verified };
    return { path: file.path, size: BigInt(bytes.length), volume, position, checksum, stage, ...dated };
  });
  await addFiles(ctx, rows);
  return contents;
}
