/** Libraries: the tape systems of the site. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { isObject } from '../../src/core/json.js';
import {
  addLibrary,
  type RemovedLibrary,
  removeLibrary,
  type StagedFileLeft,
  setLibrary,
} from '../../src/domain/libraries/changes.js';
import { listLibraries, type RequestUsage, readSettings, readUsage } from '../../src/domain/libraries/libraries.js';
import { type KeptCopy, readStagingFigures, type StagingFigures } from '../../src/domain/staging/stagers.js';
import type { LibraryContract } from '../../src/generated/prisma/enums.js';
import { bigInt, bigIntOrNull, builder, describeValues, nullable, pageComplexity, timeOrNull } from './builder.js';
import { readBack } from './errors.js';
import { createBatch, isInt, readListPage } from './pages.js';

const ContractType = builder.enumType('LibraryContract', {
  description: 'What Tapegate asks of a library.',
  values: describeValues<LibraryContract>({
    DRIVE: 'To mount volumes: Tapegate decides which, and in which order they are read.',
    STAGING: 'Stages files: the tape system orders the reads.',
  }),
});

const settings = createBatch(readSettings);

builder.prismaNode('Library', {
  id: { field: 'id' },
  nullable: true,
  description: 'One tape system. The first one is as the environment of each process has it; operators add others.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As operators call it; the first one goes by its kind.' }),
    kind: t.exposeString('kind', { description: 'What it is, such as `directory`.' }),
    contract: t.expose('contract', { type: ContractType, description: 'What is asked of it.' }),
    settings: t.string({
      description:
        'What it was added with or set to, as a JSON object; no secrets are among it. For viewers and operators.',
      resolve: async ({ id }, _args, ctx) => JSON.stringify((await settings(ctx, id)) ?? {}),
    }),
    drives: t.int({
      description: 'Its drives; of one that stages files, what reads from it at the same time.',
      resolve: ({ drives }, _args, ctx) => drives ?? ctx.config.drives,
    }),
    depthFiles: t.exposeInt(
      'depthFiles',
      nullable('Files that may be asked for at the same time, of one that stages; null: as the engine has it.'),
    ),
    depthBytes: t.expose('depthBytes', bigIntOrNull('The same in bytes.')),
    volumes: t.relationCount('volumes', {
      where: { retiredAt: null },
      description: 'Volumes that the catalogue has of it, without those that are retired.',
    }),
  }),
});

builder.queryFields((t) => ({
  libraries: t.prismaConnection({
    type: 'Library',
    cursor: 'id',
    description: 'All libraries, in the order in which they were added.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listLibraries(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listLibraries(ctx).page),
  }),
}));

const AddLibraryInput = builder.inputType('AddLibraryInput', {
  description: 'A tape system.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'Letters, digits, `.`, `_` and `-`; of no other library.' }),
    kind: t.string({ required: true, description: 'What it is, such as `directory`.' }),
    settings: t.string({
      description:
        'As its kind takes them: a JSON object. What is secret is in a file or a variable that a setting names.',
    }),
    drives: t.int({
      description: 'How many it has; of one that stages files, what may read from it at the same time. 2 unless given.',
    }),
    depthFiles: t.int({ description: 'Only of one that stages: files that may be asked for at the same time.' }),
    depthBytes: t.field(bigInt('The same in bytes.')),
  }),
});

const SetLibraryInput = builder.inputType('SetLibraryInput', {
  description: 'What a library is to be from now on. What is not given stays as it is.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'What it is called, which stays.' }),
    kind: t.string({ description: 'Must be what it is: another kind could not read its volumes.' }),
    settings: t.string({
      description: 'Those that are to be others: a JSON object. One that is null or empty is taken away.',
    }),
    drives: t.int({
      description: 'How many it has; of one that stages files, what may read from it at the same time. Null: as it is.',
    }),
    depthFiles: t.int({
      description: 'Only of one that stages: files that may be asked for at the same time. Null: as the engine has it.',
    }),
    depthBytes: t.field(bigInt('The same in bytes.')),
  }),
});

const StagedFileLeftType = builder.objectRef<StagedFileLeft>('StagedFileLeft').implement({
  description: 'A file that a library was asked for, and was not told that nobody needs it.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Its path in the catalogue.' }),
    demand: t.exposeString(
      'demand',
      nullable('What the system called the demand; null where it gives no names, or none has arrived.'),
    ),
    until: t.expose('until', timeOrNull('When it leaves the disk of the tape system; null: unknown.')),
  }),
});

const RemovedLibraryType = builder.objectRef<RemovedLibrary>('RemovedLibrary').implement({
  description: 'A library that is no more. Nothing is done to the tape system itself.',
  fields: (t) => ({
    id: t.globalID({ description: 'Of its node, which is no more.', resolve: ({ id }) => ({ type: 'Library', id }) }),
    name: t.exposeString('name', { description: 'What it was called.' }),
    drives: t.exposeInt('drives', { description: 'Drives that went with it.' }),
    volumes: t.exposeInt('volumes', { description: 'Volumes that went with it, of which the catalogue had no files.' }),
    stagedFiles: t.exposeInt('stagedFiles', {
      description:
        'Files that may stay staged, or still come, at the tape system: it was not told that nobody needs them.',
    }),
    stagedBytes: t.expose('stagedBytes', bigInt('The same in bytes.')),
    left: t.expose('left', {
      type: [StagedFileLeftType],
      description: 'Of these the first thousand, by demands and paths.',
    }),
  }),
});

builder.mutationFields((t) => ({
  addLibrary: t.prismaField({
    type: 'Library',
    description: 'Adds a tape system, which engines take up without a restart.',
    errors: { types: [InvalidInputError, ForbiddenError, NotFoundError] },
    args: { input: t.arg({ type: AddLibraryInput, required: true, description: 'What it is.' }) },
    resolve: async (query, _root, { input }, ctx) => {
      const { id } = await addLibrary(ctx, { ...input, settings: parseSettings(input.settings) });
      return await readBack(listLibraries(ctx).one(id, query));
    },
  }),
  setLibrary: t.prismaField({
    type: 'Library',
    description:
      'Changes a tape system, which engines follow without a restart: what they read from it just now they may give up, and read again.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: SetLibraryInput, required: true, description: 'What it is to be.' }) },
    resolve: async (query, _root, { input }, ctx) => {
      const { id } = await setLibrary(ctx, { ...input, settings: parseSettings(input.settings) });
      return await readBack(listLibraries(ctx).one(id, query));
    },
  }),
  removeLibrary: t.field({
    type: RemovedLibraryType,
    description: 'Takes a tape system of which the catalogue has no files out of use for good.',
    errors: { types: [InvalidInputError, NotFoundError, InUseError, ForbiddenError] },
    args: {
      name: t.arg.string({ required: true, description: 'What it is called.' }),
      force: t.arg.boolean({
        description:
          'Also where it was asked for files and cannot be told that nobody needs them: they are in the answer.',
      }),
    },
    resolve: async (_root, { name, force }, ctx) => await removeLibrary(ctx, name, { force }),
  }),
}));

/** What was given is not told: it may hold a secret. */
function parseSettings(text: string | null | undefined): object {
  if (text === null || text === undefined) return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (isObject(value)) return value;
  throw new InvalidInputError('settings', 'must be the text of a JSON object, such as {"folder": "/tapes"}');
}

