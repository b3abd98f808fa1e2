/** Says that there are too many files to select, and offers a request for a pattern instead. */
import { useState } from 'preact/hooks';
import { formatNumber } from '../../format';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import type { FileSet } from './select-all';
import { MAX_SELECTED } from './selection';

interface TooLargeProps {
  set: FileSet;
  onPattern(pattern: string): void;
  onClose(): void;
}

export function TooLarge({ set, onPattern, onClose }: TooLargeProps) {
  const [pattern, setPattern] = useState(set.pattern);
  return (
    <Dialog
      title="Too many files to select"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="main"
            disabledReason={pattern === '' ? 'Enter a part of the paths.' : undefined}
            onClick={() => onPattern(pattern)}
          >
            Request by path
          </Button>
        </>
      }
    >
      <p>
        At most {formatNumber(MAX_SELECTED)} files can be selected, and {set.name} would exceed this number. You can
        request all files whose path contains a text instead. Such a request includes files added to the catalogue
        later.
      </p>
      <label>
        All files whose path contains (case-sensitive)
        <input value={pattern} spellcheck={false} onInput={(event) => setPattern(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
