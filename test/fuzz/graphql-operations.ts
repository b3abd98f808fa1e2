/** Operations, generated from the schema: its fields, arguments and types, whatever they are by now. */
import fc, { type Arbitrary } from 'fast-check';
import {
  type GraphQLField,
  type GraphQLNamedType,
  getNamedType,
  isAbstractType,
  isCompositeType,
  isInterfaceType,
  isNonNullType,
  isObjectType,
  SchemaMetaFieldDef,
  TypeMetaFieldDef,
} from 'graphql';
import { schema } from '../../graphql/schema.js';
import { anyValue, toJson, toLiteral, type Value } from './graphql-values.js';
import { choose, pick } from './texts.js';

export interface Operation {
  kind: 'query' | 'mutation' | 'subscription';
  query: string;
  /** JSON text. */
  variables: string;
}

interface Argument {
  name: string;
  type: string;
  value: Value;
  isVariable: boolean;
}

/** A part of a selection, before it is written. */
type Selection =
  | {
      kind: 'field';
      name: string;
      alias: 'own' | 'none' | string;
      args: Argument[];
      directive: string;
      below: Selection[] | null;
    }
  | { kind: 'fragment'; on: string | undefined; isNamed: boolean; below: Selection[] };

/** How deep selections go; the gateway's own bound is twelve. */
const DEPTH = 5;
const TYPENAME: Selection = { kind: 'field', name: '__typename', alias: 'none', args: [], directive: '', below: null };

const made = new Map<string, Arbitrary<Selection[]>>();

/** Some fields of a type. */
function selectionOf(type: GraphQLNamedType, depth: number): Arbitrary<Selection[]> {
  const key = `${type.name} ${depth}`;
  const known = made.get(key);
  if (known) return known;
  const fresh = fc.array(partOf(type, depth), { minLength: 1, maxLength: depth > 3 ? 4 : 3 });
  made.set(key, fresh);
  return fresh;
}

function partOf(type: GraphQLNamedType, depth: number): Arbitrary<Selection> {
  const fields = isObjectType(type) || isInterfaceType(type) ? Object.values(type.getFields()) : [];
  const possible = fields.filter((field) => depth > 0 || !isCompositeType(getNamedType(field.type)));
  const parts: (readonly [number, Arbitrary<Selection>])[] = [[1, fc.constant(TYPENAME)]];
  if (possible.length > 0) parts.push([12, fc.oneof(...possible.map((field) => fieldOf(field, depth)))]);
  if (depth > 0) {
    const types = isAbstractType(type) ? schema.getPossibleTypes(type) : [];
    const on = types.length > 0 ? types : [type];
    parts.push([types.length > 0 ? 10 : 1, fc.oneof(...on.map((each) => fragmentOn(each, depth - 1)))]);
  }
  return choose(...parts);
}

function fragmentOn(type: GraphQLNamedType, depth: number): Arbitrary<Selection> {
  return fc.tuple(selectionOf(type, depth), fc.nat(9)).map(
    ([below, form]): Selection => ({
      kind: 'fragment',
      on: form === 0 ? undefined : type.name,
      isNamed: form > 7,
      below,
    }),
  );
}

const directive = choose(
  [20, pick('')],
  [1, pick(' @include(if: true)', ' @skip(if: true)', ' @skip(if: false)', ' @nope', ' @include')],
);
const alias = choose([8, pick('own')], [4, pick('none')], [1, pick('same', '__odd', 'x'.repeat(200))]);

function fieldOf(field: GraphQLField<unknown, unknown>, depth: number): Arbitrary<Selection> {
  const args = field.args.map((arg) =>
    fc.tuple(anyValue(arg.name, arg.type), fc.nat(99), fc.boolean()).map(([value, chance, isVariable]): Argument[] => {
      const isGiven = chance < (isNonNullType(arg.type) ? 98 : 30);
      return isGiven ? [{ name: arg.name, type: String(arg.type), value, isVariable }] : [];
    }),
  );
  const type = getNamedType(field.type);
  const below: Arbitrary<Selection[] | null> = isCompositeType(type)
    ? fc.constant(null).chain(() => selectionOf(type, depth - 1)) // made when it is needed: types lead to each other
    : fc.constant(null);
  return fc.tuple(fc.tuple(...args), below, alias, directive).map(
    ([given, selected, name, said]): Selection => ({
      kind: 'field',
      name: field.name,
      alias: name,
      args: given.flat(),
      directive: said,
      below: selected,
    }),
  );
}

/** Writes selections as text, with the variables and the fragments that they name. */
class Writer {
  readonly variables: { name: string; type: string; value: Value }[] = [];
  readonly fragments: string[] = [];
  private aliases = 0;

  write(selections: readonly Selection[]): string {
    return `{ ${selections.map((each) => this.writeOne(each)).join(' ')} }`;
  }

