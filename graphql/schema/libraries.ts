/** Defines the GraphQL types for libraries, the site's tape systems. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError, quote } from '../../src/core/errors.js';
import { type LibraryTypeName, libraryTypes } from '../../src/core/library-types.js';
import { readLibraryProblems } from '../../src/domain/health/failing-libraries.js';
import {
  addLibrary,
  type RemovedLibrary,
  removeLibrary,
  type StagedFileLeft,
  updateLibrary,
} from '../../src/domain/libraries/changes.js';
import { listLibraries, type RequestUsage, readSettings, readUsage } from '../../src/domain/libraries/libraries.js';
import { type KeptCopy, readStagingFigures, type StagingFigures } from '../../src/domain/staging/stagers.js';
import type { LibraryContract } from '../../src/generated/prisma/enums.js';
import {
  bigInt,
  bigIntOrNull,
  builder,
  connectionOf,
  describeValues,
  nameValues,
  nullable,
  pageComplexity,
  timeOrNull,
} from './builder.js';
import { readBack, withFieldNames } from './errors.js';
import { createBatch, isInt, readListPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

const ContractType = builder.enumType('LibraryContract', {
  description: "Whether Tapegate or the tape system decides the order in which a library's files are read.",
  values: describeValues<LibraryContract>({
    DRIVE: 'Tapegate mounts the volumes, and decides in which order it mounts volumes and reads files.',
    STAGING: 'Tapegate sends stage requests, and the tape system decides the order in which it reads the files.',
  }),
});

const LibraryTypeType = builder.enumType('LibraryType', {
  description: 'A type of library. docs/operators/libraries describes the types and their settings.',
  values: nameValues<LibraryTypeName>(libraryTypes),
});

interface SettingValue {
  name: string;
  value?: string | null | undefined;
}

const SettingType = builder.objectRef<{ name: string; value: string }>('LibrarySetting').implement({
  description: 'A setting of a library.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'The name of the setting.' }),
    value: t.exposeString('value', { description: 'The value. Values that are not strings are JSON.' }),
  }),
});

const SettingInput = builder.inputType('LibrarySettingInput', {
  description: 'A setting of a library.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'The name of the setting.' }),
    value: t.string({ description: 'The value. A value that begins with `[` or `{` is JSON.' }),
  }),
});

const listSettings = (settings: object): { name: string; value: string }[] =>
  Object.entries(settings)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => ({ name, value: typeof value === 'string' ? value : JSON.stringify(value) }));

const settings = createBatch(readSettings);
const problems = createBatch(readLibraryProblems);

const LibraryType = builder.prismaNode('Library', {
  id: { field: 'id' },
  nullable: true,
  description: 'A tape system. Environment variables configure the first library. Operators add all other libraries.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'The name. The first library is named after its type.' }),
    type: t.field({
      type: LibraryTypeType,
      nullable: true,
      description: 'The library type. Null if this version of Tapegate does not know the type.',
      resolve: ({ kind }) => (Object.hasOwn(libraryTypes, kind) ? (kind as LibraryTypeName) : null),
    }),
    contract: t.expose('contract', {
      type: ContractType,
      description: 'Whether Tapegate or the tape system decides the order in which files are read.',
    }),
    settings: t.field({
      type: [SettingType],
      nullable: true,
      description: 'The settings, without secrets, ordered by name. For viewers and operators.',
      resolve: async ({ id }, _args, ctx) => listSettings((await settings(ctx, id)) ?? {}),
    }),
    driveCount: t.int({
      description: 'The number of drives. For a staging library, the number of simultaneous reads.',
      resolve: ({ drives }, _args, ctx) => drives ?? ctx.config.drives,
    }),
    depthFiles: t.exposeInt(
      'depthFiles',
      nullable(
        'For a staging library, the maximum number of files in outstanding stage requests. If null, the engine uses its default.',
      ),
    ),
    depthBytes: t.expose(
      'depthBytes',
      bigIntOrNull(
        'For a staging library, the maximum number of bytes in outstanding stage requests. If null, the engine uses its default.',
      ),
    ),
    problem: t.string({
      ...nullable(
        'The error from the last call to the library. Null if the call succeeded. For viewers and operators.',
      ),
      resolve: async ({ id }, _args, ctx) => (await problems(ctx, id))?.problem,
    }),
    nextTryAt: t.field({
      ...timeOrNull('When engines will call a failed library again. Null if unknown. For viewers and operators.'),
      resolve: async ({ id }, _args, ctx) => (await problems(ctx, id))?.nextTry,
    }),
    volumeCount: t.relationCount('volumes', {
      where: { retiredAt: null },
      description: "The number of the library's volumes in the catalogue, excluding retired volumes.",
    }),
  }),
});

builder.queryFields((t) => ({
  libraries: t.prismaConnection(
    {
      type: 'Library',
      nullable: true,
      cursor: 'id',
      description: 'Returns all libraries in the order in which they were added.',
      complexity: pageComplexity,
      totalCount: (_root, _args, ctx) => listLibraries(ctx).count(),
      resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listLibraries(ctx).page),
    },
    ...connectionOf('Library'),
  ),
}));

const AddLibraryInput = builder.inputType('AddLibraryInput', {
  description: 'Input of `addLibrary`.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'A unique name of letters, digits, `.`, `_` and `-`.' }),
    type: t.field({ type: LibraryTypeType, required: true, description: 'The library type.' }),
    settings: t.field({
      type: [SettingInput],
      description:
        'The settings of the library type. Store each secret in its own file, and give only the name of that file in the settings.',
    }),
    driveCount: t.int({
      description: 'The number of drives. For a staging library, the number of simultaneous reads. Default 2.',
    }),
    depthFiles: t.int({
      description: 'For a staging library, the maximum number of files in outstanding stage requests.',
    }),
    depthBytes: t.field(bigInt('For a staging library, the maximum number of bytes in outstanding stage requests.')),
  }),
});

const UpdateLibraryInput = builder.inputType('UpdateLibraryInput', {
  description: 'Input of `updateLibrary`. Omitted fields stay unchanged.',
  fields: (t) => ({
    name: t.string({ required: true, description: "The library's name. It cannot be changed." }),
    expectedType: t.field({
      type: LibraryTypeType,
      description:
        'The current library type. The type cannot be changed, because a library of another type could not read the volumes.',
    }),
    settings: t.field({
      type: [SettingInput],
      description: 'The settings to change. To remove a setting, set its value to null or to an empty string.',
    }),
    driveCount: t.int({
      description:
        'The number of drives. For a staging library, the number of simultaneous reads. Null leaves the number unchanged.',
    }),
    depthFiles: t.int({
      description:
        'For a staging library, the maximum number of files in outstanding stage requests. If null, the engine uses its default.',
    }),
    depthBytes: t.field(
      bigInt(
        'For a staging library, the maximum number of bytes in outstanding stage requests. If null, the engine uses its default.',
      ),
    ),
  }),
});

const StagedFileLeftType = builder.objectRef<StagedFileLeft>('StagedFileLeft').implement({
  description: 'A file whose stage request was not released.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The logical path.' }),
    demand: t.exposeString(
      'demand',
      nullable(
        "The tape system's id for the stage request. Null if the tape system does not use ids, or did not return an id.",
      ),
    ),
    until: t.expose('until', timeOrNull('When the tape system will remove the file from its disk. Null if unknown.')),
  }),
});

const RemovedLibraryType = builder.objectRef<RemovedLibrary>('RemovedLibrary').implement({
  description: 'A removed library. The tape system itself is unchanged.',
  fields: (t) => ({
    id: t.globalID({
      description: "The library's former global ID.",
      resolve: ({ id }) => ({ type: 'Library', id }),
    }),
    name: t.exposeString('name', { description: 'The name.' }),
    driveCount: t.exposeInt('drives', { description: 'The number of drives that were removed with the library.' }),
    volumeCount: t.exposeInt('volumes', {
      description: 'The number of volumes that were removed with the library. These volumes contained no files.',
    }),
    stagedFileCount: t.exposeInt('stagedFiles', {
      description:
        'The number of files whose stage requests were not released. The tape system may still stage these files, or keep them on its disk.',
    }),
    stagedBytes: t.expose('stagedBytes', bigInt('The total size in bytes of the unreleased files.')),
    left: t.expose('left', {
      type: [StagedFileLeftType],
      description: 'The first 1,000 unreleased files, sorted by stage request and path.',
    }),
  }),
});

defineMutation('addLibrary', {
  description: 'Adds a library. Engines use it without a restart.',
  errors: [InvalidInputError, ForbiddenError, NotFoundError],
  resolve: async (input, ctx) => {
    const { type: kind, driveCount: drives, settings: given, ...rest } = input;
    const settings = readSettingInputs(given);
    const { id } = await withFieldNames(addLibrary(ctx, { ...rest, kind, drives, settings }), {
      kind: 'type',
      drives: 'driveCount',
    });
    return await readBack(listLibraries(ctx).one(id, {}));
  },
  input: AddLibraryInput,
  result: (t) => ({
    library: t.field({ type: LibraryType, nullable: true, description: 'The new library.', resolve: resultOf }),
  }),
});

defineMutation('updateLibrary', {
  description:
    'Changes the settings of a library. Engines apply the changes without a restart, and may interrupt and repeat active reads.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async (input, ctx) => {
    const { expectedType: kind, driveCount: drives, settings: given, ...rest } = input;
    const settings = readSettingInputs(given);
    const { id } = await withFieldNames(updateLibrary(ctx, { ...rest, kind, drives, settings }), {
      kind: 'expectedType',
      drives: 'driveCount',
    });
    return await readBack(listLibraries(ctx).one(id, {}));
  },
  input: UpdateLibraryInput,
  result: (t) => ({
    library: t.field({ type: LibraryType, nullable: true, description: 'The changed library.', resolve: resultOf }),
  }),
});

const RemoveLibraryInput = builder.inputType('RemoveLibraryInput', {
  description: 'Input of `removeLibrary`.',
  fields: (t) => ({
    name: t.string({ required: true, description: "The library's name." }),
    force: t.boolean({
      description:
        'Whether to remove the library even if its stage requests cannot be released, for example because the tape system no longer exists. The result lists the unreleased files.',
    }),
  }),
});

defineMutation('removeLibrary', {
  description: 'Removes a library. Fails if the catalogue contains files that are stored in the library.',
  errors: [InvalidInputError, NotFoundError, InUseError, ForbiddenError],
  resolve: async ({ name, force }, ctx) => await removeLibrary(ctx, name, { force }),
  input: RemoveLibraryInput,
  result: (t) => ({
    removed: t.field({
      type: RemovedLibraryType,
      nullable: true,
      description: 'The removed library.',
      resolve: resultOf,
    }),
  }),
});

/**
 * Parses the settings of a library. A value that begins with `[` or `{` is JSON. Error messages omit the values, which
 * might include a secret.
 */
