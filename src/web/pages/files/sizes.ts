/** Looks up the sizes of selected files that come from a link or from a suggestion. */
import { useClient } from '@urql/preact';
import { useEffect, useRef } from 'preact/hooks';
import { PathMatchesDocument } from '../../../generated/operations.js';
import type { FileSelection } from './selection';

/** Maximum number of paths in a query. */
const CHUNK = 1000;

export function useSizes({ files, add }: FileSelection): void {
  const client = useClient();
  const asked = useRef(new Set<string>());
  useEffect(() => {
    const paths = [...files].flatMap(([path, size]) => (size === undefined && !asked.current.has(path) ? path : []));
    const chunk = paths.slice(0, CHUNK);
    if (chunk.length === 0) return;
    for (const path of chunk) asked.current.add(path);
    const look = async () => {
      const query = client.query(PathMatchesDocument.toString(), { paths: chunk }, { requestPolicy: 'network-only' });
      const { data } = await query;
      add((data?.pathMatches ?? []).flatMap(({ file }) => (file ? [[file.path, Number(file.size)] as const] : [])));
    };
    look();
  }, [files, add, client]);
}