  private writeOne(selection: Selection): string {
    if (selection.kind === 'field') return this.writeField(selection);
    const below = this.write(selection.below);
    if (selection.on === undefined) return `... ${below}`;
    if (!selection.isNamed) return `... on ${selection.on} ${below}`;
    const name = `F${this.fragments.length}`;
    this.fragments.push(`fragment ${name} on ${selection.on} ${below}`);
    return `...${name}`;
  }

  private writeField(field: Selection & { kind: 'field' }): string {
    const args = field.args.map(({ name, type, value, isVariable }) => {
      if (!isVariable) return `${name}: ${toLiteral(value)}`;
      const variable = `v${this.variables.length}`;
      this.variables.push({ name: variable, type, value });
      return `${name}: $${variable}`;
    });
    const isAliased = field.alias !== 'none' && (field.alias !== 'own' || field.args.length > 0);
    const name = field.alias === 'own' ? `a${this.aliases++}` : field.alias;
    const given = args.length > 0 ? `(${args.join(', ')})` : '';
    const below = field.below ? ` ${this.write(field.below)}` : '';
    return `${isAliased ? `${name}: ` : ''}${field.name}${given}${field.directive}${below}`;
  }
}

function writeOperation(kind: Operation['kind'], selections: readonly Selection[]): Operation {
  const writer = new Writer();
  const body = writer.write(selections);
  const named = writer.variables.map(({ name, type }) => `$${name}: ${type}`).join(', ');
  return {
    kind,
    query: [`${kind}${named ? ` Q(${named})` : ''} ${body}`, ...writer.fragments].join('\n'),
    variables: `{${writer.variables.map(({ name, value }) => `"${name}":${toJson(value)}`).join(',')}}`,
  };
}

/** A root field comes as often as another one, however many there are; of subscriptions there is one, as the standard has it. */
function operationOf(
  kind: Operation['kind'],
  most: number,
  more: GraphQLField<unknown, unknown>[] = [],
): Arbitrary<Operation> {
  const root = {
    query: schema.getQueryType(),
    mutation: schema.getMutationType(),
    subscription: schema.getSubscriptionType(),
  }[kind];
  const fields = [...Object.values(root?.getFields() ?? {}), ...more].map((field) => fieldOf(field, DEPTH));
  const one = choose<Selection>([60, fc.oneof(...fields)], [1, fc.constant(TYPENAME)]);
  return fc.array(one, { minLength: 1, maxLength: most }).map((selections) => writeOperation(kind, selections));
}

const makes: Arbitrary<Operation> = fieldOf(fieldNamed('createRequest'), 2).map((field) =>
  writeOperation('mutation', [field]),
);

function fieldNamed(name: string): GraphQLField<unknown, unknown> {
  const field = schema.getMutationType()?.getFields()[name];
  if (!field) throw new Error(`the schema has no mutation ${name}`);
  return field;
}

/** Text that is nearly an operation, or far from one. */
const broken: Arbitrary<Operation> = fc
  .tuple(
    operationOf('query', 2),
    fc.nat(300),
    pick('{', '}', '"', '"""', '$', '...', '@', '#', '\0', '\uFEFF', '{a'.repeat(300), 'é'),
    fc.boolean(),
  )
  .map(([operation, at, odd, isCut]) => ({
    ...operation,
    query: operation.query.slice(0, at) + odd + (isCut ? '' : operation.query.slice(at)),
  }));

/** What the size, the depth and the cost of operations are limited for. */
const heavy: Arbitrary<Operation> = fc.tuple(fc.integer({ min: 1, max: 400 }), fc.nat(4)).map(([count, form]) => {
  const queries = [
    `{ ${Array.from({ length: count }, (_, n) => `a${n}: __typename`).join(' ')} }`,
    `{ requests(first: ${count}) { edges { node { holds(first: ${count}) { edges { node { state } } } } } } }`,
    `${'{ node(id: "x") '.repeat(1)}{ ${'... on Node { '.repeat(count)}id${' }'.repeat(count)} } }`,
    `{ ${Array.from({ length: count % 60 }, (_, n) => `a${n}: tapeFiles(match: "f0") { totalCount }`).join(' ')} __typename }`,
    `{ ...A } fragment A on Query { ...B } fragment B on Query { ${count % 2 ? '...A' : '__typename'} }`,
  ];
  return { kind: 'query', query: queries[form] ?? '', variables: '{}' };
});

export const operation: Arbitrary<Operation> = choose(
  [12, operationOf('query', 3, [SchemaMetaFieldDef, TypeMetaFieldDef])],
  [6, operationOf('mutation', 2)],
  [5, makes],
  [2, operationOf('subscription', 1)],
  [1, broken],
  [1, heavy],
);

export const subscription: Arbitrary<Operation> = choose(
  [8, operationOf('subscription', 1)],
  [1, operationOf('query', 1)],
  [1, operationOf('mutation', 1)],
);
