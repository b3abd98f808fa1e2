/**
 * The stages of a tape file, and the allowed stage changes. The letter for each stage comes from section 3 of the REST
 * contract.
 */

import type { Stage } from '../generated/prisma/enums.js';

export type { Stage };

export const stageLetters = {
  UNVERIFIED: 'U',
  ONDISK: 'D',
  ONTAPE: 'T',
  RESTORING: 'A',
  RESTORED: 'R',
} as const satisfies Record<Stage, string>;

/** Returns the stage for a letter, in upper or lower case. */
export function stageOfLetter(letter: string): Stage | undefined {
  return stages.find((stage) => stageLetters[stage] === letter.toUpperCase());
}

export const stages = Object.keys(stageLetters) as Stage[];

export const onDiskStages: readonly Stage[] = ['UNVERIFIED', 'ONDISK', 'RESTORED'];

export const moves = [
  {
    from: 'UNVERIFIED',
    to: 'ONDISK',
    by: 'archive, import, engine',
    why: 'the checksum of the tape copy is confirmed',
  },
  { from: 'ONDISK', to: 'ONTAPE', by: 'archive, import', why: 'the primary disk copy is removed' },
  { from: 'ONTAPE', to: 'RESTORING', by: 'engine', why: 'a recall of the file starts' },
  {
    from: 'RESTORING',
    to: 'RESTORED',
    by: 'engine',
    why: 'the restored file is complete, verified and at its final path',
  },
  {
    from: 'RESTORING',
    to: 'ONTAPE',
    by: 'engine, import',
    why: 'the recall ended without restoring the file, or no recall of the file exists',
  },
  {
    from: 'RESTORING',
    to: 'UNVERIFIED',
    by: 'engine',
    why: 'an unrecorded file with the same bytes already exists at the path of the restored file',
  },
  {
    from: 'RESTORED',
    to: 'ONTAPE',
    by: 'engine, import, doctor',
    why: 'no request needs the file any more, or the disk copy is stale or missing',
  },
  {
    from: 'UNVERIFIED',
    to: 'ONTAPE',
    by: 'engine, import, doctor',
    why: 'the changed or unrecorded copy in the restore area is missing or stale',
  },
  {
    from: 'UNVERIFIED',
    to: 'RESTORED',
    by: 'doctor',
    why: 'an operator has confirmed that Tapegate wrote the unrecorded file with the same bytes',
  },
  { from: 'ONDISK', to: 'UNVERIFIED', by: 'import', why: 'the file was changed on disk' },
  { from: 'RESTORED', to: 'UNVERIFIED', by: 'engine', why: 'the copy in the restore area was changed' },
  {
    from: 'ONTAPE',
    to: 'UNVERIFIED',
    by: 'engine',
    why: 'the copy in the restore area was changed before Tapegate could remove the copy',
  },
] as const satisfies readonly { from: Stage; to: Stage; by: string; why: string }[];

/** An allowed stage change. Code that makes any other change does not compile. */
export type Move = (typeof moves)[number] extends infer M
  ? M extends { from: infer F; to: infer T }
    ? { from: F; to: T }
    : never
  : never;
