/** Chooses the quota that a command charges. */
import { CallerDocument } from '../../generated/operations.js';
import { ask } from '../connection/gateway-client.js';
import { ownSettingsFile, readOwnSettings } from '../connection/own-settings.js';
import { UsageError } from '../terminal/failure.js';
import { environment } from '../terminal/io.js';

/**
 * Returns the quota that the command's option or the user's settings name. If neither names a quota, returns the user's
 * default quota.
 * @param options the options that can name a quota, for the error message
 * @throws UsageError if no option or setting names a quota, and the caller has no default quota
 */
export async function chooseQuota(url: string, given: string | undefined, options = '--quota <user>'): Promise<string> {
  const chosen = given ?? readOwnSettings(environment()).quota;
  if (chosen !== undefined) return chosen;
  const { caller } = await ask(url, CallerDocument);
  if (caller.defaultQuota) return caller.defaultQuota;
  if (caller.roles.includes('USER') && caller.authentication !== 'OPEN') return caller.name;
  throw new UsageError(`give ${options}, or set "quota" in ${ownSettingsFile(environment())}`);
}