const KeptCopyType = builder.objectRef<KeptCopy>('KeptCopy').implement({
  description: 'A file that nobody needs any more, and that its library keeps on disk all the same.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Its logical path.' }),
    size: t.expose('size', bigInt('Bytes.')),
    until: t.expose('until', timeOrNull('When the library removes it; null: unknown.')),
  }),
});

const StagingType = builder.objectRef<StagingFigures>('LibraryStaging').implement({
  description: 'What is at a library that stages files for Tapegate.',
  fields: (t) => ({
    asked: t.exposeInt('asked', { description: 'Files that it was asked for, and that are on their way to its disk.' }),
    ready: t.exposeInt('ready', { description: 'Files that can be read there.' }),
    releasing: t.exposeInt('releasing', { description: 'Files of which it is to be told that nobody needs them.' }),
    kept: t.exposeInt('kept', { description: 'Files that nobody needs, and that leave its disk by themselves.' }),
    bytes: t.expose('bytes', bigInt('Of all these.')),
    restUntil: t.expose(
      'restUntil',
      timeOrNull('Until when it is left alone, since it could not answer, or not be read. Null: it is not.'),
    ),
    problem: t.exposeString('problem', nullable('What it said then, for people.')),
    nextKept: t.expose('nextKept', {
      type: [KeptCopyType],
      description: 'Of the files that are kept, those that leave first; 100 at most.',
    }),
  }),
});

const figures = createBatch(readStagingFigures);

builder.prismaObjectField('Library', 'staging', (t) =>
  t.field({
    type: StagingType,
    nullable: true,
    description: 'Of one that stages files: what is there for Tapegate. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await figures(ctx, id)) ?? null,
  }),
);

const UsageType = builder.objectRef<RequestUsage>('LibraryUsage').implement({
  description: 'What a library was sent of one kind of request.',
  fields: (t) => ({
    request: t.exposeString('request', { description: 'As the documentation of the system calls it: `GetObject`.' }),
    sent: t.expose('sent', bigInt('How many, also those whose answers were lost.')),
    bytes: t.expose('bytes', bigInt('Bytes of files that came with the answers.')),
  }),
});

const usage = createBatch(readUsage);

builder.prismaObjectField('Library', 'usage', (t) =>
  t.field({
    type: [UsageType],
    description:
      'What it was sent since it was added, as far as that is counted (kind `s3`): what a bill is made of. It is some seconds behind. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await usage(ctx, id)) ?? [],
  }),
);
