/** A description of a database's schema, one line for each property that PostgreSQL stores, to compare two databases. */
import { createHash } from 'node:crypto';
import type pg from 'pg';

/** Each query returns the object that a line belongs to, and the line. */
const QUERIES = {
  extension: `SELECT extname AS object, 'extension' AS line FROM pg_extension WHERE extname <> 'plpgsql'`,
  type: `SELECT t.typname AS object, concat_ws(' ', 'type', t.typtype, (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
      FROM pg_enum e WHERE e.enumtypid = t.oid)) AS line
    FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typtype IN ('e', 'd', 'r')`,
  relation: `SELECT c.relname AS object, concat_ws(' ', 'relation', c.relkind, c.relpersistence, c.reloptions, c.relreplident,
      c.relrowsecurity, c.relacl, obj_description(c.oid, 'pg_class'),
      CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END) AS line
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('i', 'S')`,
  // a dropped column leaves a gap in the numbers, which nobody sees
  column: `SELECT c.relname AS object, concat_ws(' ', 'column', row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname,
      format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation, a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
      a.attcompression, coalesce(a.attstattarget, -1), a.attoptions, a.attacl, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)) AS line
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('i', 'S') AND a.attnum > 0 AND NOT a.attisdropped`,
  // what was added to a full table without a look at its rows holds for each write all the same
  constraint: `SELECT coalesce(c.relname, t.typname) AS object, concat_ws(' ', 'constraint', k.conname, replace(pg_get_constraintdef(k.oid), ' NOT VALID', ''),
      k.condeferrable, k.condeferred, k.conenforced) AS line
    FROM pg_constraint k LEFT JOIN pg_class c ON c.oid = k.conrelid LEFT JOIN pg_type t ON t.oid = k.contypid
    WHERE k.connamespace = 'public'::regnamespace`,
  index: `SELECT t.relname AS object, concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisunique, i.indisprimary, i.indisvalid,
      i.indisclustered, i.indisreplident, c.reloptions,
      (SELECT string_agg(coalesce(a.attstattarget, -1)::text, ' ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid)) AS line
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid WHERE c.relnamespace = 'public'::regnamespace`,
  sequence: `SELECT c.relname AS object, concat_ws(' ', 'sequence', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
      (SELECT concat_ws(' ', d.refobjid::regclass, d.refobjsubid, d.deptype) FROM pg_depend d
       WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass)) AS line
    FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = 'public'::regnamespace`,
  trigger: `SELECT c.relname AS object, concat_ws(' ', 'trigger', pg_get_triggerdef(t.oid), t.tgenabled) AS line
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal`,
  function: `SELECT p.proname || '()' AS object, concat_ws(' ', 'function', pg_get_functiondef(p.oid), p.proacl,
      obj_description(p.oid, 'pg_proc')) AS line
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prokind IN ('f', 'p')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')`,
  statistics: `SELECT stxrelid::regclass::text AS object, 'statistics ' || pg_get_statisticsobjdef(oid) AS line FROM pg_statistic_ext`,
  rule: `SELECT c.relname AS object, 'rule ' || pg_get_ruledef(r.oid) AS line FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'`,
};

/** Returns sorted lines by object. */
async function readCatalogue(client: pg.Client): Promise<Map<string, string[]>> {
  const catalogue = new Map<string, string[]>();
  for (const query of Object.values(QUERIES)) {
    const { rows } = await client.query<{ object: string; line: string }>(query);
    for (const { object, line } of rows) catalogue.set(object, [...(catalogue.get(object) ?? []), line].sort());
  }
  return new Map([...catalogue].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns a short line for each object. */
export async function fingerprint(client: pg.Client): Promise<string[]> {
  return [...(await readCatalogue(client))].map(
    ([object, lines]) => `${object} ${createHash('sha256').update(lines.join('\n')).digest('hex').slice(0, 12)}`,
  );
}
