/** What the stages of an import's rows say, and the moves that they ask for. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import type { Move, Stage } from '../../stages.js';
import { isChanged, isOrphan, isWithoutCopy } from '../conditions.js';
import { moveFiles } from './moves.js';

/** The row `i` tells of a copy that was restored by somebody else: none of it is noted here, and the file is on tape. */
export const isElsewhere = sql`(i.stage IN ('RESTORING', 'RESTORED'))`;

/**
 * What is on tape is moved by the engine alone: a row that names another of these says nothing new. Nor does it of a copy in
 * the restore area that was changed by hand: that one leaves with its version.
 */
const TAPE_STAGES: readonly Stage[] = ['ONTAPE', 'RESTORING', 'RESTORED'];

/** The row `i` says that its file is on tape, wherever else it may be. */
export const saysOnTape = sql`i.stage = ANY(${TAPE_STAGES}::"Stage"[])`;

/** The file `f` counts as restored, or on its way, and nobody knows of a copy or a recall: an import from before has said so. */
const isPhantom = sql`(${isWithoutCopy} OR ${isOrphan})`;

/** `i` is the row, `f` the file. */
export const isOtherStage = sql`(CASE WHEN ${saysOnTape} AND ${isPhantom} THEN true
  WHEN ${saysOnTape} THEN f.stage <> ALL(${TAPE_STAGES}::"Stage"[]) AND NOT ${isChanged} ELSE f.stage <> i.stage END)`;

/** Moves that a row may ask for, in the order in which they are made; a step over ONDISK is two moves. */
const IMPORT_MOVES = [
  { from: 'ONDISK', to: 'UNVERIFIED' },
  { from: 'UNVERIFIED', to: 'ONDISK' },
  { from: 'ONDISK', to: 'ONTAPE' },
] as const satisfies readonly Move[];

/** Every pair of stages that a row may ask for: what the moves lead to, one after another. */
export function legalSteps(): { from: Stage; to: Stage }[] {
  const steps = TAPE_STAGES.flatMap((from) => TAPE_STAGES.map((to) => ({ from, to })));
  for (const { from } of IMPORT_MOVES) {
    const reached = new Set<Stage>([from]);
    for (const stage of reached) {
      for (const move of IMPORT_MOVES) if (move.from === stage) reached.add(move.to);
    }
    for (const to of reached) steps.push({ from, to });
  }
  return steps;
}

/** @returns the ids of the files that moved */
export async function moveKnown(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<bigint[]> {
  const moved: bigint[] = [];
  for (const move of IMPORT_MOVES) {
    const due = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM known k JOIN incoming i ON i.line = k.line JOIN tape_file f ON f.id = k.id
          WHERE f.stage = ${move.from} AND (i.stage = ${move.to}
            OR (${move.to}::"Stage" = 'ONDISK' AND i.stage = 'ONTAPE' AND NOT ${isChanged}))`,
    );
    const fileIds = due.map((file) => file.id);
    moved.push(...(await moveFiles(ctx, tx, fileIds, move)));
  }
  return [...moved, ...(await returnPhantoms(ctx, tx))];
}

/** @returns the ids of the files that are on tape again, as their rows say and as is so */
async function returnPhantoms(ctx: Pick<Context, 'now'>, tx: Transaction): Promise<bigint[]> {
  const phantoms = await tx.query<{ id: bigint; stage: 'RESTORED' | 'RESTORING' }>(
    sql`SELECT f.id, f.stage FROM known k JOIN incoming i ON i.line = k.line JOIN tape_file f ON f.id = k.id
        WHERE ${saysOnTape} AND ${isPhantom}`,
  );
  const pick = (from: Stage) => phantoms.filter(({ stage }) => stage === from).map(({ id }) => id);
  const restored = await moveFiles(ctx, tx, pick('RESTORED'), { from: 'RESTORED', to: 'ONTAPE' });
  return [...restored, ...(await moveFiles(ctx, tx, pick('RESTORING'), { from: 'RESTORING', to: 'ONTAPE' }))];
}
