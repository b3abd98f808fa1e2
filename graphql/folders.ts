/** The catalogue as folders. */
import { type Entry, type Folder, showFolder } from '../src/operations/catalogue/folders.js';
import { builder } from './builder.js';

/** As many entries as there may be. */
const FOLDER_COMPLEXITY = 50;

const FolderEntryType = builder.objectRef<Entry>('FolderEntry').implement({
  description: 'What is directly in a folder of the catalogue: a file, or a folder.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Absolute.' }),
    isFolder: t.exposeBoolean('isFolder', { description: 'There are files below it.' }),
    size: t.expose('size', { type: 'BigInt', nullable: true, description: 'Bytes; null for a folder.' }),
  }),
});

const FolderType = builder.objectRef<Folder>('Folder').implement({
  description: 'A folder of the catalogue. Folders are made of the paths of files.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Without a slash at its end; `/` is everything.' }),
    entries: t.expose('entries', { type: [FolderEntryType], description: 'The first 1,000 by name.' }),
    hasMore: t.exposeBoolean('hasMore', { description: 'There are more than these.' }),
  }),
});

builder.queryField('folder', (t) =>
  t.field({
    authScopes: { operation: 'listFiles' },
    type: FolderType,
    complexity: FOLDER_COMPLEXITY,
    description:
      'What is directly in a folder, of what the caller may list; it takes no longer for all that is below. Empty where there is none.',
    args: { path: t.arg.string({ required: true, description: 'Absolute; `/` is everything.' }) },
    resolve: (_root, { path }, ctx) => showFolder(ctx, path),
  }),
);
