/** Defines the GraphQL types for suspensions. A suspended volume, drive, library, user or disk gets no new work. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import {
  countSuspensions,
  listSuspensions,
  readSuspension,
  readSuspensionsOf,
  resume,
  type Suspension,
  type SuspensionKey,
  suspend,
} from '../../src/domain/health/suspensions.js';
import { SuspensionKind, type SuspensionMode } from '../../src/generated/prisma/enums.js';
import {
  builder,
  countedConnection,
  describeValues,
  nullable,
  pageComplexity,
  splitPair,
  textOrNull,
  time,
  timeOrNull,
} from './builder.js';
import { counted, createBatch, createCursors, resolveCursorPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

export const KindType = builder.enumType('SuspensionKind', {
  description: 'The type of a suspended object.',
  values: describeValues<SuspensionKind>({
    VOLUME: 'A volume. The files on the volume wait until the volume is resumed.',
    DRIVE: 'A drive. Other drives continue.',
    USER: 'A user. Files that only this user waits for are not restored.',
    LIBRARY: 'A library. All drives of the library stop.',
    DISK: 'A restore disk. Recalls use other disks, or wait if no other disk has room.',
    CLOCK: 'The database clock. Requests do not expire, and no copies are removed.',
  }),
});

export const ModeType = builder.enumType('SuspensionMode', {
  description: 'The mode of a suspension. Both modes prevent new work.',
  values: describeValues<SuspensionMode>({
    IMMEDIATE: 'Stops running work and returns it to the queue, without counting a failed attempt.',
    DRAINING: 'Lets running work finish.',
  }),
});

export const SuspensionType = builder.node(builder.objectRef<Suspension>('Suspension'), {
  id: { resolve: ({ kind, name }) => `${kind}/${name}` },
  loadWithoutCache: (id, ctx) => {
    const [kind, name] = splitPair(id);
    return readSuspension(ctx, { kind: kind as SuspensionKind, name });
  },
  description: 'An object that an operator suspended, or that an engine suspended after failures.',
  fields: (t) => ({
    kind: t.expose('kind', {
      type: KindType,
      description: 'The type of the object: volume, drive, user, library, restore disk or clock.',
    }),
    name: t.exposeString('name', {
      description: 'The name of the volume, drive, library or user, or the mount point of the restore disk.',
    }),
    mode: t.expose('mode', { type: ModeType, description: 'Whether running work is stopped or may finish.' }),
    reason: t.string({
      ...nullable('The reason shown to users and operators.'),
      resolve: ({ reason }) => textOrNull(reason),
    }),
    since: t.expose('since', time('When the object was suspended.')),
    nextTryAt: t.expose(
      'nextTry',
      timeOrNull(
        'When an engine will try the object again. Null if the object stays suspended until an operator resumes it.',
      ),
    ),
  }),
});

const byKind = (kind: SuspensionKind) =>
  createBatch<string, Suspension>((ctx, names) => readSuspensionsOf(ctx, kind, names));
const volumes = byKind('VOLUME');
export const driveSuspension = byKind('DRIVE');
const users = byKind('USER');
const disks = byKind('DISK');
export const librarySuspension = byKind('LIBRARY');
const common = {
  type: SuspensionType,
  nullable: true,
  description: 'The current suspension. Null if the object is not suspended.',
} as const;

builder.prismaObjectField('Volume', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => volumes(ctx, name) }),
);
builder.prismaObjectField('Drive', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => driveSuspension(ctx, name) }),
);
builder.prismaObjectField('Quota', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ user }, _args, ctx) => users(ctx, user) }),
);
builder.prismaObjectField('RestoreDisk', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ mountpoint }, _args, ctx) => disks(ctx, mountpoint) }),
);
builder.prismaObjectField('Library', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => librarySuspension(ctx, name) }),
);

const cursors = createCursors<SuspensionKey>('suspension', {
  format: ({ kind, name }) => `${kind}:${name}`,
  parse: (text) => {
    const [, given, name = ''] = /^([A-Z]+):([^\0]*)$/s.exec(text) ?? [];
    const kind = Object.values(SuspensionKind).find((value) => value === given);
    return kind && { kind, name };
  },
});

builder.queryFields((t) => ({
  suspensions: t.connection(
    {
      type: SuspensionType,
      nullable: true,
      description: 'Returns all suspensions, ordered by type and name.',
      complexity: pageComplexity,
      resolve: (_root, args, ctx) =>
        counted(
          resolveCursorPage(args, cursors, {
            keyOf: (suspension: Suspension): SuspensionKey => suspension,
            find: ({ inverted = false, ...page }) => listSuspensions(ctx, { ...page, descending: inverted }),
          }),
          () => countSuspensions(ctx),
        ),
    },
    countedConnection(SuspensionType, 'Suspension'),
  ),
}));

const SuspendInput = builder.inputType('SuspendInput', {
  description: 'Input of `suspend`.',
  fields: (t) => ({
    kind: t.field({
      type: KindType,
      required: true,
      description: 'The type of the object: volume, drive, user, library, restore disk or clock.',
    }),
    name: t.string({
      required: true,
      description: 'The name of the volume, drive, library or user, or the mount point of the restore disk.',
    }),
    mode: t.field({ type: ModeType, required: true, description: 'Whether running work is stopped or may finish.' }),
    reason: t.string({ description: 'The reason shown to users and operators.' }),
  }),
});

const ResumeInput = builder.inputType('ResumeInput', {
  description: 'Input of `resume`.',
  fields: (t) => ({
    kind: t.field({
      type: KindType,
      required: true,
      description: 'The type of the object: volume, drive, user, library, restore disk or clock.',
    }),
    name: t.string({
      required: true,
      description: 'The name of the volume, drive, library or user, or the mount point of the restore disk.',
    }),
  }),
});

defineMutation('suspend', {
  description: 'Suspends an object. If the object is already suspended, changes the mode and the reason.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => suspend(ctx, { ...input, reason: input.reason ?? '' }),
  input: SuspendInput,
  result: (t) => ({
    suspension: t.field({ type: SuspensionType, nullable: true, description: 'The suspension.', resolve: resultOf }),
  }),
});

defineMutation('resume', {
  description: 'Resumes a suspended object, and returns the suspension that ended.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => resume(ctx, input),
  input: ResumeInput,
  result: (t) => ({
    suspension: t.field({
      type: SuspensionType,
      nullable: true,
      description: 'The suspension that ended.',
      resolve: resultOf,
    }),
  }),
});
