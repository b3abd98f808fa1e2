/** Configures graphql-codegen, which generates the function `graphql` and the types of all documents in this directory. */
import type { CodegenConfig } from '@graphql-codegen/cli';

const config: CodegenConfig = {
  schema: '../../../graphql/schema.graphql',
  documents: '*.ts',
  generates: {
    'generated/': {
      preset: 'client',
      config: { useTypeImports: true, scalars: { BigInt: 'string', DateTime: 'string' } },
    },
  },
  importExtension: '.js',
};

export default config;
