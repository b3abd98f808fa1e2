import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  buildClientSchema,
  buildSchema,
  findBreakingChanges,
  type GraphQLSchema,
  getIntrospectionQuery,
  getNamedType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isIntrospectionType,
  isObjectType,
  isScalarType,
  isSpecifiedScalarType,
  isUnionType,
} from 'graphql';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { printSorted } from '../../graphql/printed.js';
import { integerFields } from '../../src/commands/answers.js';
import { packageRoot } from '../../src/package-root.js';
import { startApp, type TestApp } from '../support/app.js';
import { askData } from '../support/graphql.js';

let app: TestApp;
let schema: GraphQLSchema;

beforeAll(async () => {
  app = await startApp();
  schema = buildClientSchema(await askData(app, getIntrospectionQuery({ specifiedByUrl: true })));
});
afterAll(() => app.close());

test('graphql/schema.graphql is the schema that is served; npm run schema prints it', () => {
  expect(readFileSync(path.join(packageRoot, 'graphql/schema.graphql'), 'utf8')).toBe(printSorted(schema));
});

/** What everything in the schema is for, as text; what says nothing has an empty one. */
function* describeAll(): Generator<[name: string, description: string]> {
  for (const type of Object.values(schema.getTypeMap())) {
    if (isIntrospectionType(type) || isSpecifiedScalarType(type)) continue;
    // the members of a result say what there is to be said
    if (!isUnionType(type)) yield [type.name, type.description ?? ''];
    if (isEnumType(type)) {
      for (const value of type.getValues()) yield [`${type.name}.${value.name}`, value.description ?? ''];
    }
    if (!isObjectType(type) && !isInterfaceType(type) && !isInputObjectType(type)) continue;
    for (const field of Object.values(type.getFields())) {
      yield [`${type.name}.${field.name}`, field.description ?? ''];
      if (!('args' in field)) continue;
      for (const arg of field.args) yield [`${type.name}.${field.name}(${arg.name}:)`, arg.description ?? ''];
    }
  }
}

test('each type, field, argument and value says what it is for', () => {
  const all = [...describeAll()];
  expect(all.length).toBeGreaterThan(400);
  expect(all.filter(([, description]) => !/^\S.*[.:]$/s.test(description)).map(([name]) => name)).toEqual([]);
});

test('each scalar of our own says where it is specified', () => {
  const scalars = Object.values(schema.getTypeMap()).filter(
    (type) => isScalarType(type) && !isSpecifiedScalarType(type),
  );
  expect(scalars.map(String)).toEqual(['BigInt', 'DateTime']);
  expect(scalars.every((type) => isScalarType(type) && URL.canParse(type.specifiedByURL ?? ''))).toBe(true);
});

test('a noun has one connection type, and one edge type', () => {
  const nodes = Object.values(schema.getTypeMap()).flatMap((type) => {
    const node = isObjectType(type) && type.name.endsWith('Edge') ? type.getFields().node : undefined;
    return node ? [String(getNamedType(node.type))] : [];
  });
  expect(nodes.length).toBeGreaterThan(10);
  expect(nodes.filter((name, n) => nodes.indexOf(name) !== n)).toEqual([]);
});

/**
 * What breaks clients of the last release, and must: `graphql/schema.released.graphql` is its schema. A release takes the
 * present schema there, and empties this list.
 */
const BREAKING = [
  'AwaitedPath.reason changed type from String! to AwaitedReason!.',
  'InvalidInput.code changed type from String! to FailureCode!.',
  'Failure.code changed type from String! to FailureCode!.',
  'NotFound.code changed type from String! to FailureCode!.',
  'Quota.requests changed type from QuotaRequestsConnection! to QueryRequestsConnection!.',
  'QuotaExceeded.code changed type from String! to FailureCode!.',
  'QuotaRequestsConnection was removed.',
  'QuotaRequestsConnectionEdge was removed.',
  'UnknownUser.code changed type from String! to FailureCode!.',
  'WrongQuota.code changed type from String! to FailureCode!.',
];

