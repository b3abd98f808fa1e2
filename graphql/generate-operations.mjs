/**
 * Generates typed documents for the GraphQL operations in clients/typescript/operations, from the committed schema. The TypeScript client,
 * the commands and the dashboard use these documents, so that the compiler checks requests and responses.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { codegen } from '@graphql-codegen/core';
import * as documents from '@graphql-codegen/typed-document-node';
import * as operations from '@graphql-codegen/typescript-operations';
import { buildASTSchema, getNamedType, isInterfaceType, isObjectType, parse } from 'graphql';

const top = new URL('../', import.meta.url);
const read = (path) => readFileSync(new URL(path, top), 'utf8');
const directory = 'clients/typescript/operations/';
const schema = parse(read('graphql/schema.graphql'));
const schemaAst = buildASTSchema(schema);

/** Names of the BigInt fields of all types. Responses contain these fields as strings. */
const integers = {
  plugin: () => {
    const types = Object.values(schemaAst.getTypeMap()).filter((type) => isObjectType(type) || isInterfaceType(type));
    const fields = types.flatMap((type) => Object.values(type.getFields()));
    const names = fields.filter(({ type }) => getNamedType(type).name === 'BigInt').map(({ name }) => name);
    return `export const integerFields: ReadonlySet<string> = new Set(${JSON.stringify([...new Set(names)].sort())});`;
  },
};

const text = await codegen({
  schema,
  schemaAst,
  documents: readdirSync(new URL(directory, top))
    .sort()
    .map((name) => ({ location: name, document: parse(read(`${directory}${name}`)) })),
  filename: 'operations.ts',
  config: {
    useTypeImports: true,
    enumType: 'string-literal',
    nonOptionalTypename: false,
    skipTypename: true,
    scalars: {
      BigInt: { input: 'bigint | number | string', output: 'bigint' },
      DateTime: 'string',
      ID: 'string',
    },
    documentMode: 'string',
    dedupeFragments: true,
    pureMagicComment: true,
  },
  plugins: [{ operations: {} }, { documents: {} }, { integers: {} }],
  pluginMap: { operations, documents, integers },
});

/** The client package has no dependencies, so its types must not import this type. */
const imported = /^import type \{ DocumentTypeDecoration \}.*$/m;
const declared = 'interface DocumentTypeDecoration<Data, Variables> { __apiType?: (variables: Variables) => Data }';
mkdirSync(new URL('src/generated/', top), { recursive: true });
writeFileSync(new URL('src/generated/operations.ts', top), text.replace(imported, declared));
