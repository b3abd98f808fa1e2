/** The staging libraries of the torture, as an operator has added them. */
import type { Context } from '../../src/context.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { addLibrary } from '../../src/operations/libraries/add.js';
import type { Random } from './random.js';
import { type RemoteSystems, startRemotes } from './remote.js';
import { registerTortureKind, TORTURE_KIND } from './remote-kind.js';
import { WATCH_DEMANDS } from './remote-left.js';
import type { Source } from './tree.js';

const MAX_BYTES = 500_000;

/** Two of them, with two files in all for each five of the archive. @param sources theirs are added */
export async function addRemotes(
  ctx: Context,
  random: Random,
  { sources, files, maxBytes }: { sources: Map<string, Source>; files: number; maxBytes: number },
): Promise<RemoteSystems> {
  registerTortureKind();
  await ctx.db.pool.query(WATCH_DEMANDS);
  const remotes = await startRemotes(random.fork(), {
    files: Math.ceil(files / 5),
    maxBytes: Math.min(maxBytes, MAX_BYTES),
  });
  for (const { name, url } of remotes.systems) {
    await addLibrary(ctx, { name, kind: TORTURE_KIND, settings: { url }, drives: 2, depthFiles: 20 });
    const rows = [...(remotes.sources.get(name) ?? [])].map(([file, { size, sha256 }], index) => {
      const row = { line: index + 1, path: file, size, stage: 'ONTAPE' as const, verified: ctx.now(), spotName: null };
      return { ...row, volume: name, library: name, position: null, checksum: `sha256:${sha256}` };
    });
    await importRows(ctx, rows);
    for (const [file, source] of remotes.sources.get(name) ?? []) sources.set(file, source);
  }
  return remotes;
}
