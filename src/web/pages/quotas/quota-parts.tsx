/** Parts of the list of quotas and of the page of a quota. */
import { share } from '../../format';
import { Bar } from '../../parts/bar';

/** A value in a table. In a narrow window, which does not show the column's title, words around the value explain it. */
export function Labelled({ before, text, after }: { before?: string; text: string; after?: string }) {
  return (
    <>
      {before && <span class="cell-label">{before}</span>}
      {text}
      {after && <span class="cell-label">{after}</span>}
    </>
  );
}

/** Part of a quota from which its bar is red. */
const NEARLY_FULL = 0.9;

export function QuotaBar({ user, used, size }: { user: string; used: bigint; size: bigint }) {
  const taken = share(used, size);
  return <Bar value={taken} kind={taken > NEARLY_FULL ? 'full' : 'done'} label={`Quota used by ${user}`} />;
}

export const freeOf = ({ used, size }: { used: bigint; size: bigint }): bigint => (size > used ? size - used : 0n);
