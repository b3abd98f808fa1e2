/** Tells users who ask for email that the site only logs emails. */
import { EmailDeliveryDocument } from '../../generated/operations.js';
import { ask } from '../connection/gateway-client.js';
import { CommandError } from '../terminal/failure.js';
import { printToStderr } from '../terminal/output.js';

export const ONLY_LOGGED = 'email is only logged at this site, because no SMTP server is configured';

/**
 * Prints a note if the site only logs emails.
 * @param addresses the email addresses in a change that the gateway has made; none if the user removed an address
 */
export async function noteLoggedEmail(url: string, addresses: readonly (string | undefined)[]): Promise<void> {
  if (addresses.every((address) => address === undefined || address === 'none')) return;
  try {
    const { isEmailSent } = await ask(url, EmailDeliveryDocument, {});
    if (isEmailSent === false) printToStderr(ONLY_LOGGED);
  } catch (error) {
    // the change was made, so the command succeeds without the note
    if (!(error instanceof CommandError)) throw error;
  }
}
