/** `watch`: a request's progress is drawn until it has finished: a bar with files, bytes, rate and time left. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { formatBytes } from '../core/bytes.js';
import { plural } from '../core/plural.js';
import { printable } from '../core/printable.js';
import {
  type EndFragment,
  RequestProgress,
  type RequestProgressSubscription,
} from '../generated/command-operations.js';
import { follow } from './connection/client.js';
import { findSite } from './connection/where.js';
import {
  addPathsOptions,
  describePartial,
  findMissing,
  followWaiting,
  hasLetGo,
  IncompleteError,
  type PathsOptions,
  printPaths,
  requireNoneLost,
  tellPlaces,
  type WaitingView,
} from './request-files.js';
import { readId } from './terminal/arguments.js';
import { CommandError, ConnectionError, exitCodes, InterruptedError } from './terminal/failure.js';
import { onInterrupt, stderr } from './terminal/io.js';
import { noteLine, type OutputOptions, printJson, printLine } from './terminal/output.js';
import { formatBar, ProgressLine } from './terminal/progress-line.js';
import { formatEnd, formatSpan, secondsBetween } from './terminal/times.js';

export function register(program: Command): void {
  addPathsOptions(program.command('watch <id>')).action((id, options) => watchRequest(findSite(), readId(id), options));
}

type Progress = RequestProgressSubscription['requestProgress'];

const FINISHED = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

/** Without a terminal, a line in this time at most. */
const LOG_MS = 2000;

/** How long a watch waits for a server that went away. */
const RETRIES = 60;
const RETRY_MS = 1000;

interface WatchOptions extends OutputOptions, PathsOptions {
  /** The request was made just now: it is there, whether or not anything was heard of it. */
  isMade?: boolean;
}

/**
 * Draws the progress of a request until it has finished, and says where its files are.
 * @throws CommandError with exit code 3 when the request ended without all of its files
 */
export async function watchRequest(url: string, id: number, options: WatchOptions): Promise<void> {
  const isJson = options.json === true;
  let last: Progress | undefined;
  const interrupt = new AbortController();
  const endInterrupt = onInterrupt(() => interrupt.abort());
  const ended = new AbortController();
  let view: View | undefined;
  const line = isJson ? undefined : new ProgressLine(() => view?.text, LOG_MS);
  const tell = (waiting: WaitingView | undefined) => {
    if (!view || !last || FINISHED.includes(last.state)) return;
    view.waiting = waiting;
    if (waiting?.end) tellEnd(line, view, waiting.at, waiting.end);
    draw(line, view, last);
  };
  const waiting = isJson ? undefined : followWaiting(url, id, { signal: ended.signal, tell });
  waiting?.catch(() => {}); // thrown below
  try {
    for await (const progress of followRequest(url, id, interrupt.signal)) {
      view ??= { first: progress };
      if (progress.state !== last?.state) view.waiting = undefined; // what it waited for is over
      last = progress;
      if (isJson) printJson(progress);
      else if (view.text || !hasLetGo(last)) draw(line, view, last);
    }
  } finally {
    ended.abort();
    line?.end(true);
    endInterrupt();
  }
  if (interrupt.signal.aborted) {
    if (last || options.isMade) {
      noteLine(`request ${id} goes on: "tapegate watch ${id}" shows it again, "tapegate cancel ${id}" ends it`);
    }
    throw new InterruptedError();
  }
  await waiting;
  if (!last) return;
  let lost = new Map<string, number>();
  if (options.printPaths) {
    noteLine(formatOutcome(last));
    lost = await printPaths(url, id, options);
  } else if (!isJson) {
    printLine(formatOutcome(last));
    if (last.filesOnDisk > 0 && !hasLetGo(last)) await tellPlaces(url, id);
  }
  if (last.state === 'PARTIAL') throw await describePartial(url, last);
  if (last.state !== 'COMPLETED')
    throw new CommandError(`request ${id} is ${last.state.toLowerCase()}`, exitCodes.incomplete);
  const missing = await findMissing(url, id);
  if (missing.length > 0) throw new IncompleteError(id, missing);
  requireNoneLost(id, lost);
}

interface View {
  /** Since when the rate is reckoned. */
  first: Progress;
  text?: string;
  /** Why it waits, above the bar. */
  reason?: string | undefined;
  waiting?: WaitingView | undefined;
  /** The range that was told last. */
  told?: EndFragment;
}

/** A shorter time is not worth a line. */
const WORTH_TELLING_SECONDS = 60;

