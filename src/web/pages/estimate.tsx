/** The estimate for a request. */
import type { EstimateFragment } from '../../generated/operations.js';
import { count, formatBytes, isSoon } from '../format';
import { useNow } from '../now';
import { Moment } from '../parts/moment';

/** Shows the estimate for a request: files, volumes, quota usage and expected end. */
export function EstimateSummary({ estimate }: { estimate: EstimateFragment }) {
  const { end, price } = estimate;
  return (
    <dl class="pairs">
      <dt>Requested</dt>
      <dd>
        {count(estimate.fileCount, 'file')}, {formatBytes(estimate.bytes)}
        {estimate.filesUnknown > 0 && `, and ${count(estimate.filesUnknown, 'path')} not in the catalogue`}
      </dd>
      <dt>Already on disk</dt>
      <dd>
        {count(estimate.filesOnDisk, 'file')}, {formatBytes(estimate.bytesOnDisk)}
      </dd>
      {estimate.filesAlsoRequested > 0 && (
        <>
          <dt>In other requests</dt>
          <dd>
            {count(estimate.filesAlsoRequested, 'file')}, {formatBytes(estimate.bytesAlsoRequested)}: the quota is
            charged separately for each request
          </dd>
        </>
      )}
      <dt>From tape</dt>
      <dd>
        {count(estimate.filesToRecall, 'file')}, {formatBytes(estimate.bytesToRecall)} on{' '}
        {count(estimate.volumeCount, 'volume')}
        {estimate.volumesSuspended > 0 && <strong>, {estimate.volumesSuspended} of them out of service</strong>}
        {estimate.filesWithoutPlace > 0 && (
          <strong>, {count(estimate.filesWithoutPlace, 'file')} without a known volume</strong>
        )}
      </dd>
      <dt>Quota after</dt>
      <dd>
        {formatBytes(estimate.quotaUsedAfter)} of {formatBytes(estimate.quotaSize)}
        {!estimate.fitsQuota && <strong>: exceeds the quota</strong>}
      </dd>
      <dt>Expected end of the request</dt>
      <dd>
        {end ? <ExpectedEnd {...end} /> : (estimate.endUnknown ?? 'Unknown')}
        {!estimate.hasRoom && <strong> The restore disks have no room for these files now.</strong>}
      </dd>
      {price && (
        <>
          <dt>Price</dt>
          <dd>
            {price.amount} {price.currency}
          </dd>
        </>
      )}
    </dl>
  );
}

function ExpectedEnd({ planned, latest, isMeasured }: { planned: string; latest: string; isMeasured: boolean }) {
  const now = useNow();
  const note = isMeasured ? '' : ' (estimate without measurements)';
  if (isSoon(Date.parse(latest), now)) return <>In a moment{note}</>;
  return (
    <>
      <Moment at={planned} isFull side="ahead" />, at the latest <Moment at={latest} side="ahead" />
      {note}
    </>
  );
}
