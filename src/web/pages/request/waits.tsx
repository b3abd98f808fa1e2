/** Explains why files of a request are waiting: the position in the queue, and the reason for each volume. */

import { WaitingRequestDocument, type WaitingRequestQuery } from '../../../generated/operations.js';
import { count, formatBytes, formatNumber } from '../../format';
import { Empty } from '../../parts/empty';
import { CircleCheck } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { type Column, Table } from '../../parts/table';
import type { ShownRequest } from './shown-request';
import { useTabQuery } from './tab-query';

const MOST = 100;

type Part = NonNullable<NonNullable<WaitingRequestQuery['request']>['waiting']>['parts']['edges'][number]['node'];

const columns: Column<Part>[] = [
  { title: 'Volume', cell: ({ volumeName }) => <bdi>{volumeName ?? 'unknown'}</bdi> },
  { title: 'Why', cell: ({ explanation, nextTryAt }) => <Why text={explanation} nextTryAt={nextTryAt} /> },
  {
    title: 'Queue position',
    isNumber: true,
    cell: ({ queuePosition }) => queuePosition && formatNumber(queuePosition),
  },
  { title: 'Files', isNumber: true, cell: ({ fileCount }) => formatNumber(fileCount) },
  { title: 'Size', isNumber: true, cell: ({ bytes }) => formatBytes(bytes) },
];

function Why({ text, nextTryAt }: { text: string; nextTryAt: string | null }) {
  return (
    <>
      <bdi>{text}</bdi>
      {nextTryAt && (
        <>
          ; next try <Moment at={nextTryAt} side="ahead" />
        </>
      )}
    </>
  );
}

export function WhyItWaits({ request, version }: { request: ShownRequest; version: number }) {
  const variables = { id: request.requestId, first: MOST };
  const { data, error, again } = useTabQuery(WaitingRequestDocument, variables, version);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <Skeleton />;
  const waiting = data.request?.waiting;
  if (!waiting) return <Empty icon={CircleCheck} title="No file of this request is waiting" />;
  const { queuePosition, fileCount, bytes, endUnknown, parts } = waiting;
  return (
    <>
      <p>
        {count(fileCount, 'file')}, {formatBytes(bytes)}
        {queuePosition === null
          ? ' waiting.'
          : ` waiting. The next volume with files of this request is at position ${formatNumber(queuePosition)} in the queue.`}
        {endUnknown && ` No arrival time yet. ${endUnknown.charAt(0).toUpperCase()}${endUnknown.slice(1)}`}
      </p>
      <Table
        label="Why the files wait"
        columns={columns}
        rows={parts.edges.map(({ node }) => node)}
        keyOf={({ volumeName, reason }) => `${volumeName} ${reason}`}
        isStacked
      />
      {parts.pageInfo.hasNextPage && <p class="hint">Only the first {MOST} volumes are shown.</p>}
    </>
  );
}
