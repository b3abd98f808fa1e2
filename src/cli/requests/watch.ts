/** The command `watch` shows the progress of a request until the request finishes. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { printable } from '../../core/text/printable.js';
import { formatSpan } from '../../core/text/spans.js';
import {
  type EndFragment,
  RequestProgressDocument,
  type RequestProgressSubscription,
} from '../../generated/operations.js';
import { follow } from '../connection/gateway-client.js';
import { findSite, LOCAL } from '../connection/where.js';
import { readId } from '../terminal/arguments.js';
import { CommandError, ConnectionError, exitCodes, InterruptedError } from '../terminal/failure.js';
import { onInterrupt, stderr } from '../terminal/io.js';
import { type OutputOptions, printJson, printLine, printToStderr } from '../terminal/output.js';
import { formatBar, ProgressLine } from '../terminal/progress-line.js';
import { formatEnd, secondsBetween } from '../terminal/times.js';
import {
  addPathsOptions,
  describePartial,
  findMissing,
  followWaiting,
  IncompleteError,
  isReleased,
  type PathsOptions,
  printPaths,
  printRequestDirectories,
  requireAllOnDisk,
  type WaitingView,
} from './request-files.js';

export function register(program: Command): void {
  addPathsOptions(program.command('watch <id>')).action((id, options) => watchRequest(findSite(), readId(id), options));
}

type Progress = RequestProgressSubscription['requestProgress'];

const FINISHED = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

/** Milliseconds between two progress lines if standard error is a log instead of a terminal. */
const LOG_MS = 2000;

/** Number of attempts to reconnect to a server that does not answer. */
const RETRIES = 60;
const RETRY_MS = 1000;

interface WatchOptions extends OutputOptions, PathsOptions {
  /**
   * Whether this command created the request. A new request exists even if the server has not reported its progress
   * yet.
   */
  isNew?: boolean;
}

/**
 * Shows a request's progress until the request finishes. Then prints the directories that contain the restored files.
 * @throws CommandError with exit code 3 if the request ended, but some of its files were not restored
 */
export async function watchRequest(url: string, id: number, options: WatchOptions): Promise<void> {
  const isJson = options.json === true;
  let last: Progress | undefined;
  const interrupt = new AbortController();
  const endInterrupt = onInterrupt(() => interrupt.abort());
  const ended = new AbortController();
  let view: View | undefined;
  const line = isJson ? undefined : new ProgressLine(() => view?.text, LOG_MS);
  const showWaiting = (waiting: WaitingView | undefined) => {
    if (!view || !last || FINISHED.includes(last.state)) return;
    view.waiting = waiting;
    if (waiting?.end) printEnd(line, view, waiting.at, waiting.end);
    draw(line, view, last);
  };
  const waiting = isJson ? undefined : followWaiting(url, id, { signal: ended.signal, report: showWaiting });
  waiting?.catch(() => {}); // prevent an unhandled rejection: `await waiting` below throws the error
  try {
    const warn = (text: string) => (line ? line.printAbove(text) : printToStderr(text));
    for await (const progress of followRequest(url, id, { signal: interrupt.signal, warn })) {
      view ??= { first: progress };
      // remove the old reason for waiting when the request's state changes
      if (progress.state !== last?.state) view.waiting = undefined;
      last = progress;
      const { bytesPerSecond: _rate, elapsedSeconds: _elapsed, ...shown } = progress;
      if (isJson) printJson(shown);
      else if (view.text || !isReleased(last)) draw(line, view, last);
    }
  } finally {
    ended.abort();
    line?.end(true);
    endInterrupt();
  }
  if (interrupt.signal.aborted) {
    if (last || options.isNew) {
      printToStderr(`request ${id} continues: "tapegate watch ${id}" shows it again, "tapegate cancel ${id}" ends it`);
    }
    throw new InterruptedError();
  }
  await waiting;
  if (!last) return;
  let lost = new Map<string, number>();
  if (options.printPaths) {
    printToStderr(formatOutcome(last));
    lost = await printPaths(url, id, options);
  } else if (!isJson) {
    printLine(formatOutcome(last));
    if (last.filesOnDisk > 0 && !isReleased(last)) await printRequestDirectories(url, id);
  }
  if (last.state === 'PARTIAL') throw await describePartial(url, last);
  if (last.state !== 'COMPLETED')
    throw new CommandError(`request ${id} is ${last.state.toLowerCase()}`, exitCodes.incomplete);
  const missing = await findMissing(url, id);
  if (missing.length > 0) throw new IncompleteError(id, missing);
  requireAllOnDisk(id, lost);
}

interface View {
  first: Progress;
  text?: string;
  reason?: string | undefined;
  waiting?: WaitingView | undefined;
  printedEnd?: EndFragment;
}

const MIN_END_SECONDS = 60;
const MIN_ELAPSED_SECONDS = 10;

/**
 * Prints, above the progress bar, when the request is expected to finish: an earliest and a latest time. Prints new
 * times only if the expected time is no longer between the two times that were printed last.
 * @param now the server's time, because the clock of this host might be wrong
 */
