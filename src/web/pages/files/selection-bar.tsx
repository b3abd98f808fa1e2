/** The bar at the bottom of the file browser: the selected files, and what to do with them. */

import { useMemo, useState } from 'preact/hooks';
import { count, formatBytes, formatNumber } from '../../format';
import { Button } from '../../parts/button';
import { Drawer } from '../../parts/dialog';
import { X } from '../../parts/icons';
import type { Loading } from './select-all';
import type { FileSelection, Selected } from './selection';

interface SelectionBarProps {
  selection: FileSelection;
  /** Path of the present folder; empty for the root. */
  folder: string;
  loading: Loading | undefined;
  onStop(): void;
  onEstimate(): void;
  onRequest(): void;
}

export function SelectionBar({ selection, folder, loading, onStop, onEstimate, onRequest }: SelectionBarProps) {
  const [isShown, setShown] = useState(false);
  const { files, bytes, clear } = selection;
  const elsewhere = useMemo(() => countOutside(files, folder), [files, folder]);
  if (files.size === 0 && !loading) return null;
  return (
    <section class="selection-bar" aria-label="Selected files">
      {loading ? (
        <>
          <strong role="status">
            Loading {loading.name}: {formatNumber(loading.done)}
            {loading.count !== undefined && ` of ${formatNumber(loading.count)}`} files …
          </strong>
          <Button onClick={onStop}>Stop</Button>
        </>
      ) : (
        <>
          <strong role="status">
            {describeSelection(files.size, bytes)}
            {elsewhere > 0 && ` (${formatNumber(elsewhere)} in other folders)`}
          </strong>
          <Button kind="plain" onClick={() => setShown(true)}>
            Show
          </Button>
          <Button kind="plain" onClick={clear}>
            Clear
          </Button>
          <Button onClick={onEstimate}>Estimate</Button>
          <Button kind="main" onClick={onRequest}>
            Request
          </Button>
        </>
      )}
      {isShown && files.size > 0 && <SelectedFiles selection={selection} onClose={() => setShown(false)} />}
    </section>
  );
}

/** Returns the number of selected files that are not below a folder. */
function countOutside(files: Selected, folder: string): number {
  let outside = 0;
  for (const path of files.keys()) if (!path.startsWith(`${folder}/`)) outside++;
  return outside;
}

export const describeSelection = (number: number, bytes: number): string =>
  `${count(number, 'file')}, ${formatBytes(bytes)}`;

/** Number of files to show in the drawer. */
const SHOWN = 200;

function SelectedFiles({
  selection: { files, bytes, remove },
  onClose,
}: {
  selection: FileSelection;
  onClose(): void;
}) {
  const [text, setText] = useState('');
  const lower = text.toLowerCase();
  const found = [...files].filter(([path]) => path.toLowerCase().includes(lower));
  const drop = (path: string) => {
    remove([path]);
    if (files.size === 1) onClose();
  };
  return (
    <Drawer title={`Selected: ${describeSelection(files.size, bytes)}`} onClose={onClose}>
      <label>
        Find in the selection
        <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <ul class="selected-files">
        {found.slice(0, SHOWN).map(([path, size]) => (
          <li key={path}>
            <code>{path}</code>
            <span class="number">{size === undefined ? 'Unknown file' : formatBytes(size)}</span>
            <Button kind="bare" icon={X} label={`Remove ${path}`} onClick={() => drop(path)} />
          </li>
        ))}
      </ul>
      {found.length > SHOWN && <p class="hint">and {formatNumber(found.length - SHOWN)} more</p>}
      {found.length === 0 && <p>No selected file has {JSON.stringify(text)} in its path.</p>}
    </Drawer>
  );
}
