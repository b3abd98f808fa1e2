/** The search field of the file browser, with the choice of where to search, and the filters. */

import { useState } from 'preact/hooks';
import { Button } from '../../parts/button';
import { ClipboardPaste, ListFilter } from '../../parts/icons';
import { Search } from '../../parts/search';
import { Tally } from '../../parts/tabs';
import { countFilters, nameOfPath, type Place } from './address';
import { FilterChips, FilterFields, hasInvalid } from './filters';

interface SearchBarProps {
  place: Place;
  onChange(change: Partial<Place>, how?: { isTyped: boolean }): void;
  /** Opens the dialog for a list of paths; undefined if the user may not request files. */
  onPaste: (() => void) | undefined;
}

export function SearchBar({ place, onChange, onPaste }: SearchBarProps) {
  const { folder, query, match, isEverywhere, filters } = place;
  const [isOpen, setOpen] = useState(() => hasInvalid(filters));
  const label = isEverywhere ? 'Search all files' : `Search in ${nameOfPath(folder)}`;
  const filterCount = countFilters(filters);
  const setFilters = (next: Place['filters']) => onChange({ filters: next });
  return (
    <>
      <div class="tools files-tools">
        <Search
          label={label}
          placeholder={`${label}: several words, *.nc, "Exact Words"`}
          match={match ? `"${match}"` : query}
          onSearch={(text, how) => onChange({ query: text, match: '' }, how)}
        />
        {folder !== '' && (
          <label class="check">
            <input type="checkbox" checked={isEverywhere} onChange={() => onChange({ isEverywhere: !isEverywhere })} />
            Search everywhere
          </label>
        )}
        <Button icon={ListFilter} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Filters
          {filterCount > 0 && <Tally count={filterCount} />}
        </Button>
        {onPaste && (
          <Button icon={ClipboardPaste} onClick={onPaste}>
            Paste a list
          </Button>
        )}
      </div>
      {isOpen && <FilterFields filters={filters} onChange={setFilters} />}
      <FilterChips filters={filters} onChange={setFilters} />
    </>
  );
}
