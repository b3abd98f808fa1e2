/** The volumes of an import, and the libraries that they are in. */
import type { Context } from '../../context.js';
import { lockLibrariesKept } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import { FIRST_LIBRARY, readLibraries } from '../libraries/libraries.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';
import { tellRetired } from './retired.js';

/**
 * Adds the volumes of `incoming` that are new, in the library that a row says, or in the first one.
 * @throws ImportError where there is no such library, or a volume is in another one
 */
export async function addVolumes(ctx: Context, tx: Transaction): Promise<void> {
  await lockLibrariesKept(tx);
  const isOf = sql`coalesce(b.name, ${ctx.config.tapeBackend}) = i.library`;
  const unknown = await tx.query<{ line: bigint; library: string }>(
    sql`SELECT min(i.line) AS line, i.library FROM incoming i
        WHERE i.library IS NOT NULL AND NOT EXISTS (SELECT FROM library b WHERE ${isOf})
        GROUP BY i.library ORDER BY 1 LIMIT ${MAX_FAULTS + 1}`,
  );
  if (unknown.length > 0) {
    const names = (await readLibraries(ctx)).map(({ name }) => name).join(', ');
    throw new ImportError(
      unknown.map(({ line, library }) => `line ${line}: there is no library ${quote(library)}; there are ${names}`),
    );
  }
  await tx.query(
    sql`INSERT INTO volume (name, library_id)
        SELECT o.volume, coalesce(max(b.id) FILTER (WHERE o.is_first), CASE WHEN NOT bool_or(o.is_first) THEN max(b.id) END, ${FIRST_LIBRARY}) FROM incoming i LEFT JOIN library b ON ${isOf}
          CROSS JOIN LATERAL (VALUES (i.volume, true), (i.copy_volume, false)) AS o (volume, is_first)
        WHERE o.volume IS NOT NULL GROUP BY o.volume ORDER BY o.volume
        ON CONFLICT (name) DO NOTHING`,
  );
  await refuseElsewhere(ctx, tx);
}

/** Nothing is put on a volume that was retired. With the catalogue locked: nobody retires one from here to the commit. @throws ImportError */
export async function refuseRetired(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ line: bigint; volume: string; why: string | null }>(
    sql`SELECT min(i.line) AS line, v.name AS volume, v.retired_why AS why
        FROM incoming i CROSS JOIN LATERAL (VALUES (i.volume), (i.copy_volume)) AS o (volume) JOIN volume v ON v.name = o.volume
        WHERE v.retired_at IS NOT NULL GROUP BY v.id ORDER BY 1, 2 LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(rows.map(({ line, volume, why }) => `line ${line}: ${tellRetired(volume, why)}`));
}

async function refuseElsewhere(ctx: Context, tx: Transaction): Promise<void> {
  const nameOf = sql`coalesce(b.name, ${ctx.config.tapeBackend})`;
  const rows = await tx.query<{ line: bigint; volume: string; known: string; library: string }>(
    sql`SELECT min(i.line) AS line, i.volume, ${nameOf} AS known, i.library
        FROM incoming i JOIN volume v ON v.name = i.volume JOIN library b ON b.id = v.library_id
        WHERE i.library <> ${nameOf} GROUP BY i.volume, known, i.library ORDER BY 1 LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(
      ({ line, volume, known, library }) =>
        `line ${line}: volume ${quote(volume)} is in library ${quote(known)}, not in ${quote(library)}`,
    ),
  );
}
