/** SQL expressions for JSON texts that have exactly the same bytes as the results of JSON.stringify. */
import { join, type Sql, sql } from '../db/sql.js';

export function jsonText(text: Sql): Sql {
  return sql`coalesce(to_json(${text})::text, 'null')`;
}

export function jsonInteger(integer: Sql): Sql {
  return sql`${integer}::text`;
}

/** Formats a time in the years 1 to 9999 as a JSON text. Omits the microseconds if they are zero. */
export function jsonTime(time: Sql): Sql {
  return sql`coalesce(replace(to_char(${time}, '\\"YYYY-MM-DD"T"HH24:MI:SS.US\\"'), '.000000', ''), 'null')`;
}

export function jsonChoice(value: Sql, texts: ReadonlyMap<string, string>): Sql {
  const cases = [...texts].map(([each, text]) => sql`WHEN ${each} THEN ${JSON.stringify(text)}`);
  return sql`CASE ${value} ${join(cases, ' ')} END`;
}

export function jsonObject(values: readonly (readonly [name: string, value: Sql])[]): Sql {
  const parts = values.map(
    ([name, value], at) => sql`${`${at === 0 ? '{' : ','}${JSON.stringify(name)}:`}::text || ${value}`,
  );
  return sql`${join(parts, ' || ')} || '}'`;
}
