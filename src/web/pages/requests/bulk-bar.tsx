/** Changes several requests, one after another, and reports the result of each. */

import type { Client } from '@urql/core';
import { useClient } from '@urql/preact';
import { CalendarPlus, CircleX, X } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { CancelRequestDocument, UpdateRequestDocument } from '../../../generated/operations.js';
import { failureOf } from '../../actions';
import { count } from '../../format';
import { Button } from '../../parts/button';
import { Confirmation } from '../../parts/dialog';
import { messageOfChange } from '../../parts/problem';
import { useToast } from '../../parts/toast';
import type { ChosenRequests } from './chosen-requests';

/** A change to one request. Resolves to an error message; undefined if the change was made. */
type Change = (client: Client, requestId: number) => Promise<string | undefined>;

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
          onExtend={(retention) => {
            close();
            void run(ids, (client, id) => extend(client, id, retention), 'extended');
          }}
        />
      )}
      {asking === 'cancel' && (
        <Confirmation
          title={`Cancel ${count(ids.length, 'request')}?`}
          action={`Cancel ${count(ids.length, 'request')}`}
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

const DAY_MS = 86_400_000;
const DAYS = 30;

/** Returns a date as the field for dates expects it. */
const dayIn = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);

interface ExtendDialogProps {
  ids: readonly number[];
  onExtend(retention: string): void;
  onClose(): void;
}

function ExtendDialog({ ids, onExtend, onClose }: ExtendDialogProps) {
  const [day, setDay] = useState(dayIn(DAYS));
  const time = Date.parse(day);
  const isFuture = time > Date.now();
  return (
    <Confirmation
      title={`Extend ${count(ids.length, 'request')}`}
      action={`Extend ${count(ids.length, 'request')}`}
      disabledReason={isFuture ? undefined : 'Choose a date in the future.'}
      onClose={onClose}
      onConfirm={() => onExtend(new Date(time).toISOString())}
    >
      <label>
        Keep the files until
        <input
          type="date"
          value={day}
          min={dayIn(1)}
          aria-invalid={!isFuture}
          onInput={(event) => setDay(event.currentTarget.value)}
        />
      </label>
      <p class="hint">
        The requests expire when this day begins in UTC, even if they would have expired later. A request that has
        expired is restored again, and counts towards its quota.
      </p>
      <p>Requests: {ids.join(', ')}</p>
    </Confirmation>
  );
}

async function extend(client: Client, requestId: number, retention: string): Promise<string | undefined> {
  const variables = { input: { requestId, retention } };
  const { data, error } = await client.mutation(UpdateRequestDocument.toString(), variables).toPromise();
  return error ? messageOfChange(error) : failureOf(data);
}

async function cancel(client: Client, requestId: number): Promise<string | undefined> {
  const { data, error } = await client.mutation(CancelRequestDocument.toString(), { id: requestId }).toPromise();
  return error ? messageOfChange(error) : failureOf(data);
}

/** Returns a function that changes requests one after another. Requests that could not be changed stay selected. */
function useBulk({ choose }: ChosenRequests, again: () => void) {
  const client = useClient();
  const toast = useToast();
  const [{ isRunning, processed }, setDone] = useState<Done>({ isRunning: false, processed: 0 });
  const run = async (ids: readonly number[], change: Change, done: string) => {
    const failures = new Map<number, string>();
    for (const [index, id] of ids.entries()) {
      setDone({ isRunning: true, processed: index });
      const failure = await change(client, id);
      if (failure !== undefined) failures.set(id, failure);
    }
    setDone({ isRunning: false, processed: 0 });
    choose(failures.keys());
    if (failures.size === 0) toast(`${count(ids.length, 'request')} ${done}.`);
    else toast(describeFailures(failures, { total: ids.length, done }), { tone: 'bad' });
    again();
  };
  return { isRunning, processed, run };
}

const MAX_NAMED = 5;

function describeFailures(failures: ReadonlyMap<number, string>, { total, done }: { total: number; done: string }) {
  const named = [...failures].slice(0, MAX_NAMED).map(([id, failure]) => `request ${id}: ${failure}`);
  const more = failures.size > MAX_NAMED ? [`and ${failures.size - MAX_NAMED} more`] : [];
  return `${total - failures.size} of ${count(total, 'request')} ${done}. Failed: ${[...named, ...more].join('; ')}`;
}
