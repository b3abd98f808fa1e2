/** Checks whether the database server allows enough connections for a process. */
import pg from 'pg';
import type { Database } from './pools.js';
import { sql } from './sql.js';

export interface Needs {
  least: number;
  most: number;
}

/** The connection limits of the server, the role and the database; -1 means unlimited. */
export interface ConnectionLimits {
  role: string;
  database: string;
  isSuperuser: boolean;
  /** The server's connection limit, minus the reserved connections. */
  ofServer: number;
  ofRole: number;
  ofDatabase: number;
}

const LIMITS = sql`SELECT session_user::text AS role, d.datname::text AS database, r.rolsuper AS "isSuperuser",
    r.rolconnlimit AS "ofRole", d.datconnlimit AS "ofDatabase",
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
      - coalesce(current_setting('reserved_connections', true)::int, 0) AS "ofServer"
  FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()`;

/**
 * @returns a warning if, under load, the process might need more connections than the server allows
 * @throws Error if the server allows fewer connections than an idle process needs
 */
export async function checkConnections(db: Database, needs: Needs): Promise<string | undefined> {
  const [limits] = await db.rows<ConnectionLimits>(LIMITS);
  return limits && findShortage(limits, needs);
}

export function findShortage(limits: ConnectionLimits, { least, most }: Needs): string | undefined {
  const [role, database] = [limits.role, limits.database].map((name) => pg.escapeIdentifier(name));
  const bounds = [
    {
      limit: limits.ofServer,
      of: 'max_connections on the server',
      run: 'raise max_connections, and restart the server',
    },
    // the connection limits of roles and databases do not apply to superusers
    ...(limits.isSuperuser
      ? []
      : [
          {
            limit: limits.ofRole,
            of: `the CONNECTION LIMIT of role ${role}`,
            run: `run ALTER ROLE ${role} CONNECTION LIMIT -1`,
          },
          {
            limit: limits.ofDatabase,
            of: `the CONNECTION LIMIT of database ${database}`,
            run: `run ALTER DATABASE ${database} CONNECTION LIMIT -1`,
          },
        ]),
  ];
  const [lowest] = bounds.filter(({ limit }) => limit >= 0).sort((a, b) => a.limit - b.limit);
  if (!lowest || lowest.limit >= most) return undefined;
  const { limit, of, run } = lowest;
  if (limit < least)
    throw new Error(`${of} allows only ${limit} connections, but this process needs at least ${least}: ${run}`);
  return `${of} allows only ${limit} connections, but this process needs up to ${most}: ${run}`;
}
