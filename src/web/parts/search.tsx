/** A search field that searches while the user types. */
import { useEffect, useState } from 'preact/hooks';

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
  useEffect(() => setTyped(match), [match]);
  useEffect(() => {
    if (typed === match) return;
    const timer = setTimeout(() => onSearch(typed, { isTyped: true }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, match, onSearch]);
  return (
    <search>
      <label class="search">
        {label}
        <input
          type="search"
          value={typed}
          placeholder={placeholder}
          spellcheck={false}
          autocapitalize="none"
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
    </search>
  );
}
