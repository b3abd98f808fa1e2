/** Defines the GraphQL types for webhooks, webhook messages, and waiting emails. */
import { ForbiddenError, InvalidInputError, NotFoundError, UnknownUserError } from '../../src/core/errors.js';
import {
  countWaitingMail,
  isEmailSent,
  listWaitingMail,
  type MailWait,
  type WaitingMail,
} from '../../src/domain/notifications/mail/outbox.js';
import { eventTypes, type TEST_TYPE } from '../../src/domain/notifications/webhooks/news.js';
import {
  countWebhookMessages,
  countWebhooks,
  createWebhook,
  listWebhookMessages,
  listWebhooks,
  readWebhook,
  readWebhookMessage,
  removeWebhook,
  rotateWebhookSecret,
  type ShownMessage,
  type ShownWebhook,
  testWebhook,
  updateWebhook,
  type WebhookWithSecret,
} from '../../src/domain/notifications/webhooks/webhooks.js';
import type { WebhookEvent, WebhookMessageState } from '../../src/generated/prisma/enums.js';
import {
  builder,
  countedConnection,
  describeValues,
  nameValues,
  nullable,
  pageComplexity,
  textOrNull,
  time,
  timeOrNull,
} from './builder.js';
import { orNull } from './errors.js';
import { counted, resolveBigIdPage, resolveIdPage } from './pages.js';
import { defineMutation, type ResultFields, resultOf } from './payloads.js';

const EventType = builder.enumType('WebhookEvent', {
  description: 'An event that a webhook can receive.',
  values: describeValues<WebhookEvent>({
    REQUEST_STARTED: `\`${eventTypes.REQUEST_STARTED}\`: the first recall of a request began.`,
    REQUEST_FIRST_FILE: `\`${eventTypes.REQUEST_FIRST_FILE}\`: the first file of a request is on disk.`,
    REQUEST_COMPLETED: `\`${eventTypes.REQUEST_COMPLETED}\`: all files of a request are on disk. If files are added to the request later, Tapegate sends the event again when these files are on disk.`,
    REQUEST_PARTIAL: `\`${eventTypes.REQUEST_PARTIAL}\`: a request finished, but some of its files failed.`,
    REQUEST_EXPIRING: `\`${eventTypes.REQUEST_EXPIRING}\`: a request will expire soon. Tapegate sends this event once for each expiry time of the request.`,
    REQUEST_ENDED: `\`${eventTypes.REQUEST_ENDED}\`: a request expired or was cancelled.`,
    QUOTA_NEARLY_FULL: `\`${eventTypes.QUOTA_NEARLY_FULL}\`: 90 % of a quota is used. Tapegate sends the event again if usage falls below 80 % and later reaches 90 % again.`,
  }),
});

const StateType = builder.enumType('WebhookMessageState', {
  description: 'The delivery state of a webhook message.',
  values: describeValues<WebhookMessageState>({
    PENDING: 'Waiting for delivery or for a retry.',
    SENT: 'Accepted by the receiver.',
    GIVEN_UP:
      'Tapegate stopped trying to deliver the message, because the receiver did not accept it for several days. Tapegate tries again if a user enables the webhook.',
  }),
});

