/** Provides live data about requests' progress. */
import type { Client } from '@urql/core';
import { useClient } from '@urql/preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  RequestProgressDocument,
  type RequestProgressSubscription,
  type RequestState,
} from '../generated/operations.js';

export type Progress = RequestProgressSubscription['requestProgress'];

/** Request states in which the gateway sends progress events. */
const activeStates: ReadonlySet<RequestState> = new Set(['QUEUED', 'RESTORING']);

interface ReceivedProgress {
  step: Progress;
  receivedAt: number;
}

interface Watched {
  unsubscribe(): void;
  /**
   * Time at which the request ended, or the gateway rejected the subscription; undefined while progress events can
   * arrive.
   */
  endedAt: number | undefined;
}

/**
 * Returns the latest progress of each active request. Omits progress that is older than the view's data.
 * @param requestedAt time of the query for the view's data, measured by `performance.now()`
 */
export function useProgress(
  requests: readonly { requestId: number; state: RequestState }[],
  requestedAt: number,
): ReadonlyMap<number, Progress> {
  const client = useClient();
  const [steps, setSteps] = useState<ReadonlyMap<number, ReceivedProgress>>(new Map());
  const watched = useRef(new Map<number, Watched>());
  const ids = requests.filter(({ state }) => activeStates.has(state)).map(({ requestId }) => requestId);
  const key = ids.join();
  useEffect(() => {
    const wanted = new Set(ids);
    for (const [id, { unsubscribe, endedAt }] of watched.current) {
      // subscribe again if the query for the view's data started after `endedAt`, because this data shows the request
      // as active
      const isStale = endedAt !== undefined && endedAt <= requestedAt;
      if (wanted.has(id) && !isStale) continue;
      unsubscribe();
      watched.current.delete(id);
    }
    const onStep = (step: Progress) =>
      setSteps((before) => new Map(before).set(step.requestId, { step, receivedAt: performance.now() }));
    for (const id of ids) if (!watched.current.has(id)) watched.current.set(id, watchProgress(client, id, onStep));
  }, [client, key, requestedAt]);
  useEffect(
    () => () => {
      for (const { unsubscribe } of watched.current.values()) unsubscribe();
    },
    [],
  );
  const isNewer = ([id, { receivedAt }]: [number, ReceivedProgress]) => receivedAt > requestedAt && ids.includes(id);
  return new Map([...steps].filter(isNewer).map(([id, { step }]) => [id, step]));
}

function watchProgress(client: Client, id: number, onStep: (step: Progress) => void): Watched {
  const watched: Watched = { unsubscribe: () => {}, endedAt: undefined };
  const { unsubscribe } = client
    .subscription(RequestProgressDocument.toString(), { id })
    .subscribe(({ data, error }) => {
      const step = data?.requestProgress;
      watched.endedAt = error || (step && !activeStates.has(step.state)) ? performance.now() : undefined;
      if (step) onStep(step);
    });
  watched.unsubscribe = unsubscribe;
  return watched;
}
