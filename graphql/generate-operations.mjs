/**
 * Generates types for the GraphQL operations of the dashboard, the TypeScript client and the commands, from the committed schema. So the
 * compiler checks requests and responses.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { codegen } from '@graphql-codegen/core';
import * as documents from '@graphql-codegen/typed-document-node';
import * as operations from '@graphql-codegen/typescript-operations';
import { buildASTSchema, parse, print } from 'graphql';

const top = new URL('../', import.meta.url);
const read = (path) => readFileSync(new URL(path, top), 'utf8');
const schema = parse(read('graphql/schema.graphql'));
const schemaAst = buildASTSchema(schema);
mkdirSync(new URL('src/generated/', top), { recursive: true });

const common = {
  useTypeImports: true,
  enumType: 'string-literal',
  enumsAsTypes: true,
  nonOptionalTypename: false,
};

/** @param directory the directory of the documents @param integer TypeScript type of BigInt @param plugins plugins by name */
async function generate(directory, output, { integer, config, plugins }) {
  const parsed = readdirSync(new URL(directory, top))
    .sort()
    .map((name) => ({ location: name, document: parse(read(`${directory}${name}`)) }));
  const text = await codegen({
    schema,
    schemaAst,
    documents: parsed,
    filename: output,
    config: { ...common, ...config, scalars: { BigInt: integer, DateTime: 'string', ID: 'string' } },
    plugins: Object.keys(plugins).map((name) => ({ [name]: {} })),
    pluginMap: plugins,
  });
  writeFileSync(new URL(`src/generated/${output}`, top), text);
}

const isFragment = ({ kind }) => kind === 'FragmentDefinition';

/** Prints each operation as text, with its fragments. @param declare returns the line for a text and the name of its type */
const createTexts = (declare) => ({
  plugin: (_schema, parsed) => {
    const definitions = parsed.flatMap(({ document }) => document.definitions);
    const fragments = new Map(definitions.filter(isFragment).map((each) => [each.name.value, print(each)]));
    const named = (text) => [...text.matchAll(/\.\.\.(?!\s*on\b)(\w+)/g)].map(([, name]) => name);
    const lines = definitions
      .filter((each) => !isFragment(each))
      .map((each) => {
        const text = print(each);
        const all = new Set(named(text));
        for (const name of all) for (const inner of named(fragments.get(name))) all.add(inner);
        const whole = [text, ...[...all].map((name) => fragments.get(name))].join('\n');
        const kind = each.operation[0].toUpperCase() + each.operation.slice(1);
        return declare(each.name.value, JSON.stringify(whole.replace(/\s+/g, ' ')), `${each.name.value}${kind}`);
      });
    return lines.join('\n');
  },
});

/** Prints operations for the TypeScript client, which needs only their text. */
const texts = createTexts((name, text) => `export const ${name}Text = ${text};`);

/** Prints operations for the commands, with the types of the response and variables. */
const typedTexts = createTexts(
  (name, text, type) => `export const ${name} = ${text} as Operation<${type}, ${type}Variables>;`,
);

const operationType = {
  plugin: () =>
    `/** The text of an operation, with the types of what it returns and of its variables. */
export type Operation<Answer, Variables> = string & { readonly types?: (variables: Variables) => Answer };`,
};

/** Names of the BigInt fields of all types. Responses contain these fields as strings. */
const integers = {
  plugin: () => {
    const fields = schema.definitions
      .filter(({ kind }) => /^(Object|Interface)TypeDefinition$/.test(kind))
      .flatMap((type) => type.fields.filter((field) => print(field.type).replace(/[![\]]/g, '') === 'BigInt'));
    const names = [...new Set(fields.map(({ name }) => name.value))].sort();
    return `export const integerFields: ReadonlySet<string> = new Set(${JSON.stringify(names)});`;
  },
};

await generate('src/web/operations/', 'web-operations.ts', {
  integer: 'string',
  config: { skipTypename: true, optimizeDocumentNode: true, dedupeFragments: true },
  plugins: { operations, documents },
});
await generate('clients/typescript/operations/', 'client-operations.ts', {
  integer: { input: 'bigint | number | string', output: 'bigint' },
  config: { skipTypename: true },
  plugins: { operations, texts },
});
await generate('src/cli/operations/', 'command-operations.ts', {
  integer: 'bigint',
  config: { skipTypename: true },
  plugins: { operations, operationType, typedTexts, integers },
});
