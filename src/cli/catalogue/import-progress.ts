/** Shows the progress of an import: a line in a terminal, or with `--progress`, a log line every half minute. */
import { pipeline, type Readable, Transform } from 'node:stream';
import { formatBytes } from '../../core/text/bytes.js';
import { formatSpan } from '../../core/text/spans.js';
import { stderr } from '../terminal/io.js';
import { ProgressLine, type ProgressOutput } from '../terminal/progress-line.js';

const LOG_MS = 30_000;

interface ImportView {
  /** Returns a stream that forwards the bytes of a file and counts them. */
  meter(source: Readable): Readable;
  end(): void;
}

/**
 * @param size the total size of the imported files in bytes, if known
 * @returns a view that shows progress only in a terminal or with `--progress`
 */
export function createImportView(
  { size, isRequested = false }: { size: number | undefined; isRequested?: boolean | undefined },
  out: ProgressOutput = stderr(),
): ImportView {
  if (!out.isTTY && !isRequested) return { meter: (source) => source, end: () => {} };
  let step = { isReading: true, since: performance.now() };
  let bytes = 0;
  const line = new ProgressLine(
    () => {
      const seconds = (performance.now() - step.since) / 1000;
      return step.isReading ? describeReading(bytes, size, seconds) : `importing, ${formatSpan(Math.max(seconds, 1))}`;
    },
    LOG_MS,
    out,
  );
  const meter = (source: Readable) => {
    const counter = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        done(null, chunk);
      },
      flush(done) {
        if (!out.isTTY) line.draw();
        if (size === undefined || bytes >= size) step = { isReading: false, since: performance.now() };
        done();
      },
    });
    return pipeline(source, counter, () => {}) as Transform;
  };
  return { meter, end: () => line.end() };
}

function describeReading(bytes: number, size: number | undefined, elapsed: number): string | undefined {
  if (bytes === 0) return undefined;
  const seconds = Math.max(elapsed, 0.001);
  const of = size === undefined ? '' : ` of ${formatBytes(size)}`;
  const part = bytes / (size ?? Number.NaN);
  const left = part < 1 ? `, ${formatSpan(Math.max(seconds / part - seconds, 1))} left` : '';
  return `${formatBytes(bytes)}${of} read, ${formatBytes(Math.round(bytes / seconds))}/s${left}`;
}
