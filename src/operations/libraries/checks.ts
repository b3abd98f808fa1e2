/** What libraries are told, checked before it is stored. */
import type { Context } from '../../context.js';
import { InvalidInputError, SettingsError } from '../../errors.js';
import type { LibraryContract } from '../../generated/prisma/enums.js';
import { checkBytes } from '../input.js';

const MOST_DRIVES = 256;
const MOST_DEPTH_FILES = 1_000_000;
const MOST_SETTINGS_BYTES = 64 * 1024;

/** @returns what is asked of a library of the kind @throws InvalidInputError */
export function checkSettings(ctx: Context, { kind, settings }: { kind: string; settings: object }): LibraryContract {
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

/** @throws InvalidInputError */
export function checkDepth(
  contract: LibraryContract,
  {
    depthFiles: files = null,
    depthBytes: bytes = null,
  }: { depthFiles?: number | null | undefined; depthBytes?: bigint | null | undefined },
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

/** @throws InvalidInputError */
export function checkDrives(drives: number): number {
  return checkCount('drives', drives, MOST_DRIVES);
}

function checkCount(field: string, value: number, most: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new InvalidInputError(field, `must be a whole number from 1 to ${most}, not ${value}`);
}
