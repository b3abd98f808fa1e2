/** Converts integers in GraphQL responses from strings to bigints. */
import { integerFields } from '../../generated/command-operations.js';

/** Replaces decimal strings in integer fields with bigints. The response object is changed in place. */
export function readIntegers<Answer>(answer: Answer): Answer {
  if (typeof answer !== 'object' || answer === null) return answer;
  const fields = answer as Record<string, unknown>;
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string' && integerFields.has(name)) fields[name] = BigInt(value);
    else readIntegers(value);
  }
  return answer;
}
