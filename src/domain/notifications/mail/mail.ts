/** Texts of emails, and their SMTP transport. */
import type { Transporter } from 'nodemailer';
import { isLoopback } from '../../../core/address-ranges.js';
import { formatBytes } from '../../../core/bytes.js';
import { plural } from '../../../core/plural.js';
import { printable } from '../../../core/printable.js';
import { formatFiles, formatMissing } from '../../../core/requested-files.js';
import type { NotificationKind, UnresolvedReason } from '../../../generated/prisma/enums.js';

export interface MailFacts {
  requestId: number;
  /** URL of the request; undefined if the gateway's URL is not configured. */
  link: string | undefined;
  label: string;
  /** Empty for a request that lists files. */
  pattern: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  /** Excluded because of a full quota, and because of the request's own limits. */
  filesRefused: number;
  filesOverLimit: number;
  /** Released early. */
  filesReleased: number;
  bytesOnDisk: bigint;
  /** The first files on disk; without a mountpoint if the file is still in its original place on disk. */
  copies: { path: string; mountpoint: string | null }[];
  mountpoints: string[];
  /** The first failed files. */
  failed: { path: string; error: string }[];
  /** The first paths without a file. */
  unresolved: { path: string; reason: UnresolvedReason }[];
}

const UNRESOLVED_WHY: Record<UnresolvedReason, string> = {
  UNKNOWN: 'not in the catalogue',
  QUOTA_FULL: 'no room in your quota',
  LIMIT: 'beyond the limit of the request',
};

/** Returns the URL of a request: in the dashboard, or of the REST API without one. Undefined without `publicUrl`. */
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

/** Returns the text of an email whose request ended before it was sent. */
export function composeLate({ body, createdAt }: { body: string; createdAt: string }): string {
  return text([
    `This email was written at ${formatTime(createdAt)}. The request has ended since then, and its files may no longer be on disk.`,
    '',
    body.trimEnd(),
  ]);
}

function composeFirst(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `The first file of your request ${nameRequest(facts)} is on disk:`,
    '',
    ...listCopies(facts).slice(0, 1),
    '',
    rest > 0
      ? `${plural(rest, 'more file')} will follow, of ${facts.filesTotal} in total.`
      : 'No more files will follow.',
    `Restored files stay on disk until ${formatTime(facts.retention)}.`,
    ...nameLink(facts),
  ];
  return { subject: `First file restored: ${shortLabel(facts)}`, body: text(lines) };
}

function composeExpiring(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `Your request ${nameRequest(facts)} expires at ${formatTime(facts.retention)}. Its files are then released:`,
    '',
    `  on disk:  ${plural(facts.filesOnDisk, 'file')}, ${formatBytes(facts.bytesOnDisk)}`,
    ...(rest > 0 ? [`  waiting:  ${plural(rest, 'file')}`] : []),
    '',
    'If you no longer need them, do nothing. To keep them for another week from now:',
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
    ...(facts.filesUnknown > 0 ? [`  unknown:  ${plural(facts.filesUnknown, 'name')} not found`] : []),
    ...(facts.filesRefused > 0 ? [`  quota:    ${plural(facts.filesRefused, 'file')} with no room in your quota`] : []),
    ...(facts.filesOverLimit > 0
      ? [`  limit:    ${plural(facts.filesOverLimit, 'file')} beyond the limit of the request`]
      : []),
    ...(facts.filesReleased > 0 ? [`  released: ${plural(facts.filesReleased, 'file')}, as you requested`] : []),
  ];
  if (facts.filesOnDisk > 0) {
    lines.push('', `The restored files are available until ${formatTime(facts.retention)}:`, '', ...listCopies(facts));
    addMore(lines, facts.filesOnDisk - facts.copies.length);
    if (facts.mountpoints.length > 0) {
      lines.push(
        '',
        'Each file has its archive path below one of these directories:',
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
      'These paths have no restored file. Files that appear in the catalogue later are restored without another email:',
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

/** SMTP takes lines of at most 998 octets, and a subject without spaces is not folded. */
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

/** To the second. */
function formatTime(time: string): string {
  return `${time.slice(0, 19).replace('T', ' ')} UTC`;
}

/** A path may contain line breaks, and characters that change the displayed text. */
const oneLine = printable;

function text(lines: string[]): string {
  return `${lines.join('\n')}\n`;
}

/** Times for which a mail server may stay silent: RFC 5321, 4.5.3.2 asks for 5 minutes before the greeting and 10 after a message. */
const TIMEOUTS = { connectionTimeout: 10_000, greetingTimeout: 300_000, socketTimeout: 600_000 };

/**
 * A URL with a user name has a password, which is sent only over verified TLS, unless the server is on this host.
 * @param smtpUrl as in SMTP_URL
 */
export async function createMailTransport(smtpUrl: string): Promise<Transporter> {
  const { default: nodemailer } = await import('nodemailer'); // most processes send no mail
  const url = new URL(smtpUrl);
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1'); // IPv6
  const needsTls = url.protocol === 'smtps:' || (url.username !== '' && !isLoopback(host));
  return nodemailer.createTransport({
    host,
    port: Number(url.port) || (url.protocol === 'smtps:' ? 465 : 25),
    secure: url.protocol === 'smtps:',
    requireTLS: needsTls,
    // without a password TLS is optional, so a self-signed certificate must not prevent it
    tls: { rejectUnauthorized: needsTls },
    ...(url.username && {
      auth: { user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password) },
    }),
    ...TIMEOUTS,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}
