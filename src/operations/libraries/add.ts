/** Libraries are added. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InvalidInputError, quote, SettingsError } from '../../errors.js';
import type { LibraryContract } from '../../generated/prisma/enums.js';
import { audited, type Note } from '../audit/audited.js';
import { checkBytes, checkText } from '../input.js';
import { allow } from '../policy.js';
import type { Library } from './libraries.js';

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
const MOST_DRIVES = 256;
const MOST_DEPTH_FILES = 1_000_000;
const MOST_SETTINGS_BYTES = 64 * 1024;

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** Drives of the first library are called `drive-1` and on, and it goes by what TAPE_BACKEND may be. */
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
  const drives = checkCount('drives', input.drives ?? DRIVES, MOST_DRIVES);
  const depth = checkDepth(contract, input);
  return await transaction(ctx.db.pool, 'addLibrary', async (tx) => {
    const [library] = await tx.query<Library>(
      sql`INSERT INTO library (name, kind, contract, settings, drives, depth_files, depth_bytes, added_at)
          VALUES (${name}, ${input.kind}, ${contract}::"LibraryContract", ${JSON.stringify(input.settings)}::jsonb, ${drives}::int,
            ${depth.files}::int, ${depth.bytes}::bigint, ${ctx.now()}::timestamp)
          ON CONFLICT (name) DO NOTHING
          RETURNING id, name, kind, contract, settings, drives, depth_files AS "depthFiles", depth_bytes AS "depthBytes"`,
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

function checkSettings(ctx: Context, { kind, settings }: AddLibraryInput): LibraryContract {
  const size = Buffer.byteLength(JSON.stringify(settings));
  if (size > MOST_SETTINGS_BYTES) {
    throw new InvalidInputError('settings', `must have at most ${MOST_SETTINGS_BYTES} bytes as JSON, not ${size}`);
  }
  try {
    const { contract } = ctx.checkLibrary(kind, settings);
    return contract === 'drive' ? 'DRIVE' : 'STAGING';
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const { setting, problem } = error;
    throw new InvalidInputError(['kind', 'settings'].includes(setting) ? setting : `settings.${setting}`, problem);
  }
}

function checkDepth(
  contract: LibraryContract,
  { depthFiles: files = null, depthBytes: bytes = null }: AddLibraryInput,
): { files: number | null; bytes: bigint | null } {
  for (const [field, value] of [['depthFiles', files] as const, ['depthBytes', bytes] as const]) {
    if (value === null || contract === 'STAGING') continue;
    throw new InvalidInputError(
      field,
      `is of libraries that stage files, and this one has drives: ${value} says nothing of it`,
    );
  }
  if (files !== null) checkCount('depthFiles', files, MOST_DEPTH_FILES);
  if (bytes !== null && checkBytes('depthBytes', bytes) === 0n) {
    throw new InvalidInputError('depthBytes', 'must be 1 byte at least, not 0');
  }
  return { files, bytes };
}

function checkCount(field: string, value: number, most: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new InvalidInputError(field, `must be a whole number from 1 to ${most}, not ${value}`);
}
