/** Runs the query of a tab, and repeats it after each change of the request. */
import type { AnyVariables } from '@urql/core';
import { useEffect, useRef } from 'preact/hooks';
import type { TypedDocumentString } from '../../../generated/operations.js';
import { useViewQuery, type ViewQuery } from '../../view-query';

/** @param version number that changes after each change of the request */
export function useTabQuery<Data, Variables extends AnyVariables>(
  document: TypedDocumentString<Data, Variables>,
  variables: Variables,
  version: number,
): ViewQuery<Data> {
  const query = useViewQuery(document, variables);
  const { again } = query;
  const seen = useRef(version);
  useEffect(() => {
    if (seen.current === version) return;
    seen.current = version;
    again();
  }, [version, again]);
  return query;
}
