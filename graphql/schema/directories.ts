/** Defines the GraphQL types for directories of the catalogue. */
import { type Entry, listDirectory, parseDirectory } from '../../src/domain/catalogue/directories.js';
import { type DirectorySize, readDirectorySizes } from '../../src/domain/catalogue/directory-sizes.js';
import { readFilesByPath } from '../../src/domain/catalogue/tape-files.js';
import type { Context } from '../../src/domain/context.js';
import { bigIntOrNull, builder, nullable } from './builder.js';
import { TapeFileType } from './files.js';
import { createBatch, createCursors, forwardArguments, forwardPage } from './pages.js';

/** Query cost of a page of entries. The cost is high, because the database looks up each entry separately. */
const ENTRIES_COMPLEXITY = 50;

/** Query cost of a directory's number of files and total size. The database counts files of each directory. */
const SIZE_COMPLEXITY = 10;

const files = createBatch(readFilesByPath);

const sizes = createBatch(readDirectorySizes);

/** Returns the number and total size of the files in a directory; undefined if the entry is a file. */
const sizeOf = async (ctx: Context, { path, isDirectory }: Entry): Promise<DirectorySize | undefined> =>
  isDirectory ? await sizes(ctx, path) : undefined;

const EntryType = builder.objectRef<Entry>('DirectoryEntry').implement({
  description: 'An entry of a directory: a file or a subdirectory.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The absolute path.' }),
    isDirectory: t.exposeBoolean('isDirectory', { description: 'Whether the entry is a directory.' }),
    size: t.expose('size', bigIntOrNull('The size of the file in bytes. Null for a directory.')),
    fileCount: t.int({
      ...nullable('The number of files below the directory, at any depth. Null for a file.'),
      complexity: SIZE_COMPLEXITY,
      resolve: async (entry, _args, ctx) => (await sizeOf(ctx, entry))?.fileCount ?? null,
    }),
    bytes: t.field({
      ...bigIntOrNull('The total size in bytes of the files below the directory, at any depth. Null for a file.'),
      complexity: SIZE_COMPLEXITY,
      resolve: async (entry, _args, ctx) => (await sizeOf(ctx, entry))?.bytes ?? null,
    }),
    isEstimated: t.boolean({
      description:
        'Whether `fileCount` and `bytes` are estimates. Tapegate counts up to 20,000 files in a directory, and fewer if the page contains more than 20 directories. If path rules might hide files from the caller, the values include only the files that were counted.',
      complexity: SIZE_COMPLEXITY,
      resolve: async (entry, _args, ctx) => (await sizeOf(ctx, entry))?.isEstimated ?? false,
    }),
    file: t.field({
      type: TapeFileType,
      nullable: true,
      description: 'The file. Null for a directory.',
      resolve: async ({ path, isDirectory }, _args, ctx) => (isDirectory ? null : ((await files(ctx, path)) ?? null)),
    }),
  }),
});

const EntryConnection = builder.connectionObject(
  { type: EntryType, name: 'DirectoryEntryConnection' },
  { name: 'DirectoryEntryEdge' },
);

type EntryKey = Pick<Entry, 'path' | 'isDirectory'>;

const cursors = createCursors<EntryKey>('entry', {
  format: ({ path, isDirectory }) => `${isDirectory ? 'd' : 'f'}${path}`,
  parse: (text) =>
    /^[df]\/[^\0]+$/.test(text) ? { path: text.slice(1), isDirectory: text.startsWith('d') } : undefined,
});

const DirectoryType = builder.objectRef<{ path: string }>('Directory').implement({
  description: 'A directory of the catalogue. Directories are derived from the paths of files.',
  fields: (t) => ({
    path: t.string({
      description: 'The absolute path without a trailing slash. `/` is the root.',
      resolve: ({ path }) => path || '/',
    }),
    entries: t.field({
      type: EntryConnection,
      nullable: true,
      description: 'Returns the entries directly below the directory, ordered by name.',
      complexity: ENTRIES_COMPLEXITY,
      args: {
        ...forwardArguments(t.arg),
        onlyDirectories: t.arg.boolean({ description: 'Whether to return only subdirectories.' }),
      },
      resolve: ({ path }, args, ctx) =>
        forwardPage<Entry, EntryKey>(args, cursors, async ({ limit, after }) => {
          const found = await listDirectory(ctx, path, { limit, after, hasFiles: !args.onlyDirectories });
          return { rows: found.slice(0, limit), hasMore: found.length > limit };
        }),
    }),
  }),
});

builder.queryFields((t) => ({
  directory: t.field({
    type: DirectoryType,
    nullable: true,
    description:
      'Returns a directory. Omits files that the caller may not list. The cost of the query does not depend on the number of files below the directory. A directory without files has no entries.',
    args: { path: t.arg.string({ required: true, description: 'The absolute path. `/` is the root.' }) },
    resolve: (_root, { path }, ctx) => ({ path: parseDirectory(ctx, path) }),
  }),
}));
