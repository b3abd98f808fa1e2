/** Options of a new request: label, retention and email. */
import type { CreateRequestInput } from '../../generated/operations.js';

/** The options of a new request, as the user typed them. */
export interface Options {
  label: string;
  /** Days until the retention date; empty to use the default. */
  days: string;
  isMailed: boolean;
  /** Email address; empty to use the quota's address. */
  address: string;
}

export const noOptions: Options = { label: '', days: '', isMailed: false, address: '' };

const MAX_DAYS = 3650;
const DAY_MS = 86_400_000;

/** @returns undefined if an option is invalid */
export function inputOf({ label, days, isMailed, address }: Options): Partial<CreateRequestInput> | undefined {
  if (!isDays(days)) return undefined;
  return {
    label,
    ...(days === '' ? {} : { retention: new Date(Date.now() + Number(days) * DAY_MS).toISOString() }),
    ...(isMailed ? { notifyOnLastFile: address.trim() } : {}),
  };
}

const isDays = (days: string): boolean => days === '' || (Number(days) > 0 && Number(days) <= MAX_DAYS);

export function OptionFields({ options, onChange }: { options: Options; onChange(options: Options): void }) {
  const set = (change: Partial<Options>) => onChange({ ...options, ...change });
  return (
    <>
      <label>
        Label
        <input value={options.label} onInput={(event) => set({ label: event.currentTarget.value })} />
      </label>
      <label>
        Days to keep
        <input
          inputMode="numeric"
          size={5}
          placeholder="5"
          value={options.days}
          aria-invalid={!isDays(options.days)}
          onInput={(event) => set({ days: event.currentTarget.value.trim() })}
        />
        {!isDays(options.days) && <strong role="alert">Enter a number of days, at most {MAX_DAYS}</strong>}
      </label>
      <label class="check">
        <input type="checkbox" checked={options.isMailed} onChange={() => set({ isMailed: !options.isMailed })} />
        Email when complete
      </label>
      {options.isMailed && (
        <label>
          To
          <input
            type="email"
            placeholder="the quota's address"
            value={options.address}
            onInput={(event) => set({ address: event.currentTarget.value })}
          />
        </label>
      )}
    </>
  );
}