function printEnd(line: ProgressLine | undefined, view: View, now: string, end: EndFragment): void {
  if (secondsBetween(now, end.planned) < MIN_END_SECONDS) return;
  const { printedEnd: last } = view;
  if (last && secondsBetween(last.earliest, end.planned) >= 0 && secondsBetween(end.planned, last.latest) >= 0) return;
  view.printedEnd = end;
  const text = formatEnd(now, end);
  line?.printAbove(last ? `new estimate: ${text}` : text);
}

/**
 * Yields progress until the request has finished or the signal aborts. If the connection is lost after the server has
 * reported progress, reconnects.
 * @param warn called once per outage, after the first failed attempt to reconnect
 */
async function* followRequest(
  url: string,
  id: number,
  { signal, warn }: { signal: AbortSignal; warn: (text: string) => void },
): AsyncGenerator<Progress> {
  let last: Progress | undefined;
  for (let failures = 0; ; ) {
    let lost: ConnectionError | undefined;
    try {
      for await (const { requestProgress } of follow(url, RequestProgressDocument, { id }, signal)) {
        last = requestProgress;
        failures = 0;
        yield last;
      }
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      lost = error;
    }
    if (signal.aborted || (last && FINISHED.includes(last.state))) return;
    if (!last || ++failures > RETRIES)
      throw lost ?? new CommandError(`request ${id}: the gateway closed the subscription`);
    if (failures === 2) warn(`no response from ${url === LOCAL ? 'the database' : url}; trying again`);
    await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
  }
}

function draw(line: ProgressLine | undefined, view: View, now: Progress): void {
  const { first } = view;
  view.reason = undefined;
  const seconds = secondsBetween(first.at, now.at);
  const rate = seconds > 0 ? Number(now.bytesOnDisk - first.bytesOnDisk) / seconds : 0;
  const isDone = now.filesOnDisk + now.filesFailed === now.filesTotal;
  const facts = [
    `${now.filesOnDisk}/${plural(now.filesTotal, 'file')}${describeFailed(now)}`,
    `${formatBytes(now.bytesOnDisk)} of ${formatBytes(now.bytesTotal)}`,
    `${formatBytes(Math.round(rate))}/s`,
    ...((now.elapsedSeconds ?? 0) < MIN_ELAPSED_SECONDS ? [] : [`${formatSpan(now.elapsedSeconds ?? 0)} elapsed`]),
    isReleased(now) ? now.state.toLowerCase() : isDone ? describeDone(now) : describeLeft(view, now),
  ];
  const isWhole = now.bytesTotal === 0n && isDone && !isReleased(now);
  const part = isWhole ? 1 : Number(now.bytesOnDisk) / Math.max(Number(now.bytesTotal), 1);
  const isFirst = view.text === undefined;
  view.text = [...(view.reason === undefined ? [] : [printable(view.reason)]), formatBar(part, facts.join('  '))].join(
    '\n',
  );
  if (isFirst) line?.draw();
}

const describeFailed = ({ filesFailed }: Progress): string => (filesFailed > 0 ? `, ${filesFailed} failed` : '');

const describeDone = ({ filesFailed }: Progress): string => (filesFailed > 0 ? 'ended' : 'done');

const MAX_REASON = 80;

/**
 * Returns a request's estimated remaining time, or why the request waits. In a terminal, shows the reason above the
 * progress bar, because the terminal might cut off text on the progress bar's line.
 */
function describeLeft(view: View, now: Progress): string {
  const { waiting } = view;
  const hasBegun = now.end !== null && now.filesOnDisk > 0;
  const isStopped = waiting !== undefined && !waiting.isReading && !(hasBegun && waiting.end);
  if (waiting?.reason === undefined || !(isStopped || !waiting.end)) {
    // the end may be known only since the last change of the request, for example because an engine has started
    const end = now.end ?? waiting?.end;
    if (!end) return now.state.toLowerCase();
    const left = formatSpan(Math.max(secondsBetween(end.at, end.planned), 1));
    return `${left} left${end.isMeasured ? '' : ', without measurements'}`;
  }
  const state = waiting.isReading ? 'reading' : 'waiting';
  if (stderr().isTTY) {
    view.reason = `${state}; ${waiting.reason}`;
    return state;
  }
  const reason = waiting.reason.length > MAX_REASON ? `${waiting.reason.slice(0, MAX_REASON)}…` : waiting.reason;
  return `${state}; ${reason}`;
}

function formatOutcome(last: Progress): string {
  const [id, state] = [last.requestId, last.state.toLowerCase()];
  if (isReleased(last)) {
    const onDisk = `${last.filesOnDisk} of ${plural(last.filesTotal, 'file')} (${formatBytes(last.bytesOnDisk)})`;
    return `request ${id} is ${state}: ${onDisk} were on disk and have been released`;
  }
  return `request ${id} is ${state}: ${plural(last.filesOnDisk, 'file')} on disk, ${formatBytes(last.bytesOnDisk)}${describeFailed(last)}`;
}