const WebhookType = builder.node(builder.objectRef<ShownWebhook>('Webhook'), {
  id: { resolve: ({ id }) => id },
  loadWithoutCache: (id, ctx) => orNull(readWebhook(ctx, Number(id))),
  description: 'A URL that receives events about the requests of one quota, or of all quotas.',
  fields: (t) => ({
    webhookId: t.exposeInt('id', { description: "The webhook's id, which the webhook mutations require." }),
    user: t.exposeString('user', nullable("The quota's user. Null if the webhook receives events of all quotas.")),
    url: t.exposeString('url', { description: 'The URL that receives the messages.' }),
    events: t.expose('events', { type: [EventType], description: 'The events that the webhook receives.' }),
    note: t.string({ ...nullable('A note for users.'), resolve: ({ note }) => textOrNull(note) }),
    createdAt: t.expose('madeAt', time('When the webhook was created.')),
    authorizedBy: t.exposeString('madeBy', {
      description: 'The name of the last caller to create or enable the webhook, or to change its URL.',
    }),
    isEnabled: t.boolean({
      description: 'Whether the webhook is enabled.',
      resolve: ({ disabledAt }) => disabledAt === null,
    }),
    disabledAt: t.expose(
      'disabledAt',
      timeOrNull('When the webhook was disabled, by a user or after repeated failures. Null if it is enabled.'),
    ),
    disabledReason: t.exposeString('disabledReason', nullable('Why the webhook was disabled.')),
    failingSince: t.expose(
      'failingSince',
      timeOrNull('When the current series of failures began. Null if the last delivery succeeded.'),
    ),
    failureCount: t.exposeInt('failures', { description: 'The number of consecutive failures.' }),
    lastError: t.exposeString('lastError', nullable('The last error.')),
    sentAt: t.expose('sentAt', timeOrNull('When the last message was delivered.')),
    nextTryAt: t.field({
      ...timeOrNull('The earliest time of the next delivery. Null if no message is waiting.'),
      resolve: ({ nextTryAt, waiting }) => (waiting > 0 ? nextTryAt : null),
    }),
    messagesWaiting: t.exposeInt('waiting', { description: 'The number of messages waiting for delivery.' }),
  }),
});

type WebhookMessageType = (typeof eventTypes)[WebhookEvent] | typeof TEST_TYPE;

const MessageTypeType = builder.enumType('WebhookMessageType', {
  description: 'The type of a message to a webhook.',
  values: nameValues<WebhookMessageType>({
    'request.started': 'The first recall of a request began.',
    'request.first_file': 'The first file of a request is on disk.',
    'request.completed': 'All files of a request are on disk.',
    'request.partial': 'A request finished, but some of its files failed.',
    'request.expiring': 'A request will expire soon.',
    'request.ended': 'A request expired or was cancelled.',
    'quota.nearly_full': '90 % of a quota is used.',
    'webhook.test': 'A test message, sent by `testWebhook`.',
  }),
});

const MessageType = builder.node(builder.objectRef<ShownMessage>('WebhookMessage'), {
  id: { resolve: ({ id }) => id },
  loadWithoutCache: (id, ctx) => orNull(readWebhookMessage(ctx, BigInt(id))),
  description: 'A message to a webhook. Messages are kept for 30 days.',
  fields: (t) => ({
    messageId: t.exposeString('messageId', {
      description: 'The value of the `webhook-id` header, which lets the receiver recognize duplicates.',
    }),
    type: t.field({
      type: MessageTypeType,
      description: 'The event type.',
      resolve: ({ type }) => type as WebhookMessageType,
    }),
    requestId: t.exposeInt('requestId', nullable('The request that the message is about.')),
    body: t.exposeString('body', { description: 'The exact JSON body.' }),
    state: t.expose('state', { type: StateType, description: 'The delivery state.' }),
    attempts: t.exposeInt('attempts', { description: 'The number of delivery attempts.' }),
    createdAt: t.expose('createdAt', time('When the message was created.')),
    nextTryAt: t.field({
      ...timeOrNull('The earliest time of the next delivery attempt. Null if there will be no further attempt.'),
      resolve: ({ state, nextTryAt }) => (state === 'PENDING' ? nextTryAt : null),
    }),
    sentAt: t.expose('sentAt', timeOrNull('When the receiver accepted the message.')),
    lastError: t.exposeString('lastError', nullable('The last error.')),
  }),
});

