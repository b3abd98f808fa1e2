/** GraphQL operations that are generated from the schema. New fields, arguments and types are covered automatically. */
import fc, { type Arbitrary, type GeneratorValue } from 'fast-check';
import {
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLNamedType,
  getNamedType,
  isAbstractType,
  isCompositeType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isListType,
  isNonNullType,
  isObjectType,
  SchemaMetaFieldDef,
  TypeMetaFieldDef,
} from 'graphql';
import { schema } from '../../graphql/schema/schema.js';
import { users, volumes } from './archive.js';
import {
  address,
  choose,
  cursorMark,
  diskMark,
  eventMark,
  filePath,
  label,
  nodeMark,
  oddNumber,
  oddText,
  pattern,
  pick,
  requestMark,
  thing,
  timeOf,
  user,
} from './values.js';

export interface Operation {
  query: string;
  /** Variables as JSON text. */
  variables: string;
}

/** A value as a GraphQL literal and as JSON. */
interface Value {
  literal: string;
  json: string;
}

const textOf = (text: string): Value => ({ literal: JSON.stringify(text), json: JSON.stringify(text) });
const enumOf = (name: string): Value => ({ literal: name, json: JSON.stringify(name) });
const text = (texts: Arbitrary<string>): Arbitrary<Value> => texts.map(textOf);
const NUMBER = /^(-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null)$/;
/** Numbers, enum values and other literals without quotes. In JSON, a mark is in quotes until it is replaced. */
const bare = (texts: Arbitrary<string>): Arbitrary<Value> =>
  texts.map((literal) => ({ literal, json: NUMBER.test(literal) ? literal : JSON.stringify(literal) }));

const oddValue: Arbitrary<Value> = choose<Value>(
  [3, text(oddText)],
  [3, bare(oddNumber)],
  [2, bare(pick('null', 'true', 'false'))],
  [1, pick(enumOf('NOPE'), { literal: '[]', json: '[]' }, { literal: '{a: 1}', json: '{"a":1}' })],
);

const labels = text(label);
const names = text(thing);
const quotas = text(user);
const paths = text(filePath);
const patterns = text(pattern);
const email = text(address);
const times = text(timeOf('', 'Z', '+05:30'));
const ids = bare(requestMark);
const volumeNames = text(pick(...volumes, 'V00099'));
/** Values of any type by the name of an argument or field. */
const byName: Record<string, Arbitrary<Value>> = {
  ...{
    id: ids,
    requestId: ids,
    tokenId: ids,
    webhookId: ids,
    quota: quotas,
    user: quotas,
    quotas,
    path: paths,
    paths,
    files: paths,
  },
  ...{ match: patterns, pattern: patterns, label: labels, reason: labels, notes: labels, note: labels },
  ...{ name: names, to: names, volume: names, names: volumeNames, from: volumeNames },
  ...{ email, notifyOnFirstFile: email, notifyOnLastFile: email, retention: times },
  prefix: text(
    choose([4, ['/data/ocean', '/data/ice/', '/data/Sky/y1', '/import', '/never']], [1, filePath], [1, ['/']]),
  ),
  mountpoint: text(choose([8, diskMark], [1, filePath], [1, oddText])),
  weight: bare(choose([3, ['1', '0.5', '20']], [1, oddNumber])),
  first: bare(choose([8, ['0', '1', '2', '5', '20']], [1, ['1000', '1001', '-1', '2147483647']])),
  last: bare(choose([8, ['1', '2', '5']], [1, ['1000', '-1']])),
};

const byType: Record<string, Arbitrary<Value>> = {
  Int: bare(choose([4, fc.integer({ min: -5, max: 1005 }).map(String)], [1, oddNumber])),
  Float: bare(choose([3, fc.double().map(String)], [1, oddNumber])),
  Boolean: bare(pick('true', 'false')),
  String: text(oddText),
  ID: text(choose([6, nodeMark], [1, oddText], [1, ['UmVxdWVzdDow', 'VGFwZUZpbGU6OTk5OTk5', 'WDox', 'UmVxdWVzdDox']])),
  BigInt: choose([3, bare(fc.nat(5000).map(String))], [1, bare(oddNumber)], [1, text(oddNumber)], [1, text(eventMark)]),
  DateTime: times,
};
const cursors = text(choose([6, cursorMark], [1, oddText]));

/** Names of existing objects, by `kind`. */
const NAMES: Record<string, readonly string[]> = {
  VOLUME: volumes,
  DRIVE: ['drive-1', 'drive-2'],
  DISK: ['~m0~', '~m1~'],
  LIBRARY: ['directory'],
  USER: users.map(({ user: name }) => name),
  GROUP: ['group'],
  EVERYBODY: [],
};

