/**
 * Rows of which only some columns are read, those that a GraphQL operation asks for: by statements of our own, prepared by name, where Prisma
 * would read each relation by another one and take ten times the processor time for it.
 */
import { prepared } from '../database/prepared.js';
import { empty, join, raw, type Sql, sql } from '../database/sql.js';
import type { Hold, Quota, Request, TapeFile } from '../generated/prisma/client.js';

/** The columns of a row by the names that Prisma has for them. */
export type Columns<Row> = Readonly<Partial<Record<keyof Row & string, Sql>>>;

export const fileColumns = {
  id: sql`f.id`,
  path: sql`f.path`,
  size: sql`f.size`,
  stage: sql`f.stage`,
  verified: sql`f.verified`,
  checksum: sql`f.checksum`,
  checksumTaken: sql`f.checksum_taken`,
  spotName: sql`f.spot_name`,
  position: sql`f."position"`,
  changedDiskId: sql`f.changed_disk_id`,
  withdrawnAt: sql`f.withdrawn_at`,
  withdrawnWhy: sql`f.withdrawn_why`,
  diskPath: sql`f.disk_path`,
  tapePath: sql`f.tape_path`,
} satisfies Columns<TapeFile>;

export const holdColumns = {
  size: sql`h.size`,
  state: sql`h.state`,
  errorClass: sql`h.error_class`,
  error: sql`h.error`,
} satisfies Columns<Hold>;

export const requestColumns = {
  id: sql`r.id`,
  pattern: sql`r.pattern`,
  label: sql`r.label`,
  requestDate: sql`r.request_date`,
  retention: sql`r.retention`,
  notifyOnFirstFile: sql`r.notify_on_first_file`,
  notifyOnLastFile: sql`r.notify_on_last_file`,
  state: sql`r.state`,
  priority: sql`r.priority`,
  maxFiles: sql`r.max_files`,
  maxBytes: sql`r.max_bytes`,
  tapestoreRequestStart: sql`r.tapestore_request_start`,
  tapestoreRequestEnd: sql`r.tapestore_request_end`,
  firstFilesOnDisk: sql`r.first_files_on_disk`,
  lastFilesOnDisk: sql`r.last_files_on_disk`,
  filesTotal: sql`r.files_total`,
  filesOnDisk: sql`r.files_on_disk`,
  filesFailed: sql`r.files_failed`,
  bytesTotal: sql`r.bytes_total`,
  bytesOnDisk: sql`r.bytes_on_disk`,
  leftOutSize: sql`r.left_out_size`,
} satisfies Columns<Request>;

export const quotaColumns = {
  id: sql`q.id`,
  user: sql`q."user"`,
  size: sql`q.size`,
  email: sql`q.email`,
  notes: sql`q.notes`,
  weight: sql`q.weight`,
} satisfies Columns<Quota>;

/** What is asked of a row: names of its columns, and the same of rows that belong to it. */
export interface Choice {
  columns: readonly string[];
  of: Readonly<Record<string, Choice>>;
}

/** A row, and in it those that belong to it; null where there is none. It has what was chosen, and no more. */
export class ChosenRow {
  [name: string]: unknown;
}

/** Where rows come from: their columns, and the same of what belongs to them. */
export interface Source {
  columns: Readonly<Record<string, Sql>>;
  of?: Readonly<Record<string, Source>>;
}

/** Statements that are prepared, of those that clients choose by their fields and page sizes: not so many that none are left for others. */
const MAX_PREPARED = 200;
const known = new Set<string>();

/** The statement, prepared by name unless too many others are. */
export function preparedChoice(statement: Sql): Sql {
  const { text } = statement;
  if (known.size < MAX_PREPARED) known.add(text);
  return known.has(text) ? prepared(statement) : statement;
}

/** Whether there are such columns at all. */
export function canChoose({ columns, of = {} }: Source, choice: Choice): boolean {
  const hasAll = choice.columns.every((name) => Object.hasOwn(columns, name));
  return hasAll && Object.entries(choice.of).every(([name, inner]) => of[name] && canChoose(of[name], inner));
}

const selections = new WeakMap<Choice, Sql>();

/**
 * What a statement selects, to be read by `toChosenRow`.
 * @param choice one that `canChoose` has found good, for this source alone
 */
export function chooseColumns(source: Source, choice: Choice): Sql {
  let selection = selections.get(choice);
  if (!selection) {
    const columns = columnsOf(source, choice);
    selection = columns.length > 0 ? join(columns, ', ') : empty;
    selections.set(choice, selection);
  }
  return selection;
}

function columnsOf({ columns, of = {} }: Source, choice: Choice, prefix = ''): Sql[] {
  const own = Object.entries(columns).filter(([name]) => choice.columns.includes(name));
  const inner = Object.entries(of).filter(([name]) => name in choice.of);
  return [
    ...own.map(([name, column]) => sql`${column} AS ${raw(`"${prefix}${name}"`)}`),
    ...inner.flatMap(([name, each]) => columnsOf(each, choice.of[name] as Choice, `${prefix}${name}.`)),
  ];
}

/** @param flat a row of a statement that selects what `chooseColumns` says, and perhaps more */
export function toChosenRow(flat: object, choice: Choice): ChosenRow {
  return takeRow(flat as Record<string, unknown>, choice, '');
}

function takeRow(flat: Record<string, unknown>, { columns, of }: Choice, prefix: string): ChosenRow {
  const row = new ChosenRow();
  for (const name of columns) row[name] = flat[prefix === '' ? name : prefix + name];
  for (const name in of) row[name] = takeRow(flat, of[name] as Choice, `${prefix}${name}.`);
  return row;
}

/** Written into the text, since a plan for a page of unknown size counts on a tenth of the list. */
export function pageLimit(limit: number): Sql {
  return raw(`LIMIT ${Math.trunc(limit)}`);
}
