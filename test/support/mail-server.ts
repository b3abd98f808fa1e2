/** A real SMTP server that stores received emails. Tests can make the server reject emails. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { waitFor } from './wait.js';

export interface ReceivedMail {
  from: string;
  to: string[];
  /** Unfolded header values by header name in lower case. */
  headers: Map<string, string>;
  body: string;
}

export interface MailServer {
  url: string;
  port: number;
  mails: ReceivedMail[];
  /** Runs for each email before the server answers. An error rejects the email. */
  onMail: (mail: ReceivedMail) => void;
  /** Waits for an email to this recipient, with a subject that begins with `subject`. */
  waitForMail(to: string, subject: string): Promise<ReceivedMail>;
  close(): Promise<void>;
}

/** Error that makes the server reject an email with an SMTP response code. */
export class Refusal extends Error {
  readonly responseCode: number;

  constructor(responseCode: number, message: string) {
    super(message);
    this.responseCode = responseCode;
  }
}

export async function startMailServer(port = 0, options: SMTPServerOptions = {}): Promise<MailServer> {
  const mails: ReceivedMail[] = [];
  const smtp = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    disableReverseLookup: true,
    closeTimeout: 100,
    onData: (stream, session, callback) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope;
        const mail = {
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map(({ address }) => address),
          ...parseMail(Buffer.concat(chunks).toString('utf8')),
        };
        mails.push(mail);
        try {
          server.onMail(mail);
          callback();
        } catch (error) {
          callback(error as Error);
        }
      });
    },
    ...options,
  });
  smtp.on('error', () => {}); // ignore errors of broken connections
  smtp.listen(port, '127.0.0.1');
  await once(smtp.server, 'listening');
  const address = smtp.server.address() as AddressInfo;
  const server: MailServer = {
    url: `smtp://127.0.0.1:${address.port}`,
    port: address.port,
    mails,
    onMail: () => {},
    waitForMail: (to, subject) =>
      waitFor(`the mail "${subject}…" to ${to}`, async () =>
        mails.find((mail) => mail.to.includes(to) && mail.headers.get('subject')?.startsWith(subject)),
      ),
    close: () => new Promise((resolve) => smtp.close(() => resolve())),
  };
  return server;
}

function parseMail(raw: string): { headers: Map<string, string>; body: string } {
  const end = raw.indexOf('\r\n\r\n');
  const headers = new Map<string, string>();
  for (const line of raw
    .slice(0, end)
    .replace(/\r\n[ \t]+/g, ' ')
    .split('\r\n')) {
    const [name = '', value = ''] = line.split(/:\s*(.*)/s);
    headers.set(name.toLowerCase(), decodeWords(value));
  }
  const encoded = raw.slice(end + 4);
  return { headers, body: decodeBody(encoded, headers.get('content-transfer-encoding') ?? '') };
}

function decodeBody(text: string, encoding: string): string {
  if (encoding === 'base64') return Buffer.from(text, 'base64').toString('utf8').replaceAll('\r\n', '\n');
  const lines = text.replaceAll('\r\n', '\n');
  return encoding === 'quoted-printable' ? decodeQuoted(lines.replace(/=\n/g, '')) : lines;
}

/** Decodes encoded words (RFC 2047). */
function decodeWords(value: string): string {
  return value
    .replace(/\?=\s+=\?/g, '?==?')
    .replace(/=\?utf-8\?([bq])\?([^?]*)\?=/gi, (_word, kind: string, text: string) =>
      kind.toLowerCase() === 'b'
        ? Buffer.from(text, 'base64').toString('utf8')
        : decodeQuoted(text.replaceAll('_', ' ')),
    );
}

function decodeQuoted(text: string): string {
  const bytes = text.replace(/=([0-9A-F]{2})/g, (_code, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString('utf8');
}
