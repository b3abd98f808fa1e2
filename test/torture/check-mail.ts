/** Mail: what is due is queued once and sent, and nothing else is. */
import type { NotificationKind } from '../../src/generated/prisma/enums.js';
import { addSeconds, isBefore } from '../../src/time.js';
import { groupBy, type Index } from './fact-index.js';
import type { Facts, ProgressEventFact, RequestFact } from './facts.js';
import type { Report } from './violations.js';

/** Letters within a minute, of a user and of all, at which the mail of whatever is checked was sent. */
export const MAIL_RATES = { userMailRate: 30_000, mailRate: 60_000 };

const ROUNDING_SECONDS = 0.0005;

const KINDS: readonly NotificationKind[] = ['FIRST_FILE', 'LAST_FILE'];

/** Takes it that nobody changes an address after the request was made. */
export function checkMail(facts: Facts, index: Index, report: Report): void {
  const queued = new Set(facts.notifications.map(({ requestId, kind }) => `${requestId} ${kind}`));
  const eventsOf = groupBy(facts.progressEvents, (event) => event.requestId);
  for (const request of facts.requests) {
    const reached = findReached(eventsOf.get(request.id) ?? [], index.releasedOf.has(request.id));
    for (const kind of KINDS) {
      if (reached.has(kind) && addressOf(request, kind) !== null && !queued.has(`${request.id} ${kind}`)) {
        report('mail-missing', `request ${request.id} has reached ${kind}, and no mail was queued`);
      }
    }
  }
  checkQueued(facts, index, report);
  checkSeen(facts, report);
  checkTurns(facts, report);
}

/** Each try has used a turn, which is a part of a minute, and no two have used the same. */
function checkTurns({ mailTurns }: Facts, report: Report): void {
  for (const { user, tries, since, usedUntil } of mailTurns) {
    const seconds = (tries * 60) / (user === null ? MAIL_RATES.mailRate : MAIL_RATES.userMailRate);
    const least = addSeconds(since, seconds - ROUNDING_SECONDS);
    if (usedUntil !== null && !isBefore(usedUntil, least)) continue;
    report('mail-hurried', `${tries} letters of ${user ?? 'all'} since ${since} have used the rate up to ${usedUntil}`);
  }
}

/**
 * What has happened to a request, as its progress events tell. Who has released all files of a request is not told that
 * nothing is left to do.
 */
function findReached(events: readonly ProgressEventFact[], hasReleased: boolean): ReadonlySet<NotificationKind> {
  const reached = new Set<NotificationKind>();
  for (const event of events) {
    if (event.filesOnDisk > 0) reached.add('FIRST_FILE');
    const isDone = event.state === 'COMPLETED' || event.state === 'PARTIAL';
    if (isDone && (event.filesTotal > 0 || !hasReleased)) reached.add('LAST_FILE');
  }
  return reached;
}

function addressOf(request: RequestFact, kind: NotificationKind): string | null {
  if (kind === 'EXPIRING') return request.last ?? request.first;
  return kind === 'FIRST_FILE' ? request.first : request.last;
}

function checkQueued(facts: Facts, index: Index, report: Report): void {
  const seen = new Set(facts.outside.mails.map((mail) => mail.messageId));
  for (const { requestId, kind, recipient, messageId, state } of facts.notifications) {
    const name = `mail ${messageId} (${kind} of request ${requestId})`;
    const request = index.requests.get(requestId);
    const address = request ? addressOf(request, kind) : null;
    if (address !== recipient) report('mail-unasked', `${name} goes to ${recipient}; the request has ${address}`);
    if (state !== 'SENT') report('mail-unsent', `${name} is ${state}`);
    else if (!seen.has(messageId)) report('mail-unseen', `${name} is SENT, and the server has not seen it`);
  }
}

function checkSeen(facts: Facts, report: Report): void {
  const queued = groupBy(facts.notifications, (notification) => notification.messageId);
  for (const { messageId, to } of facts.outside.mails) {
    const [notification] = queued.get(messageId) ?? [];
    if (!notification) report('mail-unknown', `the server has seen ${messageId} to ${to}, which nobody queued`);
    else if (notification.recipient !== to) {
      report('mail-unknown', `the server has seen ${messageId} to ${to}, and not to ${notification.recipient}`);
    }
  }
}
