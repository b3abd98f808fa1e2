/** Reads users and requests from CSV, for sites that come from elsewhere. The first line names the columns. */
import type { Readable } from 'node:stream';
import { createCsvSplitter } from '../catalogue/import-csv.js';
import { RowError, readLines } from '../catalogue/import-lines.js';
import { type SourceBatch, SourceError, type SourceTable, sourceTables } from './tables.js';

/** The columns of each list, and those of the source's tables that they stand for. */
const columnsOf = {
  quota: { user: 'user', size: 'size', email: 'email_address', notes: 'notes' },
  taperequest: {
    id: 'id',
    quota: 'quota_id',
    label: 'label',
    retention: 'retention',
    request_date: 'request_date',
    patterns: 'request_patterns',
    files: 'request_files',
    notify_on_first_file: 'notify_on_first_file',
    notify_on_last_file: 'notify_on_last_file',
  },
} as const;

const needed = { quota: ['user', 'size'], taperequest: ['id', 'quota', 'retention'] } as const;

export type CsvTable = keyof typeof columnsOf;

/**
 * @param given.name of the file, for messages. Of a request, `quota` is its user, and `files` has a path a line within its quotes
 * @throws SourceError
 */
export async function* readCsv(
  table: CsvTable,
  { input, name }: { input: Readable; name: string },
): AsyncGenerator<SourceBatch> {
  const splitter = createCsvSplitter();
  let header: string[] | undefined;
  const fail = (line: number, problem: string) => new SourceError(`${name}, line ${line}: ${problem}`);
  for await (const lines of readLines(input)) {
    const rows: (string | null)[][] = [];
    for (const line of lines) {
      const record = splitter.read(line);
      if (!record) continue;
      if (record instanceof RowError) throw fail(line.number, record.message);
      if (header === undefined) {
        header = checkHeader(table, record.fields, (problem) => fail(record.line, problem));
        continue;
      }
      if (record.fields.length !== header.length) {
        throw fail(
          record.line,
          `there must be ${header.length} fields, as in the first line, not ${record.fields.length}`,
        );
      }
      rows.push(toSourceRow(table, header, record.fields));
    }
    if (rows.length > 0) yield { table, rows };
  }
  const fault = splitter.end();
  if (fault) throw new SourceError(`${name}: ${fault.message}`);
  if (header === undefined) throw new SourceError(`${name} is empty; the first line names the columns`);
}

function checkHeader(table: CsvTable, names: string[], fail: (problem: string) => SourceError): string[] {
  const known = Object.keys(columnsOf[table]);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw fail(`there is no column ${JSON.stringify(unknown)}; the columns are ${known.join(',')}`);
  const missing = needed[table].find((name) => !names.includes(name));
  if (missing !== undefined) throw fail(`the column ${missing} is missing`);
  return names;
}

function toSourceRow(table: CsvTable, header: readonly string[], fields: readonly string[]): (string | null)[] {
  const named = Object.fromEntries(header.map((name, n) => [name, fields[n] || null]));
  const given = new Map(
    Object.entries(columnsOf[table]).map(([name, column]) => [column as string, named[name] ?? null]),
  );
  const row = sourceTables[table as SourceTable].map((column) => given.get(column) ?? null);
  return row;
}
