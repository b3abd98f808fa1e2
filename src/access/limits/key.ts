/** As whom a request counts where something is limited for each caller. */
import type { IncomingMessage } from 'node:http';
import { type Caller, ownerOf } from '../../caller.js';
import { addressOf } from '../address.js';
import { addressKey } from '../address-key.js';
import { callerOf } from '../identify.js';

const LOOPBACK_6 = '::/56';

/**
 * Who is known counts alone, by its name: wherever it asks from, with whichever of its tokens, and whatever becomes of its rights.
 * Of the others, those of an address count together.
 */
export function limitKey(req: IncomingMessage): string {
  const caller = callerOf(req);
  return isKnown(caller) ? `caller ${ownerOf(caller)}` : addressKey(addressOf(req));
}

const isKnown = ({ way }: Caller) => way !== 'open' && way !== 'legacy';

/**
 * Of those who are not known and come from this host nothing tells one from the other, nor a script from all that runs here: how
 * often they ask is counted only where the configuration says so.
 */
export function isUncounted(req: IncomingMessage): boolean {
  if (isKnown(callerOf(req))) return false;
  const address = addressKey(addressOf(req));
  return address.startsWith('127.') || address === LOOPBACK_6;
}
