/** The estimate for a request, computed while the user fills in the request. */
import { useClient } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import { type EstimateFragment, EstimateRequestDocument } from '../../../generated/operations.js';
import { count, formatBytes, isSoon } from '../../format';
import { useNow } from '../../now';
import { Moment } from '../../parts/moment';
import { messageOf } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';

/** What a request selects: files by path, or all files whose path contains a pattern. */
export type Wanted = { files: string[] } | { pattern: string };

export interface EstimateState {
  estimate: EstimateFragment | undefined;
  problem: string | undefined;
  isRunning: boolean;
}

/** Pause, in milliseconds, between the user's last change and the estimate. */
const TYPING_MS = 200;

/** Estimates a request again after each change. */
export function useEstimate(quota: string, wanted: Wanted): EstimateState {
  const client = useClient();
  const [state, setState] = useState<EstimateState>({ estimate: undefined, problem: undefined, isRunning: true });
  const isEmpty = 'files' in wanted ? wanted.files.length === 0 : wanted.pattern === '';
  const key = 'files' in wanted ? wanted.files : wanted.pattern;
  useEffect(() => {
    if (quota === '' || isEmpty) {
      setState({ estimate: undefined, problem: undefined, isRunning: false });
      return;
    }
    const call = { isStale: false };
    setState((before) => ({ ...before, isRunning: true }));
    const run = async () => {
      const { data, error } = await client.query(
        EstimateRequestDocument.toString(),
        { input: { quota, ...wanted } },
        { requestPolicy: 'network-only' },
      );
      if (call.isStale) return;
      const { value, errors } = data?.result ?? { value: undefined, errors: [] };
      const problem = error ? messageOf(error) : errors[0]?.message;
      setState({ estimate: value ?? undefined, problem, isRunning: false });
    };
    const timer = setTimeout(run, TYPING_MS);
    return () => {
      call.isStale = true;
      clearTimeout(timer);
    };
    // `key` stands for `wanted`, which is a new object in each call
  }, [client, quota, key, isEmpty]);
  return state;
}

/** Shows the estimate for a request: files, volumes, arrival, quota usage and overlap with other requests. */
export function EstimateSummary({ estimate, isRunning }: Omit<EstimateState, 'problem'>) {
  if (!estimate) return isRunning ? <Skeleton lines={5} /> : null;
  const { end, price } = estimate;
  return (
    <section class="estimate" aria-label="Estimate" aria-busy={isRunning}>
      <dl class="pairs">
        <dt>Arrival</dt>
        <dd class="arrival">
          {end ? <ExpectedEnd {...end} /> : (estimate.endUnknown ?? 'Unknown')}
          {!estimate.hasRoom && <strong> The restore disks have no room for these files now.</strong>}
        </dd>
        <dt>Files</dt>
        <dd>
          {count(estimate.fileCount, 'file')}, {formatBytes(estimate.bytes)}
          {estimate.filesUnknown > 0 && `, and ${count(estimate.filesUnknown, 'path')} not in the catalogue`}
        </dd>
        <dt>From tape</dt>
        <dd>
          <FromTape estimate={estimate} />
        </dd>
        <dt>Already on disk</dt>
        <dd>
          {count(estimate.filesOnDisk, 'file')}, {formatBytes(estimate.bytesOnDisk)}
        </dd>
        <dt>Quota used afterwards</dt>
        <dd>
          {formatBytes(estimate.quotaUsedAfter)} of {formatBytes(estimate.quotaSize)}
          {!estimate.fitsQuota && <strong>: exceeds the quota</strong>}
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
      {estimate.filesAlsoRequested > 0 && (
        <p class="note">
          {count(estimate.filesAlsoRequested, 'file')} ({formatBytes(estimate.bytesAlsoRequested)}){' '}
          {estimate.filesAlsoRequested === 1 ? 'is' : 'are'} also in other requests of this quota. The quota is charged
          separately for each request.
        </p>
      )}
    </section>
  );
}

function FromTape({ estimate }: { estimate: EstimateFragment }) {
  const { filesToRecall, bytesToRecall, volumeCount, mountCount, volumesSuspended, filesWithoutPlace } = estimate;
  if (filesToRecall + filesWithoutPlace === 0) return <>None</>;
  return (
    <>
      {count(filesToRecall, 'file')}, {formatBytes(bytesToRecall)} on {count(volumeCount, 'volume')},{' '}
      {count(mountCount, 'mount')}
      {volumesSuspended > 0 && <strong>, {count(volumesSuspended, 'volume')} out of service</strong>}
      {filesWithoutPlace > 0 && <strong>, {count(filesWithoutPlace, 'file')} without a known volume</strong>}
    </>
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
