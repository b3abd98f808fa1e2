/** Where a request's mail goes. */
import { checkAddress } from '../input.js';

/** undefined: not given; null: nobody; '': the quota's own address. @throws InvalidInputError */
export function checkNotification(field: string, address: string | null | undefined): string | null | undefined {
  return address ? checkAddress(field, address) : address;
}

/** What is stored of an address that was checked; null: no mail is sent. */
export function addressOf(quota: { email: string }, address: string | null | undefined): string | null {
  return address === '' ? quota.email || null : (address ?? null);
}
