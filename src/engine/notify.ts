/**
 * Sends the mail of the outbox. Each row is locked while it is sent, so that two engines never send the same one; an
 * engine killed between the server's answer and the commit sends again under the same Message-ID, by which mail
 * systems know a repeated delivery.
 */
import type { Transporter } from 'nodemailer';
import type { Context } from '../context.js';
import { messageOf } from '../errors.js';
import { claimMail, type Letter, type SendResult } from '../operations/outbox.js';
import { addSeconds } from '../time.js';

/** Pauses after the first, second … failure; the last one repeats, however long the server is away. */
const PAUSES_SECONDS = [5, 15, 60, 300, 900, 3600];

/**
 * Sends what is due.
 * @param transport undefined: mail is written to the log
 * @returns how many letters were dealt with
 */
export async function sendMail(ctx: Context, transport: Transporter | undefined, stop: AbortSignal): Promise<number> {
  let count = 0;
  while (!stop.aborted && (await claimMail(ctx, (letter) => send(ctx, transport, letter)))) count++;
  return count;
}

async function send(ctx: Context, transport: Transporter | undefined, letter: Letter): Promise<SendResult> {
  if (!transport) {
    ctx.log.info({ to: letter.recipient, subject: letter.subject, body: letter.body }, 'mail (SMTP_URL is not set)');
    return { state: 'LOGGED' };
  }
  try {
    await transport.sendMail({
      from: ctx.config.mailFrom,
      to: { name: '', address: letter.recipient },
      subject: letter.subject,
      text: letter.body,
      messageId: letter.messageId,
      date: new Date(`${letter.createdAt.slice(0, 19)}Z`),
      headers: { 'Auto-Submitted': 'auto-generated' },
    });
    return { state: 'SENT' };
  } catch (error) {
    const isRefused = ((error as { responseCode?: number }).responseCode ?? 0) >= 500;
    ctx.log.warn({ to: letter.recipient, error: messageOf(error) }, 'mail was not taken');
    if (isRefused) return { state: 'REJECTED', error: messageOf(error) };
    const pause = PAUSES_SECONDS[Math.min(letter.attempts, PAUSES_SECONDS.length - 1)] ?? 3600;
    return { state: 'PENDING', error: messageOf(error), nextTryAt: addSeconds(ctx.now(), pause) };
  }
}
