/** The text of the mails (pure) and the way they leave the house. */
import type { Transporter } from 'nodemailer';
import { formatBytes } from './bytes.js';
import type { AwaitedReason, NotificationKind } from './generated/prisma/enums.js';

export interface MailFacts {
  requestId: number;
  /** Where its reader finds the request; undefined where that is not known. */
  link: string | undefined;
  label: string;
  /** Empty for a request that lists files. */
  pattern: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  /** Out for a full quota, and for the request's own limits. */
  filesRefused: number;
  filesOverLimit: number;
  /** Let go early. */
  filesReleased: number;
  bytesOnDisk: bigint;
  /** The first of the files on disk; no mountpoint where the file is still at its own place on disk. */
  copies: { path: string; mountpoint: string | null }[];
  mountpoints: string[];
  /** The first of the failed files. */
  failed: { path: string; error: string }[];
  /** The first of the paths without a file. */
  awaited: { path: string; reason: AwaitedReason }[];
}

const AWAITED_WHY: Record<AwaitedReason, string> = {
  UNKNOWN: 'not in the catalogue',
  QUOTA_FULL: 'no room in your quota',
  LIMIT: 'beyond the limit of the request',
};

/**
 * Where a user finds a request: on the page for people, or as the contract answers it where there is none. Undefined where nobody has
 * said where the gateway is.
 */
export function linkToRequest(
  { publicUrl, dashboard }: { publicUrl: string | undefined; dashboard: boolean },
  requestId: number,
): string | undefined {
  return publicUrl && `${publicUrl}/${dashboard ? '#' : 'tape_control/api/v1'}/requests/${requestId}`;
}

export interface Mail {
  subject: string;
  body: string;
}

export function composeMail(kind: NotificationKind, facts: MailFacts): Mail {
  if (kind === 'EXPIRING') return composeExpiring(facts);
  return kind === 'FIRST_FILE' ? composeFirst(facts) : composeLast(facts);
}

/** The text of a letter whose request has ended while it waited, for its turn or for a mail server. */
export function composeLate({ body, createdAt }: { body: string; createdAt: string }): string {
  return text([
    `This was written at ${formatTime(createdAt)}. The request has ended since, and its files may be on disk no longer.`,
    '',
    body.trimEnd(),
  ]);
}

function composeFirst(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `The first file of your request ${nameRequest(facts)} can be read now:`,
    '',
    ...listCopies(facts).slice(0, 1),
    '',
    rest > 0
      ? `${count(rest, 'file is', 'files are')} still to come, of ${formatNumber(facts.filesTotal)} in all.`
      : 'No other file is to come.',
    `Restored files stay on disk until ${formatTime(facts.retention)}.`,
    ...nameLink(facts),
  ];
  return { subject: `First file restored: ${oneLine(facts.label)}`, body: text(lines) };
}

function composeExpiring(facts: MailFacts): Mail {
  const rest = facts.filesTotal - facts.filesOnDisk - facts.filesFailed;
  const lines = [
    `Your request ${nameRequest(facts)} expires at ${formatTime(facts.retention)}, and its files leave the disk then:`,
    '',
    `  on disk:  ${count(facts.filesOnDisk, 'file', 'files')}, ${formatBytes(facts.bytesOnDisk)}`,
    ...(rest > 0 ? [`  to come:  ${count(rest, 'file', 'files')}`] : []),
    '',
    'Nothing is to be done if they are not needed any more. To keep them for another week from now:',
    '',
    `  tapegate update ${facts.requestId} --retention 7d`,
    ...nameLink(facts),
  ];
  return { subject: `Expires soon: ${oneLine(facts.label)}`, body: text(lines) };
}

