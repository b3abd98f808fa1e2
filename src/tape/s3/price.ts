/** What a restore costs, by what the operators say that their provider charges. Pure. */
import type { Price } from '../staging.js';
import type { Charges, Tier } from './settings.js';

const GB = 2 ** 30;
const DAYS_OF_A_MONTH = 30;

export function priceOf(
  charges: Charges,
  { tier, days }: { tier: Tier; days: number },
  { count, bytes }: { count: number; bytes: bigint },
): Price {
  const gb = Number(bytes) / GB;
  const parts = [
    { amount: gb * charges.perGb, what: `to retrieve ${gb.toFixed(1)} GB (${tier})` },
    { amount: (count / 1000) * charges.perThousandRequests, what: `for ${count} restore requests` },
    {
      amount: gb * charges.perGbMonth * (days / DAYS_OF_A_MONTH),
      what: `to keep the copies for ${days} ${days === 1 ? 'day' : 'days'}`,
    },
  ];
  const amount = parts.reduce((sum, part) => sum + part.amount, 0);
  const note = parts.map((part) => `${part.amount.toFixed(2)} ${part.what}`).join(', ');
  return { amount, currency: charges.currency, note };
}
