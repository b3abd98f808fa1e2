/** Runs GraphQL mutations, and reads the result or the error from their payloads. */
import { askData } from './graphql.js';
import type { Gateway } from './http.js';

interface Payload<Result> {
  result: Result | null;
  errors: Result[];
}

/**
 * Runs a mutation. Throws if the payload does not contain exactly one result or error.
 * @param result the field with the result, and its selection, such as `request { __typename state }`
 * @param error the selection of errors
 * @returns the result, or the error if the operation failed
 */
export async function mutate<Result = object>(
  gateway: Gateway,
  field: string,
  input: object,
  result: string,
  error = '__typename message',
): Promise<Result> {
  const type = `${field[0]?.toUpperCase()}${field.slice(1)}Input`;
  const query = `mutation ($input: ${type}!) { payload: ${field}(input: $input) { result: ${result} errors { ${error} } } }`;
  const { payload } = await askData<{ payload: Payload<Result> }>(gateway, query, { input });
  const [only, ...others] = payload.result === null ? payload.errors : [payload.result, ...payload.errors];
  if (!only || others.length > 0) throw new Error(`${field} answered ${JSON.stringify(payload)}`);
  return only;
}
