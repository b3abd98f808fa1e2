/** What operators take out of service, and put back. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import {
  listSuspensions,
  readSuspensionsOf,
  resume,
  type Suspension,
  type SuspensionKey,
  suspend,
} from '../../src/domain/health/suspensions.js';
import { SuspensionKind, type SuspensionMode } from '../../src/generated/prisma/enums.js';
import { builder, describeValues, pageComplexity, time, timeOrNull } from './builder.js';
import { createBatch, createCursors, resolveCursorPage } from './pages.js';

const KindType = builder.enumType('SuspensionKind', {
  description: 'What can be taken out of service.',
  values: describeValues<SuspensionKind>({
    VOLUME: 'Its files wait.',
    DRIVE: 'The other drives go on.',
    USER: 'Files that another user waits for too are recalled all the same.',
    LIBRARY: 'All drives of a library.',
    DISK: 'A restore disk: recalls go to the others, or wait.',
    CLOCK: 'The clock of the database: nothing expires or is removed.',
  }),
});

const ModeType = builder.enumType('SuspensionMode', {
  description: 'How something is out of service. Nothing new begins in either.',
  values: describeValues<SuspensionMode>({
    IMMEDIATE: 'What runs is stopped, and waits again; it does not count as a try.',
    DRAINING: 'What runs goes on to its end.',
  }),
});

const SuspensionType = builder.objectRef<Suspension>('Suspension').implement({
  description: 'Something that is out of service: by an operator, or, what fails, by the engine.',
  fields: (t) => ({
    kind: t.expose('kind', { type: KindType, description: 'What it is.' }),
    name: t.exposeString('name', { description: 'Of the volume, drive or library; the user; the mount point.' }),
    mode: t.expose('mode', { type: ModeType, description: 'What became of what ran.' }),
    reason: t.exposeString('reason', { description: 'For people; may be empty.' }),
    since: t.expose('since', time('When it was taken out of service.')),
    nextTry: t.expose(
      'nextTry',
      timeOrNull('When the engine tries it again; null: it stays suspended until an operator resumes it.'),
    ),
  }),
});

const byKind = (kind: SuspensionKind) =>
  createBatch<string, Suspension>((ctx, names) => readSuspensionsOf(ctx, kind, names));
const volumes = byKind('VOLUME');
const drives = byKind('DRIVE');
const users = byKind('USER');
const disks = byKind('DISK');
const libraries = byKind('LIBRARY');
const common = {
  type: SuspensionType,
  nullable: true,
  description: 'How and why it is out of service; null while it is in service.',
} as const;

builder.prismaObjectField('Volume', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => volumes(ctx, name) }),
);
builder.prismaObjectField('Drive', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => drives(ctx, name) }),
);
builder.prismaObjectField('Quota', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ user }, _args, ctx) => users(ctx, user) }),
);
builder.prismaObjectField('RestoreDisk', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ mountpoint }, _args, ctx) => disks(ctx, mountpoint) }),
);
builder.prismaObjectField('Library', 'suspension', (t) =>
  t.field({ ...common, resolve: ({ name }, _args, ctx) => libraries(ctx, name) }),
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
  suspensions: t.connection({
    type: SuspensionType,
    description: 'All that is out of service, by kind and name.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) =>
      resolveCursorPage(args, cursors, {
        keyOf: (suspension: Suspension): SuspensionKey => suspension,
        find: ({ inverted = false, ...page }) => listSuspensions(ctx, { ...page, descending: inverted }),
      }),
  }),
}));

const SuspendInput = builder.inputType('SuspendInput', {
  description: 'What is taken out of service, and how.',
  fields: (t) => ({
    kind: t.field({ type: KindType, required: true, description: 'What it is.' }),
    name: t.string({ required: true, description: 'Of the volume, drive or library; the user; the mount point.' }),
    mode: t.field({ type: ModeType, required: true, description: 'What becomes of what runs.' }),
    reason: t.string({ description: 'For people.' }),
  }),
});

const ResumeInput = builder.inputType('ResumeInput', {
  description: 'What is put back into service.',
  fields: (t) => ({
    kind: t.field({ type: KindType, required: true, description: 'What it is.' }),
    name: t.string({ required: true, description: 'Of the volume, drive or library; the user; the mount point.' }),
  }),
});

builder.mutationFields((t) => ({
  suspend: t.field({
    type: SuspensionType,
    description: 'Takes something out of service; a second time changes mode and reason.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: SuspendInput, required: true, description: 'What, and how.' }) },
    resolve: (_root, { input }, ctx) => suspend(ctx, { ...input, reason: input.reason ?? '' }),
  }),
  resume: t.field({
    type: SuspensionType,
    description: 'Puts something back into service, and gives the suspension that has ended.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: ResumeInput, required: true, description: 'What.' }) },
    resolve: (_root, { input }, ctx) => resume(ctx, input),
  }),
}));
