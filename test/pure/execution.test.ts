/** The executor of GraphQL operations returns what graphql-js returns. */
import { buildSchema, type ExecutionResult, execute, type GraphQLSchema, parse } from 'graphql';
import { expect, test } from 'vitest';
import { executeOperation } from '../../graphql/execution.js';
import { findOperation, planOperation } from '../../graphql/operation-plan.js';

const schema: GraphQLSchema = buildSchema(`
  directive @other(if: Boolean!) on FIELD
  interface Named { name: String! }
  type Dog implements Named { name: String! barks: Boolean friend: Named }
  type Cat implements Named { name: String! meows: Boolean lives: Int! }
  union Pet = Dog | Cat
  enum Colour { RED GREEN }
  input Filter { text: String = "all", limit: Int! }
  type Row { id: Int! fails: Int failsHard: Int! late: Int! lateFails: Int! colour: Colour self: Row strict: Row! list(n: Int = 3): [Int!] }
  type Query {
    row: Row
    strict: Row!
    rows(fail: Boolean = false): [Row!]!
    holes: [Row]
    strictHoles: [Row!]
    nested: [[Int!]]!
    promises: [Int]
    pets: [Pet!]!
    named(kind: String!): Named
    noList: [Int]
    echo(text: String, filter: Filter, colours: [Colour!] = [RED]): String
    error: String
    colour: Colour
  }
  type Mutation { add(n: Int!): Int! fail(n: Int!): Int }
`);

const later = async <T>(value: T): Promise<T> => {
  await Promise.resolve();
  return value;
};
const fail = (text: string): never => {
  throw new Error(text);
};

function createRow(id: number): object {
  return {
    id,
    fails: () => fail(`row ${id} fails`),
    failsHard: () => fail(`row ${id} fails hard`),
    late: () => later(id * 10),
    lateFails: () => later(0).then(() => fail(`row ${id} fails late`)),
    colour: id === 2 ? 'BLUE' : 'RED',
    self: () => createRow(id),
    strict: () => (id === 1 ? null : later(createRow(id))),
    list: ({ n }: { n: number }) => Array.from({ length: n }, (_, at) => (at === id ? later(at) : at)),
  };
}

const dog = { __typename: 'Dog', name: 'Rex', barks: true, friend: { __typename: 'Cat', name: 'Tom', lives: 9 } };
const cat = { __typename: 'Cat', name: 'Tom', meows: () => later(false), lives: () => null };

function createRoot(): object {
  const done: number[] = [];
  return {
    row: () => later(createRow(1)),
    strict: () => createRow(2),
    rows: ({ fail: isBad }: { fail: boolean }) => (isBad ? fail('no rows') : [createRow(1), later(createRow(2))]),
    holes: () => [
      createRow(1),
      null,
      later(null),
      later(fail).then((f) => f('a hole')),
      new Error('an error as a value'),
    ],
    strictHoles: () => [createRow(1), later(null)],
    nested: () => [[1, 2], [later(3)], null, [null]],
    promises: () => later([later(1), 2, later('x')]),
    pets: () => [dog, later(cat)],
    named: ({ kind }: { kind: string }) => ({ ...dog, __typename: kind }),
    noList: 5,
    echo: (args: object) => JSON.stringify(args),
    error: new Error('a property'),
    colour: 'GREEN',
    add: async ({ n }: { n: number }) => {
      await later(n);
      return done.push(n);
    },
    fail: ({ n }: { n: number }) => fail(`change ${n} fails`),
  };
}

const CONDITIONS = `query ($s: Boolean!, $i: Boolean = true) {
  row { id @skip(if: $s) late @include(if: $i) } colour @skip(if: $s) @include(if: $i) }`;

