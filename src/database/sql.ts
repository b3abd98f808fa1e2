/**
 * SQL is a value: text and its values together, composed of fragments that are values themselves. No string of SQL goes
 * from one function to another, and no `$1` is counted by hand.
 *
 * What is Prisma's, and what is SQL's: Prisma reads the fields that GraphQL asks for, of rows that are known by their
 * ids, and makes or changes a single row for which nobody races (a quota, a disk, a medium). Everything else is SQL:
 * sets, locks, counts, which rows are in a list, and whatever must be fast. A list's filter is one fragment, which its
 * count, its pages and its stream share.
 */
import { Prisma } from '../generated/prisma/client.js';

export type Sql = Prisma.Sql;

/**
 * Of which texts a statement is made: one for all that are made at one place of the program of fragments with the same forms, whatever their values
 * are. To put a text together, and to look up what is known by it, takes longer than all else of a statement that is prepared.
 */
class Form {
  text: string | undefined;
  private readonly followers = new Map<Form, Form>();

  /** What it becomes with a part behind it; undefined where there are too many forms already. */
  with(part: Form): Form | undefined {
    const known = this.followers.get(part);
    if (known) return known;
    const form = createForm();
    if (form) this.followers.set(part, form);
    return form;
  }
}

/** A program has some hundreds; texts that clients choose, such as sizes of pages and choices of columns, make more. */
const MAX_FORMS = 3000;
let forms = 0;

function createForm(): Form | undefined {
  return forms++ < MAX_FORMS ? new Form() : undefined;
}

const VALUE = new Form();
/** By where they stand in the program, which has one list of strings for each place. */
const places = new WeakMap<readonly string[], Form>();
const texts = new Map<string, Form>();
const separators = new Map<string, Form>();

function formIn<Key>(all: { get(key: Key): Form | undefined; set(key: Key, form: Form): unknown }, key: Key) {
  const known = all.get(key);
  if (known) return known;
  const form = createForm();
  if (form) all.set(key, form);
  return form;
}

function formOf(place: Form | undefined, values: readonly unknown[]): Form | undefined {
  let form = place;
  for (let n = 0; n < values.length && form; n++) {
    const value = values[n];
    const part = value instanceof Statement ? value.form : VALUE;
    form = part && !isForeign(value) ? form.with(part) : undefined;
  }
  return form;
}

/** A fragment that was not made here: its text is of no form. */
const isForeign = (value: unknown) => value instanceof Prisma.Sql && !(value instanceof Statement);

/** A statement, or a part of one. */
export class Statement extends Prisma.Sql {
  readonly form: Form | undefined;
  /** By which it is prepared (prepared.ts). */
  name: string | undefined = undefined;

  constructor(strings: readonly string[], values: readonly unknown[], form: Form | undefined) {
    super(strings, values as readonly Prisma.Sql['values'][number][]);
    this.form = form;
  }

  override get text(): string {
    const { form } = this;
    if (!form) return super.text;
    form.text ??= super.text;
    return form.text;
  }
}

export function sql(strings: readonly string[], ...values: readonly unknown[]): Sql {
  return new Statement(strings, values, formOf(formIn(places, strings), values));
}

/** For names from a closed list only. */
export function raw(text: string): Sql {
  return new Statement([text], [], formIn(texts, text));
}

/** Nothing. */
export const empty = raw('');

/** Values or fragments one after another; there must be one at least. */
export function join(values: readonly unknown[], separator = ','): Sql {
  const strings = ['', ...Array<string>(values.length - 1).fill(separator), ''];
  return new Statement(strings, values, formOf(formIn(separators, separator), values));
}

/** All of the conditions; true when there is none. */
export function allOf(conditions: readonly Sql[]): Sql {
  return conditions.length === 0 ? sql`true` : join(conditions, ' AND ');
}
