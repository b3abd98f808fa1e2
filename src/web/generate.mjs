/** Types of the page's operations, of the committed schema: what it asks for and what it is told are checked when it is built. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { codegen } from '@graphql-codegen/core';
import * as documents from '@graphql-codegen/typed-document-node';
import * as operations from '@graphql-codegen/typescript-operations';
import { buildASTSchema, parse } from 'graphql';

const here = new URL('.', import.meta.url);
const read = (path) => readFileSync(new URL(path, here), 'utf8');
const schema = parse(read('../../graphql/schema.graphql'));
const names = readdirSync(new URL('operations/', here)).sort();
const scalars = { BigInt: 'string', DateTime: 'string' };
const text = await codegen({
  schema,
  schemaAst: buildASTSchema(schema),
  documents: names.map((name) => ({ location: name, document: parse(read(`operations/${name}`)) })),
  filename: 'web-operations.ts',
  config: {
    scalars: { ...scalars, ID: 'string' },
    useTypeImports: true,
    enumType: 'string-literal',
    enumsAsTypes: true,
    skipTypename: true,
    nonOptionalTypename: false,
    optimizeDocumentNode: true,
    dedupeFragments: true,
  },
  plugins: [{ operations: {} }, { documents: {} }],
  pluginMap: { operations, documents },
});
const folder = new URL('../generated/', here);
mkdirSync(folder, { recursive: true });
writeFileSync(new URL('web-operations.ts', folder), text);
