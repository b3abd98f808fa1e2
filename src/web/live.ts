/** What is live: how requests go, told by the gateway as it happens. */
import { useClient } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import {
  RequestProgressDocument,
  type RequestProgressSubscription,
  type RequestState,
} from '../generated/web-operations';

export type Progress = RequestProgressSubscription['requestProgress'];

const ended: ReadonlySet<RequestState> = new Set(['CANCELLED', 'EXPIRED']);

/** The last step of each request that is shown; one that has ended for good says nothing any more. */
export function useProgress(
  requests: readonly { requestId: number; state: RequestState }[],
): ReadonlyMap<number, Progress> {
  const client = useClient();
  const [steps, setSteps] = useState<ReadonlyMap<number, Progress>>(new Map());
  const watched = requests.filter(({ state }) => !ended.has(state)).map(({ requestId }) => requestId);
  const key = watched.join();
  useEffect(() => {
    const subscriptions = watched.map((id) =>
      client.subscription(RequestProgressDocument, { id }).subscribe(({ data }) => {
        const step = data?.requestProgress;
        if (step) setSteps((before) => new Map(before).set(id, step));
      }),
    );
    return () => {
      for (const subscription of subscriptions) subscription.unsubscribe();
    };
  }, [client, key]);
  return steps;
}
