/** Email texts, and the SMTP transport for emails. */
import type { Transporter } from 'nodemailer';
import { isLoopback } from '../../../core/net/address-ranges.js';
import { formatBytes } from '../../../core/text/bytes.js';
import { plural } from '../../../core/text/plural.js';
import { printable } from '../../../core/text/printable.js';
import { formatFiles, formatMissing } from '../../../core/text/requested-files.js';
import { timeOf } from '../../../core/time.js';
import type { NotificationKind, UnresolvedReason } from '../../../generated/prisma/enums.js';
import type { EndRange } from '../../../planner/end-range.js';

export interface MailFacts {
  requestId: number;
  link: string | undefined;
  label: string;
  /** The request's pattern; empty for a request that lists files. */
  pattern: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  /**
   * Number of files that were excluded from the request because the quota was full. `filesOverLimit` is the number of
   * files that were excluded because of the request's own limits.
   */
  filesRefused: number;
  filesOverLimit: number;
  filesReleased: number;
  bytesOnDisk: bigint;
  /**
   * The request's first files on disk, which the email lists. `mountpoint` is null for a file at its primary path, and
   * for a file that the user may not fetch.
   */
  copies: { path: string; mountpoint: string | null }[];
  mountpoints: string[];
  failed: { path: string; error: string }[];
  unresolved: { path: string; reason: UnresolvedReason }[];
}

const UNRESOLVED_WHY: Record<UnresolvedReason, string> = {
  UNKNOWN: 'not in the catalogue',
  QUOTA_FULL: 'over your quota',
  LIMIT: "over the request's limit",
};

/**
 * Returns a request's URL in the dashboard or, if the dashboard is disabled, in the REST API. Returns undefined if
 * `publicUrl` is not set.
 */
export function linkToRequest(
  { publicUrl, dashboard }: { publicUrl: string | undefined; dashboard: boolean },
  requestId: number,
): string | undefined {
  return publicUrl && `${publicUrl}/${dashboard ? '#' : 'tape_control/api/v1'}/requests/${requestId}`;
}

interface Mail {
  subject: string;
  body: string;
}

export function composeMail(kind: NotificationKind, facts: MailFacts): Mail {
  if (kind === 'EXPIRING') return composeExpiring(facts);
  return kind === 'FIRST_FILE' ? composeFirst(facts) : composeLast(facts);
}

/** Returns the text of an email about a request that ended before the email was sent. */
export function composeLate({ body, createdAt }: { body: string; createdAt: string }): string {
  return text([
    `This email was written at ${formatTime(createdAt)}. The request has ended since then, and its files may no longer be on disk.`,
    '',
    body.trimEnd(),
  ]);
}

/** Returns the text of an email with the estimated end of its request, which was still waiting for files. */
export function addEnd(body: string, { earliest, planned, latest, isMeasured }: EndRange): string {
  const [first, end, last] = [earliest, planned, latest].map((seconds) => formatTime(timeOf(seconds)));
  const note = isMeasured ? '' : '; estimate without measurements';
  return text([body.trimEnd(), '', `The remaining files are expected at about ${end} (${first} to ${last}${note}).`]);
}

function composeFirst(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `The first file of your request ${nameRequest(facts)} is on disk:`,
    '',
    ...listCopies(facts).slice(0, 1),
    '',
    rest > 0
      ? `${plural(rest, 'more file')} will follow (${facts.filesTotal} in total).`
      : 'No more files will follow.',
    `Restored files stay on disk until ${formatTime(facts.retention)}.`,
    ...nameLink(facts),
  ];
  return { subject: `First file restored: ${shortLabel(facts)}`, body: text(lines) };
}

function composeExpiring(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `Your request ${nameRequest(facts)} expires at ${formatTime(facts.retention)}. The files of the request are then released:`,
    '',
    `  on disk:  ${plural(facts.filesOnDisk, 'file')}, ${formatBytes(facts.bytesOnDisk)}`,
    ...(rest > 0 ? [`  waiting:  ${plural(rest, 'file')}`] : []),
    '',
    'If you no longer need the files, do nothing. To keep the files for another week:',
    '',
    `  tapegate update ${facts.requestId} --retention 7d`,
    ...nameLink(facts),
  ];
  return { subject: `Expires soon: ${shortLabel(facts)}`, body: text(lines) };
}

