/**
 * Runs the queries of the site's views. A view reloads when the gateway reports a change, and at once after the user
 * changed something in this window.
 */
import type { AnyVariables } from '@urql/core';
import { useEffect } from 'preact/hooks';
import type { SitePart, TypedDocumentString } from '../../../generated/operations.js';
import { useSiteQuery } from '../../live-site';
import type { ViewQuery } from '../../view-query';

const own = new EventTarget();
const CHANGE = 'change';

/** Reloads the queries of the current view. Called after each change that the user made. */
export const reloadViews = (): void => void own.dispatchEvent(new Event(CHANGE));

/** Runs a query, and repeats it when one of the site's `parts` changes, or when the user changes something. */
export function useLiveQuery<Data, Variables extends AnyVariables>(
  query: TypedDocumentString<Data, Variables>,
  variables: Variables,
  ...parts: SitePart[]
): ViewQuery<Data> {
  const look = useSiteQuery(query, variables, ...parts);
  const { again } = look;
  useEffect(() => {
    own.addEventListener(CHANGE, again);
    return () => own.removeEventListener(CHANGE, again);
  }, [again]);
  return look;
}
