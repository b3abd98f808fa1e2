/** Values for the arguments of a schema, by their types, and by what their names say. */
import fc, { type Arbitrary } from 'fast-check';
import {
  type GraphQLInputObjectType,
  type GraphQLInputType,
  isEnumType,
  isInputObjectType,
  isListType,
  isNonNullType,
} from 'graphql';
import { users, volumes } from './archive.js';
import {
  address,
  choose,
  cursorMark,
  diskMark,
  eventMark,
  label,
  nodeMark,
  oddNumber,
  oddText,
  path,
  pattern,
  pick,
  requestMark,
  thing,
  timeOf,
  user,
} from './texts.js';

/** A value before it is written: as a literal of GraphQL, or as JSON among the variables. */
export type Value =
  | { kind: 'text'; text: string }
  /** A number, or what is written without quotes in both. */
  | { kind: 'bare'; text: string }
  | { kind: 'enum'; text: string }
  | { kind: 'list'; items: Value[] }
  | { kind: 'object'; fields: [name: string, value: Value][] };

const text = (from: Arbitrary<string>): Arbitrary<Value> => from.map((value) => ({ kind: 'text', text: value }));
const bare = (from: Arbitrary<string>): Arbitrary<Value> => from.map((value) => ({ kind: 'bare', text: value }));

const odd: Arbitrary<Value> = choose<Value>(
  [3, text(oddText)],
  [3, bare(oddNumber)],
  [2, bare(pick('null', 'true', 'false'))],
  [
    1,
    pick<Value>(
      { kind: 'enum', text: 'NOPE' },
      { kind: 'list', items: [] },
      { kind: 'object', fields: [['a', { kind: 'bare', text: '1' }]] },
    ),
  ],
);

const mail = text(address);
const days = text(timeOf('', 'Z', '+05:30'));
/** What a name means, wherever it stands. */
const byName: Record<string, Arbitrary<Value>> = {
  id: bare(requestMark),
  requestId: bare(requestMark),
  quota: text(user),
  user: text(user),
  path: text(path),
  paths: text(path),
  files: text(path),
  match: text(pattern),
  pattern: text(pattern),
  label: text(label),
  reason: text(label),
  name: text(thing),
  names: text(pick(...volumes, 'V00099')),
  from: text(pick(...volumes, 'V00099')),
  to: text(thing),
  medium: text(choose([6, pick('lto-8', 'lto-9', 'linear')], [1, oddText])),
  prefix: text(
    choose([4, pick('/data/ocean', '/data/ice/', '/data/Sky/y1', '/import', '/never')], [1, path], [1, pick('/')]),
  ),
  quotas: text(user),
  volume: text(thing),
  mountpoint: text(choose([8, diskMark], [1, path], [1, oddText])),
  email: mail,
  notes: text(label),
  note: text(label),
  weight: bare(choose([3, pick('1', '0.5', '20')], [1, oddNumber])),
  retention: days,
  notifyOnFirstFile: mail,
  notifyOnLastFile: mail,
  first: bare(choose([8, pick('0', '1', '2', '5', '20')], [1, pick('1000', '1001', '-1', '2147483647')])),
  last: bare(choose([8, pick('1', '2', '5')], [1, pick('1000', '-1')])),
};

const byType: Record<string, Arbitrary<Value>> = {
  Int: bare(choose([4, fc.integer({ min: -5, max: 1005 }).map(String)], [1, oddNumber])),
  Float: bare(choose([3, fc.double().map(String)], [1, oddNumber])),
  Boolean: bare(pick('true', 'false')),
  String: text(oddText),
  ID: text(
    choose([6, nodeMark], [1, oddText], [1, pick('UmVxdWVzdDow', 'VGFwZUZpbGU6OTk5OTk5', 'WDox', 'UmVxdWVzdDox')]),
  ),
  BigInt: choose([3, bare(fc.nat(5000).map(String))], [1, bare(oddNumber)], [1, text(oddNumber)], [1, text(eventMark)]),
  DateTime: days,
};

