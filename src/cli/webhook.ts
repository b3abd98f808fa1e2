/** The command `webhook` manages URLs that receive events about requests. */
import { type Command, Option } from 'commander';
import type { Done } from '../../clients/typescript/responses.js';
import {
  CreateWebhookDocument,
  type CreateWebhookMutation,
  RemoveWebhookDocument,
  RotateWebhookDocument,
  TestWebhookDocument,
  UpdateWebhookDocument,
  type WebhookEvent,
  type WebhookMessageState,
  WebhookMessagesDocument,
  type WebhookMessageType,
  type WebhookRowFragment,
  WebhooksDocument,
} from '../generated/operations.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { findSite } from './connection/where.js';
import { chooseQuota } from './requests/quota-choice.js';
import { limitHelp, readLimit, readNumber } from './terminal/arguments.js';
import { UsageError } from './terminal/failure.js';
import { type OutputOptions, printResult, printRows, printToStderr } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  const webhook = program.command('webhook');
  webhook
    .command('add <url>')
    .description("Send events about a quota's requests to a URL")
    .option('--quota <user>', 'send events of this quota (default: the same quota as for "tapegate request")')
    .option('--all', 'send events of all quotas (for operators)')
    .addOption(createEventOption())
    .option('--note <text>', 'purpose of the webhook')
    .addHelpText('after', SECRET_HELP)
    .action((url, options) => addWebhook(findSite(), url, options));
  webhook
    .command('list')
    .description('List webhooks and their delivery state')
    .action((options) => listWebhooks(findSite(), options));
  webhook
    .command('set <id>')
    .description('Change, enable or disable a webhook')
    .option('--url <url>', 'new URL')
    .addOption(createEventOption())
    .option('--note <text>', 'purpose of the webhook')
    .option('--on', 'enable the webhook: send waiting, failed and new messages')
    .option('--off', 'disable the webhook: send nothing, and store no new messages')
    .action((id, options) => updateWebhook(findSite(), readNumber('<id>', id), options));
  webhook
    .command('rotate <id>')
    .description('Replace the secret; for a day, messages are signed with the old and the new secret')
    .addHelpText('after', SECRET_HELP)
    .action((id, options) => rotate(findSite(), readNumber('<id>', id), options));
  webhook
    .command('test <id>')
    .description('Send a test message; "tapegate webhook log" shows the result')
    .action((id, options) => test(findSite(), readNumber('<id>', id), options));
  webhook
    .command('log <id>')
    .description('List sent and waiting messages, newest first')
    .option('--limit <n>', limitHelp('list at most n messages'))
    .action((id, options) => showLog(findSite(), readNumber('<id>', id), options));
  webhook
    .command('remove <id>')
    .description('Remove a webhook and its waiting messages')
    .action((id, options) => removeWebhook(findSite(), readNumber('<id>', id), options));
}

/** Maps event names in webhook messages to their GraphQL names. */
const events: Record<string, WebhookEvent> = {
  'request.started': 'REQUEST_STARTED',
  'request.first_file': 'REQUEST_FIRST_FILE',
  'request.completed': 'REQUEST_COMPLETED',
  'request.partial': 'REQUEST_PARTIAL',
  'request.expiring': 'REQUEST_EXPIRING',
  'request.ended': 'REQUEST_ENDED',
  'quota.nearly_full': 'QUOTA_NEARLY_FULL',
};

const createEventOption = () =>
  new Option('--event <events...>', 'events to send (default: all)').choices(Object.keys(events));

const SECRET_HELP = `
The command prints only the secret. Tapegate does not show the secret again.
The receiver uses the secret to verify the signatures of messages.`;

interface SettingOptions extends OutputOptions {
  url?: string;
  event?: string[];
  note?: string;
}

const readEvents = (given: string[] | undefined): WebhookEvent[] | undefined =>
  given?.flatMap((name) => events[name] ?? []);

interface AddOptions extends SettingOptions {
  quota?: string;
  all?: boolean;
}

async function readQuota({ all, quota }: AddOptions): Promise<string | undefined> {
  if (all && quota !== undefined) throw new UsageError('--all and --quota cannot be used together');
  return all ? undefined : await chooseQuota(findSite(), quota, '--quota <user> or --all');
}