/**
 * A line above the bar: the range that the plan gives, and another one when the plan has left that.
 * @param now by the clock of the server: that of this host may be off
 */
function tellEnd(line: ProgressLine | undefined, view: View, now: string, end: EndFragment): void {
  if (secondsBetween(now, end.planned) < WORTH_TELLING_SECONDS) return;
  const { told } = view;
  if (told && secondsBetween(told.earliest, end.planned) >= 0 && secondsBetween(end.planned, told.latest) >= 0) return;
  view.told = end;
  const text = formatEnd(now, end);
  line?.note(told ? `the plan has moved: ${text}` : text);
}

/** Yields progress until the request has finished or the signal aborts; reconnects to a server that answered once. */
async function* followRequest(url: string, id: number, signal: AbortSignal): AsyncGenerator<Progress> {
  let last: Progress | undefined;
  for (let failures = 0; ; ) {
    let lost: ConnectionError | undefined;
    try {
      for await (const { requestProgress } of follow(url, RequestProgress, { id }, signal)) {
        last = requestProgress;
        failures = 0;
        yield last;
      }
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      lost = error;
    }
    if (signal.aborted || (last && FINISHED.includes(last.state))) return;
    if (!last || ++failures > RETRIES) throw lost ?? new CommandError(`request ${id}: the server ended the watch`);
    await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
  }
}

function draw(line: ProgressLine | undefined, view: View, now: Progress): void {
  const { first } = view;
  view.reason = undefined;
  const seconds = secondsBetween(first.at, now.at);
  const rate = seconds > 0 ? Number(now.bytesOnDisk - first.bytesOnDisk) / seconds : 0;
  const left = now.eta === null ? undefined : secondsBetween(now.at, now.eta);
  const isOver = now.filesOnDisk + now.filesFailed === now.filesTotal;
  const facts = [
    `${now.filesOnDisk}/${plural(now.filesTotal, 'file')}${tellFailed(now)}`,
    `${formatBytes(now.bytesOnDisk)} of ${formatBytes(now.bytesTotal)}`,
    `${formatBytes(Math.round(rate))}/s`,
    hasLetGo(now) ? now.state.toLowerCase() : isOver ? tellOver(now) : tellLeft(view, now, left),
  ];
  const isWhole = now.bytesTotal === 0n && isOver && !hasLetGo(now);
  const part = isWhole ? 1 : Number(now.bytesOnDisk) / Math.max(Number(now.bytesTotal), 1);
  const isFirst = view.text === undefined;
  view.text = [...(view.reason === undefined ? [] : [printable(view.reason)]), formatBar(part, facts.join('  '))].join(
    '\n',
  );
  if (isFirst) line?.draw();
}

const tellFailed = ({ filesFailed }: Progress): string => (filesFailed > 0 ? `, ${filesFailed} failed` : '');

const tellOver = ({ filesFailed }: Progress): string => (filesFailed > 0 ? 'ended' : 'done');

const MAX_REASON = 80;

/**
 * Returns the time that is left by what was restored so far; or why it waits, if the plan knows that it does not go on, or not when it
 * ends. In a terminal that is a line of its own above the bar, as long as it is so: behind the bar it would be cut off.
 */
function tellLeft(view: View, now: Progress, left: number | undefined): string {
  const { waiting } = view;
  const isKept = waiting !== undefined && !waiting.isReading && (left === undefined || !waiting.end);
  if (waiting?.reason === undefined || !(isKept || !waiting.end)) {
    return left === undefined ? now.state.toLowerCase() : `${formatSpan(Math.max(left, 1))} left`;
  }
  const state = waiting.isReading ? 'reads' : 'waits';
  if (stderr().isTTY) {
    view.reason = `${state}; ${waiting.reason}`;
    return state;
  }
  const reason = waiting.reason.length > MAX_REASON ? `${waiting.reason.slice(0, MAX_REASON)}…` : waiting.reason;
  return `${state}; ${reason}`;
}

function formatOutcome(last: Progress): string {
  const [id, state] = [last.requestId, last.state.toLowerCase()];
  if (hasLetGo(last)) {
    const had = `${last.filesOnDisk} of ${plural(last.filesTotal, 'file')}, ${formatBytes(last.bytesOnDisk)}`;
    return `request ${id} is ${state}: it had on disk ${had}; nothing is on disk any more on its behalf`;
  }
  return `request ${id} is ${state}: ${plural(last.filesOnDisk, 'file')} on disk, ${formatBytes(last.bytesOnDisk)}${tellFailed(last)}`;
}
