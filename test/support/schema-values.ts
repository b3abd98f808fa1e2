/** Generates values that a JSON Schema of the OpenAPI document allows. */
import fc, { type Arbitrary } from 'fast-check';
import type { JsonSchema } from '../../rest/v1/forms.js';

interface Making {
  /** Schemas by their names in `$ref`. */
  forms: Readonly<Record<string, JsonSchema>>;
  /** Preferred values of properties by name, such as values that exist in the database. */
  favourites?: Readonly<Record<string, Arbitrary<unknown>>>;
}

/**
 * Returns a fast-check arbitrary for the values of a schema.
 * @throws Error for an unknown type
 */
export function valuesOf(schema: JsonSchema, making: Making): Arbitrary<unknown> {
  const { $ref, oneOf, enum: values, type } = schema;
  const name = $ref?.split('/').at(-1);
  if (name !== undefined) return valuesOf(making.forms[name] ?? {}, making);
  if (oneOf) return fc.oneof(...oneOf.map((each) => valuesOf(each, making)));
  if (values) return fc.constantFrom(...values);
  const types: string[] = typeof type === 'string' ? [type] : [...(type ?? [])];
  return fc.oneof(...types.map((each) => ofType(each, schema, making)));
}

function ofType(type: string, schema: JsonSchema, making: Making): Arbitrary<unknown> {
  const { minimum = 0, maximum = 2 ** 31 - 1, items = {}, minItems: minLength = 0, maxItems: maxLength = 4 } = schema;
  if (type === 'null') return fc.constant(null);
  if (type === 'string') return textsOf(schema);
  if (type === 'integer') return fc.integer({ min: minimum, max: maximum });
  if (type === 'array' && maxLength === 0) return fc.constant([]);
  if (type === 'array') return fc.array(valuesOf(items as JsonSchema, making), { minLength, maxLength });
  if (type === 'object') return objectsOf(schema, making);
  throw new Error(`unknown type ${type}`);
}

function textsOf({ pattern, minLength = 0, maxLength = 2048 }: JsonSchema): Arbitrary<string> {
  const texts =
    pattern === undefined
      ? fc.string({ unit: 'grapheme', minLength })
      : fc.stringMatching(new RegExp(pattern, 'u'), { maxLength: Math.min(maxLength, 40) });
  return texts.filter((text) => text.isWellFormed() && text.length >= minLength);
}

function objectsOf({ properties = {}, required = [] }: JsonSchema, making: Making): Arbitrary<object> {
  const entries = Object.entries(properties).map(([name, schema]): [string, Arbitrary<unknown>] => {
    const favourite = making.favourites?.[name];
    const values = valuesOf(schema as JsonSchema, making);
    return [name, favourite ? fc.oneof({ arbitrary: favourite, weight: 9 }, values) : values];
  });
  return fc.record(Object.fromEntries(entries), { requiredKeys: [...required] });
}
