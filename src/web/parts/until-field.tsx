/** A field for the day until which a request keeps its files: the request expires at the end of that day. */
import { useId } from 'preact/hooks';

const DAY_MS = 86_400_000;

/** Returns the local date of a time, as a date field shows it. */
export function dateOf(at: number): string {
  const time = new Date(at);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** Returns the local date some days after a time, by default after now. */
export const dateIn = (days: number, from = Date.now()): string => dateOf(from + days * DAY_MS);

/** Returns the end of a day in the browser's time zone; undefined if the date is incomplete. */
export function endOfDay(date: string): Date | undefined {
  const end = new Date(`${date}T23:59:59`);
  return Number.isNaN(end.getTime()) ? undefined : end;
}

/**
 * Returns why a request cannot be kept until a date; undefined if it can.
 * @param present the present expiry of the request, if it must not become earlier
 */
export function refuseDate(date: string, present?: string): string | undefined {
  const end = endOfDay(date);
  if (!end || end.getTime() <= Date.now()) return 'Enter a date in the future';
  if (present === undefined || end.getTime() >= Date.parse(present)) return undefined;
  const shown = new Date(present).toLocaleDateString(undefined, { dateStyle: 'medium' });
  return `This is earlier than the present expiry, ${shown}`;
}

interface UntilFieldProps {
  label: string;
  value: string;
  /** Why the date cannot be used (`refuseDate`). */
  problem: string | undefined;
  /** Shown while there is no problem. */
  hint?: string;
  onChange(date: string): void;
}

export function UntilField({ label, value, problem, hint, onChange }: UntilFieldProps) {
  const fieldId = useId();
  const noteId = useId();
  return (
    <div class="until-field">
      <label for={fieldId}>{label}</label>
      <input
        id={fieldId}
        type="date"
        value={value}
        min={dateIn(0)}
        required
        aria-invalid={problem !== undefined}
        aria-describedby={noteId}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      <p id={noteId} class="hint" aria-live="polite">
        {problem === undefined ? hint : <strong>{problem}</strong>}
      </p>
    </div>
  );
}
