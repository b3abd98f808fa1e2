/** Where a request's mail goes. */
import type { Context } from '../../context.js';
import { InvalidInputError, quote } from '../../errors.js';
import { checkAddress } from '../input.js';

/** undefined: not given; null: nobody; '': the quota's own address. @throws InvalidInputError */
export function checkNotification(field: string, address: string | null | undefined): string | null | undefined {
  return address ? checkAddress(field, address) : address;
}

/**
 * What is stored of an address that was checked; null: no mail is sent.
 * @throws InvalidInputError where the site sends no mail there
 */
export function addressOf(
  { config }: Context,
  quota: { email: string },
  { field, address }: { field: string; address: string | null | undefined },
): string | null {
  if (!address) return address === '' ? quota.email || null : null;
  const { mailTo } = config.limits;
  const domain = address.slice(address.lastIndexOf('@') + 1).toLowerCase();
  const isOwn = quota.email !== '' && address.toLowerCase() === quota.email.toLowerCase();
  if (isOwn || mailTo === 'anywhere' || (mailTo !== 'quota' && mailTo.includes(domain))) return address;
  const allowed = mailTo === 'quota' ? '' : `, or one of ${mailTo.join(', ')}`;
  throw new InvalidInputError(field, `must be the address of the quota itself${allowed}, not ${quote(address)}`);
}
