/** Changes several requests, one after another, and reports the result of each. */

import type { Client, OperationResult } from '@urql/core';
import { useClient } from '@urql/preact';
import { useState } from 'preact/hooks';
import { CancelRequestDocument, RequestExpiryDocument, UpdateRequestDocument } from '../../../generated/operations.js';
import { failureOf } from '../../actions';
import { count } from '../../format';
import { Button } from '../../parts/button';
import { Confirmation } from '../../parts/dialog';
import { CalendarPlus, CircleX, X } from '../../parts/icons';
import { messageOfChange } from '../../parts/problem';
import { isOver } from '../../parts/state';
import { useToast } from '../../parts/toast';
import { dateIn, endOfDay, refuseDate, UntilField } from '../../parts/until-field';
import type { ChosenRequests } from './chosen-requests';

/** The result of a change to one request: made, not needed, or an error message. */
type Result = 'made' | 'skipped' | { failure: string };

type Change = (client: Client, requestId: number) => Promise<Result>;

interface Done {
  isRunning: boolean;
  /** Number of requests that were processed, while the change runs. */
  processed: number;
}

interface BulkBarProps {
  selection: ChosenRequests;
  again(): void;
}

export function BulkBar({ selection, again }: BulkBarProps) {
  const [asking, setAsking] = useState<'extend' | 'cancel'>();
  const { isRunning, processed, run } = useBulk(selection, again);
  const { ids } = selection;
  const busy = isRunning ? 'The requests are being changed.' : undefined;
  const close = () => setAsking(undefined);
  return (
    <section class="selection-bar" aria-label="Selected requests">
      <strong role="status">
        {isRunning ? `${processed} of ${count(ids.length, 'request')} …` : `${count(ids.length, 'request')} selected`}
      </strong>
      <Button icon={CalendarPlus} disabledReason={busy} onClick={() => setAsking('extend')}>
        Extend
      </Button>
      <Button kind="danger" icon={CircleX} disabledReason={busy} onClick={() => setAsking('cancel')}>
        Cancel requests
      </Button>
      <Button kind="bare" icon={X} label="Clear selection" disabledReason={busy} onClick={() => selection.choose([])} />
      {asking === 'extend' && (
        <ExtendDialog
          ids={ids}
          onClose={close}
          onExtend={(until) => {
            close();
            void run(ids, (client, id) => extend(client, id, until), 'extended');
          }}
        />
      )}
      {asking === 'cancel' && (
        <Confirmation
          title={`Cancel ${count(ids.length, 'request')}?`}
          action={`Cancel ${count(ids.length, 'request')}`}
          back="Keep requests"
          isDangerous
          onClose={close}
          onConfirm={() => {
            close();
            void run(ids, cancel, 'cancelled');
          }}
        >
          <p>The requests end now. Their files are removed from disk unless other requests need them.</p>
          <p>Requests: {ids.join(', ')}</p>
        </Confirmation>
      )}
    </section>
  );
}

const DAYS = 30;

interface ExtendDialogProps {
  ids: readonly number[];
  onExtend(until: Date): void;
  onClose(): void;
}

function ExtendDialog({ ids, onExtend, onClose }: ExtendDialogProps) {
  const [day, setDay] = useState(() => dateIn(DAYS));
  const problem = refuseDate(day);
  const until = endOfDay(day);
  return (
    <Confirmation
      title={`Extend ${count(ids.length, 'request')}`}
      action={`Extend ${count(ids.length, 'request')}`}
      disabledReason={problem}
      onClose={onClose}
      onConfirm={() => until && onExtend(until)}
    >
      <UntilField
        label="Keep the files until the end of"
        value={day}
        problem={problem}
        hint="The time zone is the one of this browser"
        onChange={setDay}
      />
      <p class="hint">
        Requests that expire later keep their date. A request that has expired is restored again, and counts towards its
        quota.
      </p>
      <p>Requests: {ids.join(', ')}</p>
    </Confirmation>
  );
}

/** Extends a request, unless it already expires later. */
async function extend(client: Client, requestId: number, until: Date): Promise<Result> {
  const read = await client
    .query(RequestExpiryDocument.toString(), { id: requestId }, { requestPolicy: 'network-only' })
    .toPromise();
  if (read.error) return { failure: messageOfChange(read.error) };
  const request = read.data?.request;
  if (request && !isOver(request.state) && Date.parse(request.retention) >= until.getTime()) return 'skipped';
  const variables = { input: { requestId, retention: until.toISOString() } };
  return toResult(await client.mutation(UpdateRequestDocument.toString(), variables).toPromise());
}

async function cancel(client: Client, requestId: number): Promise<Result> {
  return toResult(await client.mutation(CancelRequestDocument.toString(), { id: requestId }).toPromise());
}

function toResult({ data, error }: OperationResult): Result {
  const failure = error ? messageOfChange(error) : failureOf(data);
  return failure === undefined ? 'made' : { failure };
}

/** Returns a function that changes requests one after another. Requests that could not be changed stay selected. */
function useBulk({ choose }: ChosenRequests, again: () => void) {
  const client = useClient();
  const toast = useToast();
  const [{ isRunning, processed }, setDone] = useState<Done>({ isRunning: false, processed: 0 });
  const run = async (ids: readonly number[], change: Change, done: string) => {
    const failures = new Map<number, string>();
    let skipped = 0;
    for (const [index, id] of ids.entries()) {
      setDone({ isRunning: true, processed: index });
      const result = await change(client, id);
      if (result === 'skipped') skipped++;
      else if (result !== 'made') failures.set(id, result.failure);
    }
    setDone({ isRunning: false, processed: 0 });
    choose(failures.keys());
    const text = describeResults(failures, { total: ids.length, skipped, done });
    if (failures.size === 0) toast(text);
    else toast(text, { tone: 'bad' });
    again();
  };
  return { isRunning, processed, run };
}

const MAX_NAMED = 5;

function describeResults(
  failures: ReadonlyMap<number, string>,
  { total, skipped, done }: { total: number; skipped: number; done: string },
): string {
  const made = total - failures.size - skipped;
  const first = made === total ? count(total, 'request') : `${made} of ${count(total, 'request')}`;
  const kept = skipped === 0 ? '' : ` ${count(skipped, 'request')} kept ${skipped === 1 ? 'its' : 'their'} later date.`;
  const named = [...failures].slice(0, MAX_NAMED).map(([id, failure]) => `request ${id}: ${failure}`);
  const more = failures.size > MAX_NAMED ? [`and ${failures.size - MAX_NAMED} more`] : [];
  const failed = failures.size === 0 ? '' : ` Failed: ${[...named, ...more].join('; ')}`;
  return `${first} ${done}.${kept}${failed}`;
}
