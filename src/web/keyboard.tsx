/** Keyboard shortcuts of the views, and the dialog that lists them. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from './parts/dialog';

export interface Shortcut {
  /** The value of `KeyboardEvent.key`, such as `/`, `j` or `Enter`. */
  key: string;
  /** What the key does, as shown in the help. */
  text: string;
  run(event: KeyboardEvent): void;
}

/** Shortcuts of all components on the page. A component that was added later comes first. */
const active = new Set<{ current: readonly Shortcut[] }>();

const isTyping = ({ target }: KeyboardEvent): boolean =>
  target instanceof HTMLElement && target.matches('input:not([type="checkbox"]), select, textarea, [role^="menuitem"]');

/** Keys that a focused link or button uses itself. */
const isUsed = ({ target, key }: KeyboardEvent): boolean =>
  (key === 'Enter' || key === ' ') && target instanceof HTMLElement && target.matches('a, button, summary, input');

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event) || isUsed(event) || document.querySelector('dialog[open], [role="menu"]')) return;
  for (const { current } of [...active].reverse()) {
    const shortcut = current.find(({ key }) => key === event.key);
    if (!shortcut) continue;
    event.preventDefault();
    shortcut.run(event);
    return;
  }
}

/** Handles keys while the component is shown, except while the user types in a field or a dialog is open. */
export function useShortcuts(shortcuts: readonly Shortcut[]): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  useEffect(() => {
    if (active.size === 0) addEventListener('keydown', onKey);
    active.add(latest);
    return () => {
      active.delete(latest);
      if (active.size === 0) removeEventListener('keydown', onKey);
    };
  }, []);
}

/** Order of the keys in the help: search, rows, selection, parent, help. */
const ORDER = ['/', 'j', 'ArrowDown', 'k', 'ArrowUp', 'Enter', 'x', 'X', 'r', 'u', 'Backspace', '?'];

const keyNames: Record<string, string> = { ArrowDown: '↓', ArrowUp: '↑' };

/** Returns the active shortcuts in the order of the help. Keys that do the same are in one line. */
function readHelp(): [text: string, keys: string[]][] {
  const shown = new Map([...active].flatMap(({ current }) => current.map(({ key, text }) => [key, text])));
  const placeOf = (key: string) => (ORDER.includes(key) ? ORDER.indexOf(key) : ORDER.length);
  const lines = new Map<string, string[]>();
  for (const [key, text] of [...shown].sort(([a], [b]) => placeOf(a) - placeOf(b)))
    lines.set(text, [...(lines.get(text) ?? []), keyNames[key] ?? key]);
  return [...lines];
}

/** Shows the help of the keyboard when the user presses `?`, and while `isOpen`. */
export function KeyboardHelp({ isOpen, onOpen, onClose }: { isOpen: boolean; onOpen(): void; onClose(): void }) {
  useShortcuts([{ key: '?', text: 'Show this help', run: onOpen }]);
  if (!isOpen) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="pairs">
        {readHelp().map(([text, keys]) => (
          <div key={text} class="pair">
            <dt>
              {keys.map((key, index) => (
                <>
                  {index > 0 && ', '}
                  <kbd key={key}>{key}</kbd>
                </>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
        <div class="pair">
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Close a dialog or a menu</dd>
        </div>
      </dl>
    </Dialog>
  );
}

/** Functions that move to the first row of the lists on the page. A list that was added later comes last. */
const firstRows = new Set<() => void>();

/** Moves to the first row of the list on the page. */
export const moveToFirstRow = (): void => [...firstRows].at(-1)?.();

interface RowCursor {
  /** Index of the current row; -1 before the user has moved to a row. */
  at: number;
  moveTo(index: number): void;
}

interface RowKeys {
  onOpen?: (index: number) => void;
  onSelect?: (index: number, isRange: boolean) => void;
}

/** Moves through the rows of a list with `j` and `k`, selects a row with `x`, and opens it with Enter. */
export function useRowCursor(rowCount: number, { onOpen, onSelect }: RowKeys): RowCursor {
  const [at, setAt] = useState(-1);
  const move = (step: number) => setAt((before) => Math.max(0, Math.min(rowCount - 1, before + step)));
  useEffect(() => {
    // leaves the row first, so that the row gets the focus again
    const moveFirst = () => {
      setAt(-1);
      setTimeout(() => setAt(0));
    };
    firstRows.add(moveFirst);
    return () => {
      firstRows.delete(moveFirst);
    };
  }, []);
  const isRow = at >= 0 && at < rowCount;
  const select = (isRange: boolean) => isRow && onSelect?.(at, isRange);
  useShortcuts([
    { key: 'j', text: 'Next row', run: () => move(1) },
    { key: 'k', text: 'Previous row', run: () => move(-1) },
    ...(onSelect
      ? [
          { key: 'x', text: 'Select the row', run: () => select(false) },
          { key: 'X', text: 'Select all rows from the last selected one to this row', run: () => select(true) },
        ]
      : []),
    ...(onOpen ? [{ key: 'Enter', text: 'Open the row', run: () => isRow && onOpen(at) }] : []),
  ]);
  return { at, moveTo: setAt };
}
