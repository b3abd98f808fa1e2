/** What a restore costs, by what the operators say that their provider charges. Pure, in whole numbers: sums are exact. */
import type { Charge, Price } from '../staging.js';
import type { Charges, Tier } from './settings.js';

const GB = 2n ** 30n;
const DAYS_OF_A_MONTH = 30n;
const NANOS_A_MICRO = 1000n;

export function priceOf(
  charges: Charges,
  { tier, days }: { tier: Tier; days: number },
  { count, bytes }: { count: number; bytes: bigint },
): Price {
  const retrieved = bytes * charges.nanosPerGb;
  const kept = bytes * charges.nanosPerGbMonth * BigInt(days);
  const parts: Charge[] = [];
  const add = (rate: bigint, micros: bigint, what: string) => {
    if (rate > 0n) parts.push({ micros, what });
  };
  add(charges.nanosPerGb, toMicros(retrieved, GB), `to retrieve ${formatGb(bytes)} (${tier})`);
  const asked = BigInt(count) * charges.nanosPerThousandRequests;
  add(charges.nanosPerThousandRequests, toMicros(asked, 1000n), `for ${count} restore requests`);
  add(
    charges.nanosPerGbMonth,
    toMicros(kept, GB * DAYS_OF_A_MONTH),
    `to keep the copies for ${days} ${days === 1 ? 'day' : 'days'}`,
  );
  return { currency: charges.currency, parts };
}

/** Of a fraction of billionths, rounded up. */
function toMicros(nanos: bigint, of: bigint): bigint {
  const whole = of * NANOS_A_MICRO;
  return (nanos + whole - 1n) / whole;
}

function formatGb(bytes: bigint): string {
  const gb = Number(bytes) / Number(GB);
  return bytes > 0n && gb < 0.1 ? 'less than 0.1 GB' : `${gb.toFixed(1)} GB`;
}
