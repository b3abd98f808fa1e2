/** What is at staging libraries for Tapegate, and what they were sent. */
import { type RequestUsage, readUsage } from '../src/operations/libraries/usage.js';
import { type KeptCopy, readStagingFigures, type StagingFigures } from '../src/operations/staging/stagers.js';
import { createBatch } from './batch.js';
import { builder } from './builder.js';

const KeptCopyType = builder.objectRef<KeptCopy>('KeptCopy').implement({
  description: 'A file that nobody needs any more, and that its library keeps on disk all the same.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Its logical path.' }),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes.' }),
    until: t.expose('until', {
      type: 'DateTime',
      nullable: true,
      description: 'When it leaves there by itself; null: the library does not say.',
    }),
  }),
});

const StagingType = builder.objectRef<StagingFigures>('LibraryStaging').implement({
  description: 'What is at a library that stages files for Tapegate.',
  fields: (t) => ({
    asked: t.exposeInt('asked', { description: 'Files that it was asked for, and that are on their way to its disk.' }),
    ready: t.exposeInt('ready', { description: 'Files that can be read there.' }),
    releasing: t.exposeInt('releasing', { description: 'Files of which it is to be told that nobody needs them.' }),
    kept: t.exposeInt('kept', { description: 'Files that nobody needs, and that leave its disk by themselves.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Of all these.' }),
    restUntil: t.expose('restUntil', {
      type: 'DateTime',
      nullable: true,
      description: 'Until when it is left alone, since it could not answer, or not be read. Null: it is not.',
    }),
    problem: t.exposeString('problem', { nullable: true, description: 'What it said then, for people.' }),
    nextKept: t.field({
      type: [KeptCopyType],
      description: 'Of the files that are kept, those that leave first; 100 at most.',
      resolve: ({ nextKept }) => nextKept,
    }),
  }),
});

const figures = createBatch(readStagingFigures);

builder.prismaObjectField('Library', 'staging', (t) =>
  t.field({
    type: StagingType,
    nullable: true,
    authScopes: { operation: 'readStagingFigures' },
    description: 'Of one that stages files: what is there for Tapegate. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await figures(ctx, id)) ?? null,
  }),
);

const UsageType = builder.objectRef<RequestUsage>('LibraryUsage').implement({
  description: 'What a library was sent of one kind of request.',
  fields: (t) => ({
    request: t.exposeString('request', { description: 'As the documentation of the system calls it: `GetObject`.' }),
    sent: t.expose('sent', { type: 'BigInt', description: 'How many, also those whose answers were lost.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of files that came with the answers.' }),
  }),
});

const usage = createBatch(readUsage);

builder.prismaObjectField('Library', 'usage', (t) =>
  t.field({
    type: [UsageType],
    authScopes: { operation: 'readUsage' },
    description:
      'What it was sent since it was added, as far as that is counted (kind `s3`): what a bill is made of. It is some seconds behind. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await usage(ctx, id)) ?? [],
  }),
);
