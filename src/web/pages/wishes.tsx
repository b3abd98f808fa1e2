/** How a request is to be: what it is called, how long it keeps its files, and who is told when they are there. */
import type { CreateRequestInput } from '../../generated/web-operations';

/** As they were typed. */
export interface Wished {
  label: string;
  /** Empty: as long as the gateway keeps them by itself. */
  days: string;
  isMailed: boolean;
  /** Empty: the quota's own. */
  address: string;
}

export const noWishes: Wished = { label: '', days: '', isMailed: false, address: '' };

const MOST_DAYS = 3650;
const DAY_MS = 86_400_000;

/** @returns undefined where one of them cannot be */
export function inputOf({ label, days, isMailed, address }: Wished): Partial<CreateRequestInput> | undefined {
  if (!isDays(days)) return undefined;
  return {
    label,
    ...(days === '' ? {} : { retention: new Date(Date.now() + Number(days) * DAY_MS).toISOString() }),
    ...(isMailed ? { notifyOnLastFile: address.trim() } : {}),
  };
}

const isDays = (days: string): boolean => days === '' || (Number(days) > 0 && Number(days) <= MOST_DAYS);

export function Wishes({ wishes, onChange }: { wishes: Wished; onChange(wishes: Wished): void }) {
  const set = (change: Partial<Wished>) => onChange({ ...wishes, ...change });
  return (
    <>
      <label>
        Label
        <input value={wishes.label} onInput={(event) => set({ label: event.currentTarget.value })} />
      </label>
      <label>
        Days kept
        <input
          inputMode="numeric"
          size={5}
          placeholder="5"
          value={wishes.days}
          aria-invalid={!isDays(wishes.days)}
          onInput={(event) => set({ days: event.currentTarget.value.trim() })}
        />
        {!isDays(wishes.days) && <strong role="alert">A number up to {MOST_DAYS}</strong>}
      </label>
      <label class="check">
        <input type="checkbox" checked={wishes.isMailed} onChange={() => set({ isMailed: !wishes.isMailed })} />
        Mail when it is done
      </label>
      {wishes.isMailed && (
        <label>
          To
          <input
            type="email"
            placeholder="the address of the quota"
            value={wishes.address}
            onInput={(event) => set({ address: event.currentTarget.value })}
          />
        </label>
      )}
    </>
  );
}
