/** The outbox of emails: creates, sends and reads emails as an engine does. */

import { createMailTransport } from '../../src/domain/notifications/mail/mail.js';
import { sendMail } from '../../src/engine/notifications/notify.js';
import type { TestApp } from './app.js';
import { makeRequest } from './rest.js';

/** A row of the outbox. */
export interface Email {
  state: string;
  attempts: number;
  last_error: string | null;
  message_id: string;
  next_try_at: string;
  sent_at: string | null;
  created_at: string;
}

/** Creates a request without known files, so that an email to `<name>@example.org` is due at once. */
export function askForMail(app: TestApp, name: string, fields: object = {}): Promise<number> {
  const mail = { notify_on_last_file: `${name}@example.org`, retention: '2099-01-01' };
  return makeRequest(app, { quota: 'alice', files: [`/${name}`], ...mail, ...fields });
}

/** Returns the only email of a request. */
export async function readEmail(app: TestApp, requestId: number): Promise<Email> {
  const { rows } = await app.ctx.db.pool.query<Email>('SELECT * FROM notification WHERE request_id = $1', [requestId]);
  const [email] = rows;
  if (!email) throw new Error(`request ${requestId} has no email`);
  return email;
}

export const never = new AbortController().signal;

/**
 * Sends the emails that an engine would send at its start.
 * @param smtpUrl URL of the mail server. Without a server, emails are written to the log.
 * @returns the number of emails sent
 */
export async function sendDue({ ctx }: TestApp, smtpUrl: string | undefined): Promise<number> {
  const transport = smtpUrl === undefined ? undefined : await createMailTransport(smtpUrl);
  try {
    return await sendMail(ctx, transport, { stop: never, abort: never });
  } finally {
    transport?.close();
  }
}
