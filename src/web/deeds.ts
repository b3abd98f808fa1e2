/** Something that the user has done, and what came of it. */
import type { AnyVariables, TypedDocumentNode } from '@urql/core';
import { useClient } from '@urql/preact';
import { useState } from 'preact/hooks';
import { messageOfChange } from './parts/problem';

/** What a change is answered with: what came of it, or why nothing did. */
interface Outcome {
  __typename: string;
  message?: string;
}

export interface Deed {
  isRunning: boolean;
  /** Why the last one came to nothing. */
  problem: string | undefined;
  /** @returns what it was answered with where it was done */
  run<Data, Variables extends AnyVariables>(
    document: TypedDocumentNode<Data, Variables>,
    variables: Variables,
  ): Promise<Data | undefined>;
}

export function useDeed(): Deed {
  const client = useClient();
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState<string>();
  const run: Deed['run'] = async (document, variables) => {
    setRunning(true);
    setProblem(undefined);
    const { data, error } = await client.mutation(document, variables).toPromise();
    setRunning(false);
    const failed = error ? messageOfChange(error) : failureOf(data);
    if (failed === undefined) return data;
    setProblem(failed);
    return undefined;
  };
  return { isRunning, problem, run };
}

function failureOf(data: unknown): string | undefined {
  return Object.values((data ?? {}) as Record<string, Outcome>).find(({ message }) => message !== undefined)?.message;
}
