/** Sends changes that the user makes, such as cancelling a request, to the gateway, and reports errors. */
import type { AnyVariables } from '@urql/core';
import { useClient } from '@urql/preact';
import { useState } from 'preact/hooks';
import type { TypedDocumentString } from '../generated/operations.js';
import { messageOfChange } from './parts/problem';

/** Payload of a mutation: the changed object, or errors that the user can correct. */
interface Payload {
  errors: readonly { message: string }[];
}

export interface Action {
  isRunning: boolean;
  /** Error message for the user's last change; undefined if the change did not fail. */
  problem: string | undefined;
  /** @returns the changed object; undefined after an error */
  run<Data, Variables extends AnyVariables>(
    document: TypedDocumentString<Data, Variables>,
    variables: Variables,
  ): Promise<Data | undefined>;
}

export function useAction(): Action {
  const client = useClient();
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState<string>();
  const run: Action['run'] = async (document, variables) => {
    setRunning(true);
    setProblem(undefined);
    const { data, error } = await client.mutation(document.toString(), variables).toPromise();
    setRunning(false);
    const failed = error ? messageOfChange(error) : failureOf(data);
    if (failed === undefined) return data;
    setProblem(failed);
    return undefined;
  };
  return { isRunning, problem, run };
}

/** Returns the message of the first error in a mutation's payload; undefined if the change was made. */
export function failureOf(data: unknown): string | undefined {
  const [payload] = Object.values((data ?? {}) as Record<string, Payload | null>);
  return payload?.errors[0]?.message;
}
