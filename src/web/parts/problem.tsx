import type { CombinedError } from '@urql/core';

/** Describes why a query failed. */
export function messageOf(error: CombinedError): string {
  const text = error.graphQLErrors.map(({ message }) => message).join('; ');
  if (text) return text;
  if (!error.response) return 'The gateway does not respond.';
  if (error.response.ok) return 'Another server responds instead of the gateway. Reload the page to log in again.';
  return `The gateway returned status ${error.response.status}.`;
}

/** Describes why a change failed. After a lost connection, the gateway might still have made the change. */
export function messageOfChange(error: CombinedError): string {
  const isUnanswered = error.graphQLErrors.length === 0 && !error.response;
  return isUnanswered ? 'The gateway does not respond; it is unknown whether the change was made.' : messageOf(error);
}

/** Shows an error, with a button to retry. */
export function Problem({ error, again }: { error: CombinedError; again?: () => void }) {
  return (
    <div class="problem" role="alert">
      <p>{messageOf(error)}</p>
      {again && (
        <button type="button" class="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Shows the reason why a change failed. */
export function Refused({ why }: { why: string | undefined }) {
  if (why === undefined) return null;
  return (
    <p class="problem" role="alert">
      {why}
    </p>
  );
}
