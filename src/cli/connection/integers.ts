/** Converts integers in GraphQL responses from strings to bigints. */
import { integerFields } from '../../generated/command-operations.js';

/** Converts decimal strings in a GraphQL response's integer fields to bigints. Changes the response object in place. */
export function readIntegers<Answer>(answer: Answer): Answer {
  if (typeof answer !== 'object' || answer === null) return answer;
  const fields = answer as Record<string, unknown>;
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string' && integerFields.has(name)) fields[name] = BigInt(value);
    else readIntegers(value);
  }
  return answer;
}
