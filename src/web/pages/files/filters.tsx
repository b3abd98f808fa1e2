/** Filters of the file browser: stage, size and date. The row of fields is hidden until the user opens it. */

import { useState } from 'preact/hooks';
import type { Stage } from '../../../generated/operations.js';
import { Button } from '../../parts/button';
import { X } from '../../parts/icons';
import { type Filters, isDate, noFilters, readSize, validOf } from './address';

const ON_DISK: readonly Stage[] = ['UNVERIFIED', 'ONDISK', 'RESTORED'];

const stageChoices: [text: string, stages: readonly Stage[]][] = [
  ['All stages', []],
  ['Only on tape', ['ONTAPE']],
  ['On disk', ON_DISK],
  ['Restoring', ['RESTORING']],
  ['Restored', ['RESTORED']],
  ['Unverified', ['UNVERIFIED']],
];

const textOfStages = (stages: readonly Stage[]): string =>
  stageChoices.find(([, each]) => each.join() === stages.join())?.[0] ?? stages.join(', ');

interface FilterProps {
  filters: Filters;
  onChange(filters: Filters): void;
}

export function FilterFields({ filters, onChange }: FilterProps) {
  const set = (change: Partial<Filters>) => onChange({ ...filters, ...change });
  return (
    <div class="filter-row">
      <label>
        Stage
        <select
          value={textOfStages(filters.stages)}
          onChange={({ currentTarget }) =>
            set({ stages: stageChoices.find(([text]) => text === currentTarget.value)?.[1] ?? [] })
          }
        >
          {stageChoices.map(([text]) => (
            <option key={text}>{text}</option>
          ))}
        </select>
      </label>
      <SizeField label="At least" value={filters.min} onChange={(min) => set({ min })} />
      <SizeField label="At most" value={filters.max} onChange={(max) => set({ max })} />
      <DateField label="Modified from" value={filters.since} onChange={(since) => set({ since })} />
      <DateField label="Modified until" value={filters.until} onChange={(until) => set({ until })} />
    </div>
  );
}

function SizeField({ label, value, onChange }: { label: string; value: string; onChange(value: string): void }) {
  const isInvalid = value !== '' && readSize(value) === undefined;
  return (
    <label>
      {label}
      <input
        size={8}
        placeholder="10 MB"
        value={value}
        aria-invalid={isInvalid}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
      {isInvalid && <strong role="alert">Enter a size such as 10 MB</strong>}
    </label>
  );
}

/** A date field, which stays empty and shows an error if a link has a date that does not exist. */
function DateField({ label, value, onChange }: { label: string; value: string; onChange(value: string): void }) {
  const [isTypedInvalid, setTypedInvalid] = useState(false);
  const isInvalid = isTypedInvalid || (value !== '' && !isDate(value));
  return (
    <label>
      {label}
      <input
        type="date"
        value={value}
        aria-invalid={isInvalid}
        onInput={({ currentTarget }) => setTypedInvalid(currentTarget.validity.badInput)}
        onBlur={({ currentTarget }) => setTypedInvalid(currentTarget.validity.badInput)}
        onChange={({ currentTarget }) => currentTarget.validity.badInput || onChange(currentTarget.value)}
      />
      {isInvalid && <strong role="alert">Enter a date</strong>}
    </label>
  );
}

/** Returns whether a field of the filters shows an error. */
export const hasInvalid = (filters: Filters): boolean => {
  const valid = validOf(filters);
  return (['min', 'max', 'since', 'until'] as const).some((name) => filters[name] !== valid[name]);
};

/** Shows the active filters, each with a button that removes it. */
export function FilterChips({ filters, onChange }: FilterProps) {
  const { stages, min, max, since, until } = validOf(filters);
  const chips: [text: string, without: Partial<Filters>][] = [
    ...(stages.length > 0 ? ([[textOfStages(stages), { stages: [] }]] as [string, Partial<Filters>][]) : []),
    ...(min ? ([[`At least ${min}`, { min: '' }]] as [string, Partial<Filters>][]) : []),
    ...(max ? ([[`At most ${max}`, { max: '' }]] as [string, Partial<Filters>][]) : []),
    ...(since ? ([[`Modified from ${since}`, { since: '' }]] as [string, Partial<Filters>][]) : []),
    ...(until ? ([[`Modified until ${until}`, { until: '' }]] as [string, Partial<Filters>][]) : []),
  ];
  if (chips.length === 0) return null;
  return (
    <div class="chips">
      {chips.map(([text, without]) => (
        <Button
          key={text}
          icon={X}
          label={`Remove the filter: ${text}`}
          onClick={() => onChange({ ...filters, ...without })}
        >
          {text}
        </Button>
      ))}
      {chips.length > 1 && (
        <Button kind="plain" onClick={() => onChange(noFilters)}>
          Remove all filters
        </Button>
      )}
    </div>
  );
}
