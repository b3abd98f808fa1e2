/**
 * Defines mutations. Each mutation has one argument, `input`, and returns a payload that contains either the result or
 * the errors that the caller can correct.
 */
import type { FieldMap, InputObjectRef } from '@pothos/core';
import type { UserError } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import { builder, type Types } from './builder.js';
import { describeFailure, type Failure, FailureType } from './errors.js';

type UserErrorType = abstract new (...given: never[]) => UserError;

export interface Outcome<Value> {
  /** Null if the operation failed. */
  value: Value | null;
  errors: readonly Failure[];
}

export type ResultFields<Value> = (t: PothosSchemaTypes.ObjectFieldBuilder<Types, Outcome<Value>>) => FieldMap;

/** Defines a type with the fields of a result, and with the errors that the caller can correct. */
export function defineOutcome<Value>(name: string, description: string, fields: ResultFields<Value>) {
  return builder.objectRef<Outcome<Value>>(name).implement({
    description,
    fields: (t) => ({
      ...fields(t),
      errors: t.field({
        type: [FailureType],
        description: 'The errors that the caller can correct. Empty if the operation succeeded.',
        resolve: ({ errors }) => [...errors],
      }),
    }),
  });
}

/** Runs an operation. Returns errors of the given types, and throws all other errors. */
export async function settle<Value>(
  types: readonly UserErrorType[],
  operation: () => Promise<Value> | Value,
): Promise<Outcome<Value>> {
  try {
    return { value: await operation(), errors: [] };
  } catch (error) {
    if (!types.some((type) => error instanceof type)) throw error;
    return { value: null, errors: [describeFailure(error as UserError)] };
  }
}

interface MutationOptions<Input, Value> {
  description: string;
  input: InputObjectRef<Types, Input>;
  /** The errors that the payload can contain. Other errors become errors of the whole field. */
  errors: readonly UserErrorType[];
  complexity?: { field: number; multiplier: number };
  resolve(input: Input, ctx: Context): Promise<Value> | Value;
  /** The fields of the payload besides `errors`. If the operation failed, all these fields must be null. */
  result: ResultFields<Value>;
}

export function defineMutation<Input, Value>(
  name: string,
  { description, input, errors, complexity, resolve, result }: MutationOptions<Input, Value>,
): void {
  const payload = `${name.charAt(0).toUpperCase()}${name.slice(1)}Payload`;
  const type = defineOutcome(payload, `The result of \`${name}\`.`, result);
  builder.mutationField(name, (t) =>
    t.field({
      type,
      nullable: true,
      description,
      ...(complexity && { complexity }),
      args: { input: t.arg({ type: input, required: true, description: 'The input.' }) },
      resolve: (_root, args: object, ctx) => settle(errors, () => resolve((args as { input: Input }).input, ctx)),
    }),
  );
}

/** Resolves a payload's field to the whole result of the operation. */
export const resultOf = <Value>({ value }: Outcome<Value>): Value | null => value;
