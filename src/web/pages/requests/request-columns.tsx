/** The columns of the list of requests. */
import { formatMissing } from '../../../core/text/requested-files.js';
import { formatSpan } from '../../../core/text/spans.js';
import type { RequestLineFragment } from '../../../generated/operations.js';
import { count, formatBytes, formatTime, share } from '../../format';
import type { Progress } from '../../live-progress';
import { Bar } from '../../parts/bar';
import { Moment } from '../../parts/moment';
import { nameRequest } from '../../parts/request-name';
import { formatRestored } from '../../parts/restored';
import { isOver, RequestStateName } from '../../parts/state';
import type { Column } from '../../parts/table';
import { linkTo } from '../../route';

/** A request with its live progress, if it is active. */
export type ShownLine = RequestLineFragment & Partial<Pick<Progress, 'bytesPerSecond' | 'elapsedSeconds' | 'end'>>;

/** @param hasQuota whether the list has requests of several quotas */
export function createColumns({ hasQuota }: { hasQuota: boolean }): Column<ShownLine>[] {
  return [
    { title: 'Request', isName: true, order: 'label', cell: (line) => <NameCell line={line} /> },
    { title: 'State', order: 'state', cell: (line) => <RequestStateName request={line} /> },
    { title: 'Progress', cell: (line) => <ProgressCell line={line} /> },
    { title: 'Files', order: 'files', cell: (line) => <FilesCell line={line} /> },
    { title: 'Size', order: 'size', isNumber: true, cell: formatSize },
    { title: 'Arrives or expires', order: 'retention', cell: (line) => <EndCell line={line} /> },
    ...(hasQuota ? [{ title: 'Quota', cell: (line: ShownLine) => <QuotaCell line={line} /> }] : []),
    { title: 'Created', order: 'created', cell: (line) => <CreatedCell line={line} /> },
  ];
}

function QuotaCell({ line: { quota } }: { line: ShownLine }) {
  return (
    <>
      <span class="cell-label">quota </span>
      <bdi>{quota.user}</bdi>
    </>
  );
}

function CreatedCell({ line: { createdAt } }: { line: ShownLine }) {
  return (
    <>
      <span class="cell-label">created </span>
      <Moment at={createdAt} side="past" />
    </>
  );
}

function NameCell({ line }: { line: ShownLine }) {
  return (
    <a class="request-name" href={linkTo(['requests', line.requestId])} title={nameRequest(line)}>
      <span class="request-id">{line.requestId}</span> <bdi>{nameRequest(line)}</bdi>
    </a>
  );
}

function ProgressCell({ line }: { line: ShownLine }) {
  const { requestId, state, filesOnDisk, filesTotal, filesFailed, bytesPerSecond, elapsedSeconds } = line;
  if (filesTotal === 0) return null;
  const part = share(filesOnDisk, filesTotal);
  const what = isOver(state) ? 'files that were on disk' : 'files on disk';
  const isRestoring = state === 'RESTORING';
  const rate = isRestoring && bytesPerSecond ? `${formatBytes(Math.round(bytesPerSecond))}/s` : undefined;
  const elapsed = isRestoring && elapsedSeconds ? `${formatSpan(Math.max(elapsedSeconds, 1))} elapsed` : undefined;
  return (
    <span class="request-progress">
      <Bar value={part} kind={filesFailed > 0 ? 'failed' : 'done'} label={`Request ${requestId}: ${what}`} />
      <span>{[`${Math.floor(part * 100)}%`, rate, elapsed].filter(Boolean).join(', ')}</span>
    </span>
  );
}

function FilesCell({ line }: { line: ShownLine }) {
  const { filesTotal, filesFailed } = line;
  if (filesTotal === 0) return <span class="quiet">The request contains no files</span>;
  const missing = formatMissing(line, count);
  return (
    <span>
      {formatRestored(line)}
      {filesFailed > 0 && <strong class="failed">, {count(filesFailed, 'file')} failed</strong>}
      {missing && <span class="quiet">; {missing}</span>}
    </span>
  );
}

function formatSize({ bytesOnDisk, bytesTotal, state }: ShownLine): string {
  const isPartial = bytesOnDisk !== bytesTotal && (state === 'RESTORING' || state === 'PARTIAL');
  return isPartial ? `${formatBytes(bytesOnDisk)} of ${formatBytes(bytesTotal)}` : formatBytes(bytesTotal);
}

/** Shows when the files of an active request arrive, or else when the request expires or has ended. */
function EndCell({ line }: { line: ShownLine }) {
  const { state, retention, end } = line;
  if (isOver(state)) {
    return (
      <span>
        ended <Moment at={retention} side="past" />
      </span>
    );
  }
  const isActive = state === 'QUEUED' || state === 'RESTORING';
  if (!isActive) {
    return (
      <span>
        expires <Moment at={retention} />
      </span>
    );
  }
  if (!end) return <span class="quiet">arrival unknown</span>;
  return <span title={`${formatTime(end.earliest)} to ${formatTime(end.latest)}`}>{describeEnd(end)}</span>;
}

function describeEnd({ at, earliest, planned, latest, isMeasured }: NonNullable<ShownLine['end']>): string {
  const from = Date.parse(at);
  const left = (time: string) => formatSpan(Math.max((Date.parse(time) - from) / 1000, 1));
  const note = isMeasured ? '' : '; without measurements';
  return `about ${left(planned)} left (${left(earliest)} to ${left(latest)}${note})`;
}