const directive = choose(
  [20, ['']],
  [1, [' @include(if: true)', ' @skip(if: true)', ' @skip(if: false)', ' @nope', ' @include']],
);
const alias = choose([8, ['own']], [4, ['none']], [1, pick('same', '__odd', 'x'.repeat(200))]);

/** Maximum depth of generated selections. The gateway's limit is 12. */
const DEPTH = 5;

type Field = GraphQLField<unknown, unknown>;
const same = <T>(arbitrary: Arbitrary<T>): Arbitrary<T> => arbitrary;

/** Writes one operation, and draws values while writing. */
class Writer {
  private readonly g: GeneratorValue;
  private readonly variables: { name: string; type: string; json: string }[] = [];
  private readonly fragments: string[] = [];
  private aliases = 0;

  constructor(g: GeneratorValue) {
    this.g = g;
  }

  finish(kind: string, selections: string): Operation {
    const named = this.variables.map(({ name, type }) => `$${name}: ${type}`).join(', ');
    return {
      query: [`${kind}${named ? ` Q(${named})` : ''} ${selections}`, ...this.fragments].join('\n'),
      variables: `{${this.variables.map(({ name, json }) => `"${name}":${json}`).join(',')}}`,
    };
  }

  /** Returns true in `percent` % of draws. Draws shrink to zero, which is false. */
  private chance(percent: number): boolean {
    return this.g(fc.nat, 99) >= 100 - percent;
  }

  private one<T>(items: readonly T[]): T {
    return items[this.g(fc.nat, items.length - 1)] as T;
  }

  repeat(most: number, write: () => string): string {
    const parts = Array.from({ length: 1 + this.g(fc.nat, most - 1) }, write);
    return `{ ${parts.join(' ')} }`;
  }

  root(fields: readonly Field[]): string {
    return this.chance(98) ? this.field(this.one(fields), DEPTH) : '__typename';
  }

  private select(type: GraphQLNamedType, depth: number): string {
    return this.repeat(depth > 3 ? 4 : 3, () => this.part(type, depth));
  }

  private part(type: GraphQLNamedType, depth: number): string {
    const all = isObjectType(type) || isInterfaceType(type) ? Object.values(type.getFields()) : [];
    const fields = all.filter((field) => depth > 0 || !isCompositeType(getNamedType(field.type)));
    const isAbstract = isAbstractType(type);
    const [fieldWeight, fragmentWeight] = [fields.length > 0 ? 12 : 0, depth > 0 ? (isAbstract ? 10 : 1) : 0];
    const drawn = this.g(fc.nat, fieldWeight + fragmentWeight);
    if (drawn === 0) return '__typename';
    if (drawn <= fieldWeight) return this.field(this.one(fields), depth);
    return this.fragment(isAbstract ? this.one(schema.getPossibleTypes(type)) : type, depth - 1);
  }

  private fragment(type: GraphQLNamedType, depth: number): string {
    const form = this.g(fc.nat, 9);
    const below = this.select(type, depth);
    if (form === 0) return `... ${below}`;
    if (form <= 7) return `... on ${type} ${below}`;
    const name = `F${this.fragments.length}`;
    this.fragments.push(`fragment ${name} on ${type} ${below}`);
    return `...${name}`;
  }

  field({ name, args, type }: Field, depth: number): string {
    const given = args.flatMap((arg) => {
      if (!this.chance(isNonNullType(arg.type) ? 98 : 30)) return [];
      const { literal, json } = this.value(arg.name, arg.type);
      if (!this.g(fc.boolean)) return [`${arg.name}: ${literal}`];
      const variable = `v${this.variables.length}`;
      this.variables.push({ name: variable, type: String(arg.type), json });
      return [`${arg.name}: $${variable}`];
    });
    const as = this.g(same, alias);
    const isAliased = as !== 'none' && (as !== 'own' || given.length > 0);
    const prefix = isAliased ? `${as === 'own' ? `a${this.aliases++}` : as}: ` : '';
    const named = getNamedType(type);
    const below = isCompositeType(named) ? ` ${this.select(named, depth - 1)}` : '';
    return `${prefix}${name}${given.length > 0 ? `(${given.join(', ')})` : ''}${this.g(same, directive)}${below}`;
  }

