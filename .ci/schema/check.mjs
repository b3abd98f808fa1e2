// Checks the committed GraphQL schema: the Relay, naming and description rules of graphql-eslint, and with
// graphql-inspector, that no change since the last release breaks clients.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import graphqlPlugin from '@graphql-eslint/eslint-plugin';
import { CriticalityLevel, diff } from '@graphql-inspector/core';
import { ESLint } from 'eslint';
import { buildSchema } from 'graphql';

const pathOf = (name) => fileURLToPath(new URL(`../../graphql/${name}`, import.meta.url));
const [current, released] = ['schema.graphql', 'released.graphql'].map(pathOf);
const { 'flat/schema-recommended': recommended, 'flat/schema-relay': relay } = graphqlPlugin.configs;

const rules = {
  ...recommended.rules,
  ...relay.rules,
  // a list that can be read only forwards has only `first` and `after`
  '@graphql-eslint/relay-arguments': ['error', { includeBoth: false }],
  // rows of a report, such as findings, have no identity; short lists, such as the errors of a payload, have no pages
  '@graphql-eslint/relay-edge-types': [
    'error',
    { withEdgeSuffix: true, shouldImplementNode: false, listTypeCanWrapOnlyEdgeType: false },
  ],
  '@graphql-eslint/input-name': ['error', { checkMutations: true }],
  '@graphql-eslint/require-description': [
    'error',
    { types: true, EnumValueDefinition: true, FieldDefinition: true, InputValueDefinition: true },
  ],
  // payloads, pages and figures have no identity
  '@graphql-eslint/strict-id-in-types': 'off',
  // `requestId` is the number that people use for a request; `id` is its global id
  '@graphql-eslint/no-typename-prefix': 'off',
};

const eslint = new ESLint({
  cwd: fileURLToPath(new URL('../../', import.meta.url)),
  overrideConfigFile: true,
  overrideConfig: [
    {
      files: ['**/*.graphql'],
      plugins: { '@graphql-eslint': graphqlPlugin },
      languageOptions: { parser: graphqlPlugin.parser, parserOptions: { graphQLConfig: { schema: current } } },
      rules,
    },
  ],
});

const results = await eslint.lintFiles([current]);
const findings = results.flatMap(({ messages }) => messages.map(({ line, message }) => `${line}: ${message}`));
for (const finding of findings) console.error(`graphql/schema.graphql:${finding}`);

const schemas = [released, current].map((file) => buildSchema(readFileSync(file, 'utf8')));
const changes = await diff(schemas[0], schemas[1]);
const breaking = changes.filter(({ criticality }) => criticality.level === CriticalityLevel.Breaking);
for (const { message } of breaking) console.error(`breaks clients of the last release: ${message}`);

console.log(
  `schema: ${findings.length} findings, ${changes.length} changes since the last release, ${breaking.length} breaking`,
);
process.exitCode = findings.length + breaking.length > 0 ? 1 : 0;
