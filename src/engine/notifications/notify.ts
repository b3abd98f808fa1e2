/**
 * Sends the emails that are queued in the database. An engine claims each email before sending it, so that two engines
 * do not send the same email. After a crash, an email might be sent twice, with the same Message-ID.
 */
import type { Transporter } from 'nodemailer';
import { startDeadline } from '../../core/deadline.js';
import { codeOf, isExhausted, logFailure, messageOf } from '../../core/errors.js';
import { createHider } from '../../core/secrets.js';
import { count } from '../../core/signals.js';
import { addSeconds, secondsBetween } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { addEnd, composeLate } from '../../domain/notifications/mail/mail.js';
import {
  type ClaimedMail,
  claimMail,
  hasSender,
  recordSender,
  SEND_SECONDS,
  type SendResult,
} from '../../domain/notifications/mail/outbox.js';
import { readEnds } from '../../domain/plan/ends.js';
import { confirmOwned } from '../../restore-area/ownership.js';

/**
 * Pauses, in seconds, after consecutive failures to send an email. The last pause is also used after all further
 * failures.
 */
const PAUSES_SECONDS = [5, 15, 60, 300, 900, 3600];

/**
 * Seconds between the first deferral of an email and the time at which the email is dropped. RFC 5321, section 4.5.4.1,
 * requires senders to try for at least four or five days.
 */
const DEFERRED_SECONDS = 5 * 86_400;
/** Minimum number of deferrals before an email is dropped. */
const DEFERRALS = 10;

export interface MailSignals {
  stop: AbortSignal;
  abort: AbortSignal;
}

/**
 * Sends all due emails, one after another.
 * @param transport connection to the mail server. If there is no connection, emails are logged instead of sent.
 *   However, emails stay queued if another engine has had a mail server in the last 7 days
 * @returns the number of emails that this call sent, logged or tried to send
 */
export async function sendMail(
  ctx: Context,
  transport: Transporter | undefined,
  { stop, abort }: MailSignals,
): Promise<number> {
  if (transport) await recordSender(ctx);
  else if (await hasSender(ctx)) return 0;
  let processed = 0;
  const sendCounted = async (email: ClaimedMail) => {
    await confirmOwned(ctx);
    const result = await send(ctx, transport, email, abort);
    count('tapegate_mail_total', { result: result.state.toLowerCase() });
    return result;
  };
  const claim = { inTurn: transport !== undefined, send: sendCounted };
  while (!stop.aborted) {
    // check the owner of the restore disks before the claim, because an email that is claimed but not sent is delayed
    await confirmOwned(ctx);
    if (!(await claimMail(ctx, claim))) break;
    processed++;
  }
  return processed;
}

async function send(
  ctx: Context,
  transport: Transporter | undefined,
  email: ClaimedMail,
  abort: AbortSignal,
): Promise<SendResult> {
  const body = email.isLate ? composeLate(email) : await writeBody(ctx, email);
  if (!transport) {
    ctx.log.info({ to: email.recipient, subject: email.subject, body }, 'email not sent: SMTP_URL is not set');
    return { state: 'LOGGED' };
  }
  const message = {
    from: ctx.config.mailFrom,
    to: { name: '', address: email.recipient },
    subject: email.subject,
    text: body,
    messageId: email.messageId,
    date: new Date(`${email.createdAt.slice(0, 19)}Z`),
    headers: { 'Auto-Submitted': 'auto-generated' },
  };
  const deadline = startDeadline(SEND_SECONDS * 1000, abort);
  try {
    await transport.sendMail({ ...message, signal: deadline.signal });
    return { state: 'SENT' };
  } catch (error) {
    const reason = describeFailure(error, ctx.config.smtpUrl);
    ctx.log.warn({ to: email.recipient, error: reason }, 'cannot send the email');
    if (isRefused(error)) return { state: 'REJECTED', error: reason };
    if (isDeferred(error) && ctx.db.clock.isPlausible && isGivenUp(email, ctx.now())) {
      return { state: 'REJECTED', error: `Tapegate gave up after ${DEFERRED_SECONDS / 86_400} days: ${reason}` };
    }
    const failures = hasNoSocket(error) ? 0 : email.attempts;
    const pause = abort.aborted ? 0 : PAUSES_SECONDS[Math.min(failures, PAUSES_SECONDS.length - 1)];
    return {
      state: 'PENDING',
      error: reason,
      nextTryAt: addSeconds(ctx.now(), pause ?? 0),
      isDeferred: isDeferred(error),
    };
  } finally {
    deadline.end();
  }
}

/** Returns the email's text. If the request still waits for files, adds the estimated end as of now. */
async function writeBody(ctx: Context, { kind, requestId, body }: ClaimedMail): Promise<string> {
  if (kind === 'LAST_FILE') return body;
  try {
    const end = (await readEnds(ctx, [requestId])).get(requestId);
    return end ? addEnd(body, end) : body;
  } catch (error) {
    // an email without an estimate is better than no email
    logFailure(ctx.log, error, 'cannot estimate the end of a request for an email');
    return body;
  }
}

function isGivenUp({ deferredSince, deferrals }: ClaimedMail, now: string): boolean {
  if (deferredSince === null || deferrals + 1 < DEFERRALS) return false;
  return secondsBetween(deferredSince, now) >= DEFERRED_SECONDS;
}

/**
 * Returns whether this process has too many open files. nodemailer stores the system's error code in `originalCode`.
 */
function hasNoSocket(error: unknown): boolean {
  return isExhausted(error) || isExhausted({ code: (error as { originalCode?: string }).originalCode });
}

/** Returns the error text without the SMTP password, which a mail server might repeat. */
function describeFailure(error: unknown, smtpUrl: string | undefined): string {
  const text = createHider({ SMTP_URL: smtpUrl })(messageOf(error));
  if (codeOf(error) !== 'ETLS' && !text.includes('required STARTTLS')) return text;
  return `the mail server does not offer TLS (STARTTLS), so Tapegate does not send the password: ${text}`;
}

function isRefused(error: unknown): boolean {
  return isAboutEmail(error) && responseCodeOf(error) >= 500;
}

function isDeferred(error: unknown): boolean {
  return isAboutEmail(error) && responseCodeOf(error) >= 400 && responseCodeOf(error) < 500;
}

function isAboutEmail(error: unknown): boolean {
  const { command = '' } = error as { command?: string };
  return command === 'RCPT TO' || command === 'DATA';
}

function responseCodeOf(error: unknown): number {
  return (error as { responseCode?: number }).responseCode ?? 0;
}
