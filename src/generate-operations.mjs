/**
 * Types of the operations that the page and the client in TypeScript send, of the committed schema: what they ask for and what they are told is
 * checked when they are built.
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

/** @param folder with the documents @param integer the type of such a number @param plugins by their names */
async function generate(folder, output, { integer, config, plugins }) {
  const parsed = readdirSync(new URL(folder, top))
    .sort()
    .map((name) => ({ location: name, document: parse(read(`${folder}${name}`)) }));
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

/** Each operation as a text with the fragments that it names: the client needs nothing of GraphQL's own but that. */
const texts = {
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
        return `export const ${each.name.value}Text = ${JSON.stringify(whole.replace(/\s+/g, ' '))};`;
      });
    return lines.join('\n');
  },
};
const isFragment = ({ kind }) => kind === 'FragmentDefinition';

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