const cases: [query: string, variables?: Record<string, unknown>, operationName?: string][] = [
  ['{ row { id late } strict { id colour } colour }'],
  ['{ row { fails late self { fails id } } }'],
  ['{ row { failsHard late } strict { id } }'],
  ['{ strict { failsHard } row { id } }'],
  ['{ row { lateFails failsHard id } }'],
  ['{ rows { id lateFails fails } }'],
  ['{ rows { id strict { strict { late } } } }'],
  ['{ rows(fail: true) { id } row { id } }'],
  ['{ holes { id late } strictHoles { id } nested promises noList error }'],
  ['{ strict { colour self { colour list two: list(n: 2) none: list(n: null) } } }'],
  [
    '{ pets { __typename ... on Named { name } ... on Dog { barks friend { name ... on Cat { lives } } } ...C } } fragment C on Cat { meows }',
  ],
  ['{ pets { ... on Cat { lives } } }'],
  ['{ named(kind: "Cat") { name __typename } other: named(kind: "Dog") { name } }'],
  ['{ a: echo b: echo(text: "x") c: echo(text: null, colours: []) d: echo(filter: { limit: 1 }) }'],
  ['query ($t: String = "d", $f: Filter, $c: [Colour!]) { echo(text: $t, filter: $f, colours: $c) }'],
  ['query ($t: String, $f: Filter) { echo(text: $t, filter: $f) }', { t: 'x', f: { limit: 3 } }],
  ['query ($f: Filter) { echo(filter: $f) }', { f: { limit: 'x', more: 1 } }],
  ['query ($f: Filter!) { echo(filter: $f) }'],
  [CONDITIONS, { s: true }],
  [CONDITIONS, { s: false, i: false }],
  [
    'query ($s: Boolean!) { ...F @skip(if: $s) ... @include(if: $s) { row { late } } row { id } } fragment F on Query { colour }',
    { s: false },
  ],
  [
    '{ ...A ...A row { id } } fragment A on Query { row { late ...B } } fragment B on Row { colour id self { ...D } } fragment D on Row { id }',
  ],
  ['{ __proto__: row { __proto__: id toJSON: id constructor: late } }'],
  ['mutation { a: add(n: 1) b: add(n: 2) fail(n: 3) c: add(n: 4) }'],
  ['mutation { a: add(n: 1) b: add(n: null) }'],
  ['query A { colour } query B { row { id } }', {}, 'B'],
  [
    '{ __typename __schema { queryType { name fields { name } } } __type(name: "Row") { kind fields { name type { kind ofType { name } } } } }',
  ],
];

const plain = (result: ExecutionResult) => {
  const errors = result.errors?.map((error) => {
    const { extensions: _, ...others } = error.toJSON();
    return others;
  });
  return JSON.parse(JSON.stringify({ data: result.data, errors }));
};

test.each(cases)('%s', async (query, variableValues = {}, operationName?) => {
  const document = parse(query);
  const run = async (way: typeof execute) =>
    plain(await way({ schema, document, variableValues, operationName, rootValue: createRoot(), contextValue: {} }));
  const expected = await run(execute);
  for (const _ of ['planned', 'with the kept plan']) expect(await run(executeOperation)).toEqual(expected);
});

test('a synchronous error does not abandon promises that reject later', async () => {
  let isReached = false;
  const row = {
    id: 1,
    lateFails: () =>
      later(0)
        .then(() => later(fail))
        .then((f) => f('late')),
  };
  const rootValue = {
    rows: [
      row,
      {
        get lateFails() {
          isReached = true;
          return fail('at once');
        },
      },
    ],
  };
  const { errors, data } = (await executeOperation({
    schema,
    document: parse('{ rows { lateFails } }'),
    rootValue,
  })) as ExecutionResult;
  expect([isReached, data, errors?.length]).toEqual([true, null, 1]);
});

test('all combinations of included fields are right, also beyond the number of kept plans', async () => {
  const names = ['a', 'b', 'c', 'd'];
  const fields = names.map((name) => `${name}: colour @include(if: $${name})`).join(' ');
  const document = parse(`query (${names.map((name) => `$${name}: Boolean!`).join(', ')}) { __typename ${fields} }`);
  for (let bits = 0; bits < 16; bits++) {
    const variableValues = Object.fromEntries(names.map((name, at) => [name, (bits & (1 << at)) !== 0]));
    const { data } = (await executeOperation({
      schema,
      document,
      variableValues,
      rootValue: createRoot(),
    })) as ExecutionResult;
    const wanted = names.filter((name) => variableValues[name]);
    expect(Object.keys(data ?? {})).toEqual(['__typename', ...wanted]);
  }
});

test('a plan that fragments make much larger than its document is not kept', async () => {
  const many = (text: string) => Array.from({ length: 8 }, (_, n) => `a${n}: self { ${text} }`).join(' ');
  const of = (inner: string) => parse(`{ row { ${inner} } } fragment F on Row { ${many('id')} }`);
  const isKept = async (document: ReturnType<typeof of>) => {
    const plan = () => planOperation(schema, document, findOperation(document, null), {});
    const before = plan();
    await executeOperation({ schema, document, rootValue: createRoot() });
    return plan() === before;
  };
  expect(await isKept(of('...F'))).toBe(true);
  expect(await isKept(of(many('x: self { ...F }')))).toBe(true);
  expect(await isKept(of(many(many('...F'))))).toBe(false);
});

test('plans are kept by the values of the Boolean variables that decide on fields, and of no others', () => {
  const document = parse('query A($x: Boolean!) { echo @skip(if: $x) } query B($x: String) { echo(text: $x) }');
  const planned = (name: string, x: unknown) => planOperation(schema, document, findOperation(document, name), { x });
  expect(planned('B', 'long text')).toBe(planned('B', 'another one'));
  expect(planned('A', true)).not.toBe(planned('A', false));
});

test('a null variable in a condition is refused as by graphql-js', async () => {
  const document = parse('query ($x: Boolean = true) { echo @skip(if: $x) }');
  const given = { schema, document, rootValue: createRoot(), variableValues: { x: null } };
  const expected = JSON.stringify(await execute(given));
  expect(JSON.stringify(await executeOperation(given))).toBe(expected);
});
