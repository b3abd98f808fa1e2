/**
 * How far an import is, on standard error: on a terminal a line that is written over itself; elsewhere nothing, or, where it is asked for, a line
 * at the end of each step and one in half a minute, for a log.
 */
import { Transform } from 'node:stream';
import { formatBytes } from '../bytes.js';
import type { ImportProgress } from '../operations/catalogue/import-incoming.js';
import { stderr } from './io.js';
import { printable } from './output.js';
import { formatDuration } from './times.js';

export interface ProgressOutput {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

type Step = ImportProgress['step'] | 'sending' | 'waiting';

interface State {
  step: Step;
  since: number;
  rows?: number | undefined;
  bytes: number;
}

const EVERY_MS = { terminal: 200, other: 30_000 };

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
  const say = () => {
    if (!state) return;
    const text = describe(state, size, (performance.now() - state.since) / 1000);
    out.write(out.isTTY ? `\r\x1b[K${text.slice(0, Math.max((out.columns ?? 80) - 1, 0))}` : `${text}\n`);
  };
  const timer = setInterval(say, EVERY_MS[out.isTTY ? 'terminal' : 'other']);
  const tell: ImportView['tell'] = ({ step, rows }) => {
    const isOther = step !== state?.step;
    if (isOther && !out.isTTY) say(); // what came of the last one
    state = { step, rows, bytes: state?.bytes ?? 0, since: state && !isOther ? state.since : performance.now() };
  };
  const meter = (countsLines = false) =>
    createMeter((bytes, lines) => {
      state ??= { step: 'reading', since: performance.now(), bytes: 0 };
      state.bytes += bytes;
      if (countsLines && lines !== undefined) state.rows = (state.rows ?? 0) + lines;
    });
  const end = () => {
    clearInterval(timer);
    if (out.isTTY) out.write('\r\x1b[K');
    else say();
  };
  return { tell, meter, end };
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
  return printable([...done, ...left].join(', '));
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
