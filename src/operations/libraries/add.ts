/** Libraries are added. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InvalidInputError, quote } from '../../errors.js';
import { audited, type Note } from '../audit/audited.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { checkDepth, checkDrives, checkSettings } from './checks.js';
import { type Library, libraryColumns } from './libraries.js';

export interface AddLibraryInput {
  name: string;
  kind: string;
  /** As the kind takes them. */
  settings: object;
  /** 2 unless given. */
  drives?: number | null | undefined;
  /** Only of one that stages. */
  depthFiles?: number | null | undefined;
  depthBytes?: bigint | null | undefined;
}

const DRIVES = 2;

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** Drives of the first library are called `drive-1` and on, and it goes by what TAPEGATE_TAPE_BACKEND may be. */
const KEPT_NAMES = ['drive', 'directory', 'memory'];

/**
 * Adds a tape system, which engines take up without a restart. It need not be reached from here.
 * @throws InvalidInputError, also where there is one of that name
 */
export async function addLibrary(ctx: Context, input: AddLibraryInput): Promise<Library> {
  const { name, kind, settings, drives, depthFiles, depthBytes } = input;
  // the names of settings only: what was given for one may be a secret that is refused
  const given = { kind, settings: Object.keys(settings), drives, depthFiles, depthBytes };
  return await audited(ctx, { operation: 'addLibrary', kind: 'BACKEND', object: name, given }, (note) =>
    add(ctx, input, note),
  );
}

async function add(ctx: Context, input: AddLibraryInput, note: Note): Promise<Library> {
  allow(ctx, 'addLibrary');
  const name = checkName(ctx, input.name);
  const contract = checkSettings(ctx, input);
  const drives = checkDrives(input.drives ?? DRIVES);
  const depth = checkDepth(contract, input);
  return await transaction(ctx.db.pool, 'addLibrary', async (tx) => {
    const [library] = await tx.query<Library>(
      sql`INSERT INTO library AS b (name, kind, contract, settings, drives, depth_files, depth_bytes, added_at)
          VALUES (${name}, ${input.kind}, ${contract}::"LibraryContract", ${JSON.stringify(input.settings)}::jsonb, ${drives}::int,
            ${depth.files}::int, ${depth.bytes}::bigint, ${ctx.now()}::timestamp)
          ON CONFLICT (name) DO NOTHING
          RETURNING ${libraryColumns}`,
    );
    if (!library)
      throw new InvalidInputError('name', `must be of no other library, and there is ${quote(name)} already`);
    await tx.query(
      sql`INSERT INTO drive (name, library_id) SELECT ${name} || '-' || n, ${library.id} FROM generate_series(1, ${drives}::int) AS n`,
    );
    await tx.query(note());
    await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
    return library;
  });
}

function checkName(ctx: Context, given: string): string {
  const name = checkText('name', given);
  if (!NAME.test(name)) {
    const problem = `must begin with a letter or a digit, and have at most 63 of these, ".", "_" and "-", not ${quote(name)}`;
    throw new InvalidInputError('name', problem);
  }
  if (name !== ctx.config.tapeBackend && !KEPT_NAMES.includes(name)) return name;
  throw new InvalidInputError('name', `must not be ${quote(name)}, which is kept for the first library`);
}
