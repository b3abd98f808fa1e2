import type { CombinedError } from '@urql/core';

/** What went wrong on the way, and a way to try again. */
export function Problem({ error, again }: { error: CombinedError; again?: () => void }) {
  const said = error.graphQLErrors.map(({ message }) => message).join('; ');
  const text =
    said || (error.response ? `The gateway answered ${error.response.status}.` : 'The gateway cannot be reached.');
  return (
    <div class="problem" role="alert">
      <p>{text}</p>
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