/** A value for an argument or a field of this name and type; one time in many of another type. */
export function anyValue(name: string, type: GraphQLInputType): Arbitrary<Value> {
  return choose([60, honestValue(name, type)], [1, odd]);
}

function honestValue(name: string, type: GraphQLInputType): Arbitrary<Value> {
  if (isNonNullType(type)) return honestValue(name, type.ofType);
  if (isListType(type)) {
    const items = fc.array(anyValue(name, type.ofType), { maxLength: 4 });
    return items.map((list): Value => ({ kind: 'list', items: list }));
  }
  if (isEnumType(type)) return pick(...type.getValues().map((value): Value => ({ kind: 'enum', text: value.name })));
  if (isInputObjectType(type)) return objectOf(type);
  const isPlace = (name === 'after' || name === 'before') && type.name === 'String';
  if (isPlace) return text(choose([6, cursorMark], [1, oddText]));
  if (name === 'id' && type.name === 'ID') return byType.ID ?? odd;
  if (name === 'after') return byType.BigInt ?? odd;
  return byName[name] ?? byType[type.name] ?? odd;
}

/** What is asked for, some of the rest, and at times all of it, or something that there is not. */
function objectOf(type: GraphQLInputObjectType): Arbitrary<Value> {
  const fields = Object.values(type.getFields()).map((field) =>
    fc
      .tuple(anyValue(field.name, field.type), fc.nat(99))
      .map(([value, chance]): [string, Value][] =>
        chance < (isNonNullType(field.type) ? 97 : 35) ? [[field.name, value]] : [],
      ),
  );
  const fitting = choose([4, fc.nat(999)], [1, fc.constant(undefined)]);
  const strange = choose<[string, Value][]>([30, fc.constant([])], [1, odd.map((value) => [['nope', value]])]);
  return fc
    .tuple(fc.tuple(...fields), strange, fitting)
    .map(([given, more, n]): Value => ({ kind: 'object', fields: [...fit(given.flat(), n), ...more] }));
}

const NAMES: Record<string, readonly string[]> = {
  VOLUME: volumes,
  DRIVE: ['drive-1', 'drive-2'],
  DISK: ['~m0~', '~m1~'],
  BACKEND: ['memory', 'directory'],
  USER: users.map(({ user: name }) => name),
  GROUP: ['group'],
  EVERYBODY: [],
};

/** A name that what is named may have, by its kind. @param n which of them; undefined: it stays as it is */
function fit(fields: [string, Value][], n: number | undefined): [string, Value][] {
  const kind = fields.find(([name]) => name === 'kind')?.[1];
  const names = kind?.kind === 'enum' ? NAMES[kind.text] : undefined;
  if (n === undefined || !names) return fields;
  const others = fields.filter(([name]) => name !== 'name');
  const text = names[n % names.length];
  return text === undefined ? others : [...others, ['name', { kind: 'text', text }]];
}

export function toLiteral(value: Value): string {
  switch (value.kind) {
    case 'text':
      return JSON.stringify(value.text);
    case 'list':
      return `[${value.items.map(toLiteral).join(', ')}]`;
    case 'object':
      return `{${value.fields.map(([name, field]) => `${name}: ${toLiteral(field)}`).join(', ')}}`;
    default:
      return value.text;
  }
}

export function toJson(value: Value): string {
  switch (value.kind) {
    case 'text':
    case 'enum':
      return JSON.stringify(value.text);
    case 'list':
      return `[${value.items.map(toJson).join(',')}]`;
    case 'object':
      return `{${value.fields.map(([name, field]) => `${JSON.stringify(name)}:${toJson(field)}`).join(',')}}`;
    case 'bare':
      return toJsonNumber(value.text);
  }
}

/** A mark stands between quotes, which go when it is filled in; a double may be none that JSON has. */
function toJsonNumber(value: string): string {
  if (value.startsWith('~')) return `"${value}"`;
  return /^(-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null)$/.test(value) ? value : JSON.stringify(value);
}