const withSecret: ResultFields<WebhookWithSecret> = (t) => ({
  webhook: t.field({
    type: WebhookType,
    nullable: true,
    description: 'The webhook.',
    resolve: ({ value }) => value?.webhook ?? null,
  }),
  secret: t.string({
    nullable: true,
    description: 'The secret with which the receiver verifies signatures. It cannot be shown again.',
    resolve: ({ value }) => value?.secret ?? null,
  }),
});

const idArg = "The webhook's id.";

const CreateInput = builder.inputType('CreateWebhookInput', {
  description: 'Input of `createWebhook`.',
  fields: (t) => ({
    quota: t.string({
      description:
        'The user whose quota the events are about. Operators may omit this field to receive events of all quotas.',
    }),
    url: t.string({
      required: true,
      description:
        "An https URL. If the URL's host is in a private network, the setting `TAPEGATE_WEBHOOK_HOSTS` must contain the host's name or address.",
    }),
    events: t.field({ type: [EventType], description: 'The events to receive. Default: all events.' }),
    note: t.string({ description: 'A note for users.' }),
  }),
});

const SetInput = builder.inputType('UpdateWebhookInput', {
  description: 'Input of `updateWebhook`. Omitted fields stay unchanged.',
  fields: (t) => ({
    webhookId: t.int({ required: true, description: idArg }),
    url: t.string({
      description: 'The new URL. Tapegate also uses this URL for messages that are already waiting.',
    }),
    events: t.field({ type: [EventType], description: 'The events to receive.' }),
    note: t.string({ description: 'A note for users.' }),
    isEnabled: t.boolean({
      description:
        'If false, disables the webhook, and Tapegate creates no more messages for it. If true, enables the webhook, and Tapegate sends its waiting and undelivered messages.',
    }),
  }),
});

defineMutation('createWebhook', {
  description: 'Creates a webhook and returns its secret. The secret cannot be retrieved later.',
  errors: [InvalidInputError, NotFoundError, UnknownUserError, ForbiddenError],
  resolve: (input, ctx) => createWebhook(ctx, input),
  input: CreateInput,
  result: withSecret,
});

defineMutation('updateWebhook', {
  description: 'Changes, enables or disables a webhook.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: ({ webhookId: id, ...input }, ctx) => updateWebhook(ctx, { id, ...input }),
  input: SetInput,
  result: (t) => ({
    webhook: t.field({ type: WebhookType, nullable: true, description: 'The changed webhook.', resolve: resultOf }),
  }),
});

const RotateWebhookSecretInput = builder.inputType('RotateWebhookSecretInput', {
  description: 'Input of `rotateWebhookSecret`.',
  fields: (t) => ({ webhookId: t.int({ required: true, description: idArg }) }),
});

defineMutation('rotateWebhookSecret', {
  description:
    'Replaces the secret of a webhook. For one day, Tapegate signs messages with both the old and the new secret.',
  errors: [NotFoundError, ForbiddenError],
  resolve: ({ webhookId }, ctx) => rotateWebhookSecret(ctx, webhookId),
  input: RotateWebhookSecretInput,
  result: withSecret,
});

const TestWebhookInput = builder.inputType('TestWebhookInput', {
  description: 'Input of `testWebhook`.',
  fields: (t) => ({ webhookId: t.int({ required: true, description: idArg }) }),
});

defineMutation('testWebhook', {
  description:
    'Sends a `webhook.test` message, unless an earlier `webhook.test` message is still waiting for delivery. `webhookMessages` shows the result.',
  errors: [NotFoundError, ForbiddenError],
  resolve: ({ webhookId }, ctx) => testWebhook(ctx, webhookId),
  input: TestWebhookInput,
  result: (t) => ({
    webhook: t.field({ type: WebhookType, nullable: true, description: 'The webhook.', resolve: resultOf }),
  }),
});

const RemoveWebhookInput = builder.inputType('RemoveWebhookInput', {
  description: 'Input of `removeWebhook`.',
  fields: (t) => ({ webhookId: t.int({ required: true, description: idArg }) }),
});

