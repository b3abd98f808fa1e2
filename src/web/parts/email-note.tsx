/** Tells a user who asks for email that the site only logs emails. */
import { EmailDeliveryDocument } from '../../generated/operations.js';
import { useViewQuery } from '../view-query';

export function EmailNote() {
  const { data } = useViewQuery(EmailDeliveryDocument, {});
  if (data?.isEmailSent !== false) return null;
  return <p class="hint">Email is only logged at this site, because no SMTP server is configured.</p>;
}
