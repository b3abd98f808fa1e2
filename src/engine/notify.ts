/**
 * Sends the mail of the outbox. Each letter is claimed for a while, so that two engines do not send the same one; where an
 * engine is killed between the server's answer and its note, or stands still for longer than its claim, the letter is sent
 * again under the same Message-ID, by which mail systems know a repeated delivery.
 */
import type { Transporter } from 'nodemailer';
import type { Context } from '../context.js';
import { startDeadline } from '../deadline.js';
import { codeOf, isExhausted, messageOf } from '../errors.js';
import { composeLate, toHtml } from '../mail.js';
import {
  claimMail,
  hasSender,
  type Letter,
  noteSender,
  SEND_SECONDS,
  type SendResult,
} from '../operations/mail/outbox.js';
import { createHider } from '../secrets.js';
import { count } from '../signals.js';
import { addSeconds, secondsBetween } from '../time.js';

/** Pauses after the first, second … failure; the last one repeats, however long the server is away. */
const PAUSES_SECONDS = [5, 15, 60, 300, 900, 3600];

/**
 * A letter that a server refuses for now, again and again, is given up so long after the first time: RFC 5321, section 4.5.4.1,
 * has a client try for four or five days at least. A server that is away costs no letter, however long.
 */
const DEFERRED_SECONDS = 5 * 86_400;
/** Nor is it given up before so many times: where many letters wait for their turn, there are days between two tries. */
const DEFERRALS = 10;

/** How sending ends. */
export interface MailSignals {
  /** No further letter after this. */
  stop: AbortSignal;
  /** The letter in hand is given up after this. */
  abort: AbortSignal;
}

/**
 * Sends what is due, each letter in its turn.
 * @param transport undefined: mail is written to the log, unless another engine has a mail server: it is left to that one
 * @returns how many letters were dealt with
 */
export async function sendMail(
  ctx: Context,
  transport: Transporter | undefined,
  { stop, abort }: MailSignals,
): Promise<number> {
  if (transport) await noteSender(ctx);
  else if (await hasSender(ctx)) return 0;
  let letters = 0;
  const sendCounted = async (letter: Letter) => {
    const result = await send(ctx, transport, letter, abort);
    count('tapegate_mail_total', { result: result.state.toLowerCase() });
    return result;
  };
  const claim = { inTurn: transport !== undefined, send: sendCounted };
  while (!stop.aborted && (await claimMail(ctx, claim))) letters++;
  return letters;
}

async function send(
  ctx: Context,
  transport: Transporter | undefined,
  letter: Letter,
  abort: AbortSignal,
): Promise<SendResult> {
  const body = letter.isLate ? composeLate(letter) : letter.body;
  if (!transport) {
    ctx.log.info({ to: letter.recipient, subject: letter.subject, body }, 'mail (SMTP_URL is not set)');
    return { state: 'LOGGED' };
  }
  const message = {
    from: ctx.config.mailFrom,
    to: { name: '', address: letter.recipient },
    subject: letter.subject,
    text: body,
    html: toHtml(body),
    messageId: letter.messageId,
    date: new Date(`${letter.createdAt.slice(0, 19)}Z`),
    headers: { 'Auto-Submitted': 'auto-generated' },
  };
  const deadline = startDeadline(SEND_SECONDS * 1000, abort);
  try {
    await transport.sendMail({ ...message, signal: deadline.signal });
    return { state: 'SENT' };
  } catch (error) {
    const reason = describeFailure(error, ctx.config.smtpUrl);
    ctx.log.warn({ to: letter.recipient, error: reason }, 'mail was not taken');
    if (isRefused(error)) return { state: 'REJECTED', error: reason };
    if (isDeferred(error) && isGivenUp(letter, ctx.now())) {
      return { state: 'REJECTED', error: `given up after ${DEFERRED_SECONDS / 86_400} days: ${reason}` };
    }
    const failures = hasNoSocket(error) ? 0 : letter.attempts;
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

/** @param letter is refused for now once more */
function isGivenUp({ deferredSince, deferrals }: Letter, now: string): boolean {
  if (deferredSince === null || deferrals + 1 < DEFERRALS) return false;
  return secondsBetween(deferredSince, now) >= DEFERRED_SECONDS;
}

/** Has this process too many files open, which says nothing of the server? nodemailer keeps the code of a system error beside its own. */
function hasNoSocket(error: unknown): boolean {
  return isExhausted(error) || isExhausted({ code: (error as { originalCode?: string }).originalCode });
}

/** Why a letter was not taken. A server may say again what it was told. */
function describeFailure(error: unknown, smtpUrl: string | undefined): string {
  const text = createHider({ SMTP_URL: smtpUrl })(messageOf(error));
  if (codeOf(error) !== 'ETLS' && !text.includes('required STARTTLS')) return text;
  return `the mail server begins no TLS (STARTTLS), and without it gets no password: ${text}`;
}

/**
 * Did the server refuse this recipient or this letter for good? A greeting, a login or a sender that is refused is a
 * fault of the site, which is mended some day, and costs no letter.
 */
function isRefused(error: unknown): boolean {
  return isAboutLetter(error) && responseCodeOf(error) >= 500;
}

/** Did the server refuse this recipient or this letter for now, as a full mailbox or a greylist does? */
function isDeferred(error: unknown): boolean {
  return isAboutLetter(error) && responseCodeOf(error) >= 400 && responseCodeOf(error) < 500;
}

function isAboutLetter(error: unknown): boolean {
  const { command = '' } = error as { command?: string };
  return command === 'RCPT TO' || command === 'DATA';
}

function responseCodeOf(error: unknown): number {
  return (error as { responseCode?: number }).responseCode ?? 0;
}
