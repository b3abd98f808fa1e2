/**
 * Checks whether an existing database meets Tapegate's requirements. Reports the first requirement that is not met,
 * with the statement that fixes the problem.
 */
import pg from 'pg';
import { sql } from './sql.js';

interface Facts {
  version: string;
  versionNumber: number;
  database: string;
  role: string;
  encoding: string;
  hasTables: boolean;
  /** The schema that contains Tapegate's tables, if this is not the schema `public`; otherwise null. */
  otherSchema: string | null;
  trigramSchema: string | null;
  mayUse: boolean | null;
  mayCreate: boolean | null;
  /** Tables and sequences that the role is not allowed to read or write. */
  closed: string | null;
}

const OLDEST = { name: '15', number: 150_000 };

const FACTS = sql`SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::int AS "versionNumber",
    d.datname::text AS database, current_user::text AS role, pg_encoding_to_char(d.encoding)::text AS encoding,
    t.oid IS NOT NULL AS "hasTables",
    (SELECT min(o.nspname)::text FROM pg_class c JOIN pg_namespace o ON o.oid = c.relnamespace
      WHERE c.relname = 'tape_file' AND c.relkind = 'r' AND t.oid IS NULL
        AND to_regclass(format('%I._prisma_migrations', o.nspname)) IS NOT NULL) AS "otherSchema",
    (SELECT o.nspname::text FROM pg_extension e JOIN pg_namespace o ON o.oid = e.extnamespace
      WHERE e.extname = 'pg_trgm') AS "trigramSchema",
    has_schema_privilege(n.oid, 'USAGE') AS "mayUse",
    has_schema_privilege(n.oid, 'CREATE') AND has_database_privilege(d.oid, 'CREATE') AS "mayCreate",
    (SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c
      WHERE c.relnamespace = n.oid AND c.relowner = t.relowner AND CASE c.relkind
        WHEN 'r' THEN NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
          AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
        WHEN 'S' THEN NOT (has_sequence_privilege(c.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'UPDATE')) END) AS closed
  FROM pg_database d LEFT JOIN pg_namespace n ON n.nspname = 'public'
    LEFT JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = 'tape_file' AND t.relkind = 'r'
  WHERE d.datname = current_database()`;

export async function checkRequirements(client: pg.Client): Promise<void> {
  const { rows } = await client.query<Facts>(FACTS);
  const problem = rows[0] && findProblem(rows[0]);
  if (problem !== undefined) throw new Error(problem);
}

function findProblem(facts: Facts): string | undefined {
  const { version, versionNumber, encoding, hasTables, otherSchema, trigramSchema, closed } = facts;
  const [database, role] = [facts.database, facts.role].map((name) => pg.escapeIdentifier(name));
  const owned = `run ALTER DATABASE ${database} OWNER TO ${role}`;
  if (versionNumber < OLDEST.number)
    return `the server is PostgreSQL ${version}: Tapegate requires ${OLDEST.name} or newer`;
  if (encoding !== 'UTF8') {
    const create = `CREATE DATABASE tapegate TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'`;
    return `the encoding of database ${database} is ${encoding}, but Tapegate requires UTF8: run ${create}, and name that database in DATABASE_URL`;
  }
  if (otherSchema !== null) {
    const schema = pg.escapeIdentifier(otherSchema);
    return `the tables of Tapegate are in schema ${schema}, and must be in public: run ALTER SCHEMA public RENAME TO public_before and ALTER SCHEMA ${schema} RENAME TO public`;
  }
  if (trigramSchema !== null && trigramSchema !== 'public')
    return `the extension pg_trgm is in schema ${pg.escapeIdentifier(trigramSchema)}, and must be in public: run ALTER EXTENSION pg_trgm SET SCHEMA public`;
  if (!facts.mayUse)
    return `role ${role} cannot use schema public of database ${database}: run CREATE SCHEMA IF NOT EXISTS public and GRANT USAGE ON SCHEMA public TO ${role}`;
  if (!hasTables && !facts.mayCreate)
    return `role ${role} cannot create Tapegate's tables in database ${database}: ${owned}`;
  if (closed !== null) {
    const grants = `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${role} and GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA public TO ${role}`;
    return `role ${role} cannot read and write ${closed} in database ${database}: run ${grants}, or use the role that owns them`;
  }
  return undefined;
}
