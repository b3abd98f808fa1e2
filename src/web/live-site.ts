/** Reloads lists when the gateway reports that their contents have changed. */
import type { AnyVariables } from '@urql/core';
import { useClient } from '@urql/preact';
import { useEffect } from 'preact/hooks';
import {
  RequestChangesDocument,
  SiteChangesDocument,
  type SitePart,
  type TypedDocumentString,
} from '../generated/operations.js';
import { useViewQuery, type ViewQuery } from './view-query';

/** Runs a query, and repeats the query when one of the site's `parts` changes. */
export function useSiteQuery<Data, Variables extends AnyVariables>(
  query: TypedDocumentString<Data, Variables>,
  variables: Variables,
  ...parts: SitePart[]
): ViewQuery<Data> {
  const client = useClient();
  const look = useViewQuery(query, variables);
  const { again } = look;
  const key = parts.join();
  useEffect(() => {
    const { unsubscribe } = client.subscription(SiteChangesDocument.toString(), {}).subscribe(({ data }) => {
      if (data?.siteChanges.parts.some((part) => key.split(',').includes(part))) again();
    });
    return unsubscribe;
  }, [client, again, key]);
  return look;
}

/**
 * Calls `again` after each change to the requests that the user is allowed to see, including new requests.
 * @param id id of the only request to watch; by default, watches all requests
 */
export function useRequestChanges(again: () => void, id?: number): void {
  const client = useClient();
  useEffect(() => {
    const { unsubscribe } = client.subscription(RequestChangesDocument.toString(), {}).subscribe(({ data }) => {
      const changes = data?.requestChanges;
      if (
        changes &&
        (id === undefined || changes.hasMore || changes.requests.some(({ requestId }) => requestId === id))
      )
        again();
    });
    return unsubscribe;
  }, [client, again, id]);
}
