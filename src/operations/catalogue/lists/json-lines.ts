/** Rows as JSON Lines, each on the line that it has in its list: what a gateway says of a line is true of the list then. */

import { stageLetters } from '../../../stages.js';
import { ImportError, MAX_FAULTS, type RowSource } from '../import-faults.js';
import { RowError } from '../import-lines.js';
import type { CatalogueRow } from '../import-rows.js';

const BATCH_CHARACTERS = 64 * 1024;

/** @throws ImportError once all faults are known, or too many */
export async function* toJsonLines(rows: RowSource): AsyncGenerator<string> {
  const faults: string[] = [];
  let [batch, line] = ['', 1];
  for await (const row of rows) {
    if (row instanceof RowError) {
      faults.push(row.message);
      if (faults.length > MAX_FAULTS) break;
    } else if (faults.length === 0) {
      batch += `${'\n'.repeat(row.line - line)}${toJson(row)}\n`;
      line = row.line + 1;
      if (batch.length > BATCH_CHARACTERS) {
        yield batch;
        batch = '';
      }
    }
  }
  if (faults.length > 0) throw new ImportError(faults);
  yield batch;
}

/** What is undefined is left out, as in the row. Numbers are written as text, since JSON has none so large. */
function toJson({
  line,
  spotName,
  stage,
  mode,
  size,
  position,
  uid,
  gid,
  copyVolume,
  copyPosition,
  ...row
}: CatalogueRow): string {
  const octal = typeof mode === 'number' ? mode.toString(8).padStart(4, '0') : mode;
  const numbers = { size: textOf(size), position: textOf(position), uid: textOf(uid), gid: textOf(gid) };
  const copy = { copy_volume: copyVolume, copy_position: textOf(copyPosition) };
  const said = { stage: stage && stageLetters[stage], spot_name: spotName, mode: octal };
  return JSON.stringify({ ...row, ...numbers, ...copy, ...said });
}

function textOf(value: bigint | null | undefined): string | null | undefined {
  return typeof value === 'bigint' ? String(value) : value;
}
