/** Generates the tables in docs/reference/settings.md. */
import { listSettings, variableOf, variables } from '../../config/settings.js';

const groups: Record<string, string> = {
  Gateway: `PORT HOST TAPEGATE_PUBLIC_URL TAPEGATE_ALLOWED_HOSTS TAPEGATE_CORS_ORIGINS
    TAPEGATE_CORS_EXPOSED_HEADERS TAPEGATE_TLS_CERT TAPEGATE_TLS_KEY TAPEGATE_PAGES TAPEGATE_INTROSPECTION TAPEGATE_TRUSTED_DOCUMENTS TAPEGATE_LEAVE_SECONDS`,
  Authentication: `TAPEGATE_AUTH TAPEGATE_LEGACY TAPEGATE_OIDC_ISSUER TAPEGATE_OIDC_AUDIENCE TAPEGATE_OIDC_USER_CLAIM
    TAPEGATE_OIDC_GROUPS_CLAIM TAPEGATE_OIDC_ROLES TAPEGATE_OIDC_CLIENT_ID TAPEGATE_PROXY_ADDRESSES
    TAPEGATE_PROXY_SECRET_FILE TAPEGATE_PROXY_HEADERS TAPEGATE_PROXY_CERT_USERS TAPEGATE_PROXY_ROLES`,
  Database: 'DATABASE_URL DATA_DIR DEMO TAPEGATE_DATABASE_READ_URL TAPEGATE_READ_WAIT_MS',
  Engine: `ENGINE DRIVES TAPEGATE_ENGINE_WEIGHT TAPEGATE_LIBRARY_DIR TAPEGATE_TAPE_TIMEOUT TAPEGATE_DISK_TIMEOUT
    TAPEGATE_RESTORE_MODE TAPEGATE_RESTORE_GROUP TAPEGATE_LINK_ROOT`,
  'Transfer tools': 'TAPEGATE_SITE_NAME TAPEGATE_WEBDAV TAPEGATE_BYTES_GATEWAYS',
  'Email and webhooks': 'SMTP_URL TAPEGATE_MAIL_FROM TAPEGATE_EXPIRY_NOTICE_HOURS TAPEGATE_WEBHOOK_HOSTS',
  'Retention of records': 'TAPEGATE_EVENT_DAYS TAPEGATE_REQUEST_DAYS TAPEGATE_AUDIT_DAYS',
  'Logs, metrics and traces': 'LOG_LEVEL TAPEGATE_ACCESS_LOG TAPEGATE_METRICS_LISTEN OTEL_EXPORTER_OTLP_ENDPOINT',
};

type Row = readonly [variable: string, fallback: string, description: string];

const formatTable = (rows: readonly Row[]) =>
  [
    '| Variable | Default | Meaning |\n|---|---|---|',
    ...rows.map(([variable, fallback, description]) => `| \`${variable}\` | ${fallback} | ${description} |`),
  ].join('\n');

const listRows = (isLimit: boolean): Row[] =>
  listSettings()
    .filter(({ path: [group] }) => (group === 'limits') === isLimit)
    .map(({ field }) => [variableOf(field), variables.get(field)?.fallback ?? '', field.description ?? '']);

/** Returns one table for each group of settings. Every setting must be in exactly one group. */
export function formatSettings(): string {
  const rows = new Map(listRows(false).map((row) => [row[0], row]));
  const tables = Object.entries(groups).map(([heading, names]) => {
    const own = (names.match(/\w+/g) ?? []).map((name) => {
      const row = rows.get(name);
      rows.delete(name);
      if (!row) throw new Error(`${name} is not a setting, or is in two groups`);
      return row;
    });
    return `### ${heading}\n\n${formatTable(own)}`;
  });
  if (rows.size > 0) throw new Error(`settings without a group: ${[...rows.keys()].join(', ')}`);
  return tables.join('\n\n');
}

export const formatLimits = (): string => formatTable(listRows(true));
