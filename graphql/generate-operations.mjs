/**
 * Generates the types of the operations that the dashboard, the client in TypeScript and the commands send, from the committed schema. So
 * the compiler checks what they request and what they receive.
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

const isFragment = ({ kind }) => kind === 'FragmentDefinition';

/** Each operation as a text with the fragments that it names. @param declare makes its line of the text and the name of its type */
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

/** For the client in TypeScript: it needs nothing of GraphQL's own but the texts. */
const texts = createTexts((name, text) => `export const ${name}Text = ${text};`);

/** For the commands: each text has the types of its answer and variables. */
const typedTexts = createTexts(
  (name, text, type) => `export const ${name} = ${text} as Operation<${type}, ${type}Variables>;`,
);

const operationType = {
  plugin: () =>
    `/** The text of an operation, with the types of what it returns and of its variables. */
export type Operation<Answer, Variables> = string & { readonly types?: (variables: Variables) => Answer };`,
};

/** The fields that are BigInt, in whichever type: they arrive as text. */
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
