/** Which quota a command charges that was given none. */
import { OwnCaller } from '../generated/command-operations.js';
import { ask } from './connection/client.js';
import { ownSettingsFile, readOwnSettings } from './connection/own-settings.js';
import { UsageError } from './terminal/failure.js';
import { environment } from './terminal/io.js';

/**
 * Returns the quota of the option, of the user's own settings, or the default of the caller whose token is shown.
 * @param options that the command takes
 * @throws UsageError if none of them names one
 */
export async function chooseQuota(url: string, given: string | undefined, options = '--quota <user>'): Promise<string> {
  const chosen = given ?? readOwnSettings(environment()).quota;
  if (chosen !== undefined) return chosen;
  const { caller } = await ask(url, OwnCaller);
  if (caller.defaultQuota) return caller.defaultQuota;
  if (caller.roles.includes('user') && caller.way !== 'open') return caller.name;
  throw new UsageError(`give ${options}, or set "quota" in ${ownSettingsFile(environment())}`);
}