defineMutation('removeWebhook', {
  description: 'Removes a webhook and its messages.',
  errors: [NotFoundError, ForbiddenError],
  resolve: ({ webhookId }, ctx) => removeWebhook(ctx, webhookId),
  input: RemoveWebhookInput,
  result: (t) => ({
    webhook: t.field({ type: WebhookType, nullable: true, description: 'The removed webhook.', resolve: resultOf }),
  }),
});

const meanings: Record<MailWait, string> = {
  ENGINE: 'Waiting for an engine whose settings contain a mail server (`SMTP_URL`).',
  RETRY: 'Waiting for the next attempt to send the email, or for the current attempt to end.',
  USER_RATE: 'Delayed by the per-user rate limit, which is half of `TAPEGATE_MAIL_RATE`.',
  RATE: "Delayed by the site's rate limit, `TAPEGATE_MAIL_RATE`.",
};

const MailWaitType = builder.enumType('MailWait', {
  description: 'Why an email is delayed.',
  values: describeValues(meanings),
});

const WaitingMailType = builder.objectRef<WaitingMail>('WaitingMail').implement({
  description:
    "A user's emails that are waiting to be sent. If no engine with `SMTP_URL` has run for 7 days, another engine writes the emails to its log instead of sending them.",
  fields: (t) => ({
    user: t.exposeString('user', { description: 'The user whose requests the emails are about.' }),
    emailCount: t.exposeInt('emails', { description: 'The number of waiting emails.' }),
    since: t.expose('since', time('When the oldest waiting email was created.')),
    waitsFor: t.expose('waitsFor', { type: MailWaitType, description: 'Why the next email to the user is delayed.' }),
    nextAt: t.expose('nextAt', time('The earliest time at which the next email can be sent.')),
    lastError: t.exposeString(
      'lastError',
      nullable('The last error from an attempt to send the next email. Null if no attempt has failed.'),
    ),
  }),
});

builder.queryFields((t) => ({
  isEmailSent: t.boolean({
    nullable: true,
    description:
      'Returns whether this site sends email. If not, Tapegate only writes emails to its log, because no engine with an SMTP server has run in the last 7 days.',
    resolve: (_root, _args, ctx) => isEmailSent(ctx),
  }),
  webhooks: t.connection(
    {
      type: WebhookType,
      nullable: true,
      description:
        'Returns the webhooks of quotas that the caller manages, oldest first. Operators receive all webhooks.',
      complexity: pageComplexity,
      resolve: (_root, args, ctx) =>
        counted(
          resolveIdPage(args, 'Webhook', (page) => listWebhooks(ctx, page)),
          () => countWebhooks(ctx),
        ),
    },
    countedConnection(WebhookType, 'Webhook'),
  ),
  webhookMessages: t.connection(
    {
      type: MessageType,
      nullable: true,
      description: 'Returns the sent and waiting messages of a webhook, newest first.',
      complexity: pageComplexity,
      args: { webhookId: t.arg.int({ required: true, description: "The webhook's `webhookId`." }) },
      resolve: (_root, { webhookId, ...args }, ctx) =>
        counted(
          resolveBigIdPage(args, 'WebhookMessage', (page) => listWebhookMessages(ctx, { webhookId, ...page })),
          () => countWebhookMessages(ctx, webhookId),
        ),
    },
    countedConnection(MessageType, 'WebhookMessage'),
  ),
  waitingMail: t.connection(
    {
      type: WaitingMailType,
      nullable: true,
      description: 'Returns the users with emails waiting to be sent, in the order in which their quotas were created.',
      complexity: pageComplexity,
      resolve: (_root, args, ctx) =>
        counted(
          resolveIdPage(args, 'mail', (page) => listWaitingMail(ctx, page)),
          () => countWaitingMail(ctx),
        ),
    },
    countedConnection(WaitingMailType, 'WaitingMail'),
  ),
}));