test('what breaks clients of the last release is listed, and nothing else does', () => {
  const released = buildSchema(readFileSync(path.join(packageRoot, 'graphql/schema.released.graphql'), 'utf8'));
  const changes = findBreakingChanges(released, schema).map(({ description }) => description);
  expect(changes.sort()).toEqual([...BREAKING].sort());
});

test('the commands know each field that is a BigInt, and no other field has its name', () => {
  const types = Object.values(schema.getTypeMap()).filter((type) => isObjectType(type) || isInterfaceType(type));
  const fields = types.flatMap((type) => Object.values(type.getFields()));
  const isInteger = (field: (typeof fields)[number]) => getNamedType(field.type).name === 'BigInt';
  expect(new Set(fields.filter(isInteger).map(({ name }) => name))).toEqual(integerFields);
  expect(fields.filter((field) => integerFields.has(field.name) && !isInteger(field))).toEqual([]);
});

/** What clients rely on: name and type of each field, and of its arguments. Others may be there beside them. */
const FIXED: Record<string, Record<string, string>> = {
  Query: {
    'request(id: Int!)': 'Request',
    'requests(quota: String, states: [RequestState!], first: Int, after: String, last: Int, before: String)':
      'QueryRequestsConnection!',
    'tapeFile(path: String!)': 'TapeFile',
    'tapeFiles(match: String, stages: [Stage!], first: Int, after: String, last: Int, before: String)':
      'QueryTapeFilesConnection!',
    'quota(user: String!)': 'Quota',
    'node(id: ID!)': 'Node',
  },
  Mutation: {
    'createRequest(input: CreateRequestInput!)': 'CreateRequestResult!',
    'updateRequest(input: UpdateRequestInput!)': 'UpdateRequestResult!',
    'cancelRequest(id: Int!)': 'CancelRequestResult!',
  },
  Subscription: {
    'requestProgress(id: Int!, after: BigInt)': 'RequestProgress!',
    'stageChanges(requestId: Int, match: String, after: BigInt)': 'StageChange!',
  },
  RequestProgress: {
    state: 'RequestState!',
    filesTotal: 'Int!',
    filesOnDisk: 'Int!',
    filesFailed: 'Int!',
    bytesTotal: 'BigInt!',
    bytesOnDisk: 'BigInt!',
    eta: 'DateTime',
    eventId: 'BigInt!',
  },
  StageChange: { path: 'String!', from: 'Stage', to: 'Stage!', at: 'DateTime!', eventId: 'BigInt!' },
  QueryRequestsConnection: { totalCount: 'Int!', edges: '[QueryRequestsConnectionEdge!]!', pageInfo: 'PageInfo!' },
  QueryTapeFilesConnection: { totalCount: 'Int!', edges: '[QueryTapeFilesConnectionEdge!]!', pageInfo: 'PageInfo!' },
  Request: { id: 'ID!', requestId: 'Int!', quota: 'Quota!', state: 'RequestState!', retention: 'DateTime!' },
  TapeFile: { id: 'ID!', path: 'String!', size: 'BigInt!', stage: 'Stage!', verified: 'DateTime' },
  Quota: { id: 'ID!', user: 'String!', size: 'BigInt!', used: 'BigInt!' },
  InvalidInput: { message: 'String!', field: 'String!' },
  UnknownUser: { message: 'String!', user: 'String!' },
  QuotaExceeded: { message: 'String!', user: 'String!', size: 'BigInt!', used: 'BigInt!', requested: 'BigInt!' },
  NotFound: { message: 'String!' },
};

describe.each(Object.entries(FIXED))('%s', (typeName, fields) => {
  test.each(Object.entries(fields))('has %s: %s', (signature, type) => {
    const [, name = '', args = ''] = /^(\w+)(?:\((.*)\))?$/.exec(signature) ?? [];
    const object = schema.getType(typeName);
    const field = isObjectType(object) ? object.getFields()[name] : undefined;
    expect(String(field?.type)).toBe(type);
    const has = field?.args.map((arg) => `${arg.name}: ${arg.type}`);
    expect(has).toEqual(expect.arrayContaining(args === '' ? [] : args.split(', ')));
    // an argument that must be given would break those who do not know it
    expect(field?.args.filter((arg) => String(arg.type).endsWith('!') && !args.includes(`${arg.name}:`))).toEqual([]);
  });
});

