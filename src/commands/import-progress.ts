/** How far an import is: in a terminal, and if `--progress` asks for it, elsewhere: a line per step and one in half a minute. */
import { Transform } from 'node:stream';
import { formatBytes } from '../bytes.js';
import type { ImportProgress } from '../operations/catalogue/import-incoming.js';
import { stderr } from './io.js';
import { ProgressLine, type ProgressOutput } from './progress-line.js';
import { formatDuration } from './times.js';

type Step = ImportProgress['step'] | 'sending' | 'waiting';

interface State {
  step: Step;
  since: number;
  rows?: number | undefined;
  bytes: number;
}

const LOG_MS = 30_000;

export interface ImportView {
  tell(progress: Omit<ImportProgress, 'step'> & { step: Step }): void;
  /** Lets the bytes of the file through, and counts them; its lines as well (`countsLines`), unless it is gzipped. */
  meter(countsLines?: boolean): Transform;
  /** Takes the line away. */
  end(): void;
}

/** @param size of the file in bytes, where it is known @returns undefined where nobody is to be told */
export function createImportView(
  { size, isAsked = false }: { size: number | undefined; isAsked?: boolean | undefined },
  out: ProgressOutput = stderr(),
): ImportView | undefined {
  if (!out.isTTY && !isAsked) return undefined;
  let state: State | undefined;
  const textOf = () => state && describe(state, size, (performance.now() - state.since) / 1000);
  const line = new ProgressLine(textOf, LOG_MS, out);
  const tell: ImportView['tell'] = ({ step, rows }) => {
    const isOther = step !== state?.step;
    if (isOther && !out.isTTY) line.draw(); // what came of the last one
    state = { step, rows, bytes: state?.bytes ?? 0, since: state && !isOther ? state.since : performance.now() };
  };
  const meter = (countsLines = false) =>
    createMeter((bytes, lines) => {
      state ??= { step: 'reading', since: performance.now(), bytes: 0 };
      state.bytes += bytes;
      if (countsLines && lines !== undefined) state.rows = (state.rows ?? 0) + lines;
    });
  return { tell, meter, end: () => line.end() };
}

const verbs: Record<Step, string> = {
  reading: 'read',
  sending: 'sent',
  comparing: 'comparing the rows with what is known',
  adding: 'adding new files',
  settling: 'settling what follows',
  waiting: 'all is sent: the gateway takes it over',
};

function describe({ step, rows, bytes }: State, size: number | undefined, elapsed: number): string {
  const seconds = Math.max(elapsed, 0.001);
  if (step !== 'reading' && step !== 'sending') return `${verbs[step]}, ${formatDuration(seconds)}`;
  const what = step === 'sending' ? 'lines' : 'rows';
  const read = `${formatBytes(bytes)}${size === undefined ? '' : ` of ${formatBytes(size)}`}`;
  const part = bytes / (size ?? Number.NaN);
  const left = part > 0 && part < 1 ? [`${formatDuration(Math.ceil(seconds / part - seconds))} left`] : [];
  const done =
    rows === undefined
      ? [`${read} ${verbs[step]}`, `${formatBytes(Math.round(bytes / seconds))}/s`]
      : [`${formatCount(rows)} ${what} ${verbs[step]}`, read, `${formatCount(Math.round(rows / seconds))} ${what}/s`];
  return [...done, ...left].join(', ');
}

const formatCount = (count: number) => count.toLocaleString('en');

const LINE_FEED = 0x0a;

/** @param onBytes is told of each part, and how many lines end in it unless the first says that it is gzipped */
function createMeter(onBytes: (bytes: number, lines: number | undefined) => void): Transform {
  let isPlain: boolean | undefined;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      isPlain ??= chunk[0] !== 0x1f;
      onBytes(chunk.length, isPlain ? countLines(chunk) : undefined);
      done(null, chunk);
    },
  });
}

function countLines(chunk: Buffer): number {
  let count = 0;
  for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) count++;
  return count;
}
