/** What is live beside single requests: lists are read again when the gateway says that something in them is new. */
import type { AnyVariables, TypedDocumentNode } from '@urql/core';
import { useClient } from '@urql/preact';
import { useEffect } from 'preact/hooks';
import { RequestChangesDocument, SiteChangesDocument, type SitePart } from '../generated/web-operations';
import { type Look, useLook } from './look';

/** A look at some parts of the site, which is taken again when one of them has changed. */
export function useSiteLook<Data, Variables extends AnyVariables>(
  query: TypedDocumentNode<Data, Variables>,
  variables: Variables,
  ...parts: SitePart[]
): Look<Data> {
  const client = useClient();
  const look = useLook(query, variables);
  const { again } = look;
  const key = parts.join();
  useEffect(() => {
    const { unsubscribe } = client.subscription(SiteChangesDocument, {}).subscribe(({ data }) => {
      if (data?.siteChanges.parts.some((part) => key.split(',').includes(part))) again();
    });
    return unsubscribe;
  }, [client, again, key]);
  return look;
}

/**
 * Calls when a request that the caller may see was made, was changed or has ended.
 * @param id only of this one
 */
export function useRequestChanges(again: () => void, id?: number): void {
  const client = useClient();
  useEffect(() => {
    const { unsubscribe } = client.subscription(RequestChangesDocument, {}).subscribe(({ data }) => {
      const told = data?.requestChanges;
      if (told && (id === undefined || told.hasMore || told.requests.some(({ requestId }) => requestId === id)))
        again();
    });
    return unsubscribe;
  }, [client, again, id]);
}
