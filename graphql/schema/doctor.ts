/**
 * Defines the GraphQL types for inconsistencies that the command `doctor` finds in the database. Inconsistencies on
 * restore disks are not included, because only a host that mounts a disk can check the disk.
 */
import { ForbiddenError, InvalidInputError } from '../../src/core/errors.js';
import type { ExaminedRows } from '../../src/domain/doctor/findings.js';
import {
  describeUnchecked,
  type FindingCursor,
  type FindingPage,
  listFindings,
  type RowFinding,
  readExamined,
  repairFindings,
} from '../../src/domain/doctor/rows.js';
import { bigInt, builder, MAX_PAGE_SIZE, nullable, PAGE_SIZE, pageComplexity } from './builder.js';
import { createCursors, type ForwardArguments, forwardArguments, selectedNames } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

const FindingType = builder.objectRef<RowFinding>('DoctorFinding').implement({
  description: 'An inconsistency that the doctor found, with the expected and the actual state.',
  fields: (t) => ({
    kind: t.exposeString('kind', {
      description: 'The kind of finding, such as `quota-used`. docs/operators/troubleshooting.md lists all kinds.',
    }),
    object: t.exposeString('object', {
      description: 'The path, user, request, volume or mount point that the finding is about.',
    }),
    expected: t.exposeString('expected', { description: 'A description of the expected state.' }),
    found: t.exposeString('found', { description: 'A description of the actual state.' }),
    isRepaired: t.exposeBoolean('isRepaired', { description: 'Whether this operation repaired the inconsistency.' }),
    needsHost: t.exposeBoolean('needsHost', {
      description:
        'Whether the repair requires access to the restore disks. If true, run `tapegate doctor --repair` on a host that mounts the disks, or wait until an engine repairs the inconsistency.',
    }),
  }),
});

const ExaminedRowsType = builder.objectRef<ExaminedRows>('DoctorRows').implement({
  description: 'The number of rows that the doctor checks in each table.',
  fields: (t) => {
    const count = (name: keyof ExaminedRows, what: string) =>
      t.int({ description: `The number of ${what} in the database.`, resolve: (rows) => Number(rows[name]) });
    return {
      quotas: count('quotas', 'quotas'),
      requests: count('requests', 'requests'),
      requestFiles: t.expose('requestFiles', bigInt('The number of request files in the database.')),
      recalls: count('recalls', 'recalls'),
      disks: count('disks', 'restore disks'),
    };
  },
});

/**
 * Query cost of a field that searches the database for inconsistencies. The cost is high, because the search reads
 * whole tables.
 */
const LOOK_COMPLEXITY = 500;

const FindingConnection = builder.connectionObject(
  {
    type: FindingType,
    name: 'DoctorFindingConnection',
    fields: (t) => ({
      examined: t.field({
        type: ExaminedRowsType,
        complexity: LOOK_COMPLEXITY,
        description: 'The number of rows in each table that the doctor checks to return all pages.',
        resolve: (_page, _args, ctx) => readExamined(ctx, ctx.reader),
      }),
      notExamined: t.string({
        ...nullable(
          'A message about restore disks that this query does not check. The message names up to 20 of these disks, and the hosts that can check them. Null if the query checks all disks.',
        ),
        resolve: (_page, _args, ctx) => describeUnchecked(ctx),
      }),
    }),
  },
  { name: 'DoctorFindingEdge' },
);

builder.queryFields((t) => ({
  doctorFindings: t.field({
    type: FindingConnection,
    nullable: true,
    description:
      'Returns inconsistencies in the database, grouped by kind. The search for a page stops after about 20 s, so a page may be short or empty even if `hasNextPage` is true. For operators.',
    complexity: (args) => ({ ...pageComplexity(args), field: LOOK_COMPLEXITY }),
    args: forwardArguments(t.arg),
    resolve: async (_root, args, ctx, info) => {
      if (args.first === 0 && !selectedNames(info, 'pageInfo').includes('hasNextPage')) {
        return toConnection(args, { findings: [], next: undefined });
      }
      const found = await listFindings(
        ctx,
        { limit: limitOf(args.first) || 1, after: readPlace(args.after) },
        ctx.reader,
      );
      if (args.first !== 0) return toConnection(args, found);
      return toConnection(args, { findings: [], next: found.findings.length > 0 ? found.next : undefined });
    },
  }),
}));

function limitOf(first: number | null | undefined): number {
  return Math.min(Math.max(first ?? PAGE_SIZE, 0), MAX_PAGE_SIZE);
}

/**
 * Returns a page of findings. If the search is not complete, the page's end cursor is the position at which the search
 * for the next page begins.
 */
function toConnection({ after }: ForwardArguments, { findings, next }: FindingPage) {
  const edges = findings.map((node) => ({ node, cursor: cursors.write(node) }));
  const endCursor = next ? cursors.write(next) : (edges.at(-1)?.cursor ?? after ?? null);
  const startCursor = edges[0]?.cursor ?? after ?? null;
  const pageInfo = { startCursor, endCursor, hasPreviousPage: after != null, hasNextPage: next !== undefined };
  return { edges, pageInfo };
}

function readPlace(cursor: string | null | undefined): FindingCursor | undefined {
  return cursor == null ? undefined : cursors.read(cursor, 'after');
}

const cursors = createCursors<FindingCursor>('finding', {
  format: ({ kind, key }) => `${kind}:${key}`,
  parse: (text) => {
    const [, kind = '', key] = /^([a-z-]{1,50}):(-1|\d{1,18})$/.exec(text) ?? [];
    return key === undefined ? undefined : { kind, key: BigInt(key) };
  },
});

const RepairedFindings = builder.objectRef<FindingPage>('RepairedFindings').implement({
  description: 'A page of findings that `repairFindings` checked.',
  fields: (t) => ({
    findings: t.expose('findings', {
      type: [FindingType],
      description: 'The findings. The field `isRepaired` of each finding shows whether the finding was repaired.',
    }),
    next: t.string({
      ...nullable('The cursor of the next page, to be passed as `after`. Null if this is the last page.'),
      resolve: ({ next }) => next && cursors.write(next),
    }),
  }),
});

const MAX_REPAIRS = 500;

const RepairFindingsInput = builder.inputType('RepairFindingsInput', {
  description: 'Input of `repairFindings`.',
  fields: (t) => ({
    first: t.int({
      description: `The maximum number of findings. Default ${PAGE_SIZE}, maximum ${MAX_REPAIRS}.`,
    }),
    after: t.string({ description: 'The `next` cursor of the previous page.' }),
  }),
});

defineMutation('repairFindings', {
  description:
    'Repairs one page of findings, except those that require access to a restore disk. You can run this operation while Tapegate is running, and you can safely repeat it.',
  complexity: { field: LOOK_COMPLEXITY, multiplier: MAX_REPAIRS / 10 },
  errors: [InvalidInputError, ForbiddenError],
  resolve: ({ first, after }, ctx) => {
    const limit = Math.max(Math.min(limitOf(first), MAX_REPAIRS), 1);
    return repairFindings(ctx, { limit, after: readPlace(after) }, ctx.reader);
  },
  input: RepairFindingsInput,
  result: (t) => ({
    repaired: t.field({
      type: RepairedFindings,
      nullable: true,
      description: 'The findings that were checked.',
      resolve: resultOf,
    }),
  }),
});