  /** Returns a value of this type, or sometimes of another type. */
  private value(name: string, type: GraphQLInputType): Value {
    if (this.g(fc.nat, 60) === 60) return this.g(same, oddValue);
    if (isNonNullType(type)) return this.value(name, type.ofType);
    if (isListType(type)) {
      const items = Array.from({ length: this.g(fc.nat, 4) }, () => this.value(name, type.ofType));
      return { literal: `[${items.map(({ literal }) => literal)}]`, json: `[${items.map(({ json }) => json)}]` };
    }
    if (isEnumType(type)) return enumOf(this.one(type.getValues()).name);
    if (isInputObjectType(type)) {
      const fields = Object.values(type.getFields()).flatMap((field): [string, Value][] =>
        this.chance(isNonNullType(field.type) ? 97 : 35) ? [[field.name, this.value(field.name, field.type)]] : [],
      );
      if (this.g(fc.nat, 30) === 30) fields.push(['nope', this.g(same, oddValue)]);
      return toObject(this.fit(fields));
    }
    if (name === 'after' || name === 'before')
      return this.g(same, (type.name === 'String' ? cursors : byType.BigInt) ?? oddValue);
    if (name === 'id' && type.name === 'ID') return this.g(same, byType.ID ?? oddValue);
    return this.g(same, byName[name] ?? byType[type.name] ?? oddValue);
  }

  /** Replaces the name in an input with `kind`: 80 % of the inputs get the name of an existing object. */
  private fit(fields: [string, Value][]): [string, Value][] {
    const kind = fields.find(([name]) => name === 'kind')?.[1].literal;
    const known = NAMES[kind ?? ''];
    if (!known || !this.chance(80)) return fields;
    const others = fields.filter(([name]) => name !== 'name');
    return known.length === 0 ? others : [...others, ['name', textOf(this.one(known))]];
  }
}

function toObject(fields: readonly [string, Value][]): Value {
  const literals = fields.map(([name, { literal }]) => `${name}: ${literal}`);
  return { literal: `{${literals.join(', ')}}`, json: `{${fields.map(([name, { json }]) => `"${name}":${json}`)}}` };
}

/**
 * Returns operations of a kind with up to `most` root fields of equal probability.
 * A subscription has one root field, as the GraphQL specification requires.
 */
function operationOf(
  kind: 'query' | 'mutation' | 'subscription',
  most: number,
  more: Field[] = [],
): Arbitrary<Operation> {
  const roots = {
    query: schema.getQueryType(),
    mutation: schema.getMutationType(),
    subscription: schema.getSubscriptionType(),
  };
  const fields = [...Object.values(roots[kind]?.getFields() ?? {}), ...more];
  return fc.gen().map((g) => {
    const writer = new Writer(g);
    return writer.finish(
      kind,
      writer.repeat(most, () => writer.root(fields)),
    );
  });
}

const createRequest: Arbitrary<Operation> = fc.gen().map((g) => {
  const writer = new Writer(g);
  const field = schema.getMutationType()?.getFields().createRequest as Field;
  return writer.finish('mutation', `{ ${writer.field(field, 2)} }`);
});

/** Invalid operations: valid text with an odd part, or random text. */
const broken: Arbitrary<Operation> = fc
  .record({
    operation: operationOf('query', 2),
    at: fc.nat(300),
    odd: pick('{', '}', '"', '"""', '$', '...', '@', '#', '\0', '\uFEFF', '{a'.repeat(300), 'é'),
    isCut: fc.boolean(),
  })
  .map(({ operation: { query, variables }, at, odd, isCut }) => ({
    query: query.slice(0, at) + odd + (isCut ? '' : query.slice(at)),
    variables,
  }));

/** Operations near the limits of size, depth and cost. */
const heavy: Arbitrary<Operation> = fc.tuple(fc.integer({ min: 1, max: 400 }), fc.nat(4)).map(([count, form]) => {
  const repeat = (times: number, field: string) => Array.from({ length: times }, (_, n) => `a${n}: ${field}`).join(' ');
  const queries = [
    `{ ${repeat(count, '__typename')} }`,
    `{ requests(first: ${count}) { edges { node { files(first: ${count}) { edges { node { state } } } } } } }`,
    `{ node(id: "x") { ${'... on Node { '.repeat(count)}id${' }'.repeat(count)} } }`,
    `{ ${repeat(count % 60, 'tapeFiles(match: "f0") { totalCount }')} __typename }`,
    `{ ...A } fragment A on Query { ...B } fragment B on Query { ${count % 2 ? '...A' : '__typename'} }`,
  ];
  return { query: queries[form] ?? '', variables: '{}' };
});

export const operation: Arbitrary<Operation> = choose(
  [12, operationOf('query', 3, [SchemaMetaFieldDef, TypeMetaFieldDef])],
  [6, operationOf('mutation', 2)],
  [5, createRequest],
  [2, operationOf('subscription', 1)],
  [1, broken],
  [1, heavy],
);

export const subscription: Arbitrary<Operation> = choose(
  [8, operationOf('subscription', 1)],
  [1, operationOf('query', 1)],
  [1, operationOf('mutation', 1)],
);
