/**
 * A search field that searches while the user types. The key `/` moves the focus into it, Escape clears and leaves it,
 * and the down arrow and Enter move to the first row of the list.
 */

import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { moveToFirstRow, useShortcuts } from '../keyboard';
import { Search as SearchIcon } from './icons';

/** Pause, in milliseconds, between the user's last keystroke and the search. */
const TYPING_MS = 200;

interface SearchProps {
  label: string;
  placeholder: string;
  match: string;
  onSearch(text: string, how: { isTyped: boolean }): void;
}

export function Search({ label, placeholder, match, onSearch }: SearchProps) {
  const [typed, setTyped] = useState(match);
  const field = useRef<HTMLInputElement>(null);
  const fieldId = useId();
  useShortcuts([{ key: '/', text: 'Search', run: () => field.current?.focus() }]);
  const wantsRow = useRef(false);
  useEffect(() => {
    setTyped(match);
    // later than the effects of the view, which leave the row of the list before
    if (wantsRow.current) setTimeout(moveToFirstRow);
    wantsRow.current = false;
  }, [match]);
  useEffect(() => {
    if (typed === match) return;
    const timer = setTimeout(() => onSearch(typed, { isTyped: true }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, match, onSearch]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing || !['Escape', 'ArrowDown', 'Enter'].includes(event.key)) return;
    event.preventDefault();
    field.current?.blur();
    if (event.key === 'Escape') return setTyped('');
    if (typed === match) return moveToFirstRow();
    wantsRow.current = true;
    onSearch(typed, { isTyped: true });
  };
  return (
    <search class="search-field">
      <label for={fieldId}>{label}</label>
      <SearchIcon class="icon" size={16} aria-hidden="true" />
      <input
        ref={field}
        id={fieldId}
        type="search"
        value={typed}
        placeholder={placeholder}
        spellcheck={false}
        autocapitalize="none"
        onKeyDown={onKeyDown}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
    </search>
  );
}
