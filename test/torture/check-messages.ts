/** Checks emails and webhook messages: each due message is queued once and delivered, and no other message is. */
import type { NotificationKind, RequestState } from '../../src/generated/prisma/enums.js';
import type { Report } from './checker.js';
import { type Facts, groupBy, type Index, type ProgressEvent, type RequestFact } from './facts.js';
import { findRecorded } from './removed-copies.js';

/** Limits in emails a minute, so high that no email waits. */
export const MAIL_RATES = { userMailRate: 30_000, mailRate: 60_000 };
const KINDS: readonly NotificationKind[] = ['FIRST_FILE', 'LAST_FILE'];

/** Checks emails. Addresses must not change after a request is created. */
export function checkMail(facts: Facts, index: Index, report: Report): void {
  const { notifications, observed } = facts;
  const recorded = findRecorded(facts);
  const queued = new Set(notifications.map(({ requestId, kind }) => `${requestId} ${kind}`));
  for (const request of facts.requests) {
    // an email that is not being sent is withdrawn when the copy that it reports is removed
    const removal = recorded.findLast(({ requestIds }) => requestIds.includes(request.id))?.number ?? 0n;
    const events = (index.progressOf.get(request.id) ?? []).filter(({ number }) => number > removal);
    const reached = findReached(events, index.releasedOf.has(request.id));
    for (const kind of KINDS) {
      if (!reached.has(kind) || addressOf(request, kind) === null || queued.has(`${request.id} ${kind}`)) continue;
      report('mail-missing', `request ${request.id} has reached ${kind}, and no mail was queued`);
    }
  }
  const seen = new Set(observed.mails.map(({ messageId }) => messageId));
  for (const { requestId, kind, recipient, messageId, state } of notifications) {
    const name = `mail ${messageId} (${kind} of request ${requestId})`;
    const request = index.requests.get(requestId);
    const address = request ? addressOf(request, kind) : null;
    if (address !== recipient) report('mail-unasked', `${name} goes to ${recipient}; the request has ${address}`);
    if (state !== 'SENT') report('mail-unsent', `${name} is ${state}`);
    else if (!seen.has(messageId)) report('mail-unseen', `${name} is SENT, and the server has not received it`);
  }
  const recipients = new Map(notifications.map(({ messageId, recipient }) => [messageId, recipient]));
  for (const { messageId, to } of observed.mails) {
    const known = recipients.get(messageId);
    if (known === undefined) report('mail-unknown', `the server received ${messageId} to ${to}, which was not queued`);
    else if (known !== to) report('mail-unknown', `the server received ${messageId} to ${to}, and not to ${known}`);
  }
}

/**
 * Returns the emails that are due. A request whose files were all released by a user does not report its completion.
 */
function findReached(events: readonly ProgressEvent[], hasReleased: boolean): ReadonlySet<NotificationKind> {
  const reached = new Set<NotificationKind>();
  for (const { state, filesOnDisk, filesTotal } of events) {
    if (filesOnDisk > 0) reached.add('FIRST_FILE');
    if ((state === 'COMPLETED' || state === 'PARTIAL') && (filesTotal > 0 || !hasReleased)) reached.add('LAST_FILE');
  }
  return reached;
}

function addressOf(request: RequestFact, kind: NotificationKind): string | null {
  const { notifyOnFirstFile: first, notifyOnLastFile: last } = request;
  if (kind === 'EXPIRING') return last ?? first;
  return kind === 'FIRST_FILE' ? first : last;
}

/** Message for each state that a request reaches. */
const TYPES: Partial<Record<RequestState, string>> = {
  COMPLETED: 'request.completed',
  PARTIAL: 'request.partial',
  EXPIRED: 'request.ended',
  CANCELLED: 'request.ended',
};

/** Checks webhook messages. The webhooks must exist before the first request, and stay switched on. */
export function checkWebhooks({ webhooks, messages, requests, observed }: Facts, index: Index, report: Report): void {
  for (const { id, user, disabledAt } of webhooks) {
    if (disabledAt !== null) report('webhook-off', `webhook ${id} was switched off`);
    const own = messages.filter(({ webhookId, type }) => webhookId === id && type !== 'request.expiring');
    const byRequest = groupBy(own, ({ requestId }) => requestId);
    for (const request of requests) {
      const written = (byRequest.get(request.id) ?? []).map(({ type }) => type);
      const isIncluded = user === null || request.user === user;
      const due = isIncluded ? findDue(index.progressOf.get(request.id) ?? []) : [];
      if (written.join() === due.join()) continue;
      const kind = written.length > due.length ? 'webhook-twice' : 'webhook-missing';
      report(kind, `webhook ${id} has the messages [${written}] of request ${request.id}, expected [${due}]`);
    }
  }
  const known = new Map(messages.map((message) => [message.messageId, message]));
  const seen = new Set(observed.messages.map(({ messageId }) => messageId));
  for (const { messageId, type, state } of messages) {
    if (state !== 'SENT') report('webhook-unsent', `message ${messageId} (${type}) is ${state}`);
    else if (!seen.has(messageId))
      report('webhook-unseen', `message ${messageId} (${type}) is SENT, and never arrived`);
  }
  for (const { webhookId, messageId, body, isSigned } of observed.messages) {
    const message = known.get(messageId);
    if (message?.webhookId !== webhookId || message.body !== body) {
      report('webhook-unknown', `webhook ${webhookId} received ${messageId}, which was not written so: ${body}`);
    }
    if (!isSigned)
      report('webhook-unsigned', `message ${messageId} is not signed with the secret of webhook ${webhookId}`);
  }
}

/** Returns the due messages. After a revival, all messages are due again. */
function findDue(events: readonly ProgressEvent[]): string[] {
  const due: string[] = [];
  const once = new Set<string>();
  let before: RequestState | undefined;
  for (const { state, filesOnDisk } of events) {
    const end = TYPES[state];
    if (end !== 'request.ended' && before !== undefined && TYPES[before] === 'request.ended') once.clear();
    const begun = [state === 'RESTORING' && 'request.started', filesOnDisk > 0 && 'request.first_file'];
    for (const type of begun) {
      if (type && !once.has(type)) due.push(type);
      if (type) once.add(type);
    }
    if (end !== undefined && state !== before) due.push(end);
    before = state;
  }
  return due;
}