function composeLast(facts: MailFacts): Mail {
  const missing = formatMissing(facts);
  const outcome =
    facts.filesTotal === 0
      ? 'No files'
      : facts.filesFailed === 0
        ? (missing && `Restored ${formatFiles(facts)}`) || 'Restored'
        : facts.filesOnDisk === 0
          ? 'Restore failed'
          : 'Partly restored';
  const excluded = facts.filesRefused + facts.filesOverLimit;
  const lines = [
    facts.filesTotal === 0 && excluded === 0
      ? `Your request ${nameRequest(facts)} matches no file in the catalogue.`
      : `Your request ${nameRequest(facts)} has finished.`,
    '',
    `  on disk:  ${missing ? formatFiles(facts) : plural(facts.filesOnDisk, 'file')}, ${formatBytes(facts.bytesOnDisk)}`,
    ...(facts.filesFailed > 0 ? [`  failed:   ${plural(facts.filesFailed, 'file')}`] : []),
    ...(facts.filesUnknown > 0 ? [`  missing:  ${plural(facts.filesUnknown, 'unresolved path')}`] : []),
    ...(facts.filesRefused > 0 ? [`  quota:    ${plural(facts.filesRefused, 'file')} over your quota`] : []),
    ...(facts.filesOverLimit > 0
      ? [`  limit:    ${plural(facts.filesOverLimit, 'file')} over the request's limit`]
      : []),
    ...(facts.filesReleased > 0 ? [`  released: ${plural(facts.filesReleased, 'file')}, as you requested`] : []),
  ];
  if (facts.filesOnDisk > 0) {
    lines.push('', `The restored files are available until ${formatTime(facts.retention)}:`, '', ...listCopies(facts));
    addMore(lines, facts.filesOnDisk - facts.copies.length);
    if (facts.mountpoints.length > 0) {
      lines.push(
        '',
        'The files are at their archive paths below these directories:',
        ...facts.mountpoints.map((m) => `  ${m}`),
      );
    }
  }
  if (facts.filesFailed > 0) {
    lines.push('', 'These files could not be restored:', '');
    for (const { path, error } of facts.failed) lines.push(`  ${oneLine(path)}`, `    ${oneLine(error)}`);
    addMore(lines, facts.filesFailed - facts.failed.length);
  }
  if (facts.unresolved.length > 0) {
    lines.push(
      '',
      'Files with these paths were not restored. If these files appear in the catalogue later, Tapegate restores them without another email:',
      '',
    );
    for (const { path, reason } of facts.unresolved) {
      lines.push(`  ${oneLine(path)} (${UNRESOLVED_WHY[reason]})`);
    }
    addMore(lines, facts.filesUnknown + excluded - facts.unresolved.length);
  }
  lines.push(...nameLink(facts));
  return { subject: `${outcome}${missing && `; ${missing}`}: ${shortLabel(facts)}`, body: text(lines) };
}

function nameRequest(facts: MailFacts): string {
  const name = oneLine(facts.label);
  const pattern = facts.pattern === '' || facts.pattern === facts.label ? '' : `, pattern "${oneLine(facts.pattern)}"`;
  return `${facts.requestId} ("${name}"${pattern})`;
}

/**
 * Shortens a request's label for an email subject. SMTP limits a line to 998 octets, and a long subject can be split
 * into several lines only at spaces.
 */
function shortLabel({ label }: MailFacts): string {
  const characters = [...oneLine(label)];
  return characters.length > MAX_LABEL ? `${characters.slice(0, MAX_LABEL - 1).join('')}…` : characters.join('');
}

const MAX_LABEL = 200;

function nameLink({ link }: MailFacts): string[] {
  return link === undefined ? [] : ['', `Current state of the request: ${link}`];
}

function listCopies(facts: MailFacts): string[] {
  return facts.copies.map(({ path, mountpoint }) => `  ${oneLine(`${mountpoint ?? ''}${path}`)}`);
}

function addMore(lines: string[], more: number): void {
  if (more > 0) lines.push(`  … and ${more} more`);
}

function formatTime(time: string): string {
  return `${time.slice(0, 19).replace('T', ' ')} UTC`;
}

/** Replaces line breaks and other control characters that would change how an email program displays the text. */
const oneLine = printable;

function text(lines: string[]): string {
  return `${lines.join('\n')}\n`;
}

/**
 * Milliseconds to wait for a mail server's responses. RFC 5321, 4.5.3.2, requires a client to wait 5 minutes for the
 * greeting, and 10 minutes for the answer to a message.
 */
const TIMEOUTS = { connectionTimeout: 10_000, greetingTimeout: 300_000, socketTimeout: 600_000 };

/**
 * Creates the transport for `SMTP_URL`. The password in the URL is sent only over verified TLS, unless the server is on
 * this host.
 */
export async function createMailTransport(smtpUrl: string): Promise<Transporter> {
  const { default: nodemailer } = await import('nodemailer'); // load the module only here: most processes send no email
  const url = new URL(smtpUrl);
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const needsTls = url.protocol === 'smtps:' || (url.username !== '' && !isLoopback(host));
  return nodemailer.createTransport({
    host,
    port: Number(url.port) || (url.protocol === 'smtps:' ? 465 : 25),
    secure: url.protocol === 'smtps:',
    requireTLS: needsTls,
    // without a password, TLS is optional: a self-signed certificate must not prevent delivery
    tls: { rejectUnauthorized: needsTls },
    ...(url.username && {
      auth: { user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password) },
    }),
    ...TIMEOUTS,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}
