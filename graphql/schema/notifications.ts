/** Webhooks: what is told to programs elsewhere, and what came of it. */
import { ForbiddenError, InvalidInputError, NotFoundError, UnknownUserError } from '../../src/core/errors.js';
import { listWaitingMail, type MailWait, type WaitingMail } from '../../src/domain/notifications/mail/outbox.js';
import { eventTypes } from '../../src/domain/notifications/webhooks/news.js';
import {
  createWebhook,
  listWebhookMessages,
  listWebhooks,
  removeWebhook,
  rotateWebhookSecret,
  type ShownMessage,
  type ShownWebhook,
  setWebhook,
  testWebhook,
  type WebhookWithSecret,
} from '../../src/domain/notifications/webhooks/webhooks.js';
import type { WebhookEvent, WebhookMessageState } from '../../src/generated/prisma/enums.js';
import { builder, describeValues, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { resolveBigIdPage, resolveIdPage } from './pages.js';

const EventType = builder.enumType('WebhookEvent', {
  description: 'What a webhook may be told of.',
  values: describeValues<WebhookEvent>({
    REQUEST_STARTED: `\`${eventTypes.REQUEST_STARTED}\`: the first recall of a request began.`,
    REQUEST_FIRST_FILE: `\`${eventTypes.REQUEST_FIRST_FILE}\`: the first file of a request can be read.`,
    REQUEST_FINISHED: `\`${eventTypes.REQUEST_FINISHED}\`: each file of a request is on disk; again, where more were to come since.`,
    REQUEST_FAILED: `\`${eventTypes.REQUEST_FAILED}\`: nothing is left to do for a request, and some of its files have failed.`,
    REQUEST_EXPIRING: `\`${eventTypes.REQUEST_EXPIRING}\`: a request has a short time to its retention; once for each retention.`,
    REQUEST_ENDED: `\`${eventTypes.REQUEST_ENDED}\`: a request has expired, or was cancelled.`,
    QUOTA_NEARLY_FULL: `\`${eventTypes.QUOTA_NEARLY_FULL}\`: nine tenths of a quota are used; again once it had room in between.`,
  }),
});

const StateType = builder.enumType('WebhookMessageState', {
  description: 'What came of a message.',
  values: describeValues<WebhookMessageState>({
    PENDING: 'It is to be sent, or tried again.',
    SENT: 'Its receiver has taken it.',
    GIVEN_UP: 'It was refused for days. Switching the webhook on has it tried again.',
  }),
});

const WebhookType = builder.objectRef<ShownWebhook>('Webhook').implement({
  description: 'A URL that is told of the requests of a quota, or of all.',
  fields: (t) => ({
    webhookId: t.exposeInt('id', { description: 'For `setWebhook` and the others.' }),
    user: t.exposeString('user', nullable('Of the quota; null: it is told of all.')),
    url: t.exposeString('url', { description: 'What is called.' }),
    events: t.expose('events', { type: [EventType], description: 'Of what it is told.' }),
    note: t.exposeString('note', { description: 'For people; may be empty.' }),
    madeAt: t.expose('madeAt', time('When it was made.')),
    madeBy: t.exposeString('madeBy', { description: 'Who has made it.' }),
    isEnabled: t.boolean({ description: 'It is on.', resolve: ({ disabledAt }) => disabledAt === null }),
    disabledAt: t.expose(
      'disabledAt',
      timeOrNull('When it was switched off, by somebody or for its failures; null: it is on.'),
    ),
    disabledReason: t.exposeString('disabledReason', nullable('Why it was switched off.')),
    failingSince: t.expose('failingSince', timeOrNull('Since when it takes nothing; null: it does.')),
    failures: t.exposeInt('failures', { description: 'Tries in a row that have failed.' }),
    lastError: t.exposeString('lastError', nullable('Why the last one did.')),
    sentAt: t.expose('sentAt', timeOrNull('When it took a message last.')),
    nextTryAt: t.expose('nextTryAt', time('It is called no earlier.')),
    waiting: t.exposeInt('waiting', { description: 'Messages that are still to be sent.' }),
  }),
});

const MessageType = builder.objectRef<ShownMessage>('WebhookMessage').implement({
  description: 'What a webhook was told, or is to be told. Messages are kept for 30 days.',
  fields: (t) => ({
    messageId: t.exposeString('messageId', {
      description: '`webhook-id`, by which its receiver knows one that comes twice.',
    }),
    type: t.exposeString('type', { description: 'Such as `request.finished`.' }),
    requestId: t.exposeInt('requestId', nullable('Of what it tells.')),
    body: t.exposeString('body', { description: 'The JSON, exactly as it goes out.' }),
    state: t.expose('state', { type: StateType, description: 'What came of it.' }),
    attempts: t.exposeInt('attempts', { description: 'How often it was tried.' }),
    createdAt: t.expose('createdAt', time('When it was written.')),
    nextTryAt: t.field({
      ...timeOrNull('It is tried no earlier; null where it is not any more.'),
      resolve: ({ state, nextTryAt }) => (state === 'PENDING' ? nextTryAt : null),
    }),
    sentAt: t.expose('sentAt', timeOrNull('When its receiver took it.')),
    lastError: t.exposeString('lastError', nullable('Why the last try failed.')),
  }),
});

const WithSecretType = builder.objectRef<WebhookWithSecret>('WebhookWithSecret').implement({
  description: 'A webhook and its secret, which was made just now.',
  fields: (t) => ({
    webhook: t.expose('webhook', { type: WebhookType, description: 'The webhook.' }),
    secret: t.exposeString('secret', {
      description: 'For its receiver, who checks signatures with it: nobody can be shown it again.',
    }),
  }),
});

const CreateInput = builder.inputType('CreateWebhookInput', {
  description: 'What is to be told of what.',
  fields: (t) => ({
    quota: t.string({
      description: 'The user whose requests it is told of; unless given, those of all, for operators.',
    }),
    url: t.string({
      required: true,
      description: 'What is called: https, and no address of a private network that the site has not listed.',
    }),
    events: t.field({ type: [EventType], description: 'Of what it is told; of all unless given.' }),
    note: t.string({ description: 'For people.' }),
  }),
});

const SetInput = builder.inputType('SetWebhookInput', {
  description: 'What is to change of a webhook; the rest stays.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'Its `webhookId`.' }),
    url: t.string({ description: 'What is called from now on, also for messages that wait.' }),
    events: t.field({ type: [EventType], description: 'Of what it is told.' }),
    note: t.string({ description: 'For people.' }),
    isEnabled: t.boolean({
      description:
        'Off: it is told nothing, and what happens meanwhile is not kept for it. On: what waits, and what was given up, is sent.',
    }),
  }),
});