test.each([
  ['CreateRequestInput', ['quota: String!', 'pattern: String', 'files: [String!]', 'retention: DateTime']],
  ['CreateRequestInput', ['label: String', 'notifyOnFirstFile: String', 'notifyOnLastFile: String']],
  ['UpdateRequestInput', ['id: Int!', 'quota: String', 'retention: DateTime', 'label: String']],
  ['UpdateRequestInput', ['notifyOnFirstFile: String', 'notifyOnLastFile: String']],
])('%s has %s', (typeName, expected) => {
  const type = schema.getType(typeName);
  const fields = type && 'getFields' in type ? Object.values(type.getFields()) : [];
  expect(fields.map((field) => `${field.name}: ${field.type}`)).toEqual(expect.arrayContaining(expected));
});

test.each([
  ['RequestState', 'QUEUED RESTORING COMPLETED PARTIAL EXPIRED CANCELLED'],
  ['Stage', 'UNVERIFIED ONDISK ONTAPE RESTORING RESTORED'],
])('%s has exactly the values %s', (typeName, values) => {
  const type = schema.getType(typeName);
  const names = type && 'getValues' in type ? type.getValues().map((value) => value.name) : [];
  expect(names.sort()).toEqual(values.split(' ').sort());
});

test.each([
  ['CreateRequestResult', ['Request', 'InvalidInput', 'UnknownUser', 'QuotaExceeded', 'LimitReached', 'Forbidden']],
  [
    'UpdateRequestResult',
    ['Request', 'InvalidInput', 'UnknownUser', 'QuotaExceeded', 'LimitReached', 'WrongQuota', 'NotFound', 'Forbidden'],
  ],
  ['CancelRequestResult', ['Request', 'NotFound', 'Forbidden']],
  ['SuspendResult', ['Suspension', 'InvalidInput', 'NotFound', 'Forbidden']],
  ['ResumeResult', ['Suspension', 'InvalidInput', 'NotFound', 'Forbidden']],
  ['CreateTokenResult', ['CreatedToken', 'InvalidInput', 'Forbidden']],
  ['RevokeTokenResult', ['Token', 'NotFound', 'Forbidden']],
  ['SetQuotaResult', ['Quota', 'InvalidInput', 'Forbidden']],
  ['RemoveQuotaResult', ['RemovedQuota', 'InvalidInput', 'UnknownUser', 'InUse', 'Forbidden']],
  ['SetVolumeResult', ['ChangedVolumes', 'InvalidInput', 'NotFound', 'Forbidden']],
  ['ResizeDiskResult', ['RestoreDisk', 'InvalidInput', 'NotFound', 'Forbidden']],
  ['RemoveDiskResult', ['RemovedDisk', 'InvalidInput', 'NotFound', 'InUse', 'Forbidden']],
  ['ForgetUserResult', ['ForgottenUser', 'InvalidInput', 'NotFound', 'InUse', 'Forbidden']],
  ['RepairFindingsResult', ['RepairedFindings', 'InvalidInput', 'Forbidden']],
  ['SetPriorityResult', ['Request', 'InvalidInput', 'NotFound', 'Forbidden']],
])('%s is a union of %s', (typeName, members) => {
  const type = schema.getType(typeName);
  const names = isUnionType(type) ? type.getTypes().map((member) => member.name) : [];
  expect(names.sort()).toEqual(members.sort());
});

test.each(['Request', 'TapeFile', 'Quota', 'Volume', 'Drive', 'RestoreDisk'])('%s is a Node', (typeName) => {
  const type = schema.getType(typeName);
  expect(isObjectType(type) ? type.getInterfaces().map(String) : []).toContain('Node');
});
