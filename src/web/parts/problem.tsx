import type { CombinedError } from '@urql/core';

/** For people. */
export function messageOf(error: CombinedError): string {
  const said = error.graphQLErrors.map(({ message }) => message).join('; ');
  return said || (error.response ? `The gateway answered ${error.response.status}.` : 'The gateway does not answer.');
}

/** Why a change came to nothing, as far as anybody knows: of what was under way when a gateway went, nobody does. */
export function messageOfChange(error: CombinedError): string {
  const isUnanswered = error.graphQLErrors.length === 0 && !error.response;
  return isUnanswered ? 'The gateway does not answer; nothing is known to be changed.' : messageOf(error);
}

/** What went wrong on the way, and a way to try again. */
export function Problem({ error, again }: { error: CombinedError; again?: () => void }) {
  return (
    <div class="problem" role="alert">
      <p>{messageOf(error)}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Why something was not done. */
export function Refused({ why }: { why: string | undefined }) {
  if (why === undefined) return null;
  return (
    <p class="problem" role="alert">
      {why}
    </p>
  );
}
