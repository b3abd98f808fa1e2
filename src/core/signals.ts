/**
 * Counts events, and measures durations, for the metrics of a process. Labels never contain users, paths or addresses,
 * because callers must not be able to increase the number of label values.
 */

const ENGINE_PARTS = ['drive', 'jobs'] as const;

const ENGINE_ENDS = ['failed', 'hung', 'stopped', 'silent', 'gone'] as const;

/** The reason why an engine process ended and had to be restarted. */
export type EngineEnd = (typeof ENGINE_ENDS)[number];

const QUICK = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60] as const;

const SLOW = [1, 10, 60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200, 604_800] as const;

export const counted = {
  tapegate_errors_total: {
    help: 'Errors returned to callers, by code. INTERNAL is a bug. GraphQL results such as QuotaExceeded are counted in tapegate_operation_seconds',
    labels: ['class'],
  },
  tapegate_recalls_started_total: { help: 'Started recalls', labels: ['drive'] },
  tapegate_recalls_ended_total: {
    help: 'Recalls that have ended, by outcome and error class',
    labels: ['drive', 'outcome', 'class'],
  },
  tapegate_recalled_bytes_total: { help: 'Bytes of the files that drives read completely', labels: ['drive'] },
  tapegate_drive_busy_seconds_total: {
    help: 'Seconds that drives spent on recalls, including mounts',
    labels: ['drive'],
  },
  tapegate_hung_calls_total: {
    help: 'Calls to a restore disk or to tape that did not return in time',
    labels: ['device'],
  },
  tapegate_mail_total: { help: 'Attempts to send an email, by result', labels: ['result'] },
  tapegate_webhooks_total: { help: 'Attempts to send a message to a webhook, by result', labels: ['result'] },
  tapegate_job_failures_total: { help: "Failed runs of the engine's periodic jobs", labels: ['job'] },
  tapegate_engine_cpu_seconds_total: { help: 'CPU time of engine processes', labels: ['part'] },
  tapegate_engine_process_ends_total: {
    help: 'Engine processes that ended and were restarted, by reason',
    labels: ['part', 'reason'],
  },
} as const;

export const timed = {
  tapegate_http_request_seconds: {
    help: 'Duration of HTTP requests, from the request header to the end of the response or stream, by route template',
    labels: ['method', 'route', 'status'],
    buckets: QUICK,
  },
  tapegate_graphql_operation_seconds: {
    help: 'Duration of GraphQL queries and mutations, by field',
    labels: ['type', 'field'],
    buckets: QUICK,
  },
  tapegate_operation_seconds: {
    help: 'Duration of changes made through REST, GraphQL and commands, by operation and result',
    labels: ['operation', 'result'],
    buckets: QUICK,
  },
  tapegate_recall_wait_seconds: {
    help: 'Time that files wait in the queue before a drive reads them',
    labels: [],
    buckets: SLOW,
  },
  tapegate_job_seconds: { help: "Duration of the engine's periodic jobs", labels: ['job'], buckets: QUICK },
  tapegate_event_delay_seconds: {
    help: 'Delay between an event and its delivery to subscribers of this process',
    labels: [],
    buckets: QUICK,
  },
} as const;

/**
 * Counters that a process reports as 0 when it starts. Without the initial 0, Prometheus would miss the first event,
 * because Prometheus computes growth between two samples.
 */
export const startingAtZero: { readonly [Name in Counted]?: readonly LabelsOf<(typeof counted)[Name]>[] } = {
  tapegate_errors_total: [{ class: 'INTERNAL' }, { class: 'UNAVAILABLE' }],
  tapegate_hung_calls_total: [{ device: 'disk' }, { device: 'tape' }],
  tapegate_mail_total: ['logged', 'sent', 'rejected', 'pending'].map((result) => ({ result })),
  tapegate_webhooks_total: ['sent', 'failed', 'gone'].map((result) => ({ result })),
  tapegate_engine_cpu_seconds_total: ENGINE_PARTS.map((part) => ({ part })),
  tapegate_engine_process_ends_total: ENGINE_PARTS.flatMap((part) => ENGINE_ENDS.map((reason) => ({ part, reason }))),
};

export type Counted = keyof typeof counted;
export type Timed = keyof typeof timed;

type LabelsOf<Kind extends { labels: readonly string[] }> = Readonly<Record<Kind['labels'][number], string>>;

export interface Recorder {
  count(name: Counted, labels: Readonly<Record<string, string>>, by: number): void;
  time(name: Timed, labels: Readonly<Record<string, string>>, seconds: number): void;
}

let recorder: Recorder | undefined;

export const isCounting = (): boolean => recorder !== undefined;

export function recordBy(given: Recorder): void {
  recorder = given;
}

export function count<Name extends Counted>(name: Name, labels: LabelsOf<(typeof counted)[Name]>, by = 1): void {
  recorder?.count(name, labels, by);
}

export function time<Name extends Timed>(name: Name, labels: LabelsOf<(typeof timed)[Name]>, seconds: number): void {
  recorder?.time(name, labels, seconds);
}

/** Returns the number of seconds since `startedAt`, an earlier value of `performance.now()`. */
export function secondsSince(startedAt: number): number {
  return (performance.now() - startedAt) / 1000;
}