function readSettingInputs(given: readonly SettingValue[] | null | undefined): object {
  const read = new Map<string, unknown>();
  for (const { name, value } of given ?? []) {
    if (read.has(name)) throw new InvalidInputError('settings', `must not contain ${quote(name)} twice`);
    read.set(name, readValue(name, value ?? null));
  }
  return Object.fromEntries(read);
}

function readValue(name: string, value: string | null): unknown {
  if (value === null || !/^[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    throw new InvalidInputError(
      'settings',
      `must contain valid JSON in ${quote(name)}, because the value begins like JSON`,
    );
  }
}

const KeptCopyType = builder.objectRef<KeptCopy>('KeptCopy').implement({
  description: 'A file that Tapegate has released, but that the library still keeps on its disk.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The logical path.' }),
    size: t.expose('size', bigInt('The size of the file in bytes.')),
    until: t.expose('until', timeOrNull('When the library will remove the file from its disk. Null if unknown.')),
  }),
});

const StagingType = builder.objectRef<StagingFigures>('LibraryStaging').implement({
  description: 'Files that a staging library is staging or has staged for Tapegate.',
  fields: (t) => ({
    filesRequested: t.exposeInt('asked', {
      description:
        'The number of files that Tapegate has requested, but that the library has not staged to its disk yet.',
    }),
    filesReady: t.exposeInt('ready', {
      description: "The number of files on the library's disk that Tapegate can read.",
    }),
    filesReleasing: t.exposeInt('releasing', {
      description: "The number of files on the library's disk that Tapegate is about to release.",
    }),
    filesKept: t.exposeInt('kept', {
      description: "The number of released files that are still on the library's disk.",
    }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of all files that are staged or being staged.')),
    pausedUntil: t.expose(
      'restUntil',
      timeOrNull('When Tapegate will call the library again after failures. Null if calls are not paused.'),
    ),
    problem: t.exposeString(
      'problem',
      nullable('The error that made Tapegate pause calls to the library. Null if calls are not paused.'),
    ),
    nextKept: t.expose('nextKept', {
      type: [KeptCopyType],
      description: 'The released files that the library will remove from its disk first. Lists at most 100 files.',
    }),
  }),
});

const figures = createBatch(readStagingFigures);

builder.prismaObjectField('Library', 'staging', (t) =>
  t.field({
    type: StagingType,
    nullable: true,
    description: 'For a staging library, the state of its staged files. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await figures(ctx, id)) ?? null,
  }),
);

const UsageType = builder.objectRef<RequestUsage>('LibraryUsage').implement({
  description: 'The number of API requests of one kind that were sent to a library.',
  fields: (t) => ({
    request: t.exposeString('request', { description: 'The name of the API request, such as `GetObject`.' }),
    sent: t.expose('sent', bigInt('The number of API requests sent, including requests whose response was lost.')),
    bytes: t.expose('bytes', bigInt('The number of bytes of file data in the responses.')),
  }),
});

const usage = createBatch(readUsage);

builder.prismaObjectField('Library', 'usage', (t) =>
  t.field({
    type: [UsageType],
    nullable: true,
    description:
      'The API requests that Tapegate has sent to the library since the library was added. Use these numbers to control costs. Only for libraries of type `s3`. Requests from the last few seconds may not be counted yet. For viewers and operators.',
    resolve: async ({ id }, _args, ctx) => (await usage(ctx, id)) ?? [],
  }),
);
