/** Draws a request's progress until it has finished: a bar with files, bytes, rate and time left. */
import cliProgress, { type SingleBar } from 'cli-progress';
import { follow } from './client.js';
import { CommandError, exitCodes } from './failure.js';
import { bytes, printJson, printLine } from './output.js';

const PROGRESS = `subscription ($id: Int!) {
  requestProgress(id: $id) {
    requestId state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk eta at eventId
  }
}`;

interface Progress {
  requestId: number;
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: number;
  bytesOnDisk: number;
  eta: string | null;
  at: string;
  eventId: number;
}

/** @throws CommandError with exit code 3 when the request ended without all of its files */
export async function watchRequest(url: string, id: number, options: { json?: boolean }): Promise<void> {
  const bar = options.json ? undefined : createBar();
  let first: Progress | undefined;
  let last: Progress | undefined;
  try {
    for await (const { requestProgress } of follow<{ requestProgress: Progress }>(url, PROGRESS, { id })) {
      first ??= requestProgress;
      last = requestProgress;
      if (options.json) printJson(requestProgress);
      else draw(bar, first, last);
    }
  } finally {
    bar?.stop();
  }
  if (!last) throw new CommandError(`request ${id}: the server ended the watch without a word`);
  if (!options.json) printLine(summarise(last));
  if (last.state !== 'COMPLETED')
    throw new CommandError(`request ${id} is ${last.state.toLowerCase()}`, exitCodes.incomplete);
}

function createBar(): SingleBar {
  return new cliProgress.SingleBar({
    format: '{bar} {percentage}%  {files} files  {size}  {rate}  {left}',
    barCompleteChar: '█',
    barIncompleteChar: '░',
    barsize: 30,
    hideCursor: true,
    noTTYOutput: true,
    notTTYSchedule: 2000,
    emptyOnZero: true,
  });
}

function draw(bar: SingleBar | undefined, first: Progress, now: Progress): void {
  const seconds = (Date.parse(`${now.at}Z`) - Date.parse(`${first.at}Z`)) / 1000;
  const rate = seconds > 0 ? (now.bytesOnDisk - first.bytesOnDisk) / seconds : 0;
  const left = rate > 0 ? (now.bytesTotal - now.bytesOnDisk) / rate : undefined;
  const isOver = now.filesOnDisk + now.filesFailed === now.filesTotal;
  const payload = {
    files: `${now.filesOnDisk + now.filesFailed}/${now.filesTotal}`,
    size: `${bytes(now.bytesOnDisk)} of ${bytes(now.bytesTotal)}`,
    rate: `${bytes(Math.round(rate))}/s`,
    left: isOver
      ? 'done'
      : left === undefined
        ? now.state.toLowerCase()
        : `${cliProgress.Format.TimeFormat(Math.ceil(left), {}, 1)} left`,
  };
  if (now === first) bar?.start(Math.max(now.bytesTotal, 1), now.bytesOnDisk, payload);
  else {
    bar?.setTotal(Math.max(now.bytesTotal, 1));
    bar?.update(now.bytesTotal === 0 && isOver ? 1 : now.bytesOnDisk, payload);
  }
}

function summarise(last: Progress): string {
  const failed = last.filesFailed > 0 ? `, ${last.filesFailed} failed` : '';
  return `request ${last.requestId} is ${last.state.toLowerCase()}: ${last.filesOnDisk} files on disk, ${bytes(last.bytesOnDisk)}${failed}`;
}