const idArg = 'Its `webhookId`.';

builder.mutationFields((t) => ({
  createWebhook: t.field({
    type: WithSecretType,
    description: 'Has a URL told of the requests of a quota, from now on, and shows its secret, once.',
    errors: { types: [InvalidInputError, NotFoundError, UnknownUserError, ForbiddenError] },
    args: { input: t.arg({ type: CreateInput, required: true, description: 'Which one.' }) },
    resolve: (_root, { input }, ctx) => createWebhook(ctx, input),
  }),
  setWebhook: t.field({
    type: WebhookType,
    description: 'Changes a webhook, or switches it off or on.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: SetInput, required: true, description: 'What changes.' }) },
    resolve: (_root, { input }, ctx) => setWebhook(ctx, input),
  }),
  rotateWebhookSecret: t.field({
    type: WithSecretType,
    description: 'Exchanges the secret of a webhook. For a day messages are signed with both.',
    errors: { types: [NotFoundError, ForbiddenError] },
    args: { id: t.arg.int({ required: true, description: idArg }) },
    resolve: (_root, { id }, ctx) => rotateWebhookSecret(ctx, id),
  }),
  testWebhook: t.field({
    type: WebhookType,
    description:
      'Sends a webhook a `webhook.test`, unless one waits to be sent; `webhookMessages` has what came of it.',
    errors: { types: [NotFoundError, ForbiddenError] },
    args: { id: t.arg.int({ required: true, description: idArg }) },
    resolve: (_root, { id }, ctx) => testWebhook(ctx, id),
  }),
  removeWebhook: t.field({
    type: WebhookType,
    description: 'Removes a webhook, with what it was still to be told.',
    errors: { types: [NotFoundError, ForbiddenError] },
    args: { id: t.arg.int({ required: true, description: idArg }) },
    resolve: (_root, { id }, ctx) => removeWebhook(ctx, id),
  }),
}));

const meanings: Record<MailWait, string> = {
  ENGINE: 'For an engine with a mail server (`SMTP_URL`), which sends it at once.',
  RETRY: 'For its next try, or the end of this one.',
  USER_RATE: 'For its turn: the user has had the letters of a minute (half of `TAPEGATE_MAIL_RATE`).',
  RATE: 'For its turn: all users together have had the letters of a minute (`TAPEGATE_MAIL_RATE`).',
};

const MailWaitType = builder.enumType('MailWait', {
  description: 'What a letter waits for.',
  values: describeValues(meanings),
});

const WaitingMailType = builder.objectRef<WaitingMail>('WaitingMail').implement({
  description:
    'Letters of a user that wait to be sent, in order and each once. If no engine with `SMTP_URL` was seen for 7 days, an engine without it writes them to its log instead.',
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Whose requests they are about.' }),
    letters: t.exposeInt('letters', { description: 'How many wait.' }),
    since: t.expose('since', time('When the oldest of them was written.')),
    waitsFor: t.expose('waitsFor', { type: MailWaitType, description: 'What the first of them waits for.' }),
    nextAt: t.expose('nextAt', time('The first of them is sent no earlier.')),
    lastError: t.exposeString('lastError', nullable('Why the last try of that one failed; null before one has.')),
  }),
});

builder.queryFields((t) => ({
  webhooks: t.connection({
    type: WebhookType,
    description: 'The webhooks of the quotas that the caller manages, and for operators all; oldest first.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) => resolveIdPage(args, 'Webhook', (page) => listWebhooks(ctx, page)),
  }),
  webhookMessages: t.connection({
    type: MessageType,
    description: 'What a webhook was told of late, and is to be told; newest first.',
    complexity: pageComplexity,
    args: { webhookId: t.arg.int({ required: true, description: 'Of the webhook.' }) },
    resolve: (_root, { webhookId, ...args }, ctx) =>
      resolveBigIdPage(args, 'WebhookMessage', (page) => listWebhookMessages(ctx, { webhookId, ...page })),
  }),
  waitingMail: t.connection({
    type: WaitingMailType,
    description: 'The users with letters that wait to be sent, in the order of their quotas.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) => resolveIdPage(args, 'mail', (page) => listWaitingMail(ctx, page)),
  }),
}));
