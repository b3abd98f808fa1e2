/** How far an import is, for whoever waits for it: nothing of it is seen before it is committed. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

export interface ImportProgress {
  /** Rows are read, then compared with each other and with what is known; new ones are added, and at last it is done what follows from all. */
  step: 'reading' | 'comparing' | 'adding' | 'settling';
  /** Of the step so far, where it counts any; `of` is how many there are in all, where that is known. */
  rows?: number;
  of?: number;
}

export type TellImport = (progress: ImportProgress) => void;

const LOOK_MS = 1000;

/**
 * Tells how many of `of` new files are added while `work` adds them. They take their ids from a sequence, which others see before the commit, and
 * from which another import may take as well: then it tells too much.
 */
export async function tellAdding<Done>(
  ctx: Context,
  { of, tell }: { of: number; tell: TellImport },
  work: () => Promise<Done>,
): Promise<Done> {
  // by a connection of its own, of which there may be none: the import needs it for nothing, and does not wait for it
  const read = () => readLastId(ctx).catch(() => undefined);
  const before = read();
  tell({ step: 'adding', rows: 0, of });
  let [isLooking, isOver] = [false, false];
  const look = async () => {
    if (isLooking) return;
    isLooking = true;
    const [first, last] = [await before, await read()];
    isLooking = false;
    if (isOver || first === undefined || last === undefined) return;
    tell({ step: 'adding', rows: Math.min(Number(last - first), of), of });
  };
  const timer = setInterval(() => void look(), LOOK_MS);
  try {
    const done = await work();
    tell({ step: 'adding', rows: of, of });
    return done;
  } finally {
    isOver = true;
    clearInterval(timer);
  }
}

async function readLastId({ db }: Context): Promise<bigint> {
  const { rows } = await db.pool.query<{ last: bigint }>(sql`SELECT last_value AS last FROM tape_file_id_seq`);
  return rows[0]?.last ?? 0n;
}
