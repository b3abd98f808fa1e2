/** Connects to databases other than Tapegate's own database. */
import type pg from 'pg';
import { normalizeUrl } from '../config/database-url.js';
import { BareClient, connect } from './line.js';
import { readUrlSettings } from './session-settings.js';
import { sql } from './sql.js';

/**
 * Connects to the database at a URL. Supports the same URL forms as libpq, `sslmode`, and settings in the URL's
 * parameter `options`.
 */
export async function connectToForeign(url: string, applicationName: string): Promise<pg.Client> {
  const connectionString = normalizeUrl(url);
  const client = await connect(() => new BareClient({ connectionString, application_name: applicationName }));
  for (const { name, value } of readUrlSettings(connectionString)) {
    await client.query(sql`SELECT set_config(${name}, ${value}, false)`);
  }
  return client;
}
