/** A search field that searches while the user types. The key `/` moves the focus into it. */
import { Search as SearchIcon } from 'lucide-preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { useShortcuts } from '../keyboard';

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
  useEffect(() => setTyped(match), [match]);
  useEffect(() => {
    if (typed === match) return;
    const timer = setTimeout(() => onSearch(typed, { isTyped: true }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, match, onSearch]);
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
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
    </search>
  );
}
