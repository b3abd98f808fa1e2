/** Webhooks: each thing that happened to a request is written down for them once, in order, is sent, and comes as it was written. */
import type { RequestState } from '../../src/generated/prisma/enums.js';
import { groupBy } from './fact-index.js';
import type { Facts, ProgressEventFact } from './facts.js';
import type { Report } from './violations.js';

/** Of what is told when a request comes to it. */
const types: Partial<Record<RequestState, string>> = {
  COMPLETED: 'request.finished',
  PARTIAL: 'request.failed',
  EXPIRED: 'request.ended',
  CANCELLED: 'request.ended',
};

/** Takes it that the webhooks were there before the first request, and that none was switched off. */
export function checkWebhooks(facts: Facts, report: Report): void {
  const eventsOf = groupBy(facts.progressEvents, (event) => event.requestId);
  const { webhooks, messages } = facts.webhooks;
  for (const { id, user, isOff } of webhooks) {
    if (isOff) report('webhook-off', `webhook ${id} was switched off`);
    const own = messages.filter(({ webhookId, type }) => webhookId === id && type !== 'request.expiring');
    const ofRequest = groupBy(own, (message) => message.requestId);
    for (const request of facts.requests) {
      const told = (ofRequest.get(request.id) ?? []).map(({ type }) => type);
      const isItsOwn = user === null || request.user === user;
      const due = isItsOwn ? dueOf(eventsOf.get(request.id) ?? []) : [];
      if (JSON.stringify(told) === JSON.stringify(due)) continue;
      const kind = told.length > due.length ? 'webhook-twice' : 'webhook-missing';
      const [has, wants] = [told, due].map((list) => list.join(', ') || 'nothing');
      report(kind, `webhook ${id} of request ${request.id} has ${has}; it is due ${wants}`);
    }
  }
  checkSent(facts, report);
}

/** Life by life: one that is revived is another one. */
function dueOf(events: readonly ProgressEventFact[]): string[] {
  const due: string[] = [];
  let told = new Set<string>();
  let before: RequestState | undefined;
  const once = (type: string) => {
    if (!told.has(type)) due.push(type);
    told.add(type);
  };
  for (const { state, filesOnDisk } of events) {
    const end = types[state];
    if (end !== 'request.ended' && before !== undefined && types[before] === 'request.ended') told = new Set();
    if (state === 'RESTORING') once('request.started');
    if (filesOnDisk > 0) once('request.first_file');
    if (end !== undefined && state !== before) due.push(end);
    before = state;
  }
  return due;
}

function checkSent(facts: Facts, report: Report): void {
  const { messages } = facts.webhooks;
  const written = new Map(messages.map((message) => [message.messageId, message]));
  const seen = new Set(facts.outside.told.map(({ messageId }) => messageId));
  for (const { messageId, type, state } of messages) {
    if (state !== 'SENT') report('webhook-unsent', `message ${messageId} (${type}) is ${state}`);
    else if (!seen.has(messageId)) report('webhook-unseen', `message ${messageId} (${type}) is SENT, and never came`);
  }
  for (const { webhookId, messageId, body, isSigned } of facts.outside.told) {
    const message = written.get(messageId);
    if (!message || message.webhookId !== webhookId || message.body !== body)
      report('webhook-unknown', `webhook ${webhookId} was told ${messageId}, which was not written so: ${body}`);
    if (!isSigned)
      report('webhook-unsigned', `message ${messageId} is not signed with the secret of webhook ${webhookId}`);
  }
}
