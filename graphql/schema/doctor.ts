/** What the doctor finds by rows alone: restore disks it looks at where they are. */
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import { GraphQLError } from 'graphql';
import { ForbiddenError, InvalidInputError } from '../../src/core/errors.js';
import type { LookedAt } from '../../src/domain/doctor/findings.js';
import {
  describeUnchecked,
  type FindingCursor,
  type FindingPage,
  listFindings,
  type RowFinding,
  readLookedAt,
  repairFindings,
} from '../../src/domain/doctor/rows.js';
import { builder, MAX_PAGE_SIZE, nullable, PAGE_SIZE, pageComplexity } from './builder.js';
import { createCursors } from './pages.js';

const FindingType = builder.objectRef<RowFinding>('DoctorFinding').implement({
  description: 'A fault of one thing: what was expected, and what is there.',
  fields: (t) => ({
    kind: t.exposeString('kind', {
      description: 'Kind of the finding, such as `quota-used`; docs/operators/troubleshooting.md lists all kinds.',
    }),
    thing: t.exposeString('thing', { description: 'A path, a user, a request, a volume or a mount point.' }),
    expected: t.exposeString('expected', { description: 'What should be there, for people.' }),
    found: t.exposeString('found', { description: 'What is there, for people.' }),
    isRepaired: t.exposeBoolean('isRepaired', { description: 'It was mended just now.' }),
    needsHost: t.exposeBoolean('needsHost', {
      description:
        'Rows alone do not mend it: `tapegate doctor --repair` may, on a host that has the restore disks, or an engine by itself.',
    }),
  }),
});

const LookedAtType = builder.objectRef<LookedAt>('DoctorRows').implement({
  description: 'How many rows the doctor checks.',
  fields: (t) => {
    const count = (name: keyof LookedAt) =>
      t.float({ description: 'Rows that it checks.', resolve: (rows) => Number(rows[name]) });
    return {
      quotas: count('quotas'),
      requests: count('requests'),
      requestFiles: count('requestFiles'),
      recalls: count('recalls'),
      disks: count('disks'),
    };
  },
});

/** Each step looks at all rows of a kind, and the counts at all rows. */
const LOOK_COMPLEXITY = 500;

builder.queryFields((t) => ({
  doctorFindings: t.connection(
    {
      type: FindingType,
      description:
        'What is wrong with the rows of the database, kind after kind; for operators. A page may have few findings, or none, and say that more comes: ' +
        'it ends after about 20 s. It is read forwards.',
      complexity: (args) => ({ ...pageComplexity(args), field: LOOK_COMPLEXITY }),
      resolve: async (_root, args, ctx) => toConnection(args, await listFindings(ctx, readPage(args), ctx.reader)),
    },
    {
      name: 'QueryDoctorFindingsConnection',
      fields: (t) => ({
        lookedAt: t.field({
          type: LookedAtType,
          complexity: LOOK_COMPLEXITY,
          description: 'How much all pages together look at.',
          resolve: (_page, _args, ctx) => readLookedAt(ctx, ctx.reader),
        }),
        notLookedAt: t.string({
          ...nullable(
            'Which restore disks are not looked at here, with the hosts whose engines look at them, and what is to be done, for people; the first 20. Null: there is none.',
          ),
          resolve: (_page, _args, ctx) => describeUnchecked(ctx),
        }),
      }),
    },
  ),
}));

function readPage({ first, last, after, before }: DefaultConnectionArguments) {
  if (last != null || before != null) {
    throw new GraphQLError('doctorFindings is read forwards: give first and after', {
      extensions: { code: 'BAD_USER_INPUT' },
    });
  }
  return { limit: limitOf(first), after: readPlace(after) };
}

function limitOf(first: number | null | undefined): number {
  return Math.min(Math.max(first ?? PAGE_SIZE, 0), MAX_PAGE_SIZE);
}

/** A page may end between two findings: its end is where the next one begins. */
function toConnection({ after }: DefaultConnectionArguments, { findings, next }: FindingPage) {
  const edges = findings.map((node) => ({ node, cursor: cursors.write(node) }));
  const endCursor = next ? cursors.write(next) : (edges.at(-1)?.cursor ?? after ?? null);
  const startCursor = edges[0]?.cursor ?? after ?? null;
  const pageInfo = { startCursor, endCursor, hasPreviousPage: after != null, hasNextPage: next !== undefined };
  return { edges, pageInfo };
}

function readPlace(cursor: string | null | undefined): FindingCursor | undefined {
  return cursor == null ? undefined : cursors.read(cursor);
}

const cursors = createCursors<FindingCursor>('finding', {
  format: ({ kind, key }) => `${kind}:${key}`,
  parse: (text) => {
    const [, kind = '', key] = /^([a-z-]{1,50}):(-1|\d{1,18})$/.exec(text) ?? [];
    return key === undefined ? undefined : { kind, key: BigInt(key) };
  },
});

const RepairedFindings = builder.objectRef<FindingPage>('RepairedFindings').implement({
  description: 'A page of what `repairFindings` has found.',
  fields: (t) => ({
    findings: t.expose('findings', {
      type: [FindingType],
      description: 'Each with whether it was mended.',
    }),
    next: t.string({
      ...nullable('For `after`, to go on; null: all was looked at.'),
      resolve: ({ next }) => next && cursors.write(next),
    }),
  }),
});

/** More are not mended in one transaction. */
const MAX_REPAIRS = 500;

builder.mutationFields((t) => ({
  repairFindings: t.field({
    type: RepairedFindings,
    description:
      'Mends what is wrong with the rows of the database, as far as no restore disk is to be looked at for it, a page at a time, as `doctorFindings` finds it. ' +
      'Safe while everything runs, and twice.',
    complexity: { field: LOOK_COMPLEXITY, multiplier: MAX_REPAIRS / 10 },
    errors: { types: [InvalidInputError, ForbiddenError] },
    args: {
      first: t.arg.int({ description: `So many at most: ${PAGE_SIZE} unless told, ${MAX_REPAIRS} at most.` }),
      after: t.arg.string({ description: 'The `next` of the page before.' }),
    },
    resolve: (_root, { first, after }, ctx) => {
      const limit = Math.max(Math.min(limitOf(first), MAX_REPAIRS), 1);
      return repairFindings(ctx, { limit, after: readPlace(after) }, ctx.reader);
    },
  }),
}));
