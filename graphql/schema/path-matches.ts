/** Defines the GraphQL queries that find files by pasted paths, and suggest similar paths and names. */
import { matchPaths, type PathMatch, suggestNames } from '../../src/domain/catalogue/path-matches.js';
import { builder } from './builder.js';
import { TapeFileType } from './files.js';

/** Query cost of suggestions. The database reads many names, and the gateway compares them. */
const SUGGESTIONS_COMPLEXITY = 2000;

const PathMatchType = builder.objectRef<PathMatch>('PathMatch').implement({
  description: 'The file with a given path, or suggestions for an unknown path.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The given path.' }),
    file: t.field({
      type: TapeFileType,
      nullable: true,
      description: 'The file. Null if the catalogue contains no file with this path, or if the file is withdrawn.',
      resolve: ({ file }) => file,
    }),
    suggestions: t.exposeStringList('suggestions', {
      description:
        'The paths of up to 3 files that are similar to an unknown path, the most similar path first. Only the first 50 unknown paths get suggestions.',
    }),
  }),
});

builder.queryFields((t) => ({
  pathMatches: t.field({
    type: [PathMatchType],
    complexity: ({ paths }) => ({ field: SUGGESTIONS_COMPLEXITY, multiplier: paths.length }),
    description: 'Returns the file with each path, in the given order, and suggestions for unknown paths.',
    args: { paths: t.arg.stringList({ required: true, description: 'The logical paths. At most 1,000.' }) },
    resolve: (_root, { paths }, ctx) => matchPaths(ctx, paths),
  }),
  nameSuggestions: t.stringList({
    complexity: SUGGESTIONS_COMPLEXITY,
    description:
      'Returns up to 3 names of files and directories, or words in these names, that are similar to a word, the most similar name first. Compares the word with the entries of a directory, and with names anywhere in the catalogue if the database finds these within a second.',
    args: {
      word: t.arg.string({ required: true, description: 'The word, which a search did not find.' }),
      directory: t.arg.string({ defaultValue: '/', description: 'The directory whose entries are compared.' }),
    },
    resolve: (_root, { word, directory }, ctx) => suggestNames(ctx, { word, directory: directory ?? '/' }),
  }),
}));
