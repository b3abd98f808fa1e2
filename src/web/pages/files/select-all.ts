/** Loads the paths of all files of a search or a folder, to select them. */
import { useClient } from '@urql/preact';
import { useCallback, useRef, useState } from 'preact/hooks';
import { FilePathsDocument, type FilePathsQueryVariables } from '../../../generated/operations.js';
import { messageOf } from '../../parts/problem';
import { type FileSelection, MAX_SELECTED } from './selection';

const PAGE = 1000;

/** A set of files: what it is called, and the variables of the query for its files. */
export interface FileSet {
  name: string;
  variables: FilePathsQueryVariables;
  /** Number of files, if known. */
  count?: number | undefined;
  /** Substring of the paths of exactly these files; empty if there is none. */
  pattern: string;
}

export interface Loading {
  name: string;
  done: number;
  count: number | undefined;
}

interface SelectAll {
  loading: Loading | undefined;
  /** A set with too many files to select. */
  tooLarge: FileSet | undefined;
  problem: string | undefined;
  start(sets: readonly FileSet[]): Promise<void>;
  stop(): void;
  dismiss(): void;
}

export function useSelectAll({ add, files }: FileSelection): SelectAll {
  const client = useClient();
  const [loading, setLoading] = useState<Loading>();
  const [tooLarge, setTooLarge] = useState<FileSet>();
  const [problem, setProblem] = useState<string>();
  const stopped = useRef(false);
  const size = useRef(0);
  size.current = files.size;

  /** Adds all files of a set, or none of them. */
  const load = async ({ name, variables, count, pattern }: FileSet): Promise<void> => {
    const found: [path: string, size: number][] = [];
    for (let after: string | null | undefined; ; ) {
      setLoading({ name, done: found.length, count });
      const { data, error } = await client.query(
        FilePathsDocument.toString(),
        { ...variables, first: PAGE, after },
        { requestPolicy: 'network-only' },
      );
      if (error) return setProblem(messageOf(error));
      if (stopped.current) return;
      for (const { node } of data?.list?.edges ?? []) found.push([node.path, Number(node.size)]);
      if (size.current + found.length > MAX_SELECTED) return setTooLarge({ name, variables, count, pattern });
      if (!data?.list?.pageInfo.hasNextPage) break;
      after = data.list.pageInfo.endCursor;
    }
    add(found);
    size.current += found.length;
  };
  const start = async (sets: readonly FileSet[]) => {
    stopped.current = false;
    setProblem(undefined);
    setTooLarge(undefined);
    for (const set of sets) {
      if (stopped.current) break;
      if ((set.count ?? 0) > MAX_SELECTED) setTooLarge(set);
      else await load(set);
    }
    setLoading(undefined);
  };
  const stop = useCallback(() => {
    stopped.current = true;
    setLoading(undefined);
  }, []);
  return { loading, tooLarge, problem, start, stop, dismiss: () => setTooLarge(undefined) };
}
