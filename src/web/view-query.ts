/**
 * Runs the queries of the views. While the gateway does not respond, retries the query, and keeps the last result
 * visible.
 */
import type { AnyVariables, CombinedError } from '@urql/core';
import { useQuery } from '@urql/preact';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import type { TypedDocumentString } from '../generated/operations.js';

const MAX_PAUSE_MS = 10_000;

export interface ViewQuery<Data> {
  data: Data | undefined;
  error: CombinedError | undefined;
  isFetching: boolean;
  /**
   * Time of the query that returned the last result, measured by `performance.now()`. An event that the page received
   * before `requestedAt` might be older than the result.
   */
  requestedAt: number;
  again(): void;
}

export function useViewQuery<Data, Variables extends AnyVariables>(
  document: TypedDocumentString<Data, Variables>,
  variables: Variables,
): ViewQuery<Data> {
  const [{ data, error, fetching }, execute] = useQuery<Data, AnyVariables>({ query: document.toString(), variables });
  const key = JSON.stringify(variables);
  const sent = useRef({ key: '', at: 0 });
  if (sent.current.key !== key) sent.current = { key, at: performance.now() };
  const seen = useRef<{ key: string; data: Data; requestedAt: number } | undefined>(undefined);
  if (data !== undefined && !fetching && data !== seen.current?.data)
    seen.current = { key, data, requestedAt: sent.current.at };
  const again = useCallback(() => {
    sent.current.at = performance.now();
    execute({ requestPolicy: 'network-only' });
  }, [execute]);
  useTries(fetching ? undefined : error !== undefined && error.response === undefined, again);
  const isSeen = seen.current?.key === key || seen.current?.data === data;
  const last = seen.current && isSeen ? seen.current : { data, requestedAt: sent.current.at };
  return { ...last, error, isFetching: fetching, again };
}

/**
 * Retries a query with growing, random pauses while the gateway does not answer.
 * @param isAway whether the gateway does not answer; undefined while a query is in progress
 */
function useTries(isAway: boolean | undefined, again: () => void): void {
  const tries = useRef(0);
  useEffect(() => {
    if (isAway === false) tries.current = 0;
    if (!isAway) return;
    const ms = Math.min(MAX_PAUSE_MS, 500 * 2 ** tries.current) * (0.5 + Math.random() / 2);
    const timer = setTimeout(() => {
      tries.current++;
      again();
    }, ms);
    return () => clearTimeout(timer);
  }, [isAway, again]);
}