async function addWebhook(url: string, target: string, options: AddOptions): Promise<void> {
  const input = { url: target, quota: await readQuota(options), events: readEvents(options.event), note: options.note };
  showSecret(await askChange(url, CreateWebhookDocument, { input }, { url: '<url>' }), options, 'is created');
}

async function rotate(url: string, id: number, options: OutputOptions): Promise<void> {
  const rotated = await askChange(url, RotateWebhookDocument, { id });
  showSecret(rotated, options, 'has a new secret; for a day, the old secret is valid too');
}

function showSecret(
  { secret, webhook }: Done<NonNullable<CreateWebhookMutation['result']>>,
  options: OutputOptions,
  state: string,
): void {
  printResult({ ...webhook, secret }, secret, options);
  if (!options.json) printToStderr(`webhook ${webhook.webhookId} ${state}; the secret is not shown again`);
}

async function updateWebhook(
  url: string,
  id: number,
  options: SettingOptions & { on?: boolean; off?: boolean },
): Promise<void> {
  if (options.on && options.off) throw new UsageError('--on and --off cannot be used together');
  const isEnabled = options.on ? true : options.off ? false : undefined;
  const input = { webhookId: id, url: options.url, events: readEvents(options.event), note: options.note, isEnabled };
  if (Object.values(input).filter((value) => value !== undefined).length === 1) {
    throw new UsageError('nothing to change: give --url, --event, --note, --on or --off');
  }
  const webhook = await askChange(url, UpdateWebhookDocument, { input });
  printResult(webhook, `webhook ${id} ${describe(webhook)}`, options);
}

async function test(url: string, id: number, options: OutputOptions): Promise<void> {
  const webhook = await askChange(url, TestWebhookDocument, { id });
  printResult(webhook, `a test message is waiting: "tapegate webhook log ${id}" shows the result`, options);
}

async function removeWebhook(url: string, id: number, options: OutputOptions): Promise<void> {
  const webhook = await askChange(url, RemoveWebhookDocument, { id });
  printResult(webhook, `webhook ${id} is removed: ${webhook.url}`, options);
}

function describe({ isEnabled, disabledReason, failingSince, lastError, sentAt }: WebhookRowFragment): string {
  if (!isEnabled) return `is off: ${disabledReason ?? ''}`;
  if (failingSince !== null) return `has been failing since ${formatTime(failingSince)}: ${lastError ?? ''}`;
  return sentAt === null ? 'is on, no message sent yet' : `last delivered a message at ${formatTime(sentAt)}`;
}

async function listWebhooks(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes(url, WebhooksDocument, {}), options, {
    none: 'there are no webhooks',
    header: ['ID', 'QUOTA', 'URL', 'WAITING', 'STATE', 'NOTE'],
    cells: (webhook) => [
      webhook.webhookId,
      webhook.user ?? 'all',
      webhook.url,
      webhook.messagesWaiting,
      describe(webhook),
      webhook.note,
    ],
  });
}

/** Maps GraphQL names of message types to the names in messages. */
const messageTypes = new Map<WebhookMessageType, string>([
  ...Object.entries(events).map(([name, event]) => [event, name] as const),
  ['WEBHOOK_TEST', 'webhook.test'],
]);

const outcomes: Record<WebhookMessageState, string> = { PENDING: 'waiting', SENT: 'sent', GIVEN_UP: 'given up' };

async function showLog(url: string, id: number, options: OutputOptions & { limit?: string }): Promise<void> {
  printRows(await askNodes(url, WebhookMessagesDocument, { id }, readLimit(options)), options, {
    none: 'no messages yet',
    header: ['CREATED', 'TYPE', 'REQUEST', 'STATE', 'TRIES', 'NEXT', 'ERROR'],
    cells: ({ createdAt, type, requestId, state, attempts, nextTryAt, lastError }) => [
      formatTime(createdAt),
      messageTypes.get(type) ?? type,
      requestId,
      outcomes[state],
      attempts,
      nextTryAt && formatTime(nextTryAt),
      lastError,
    ],
  });
}