function composeLast(facts: MailFacts): Mail {
  const outcome =
    facts.filesTotal === 0
      ? 'No files'
      : facts.filesFailed === 0
        ? 'Restored'
        : facts.filesOnDisk === 0
          ? 'Restore failed'
          : 'Partly restored';
  const leftOut = facts.filesRefused + facts.filesOverLimit;
  const lines = [
    facts.filesTotal === 0 && leftOut === 0
      ? `Your request ${nameRequest(facts)} matches no file that the catalogue knows.`
      : `Nothing is left to do for your request ${nameRequest(facts)}.`,
    '',
    `  on disk:  ${count(facts.filesOnDisk, 'file', 'files')}, ${formatBytes(facts.bytesOnDisk)}`,
    ...(facts.filesFailed > 0 ? [`  failed:   ${count(facts.filesFailed, 'file', 'files')}`] : []),
    ...(facts.filesUnknown > 0 ? [`  unknown:  ${count(facts.filesUnknown, 'path', 'paths')}`] : []),
    ...(facts.filesRefused > 0
      ? [`  quota:    ${count(facts.filesRefused, 'file', 'files')} found no room in your quota`]
      : []),
    ...(facts.filesOverLimit > 0
      ? [`  limit:    ${count(facts.filesOverLimit, 'file is', 'files are')} beyond the limit of the request`]
      : []),
    ...(facts.filesReleased > 0 ? [`  released: ${count(facts.filesReleased, 'file', 'files')}, as you asked`] : []),
  ];
  if (facts.filesOnDisk > 0) {
    lines.push('', `Until ${formatTime(facts.retention)} you find them here:`, '', ...listCopies(facts));
    addMore(lines, facts.filesOnDisk - facts.copies.length);
    if (facts.mountpoints.length > 0) {
      lines.push(
        '',
        'Below these directories each file has its archive path:',
        ...facts.mountpoints.map((m) => `  ${m}`),
      );
    }
  }
  if (facts.filesFailed > 0) {
    lines.push('', 'These files could not be restored:', '');
    for (const { path, error } of facts.failed) lines.push(`  ${oneLine(path)}`, `    ${oneLine(error)}`);
    addMore(lines, facts.filesFailed - facts.failed.length);
  }
  if (facts.awaited.length > 0) {
    lines.push(
      '',
      'These have no restored file; what appears in the catalogue later is restored without another mail:',
      '',
    );
    for (const { path, reason } of facts.awaited) {
      lines.push(`  ${oneLine(path)} (${AWAITED_WHY[reason]})`);
    }
    addMore(lines, facts.filesUnknown + leftOut - facts.awaited.length);
  }
  lines.push(...nameLink(facts));
  return { subject: `${outcome}: ${oneLine(facts.label)}`, body: text(lines) };
}

function nameRequest(facts: MailFacts): string {
  const name = oneLine(facts.label);
  const pattern = facts.pattern === '' || facts.pattern === facts.label ? '' : `, pattern "${oneLine(facts.pattern)}"`;
  return `${facts.requestId} ("${name}"${pattern})`;
}

/** How the line with the link begins, and no other does. */
const LINK = 'The request as it is now: ';

function nameLink({ link }: MailFacts): string[] {
  return link === undefined ? [] : ['', `${LINK}${link}`];
}

/** The same letter for programs that show HTML: paragraphs, what is indented in a type of one width, and the link. Nothing of it is fetched. */
export function toHtml(body: string): string {
  const blocks = body.trimEnd().split('\n\n');
  const shown = blocks.map((block) => {
    const lines = block.split('\n');
    if (lines.every((line) => line.startsWith('  ')))
      return `<pre>${lines.map((line) => escapeHtml(line.slice(2))).join('\n')}</pre>`;
    return `<p>${lines.map(linkHtml).join('<br>\n')}</p>`;
  });
  return `<!doctype html>\n<html lang="en"><body style="font-family: sans-serif">\n${shown.join('\n')}\n</body></html>\n`;
}

function linkHtml(line: string): string {
  if (!line.startsWith(LINK)) return escapeHtml(line);
  const link = escapeHtml(line.slice(LINK.length));
  return `${LINK}<a href="${link}">${link}</a>`;
}

const escapeHtml = (value: string): string => value.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

function listCopies(facts: MailFacts): string[] {
  return facts.copies.map(({ path, mountpoint }) => `  ${oneLine(`${mountpoint ?? ''}${path}`)}`);
}

function addMore(lines: string[], more: number): void {
  if (more > 0) lines.push(`  … and ${formatNumber(more)} more`);
}

function count(n: number, one: string, many: string): string {
  return `${formatNumber(n)} ${n === 1 ? one : many}`;
}

function formatNumber(n: number): string {
  return n.toLocaleString('en');
}

/** To the second, which is what a reader wants. */
function formatTime(time: string): string {
  return `${time.slice(0, 19).replace('T', ' ')} UTC`;
}

/** A path may hold line breaks; a mail shows them rather than obeys them. */
function oneLine(value: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
  return value.replace(/[\u0000-\u001f\u007f\u2028\u2029]/g, '\uFFFD');
}

function text(lines: string[]): string {
  return `${lines.join('\n')}\n`;
}

/** Nothing may hang on a mail server that does not answer. */
const TIMEOUTS = { connectionTimeout: 10_000, greetingTimeout: 10_000, socketTimeout: 30_000 };

/**
 * With a name in the URL there is a password, which goes over TLS alone, to a server whose certificate is good for its host:
 * only what listens on this host itself needs none.
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
    // else it is in the clear where the server has no TLS, so a certificate of the house must not be an obstacle to it
    tls: { rejectUnauthorized: needsTls },
    ...(url.username && {
      auth: { user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password) },
    }),
    ...TIMEOUTS,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
