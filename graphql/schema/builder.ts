/** The Pothos builder: plugins, limits, and the scalars that keep integers and times exact. */
import SchemaBuilder from '@pothos/core';
import ComplexityPlugin from '@pothos/plugin-complexity';
import ErrorsPlugin from '@pothos/plugin-errors';
import PrismaPlugin from '@pothos/plugin-prisma';
import RelayPlugin from '@pothos/plugin-relay';
import { GraphQLError, Kind, type ValueNode } from 'graphql';
import { quote } from '../../src/core/errors.js';
import { parseZonedTime } from '../../src/core/time.js';
import { isListed } from '../../src/domain/catalogue/files.js';
import type { Context } from '../../src/domain/context.js';
import { allow, type Operation } from '../../src/domain/policy.js';
import type PrismaTypes from '../../src/generated/pothos-prisma-types.js';
import { getDatamodel } from '../../src/generated/pothos-prisma-types.js';
import type { EventPlace } from './event-place.js';
import { PAGE_ARGUMENTS } from './page-arguments.js';

interface SchemaTypes {
  Context: Context & { place?: EventPlace };
  PrismaTypes: PrismaTypes;
  DefaultFieldNullability: false;
  Scalars: {
    BigInt: { Input: bigint; Output: bigint };
    DateTime: { Input: string; Output: string };
    ID: { Input: string; Output: string | number | bigint };
  };
}

/** Items of a page: what a list gives unless told, and what it gives at most. */
export const PAGE_SIZE = 50;
export const MAX_PAGE_SIZE = 1000;

const SIZES = `${PAGE_SIZE} unless told, ${MAX_PAGE_SIZE} at most.`;
const PAGE_CURSOR = {
  start: 'Of its first edge. An empty page has the cursor it was asked with; null where there was none.',
  end: 'Of its last edge. An empty page has the cursor it was asked with; null where there was none.',
};

export const builder = new SchemaBuilder<SchemaTypes>({
  plugins: [PAGE_ARGUMENTS, ErrorsPlugin, ComplexityPlugin, RelayPlugin, PrismaPlugin],
  defaultFieldNullability: false,
  prisma: {
    client: (ctx) => ctx.db.prisma,
    dmmf: getDatamodel(),
    filterConnectionTotalCount: true,
    onUnusedQuery: 'error',
    defaultConnectionSize: PAGE_SIZE,
    maxConnectionSize: MAX_PAGE_SIZE,
  },
  relay: {
    nodeTypeOptions: { description: 'What has an `id`, by which `node` gives it again.' },
    idFieldOptions: { description: 'For `node`, and for caches of clients.' },
    pageInfoTypeOptions: { description: 'Where a page is in its list.' },
    startCursorFieldOptions: { description: PAGE_CURSOR.start },
    endCursorFieldOptions: { description: PAGE_CURSOR.end },
    hasNextPageFieldOptions: { description: 'More comes after it, as far as the page can tell.' },
    hasPreviousPageFieldOptions: { description: 'More comes before it, as far as the page can tell.' },
    defaultConnectionTypeOptions: { description: 'A page of a list.' },
    edgesFieldOptions: { description: 'The page itself, in the order of the list.' },
    pageInfoFieldOptions: { description: 'Where it is in the list.' },
    defaultEdgeTypeOptions: { description: 'One of a list, and its place there.' },
    nodeFieldOptions: { description: 'What stands there.' },
    cursorFieldOptions: { description: 'Its place, for `after` and `before`; good even when it has left the list.' },
    firstArgOptions: { description: `So many at most, from the beginning or after \`after\`: ${SIZES}` },
    lastArgOptions: { description: `So many at most, from the end or before \`before\`: ${SIZES}` },
    afterArgOptions: { description: 'Only what comes after this cursor.' },
    beforeArgOptions: { description: 'Only what comes before this cursor.' },
    nodesQueryOptions: false,
    nodeQueryOptions: {
      description: 'Any node by its `id`; null when there is none.',
      args: { id: { description: 'The `id` of the node.' } },
      resolve: async (_root, { id }, ctx, _info, load) => ((await maySee(ctx, id)) ? load(id) : null),
    },
  },
  errors: {
    directResult: true,
    defaultTypes: [],
    // `CreateRequestResult`, of `createRequest`
    defaultUnionOptions: { name: ({ fieldName }) => `${fieldName.charAt(0).toUpperCase()}${fieldName.slice(1)}Result` },
  },
  complexity: {
    disabled: true, // but for what each field costs: graphql/server/documents.ts looks at an operation as a whole
    defaultComplexity: 1,
    defaultListMultiplier: 10,
  },
});

/** The operation that reads a node of each type. */
const reads: Record<string, Operation> = {
  TapeFile: 'getFile',
  Volume: 'listVolumes',
  Drive: 'listDrives',
  Library: 'listLibraries',
  RestoreDisk: 'listDisksByPage',
  Request: 'getRequest',
  Quota: 'getQuota',
};

/** Hidden objects are reported as missing: here files, and in their own types requests and quotas. @throws ForbiddenError */
async function maySee(ctx: Context, node: { typename: string; id: string }): Promise<boolean> {
  const operation = reads[node.typename];
  if (operation !== undefined) allow(ctx, operation);
  return isSerial(node) && (node.typename !== 'TapeFile' || (await isListed(ctx, BigInt(node.id))));
}

/** Ids are serial numbers, of eight bytes for tape files and of four for all else; the database refuses greater ones. */
function isSerial({ typename, id }: { typename: string; id: string }): boolean {
  return /^[1-9]\d{0,18}$/.test(id) && BigInt(id) < 2n ** (typename === 'TapeFile' ? 63n : 31n);
}

builder.scalarType('BigInt', {
  specifiedByURL: 'https://www.w3.org/TR/xmlschema11-2/#long',
  description:
    'A signed integer of 64 bits, in decimal. Sent as a string, since JavaScript rounds numbers beyond 2^53; taken as a ' +
    'string, or as a number up to 2^53 (in a document, of any size).',
  serialize: (value) => String(parseInteger(value)),
  parseValue: parseInteger,
  parseLiteral: (node) => parseInteger(node.kind === Kind.INT || node.kind === Kind.STRING ? node.value : node.kind),
});

function parseInteger(value: unknown): bigint {
  if (typeof value === 'bigint') return value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  if (Number.isInteger(value)) {
    throw new GraphQLError('BigInt beyond 2^53 must be a string, since JSON numbers of that size are rounded');
  }
  if (typeof value === 'string' && /^-?\d{1,19}$/.test(value)) return BigInt(value);
  throw new GraphQLError(`BigInt must be an integer of at most 19 digits, not ${show(value)}`);
}

/** A value for a message; what is not plain may be endlessly deep. */
function show(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object';
  return quote(String(value));
}

builder.scalarType('DateTime', {
  specifiedByURL: 'https://www.rfc-editor.org/rfc/rfc3339',
  description:
    'A time as RFC 3339 writes it. Sent in UTC with a `Z`, with six digits of fraction where they are not zero: ' +
    '`2026-11-20T08:13:39.613601Z`. Taken with any zone and up to six digits; without a zone it is UTC, and a date is ' +
    'its midnight.',
  serialize: (value) => `${value}Z`,
  parseValue: readTime,
  parseLiteral: (node: ValueNode) => readTime(node.kind === Kind.STRING ? node.value : node.kind),
});

function readTime(value: unknown): string {
  const time = typeof value === 'string' ? parseZonedTime(value) : undefined;
  if (time !== undefined) return time;
  throw new GraphQLError(
    `DateTime must be a date YYYY-MM-DD or a date-time YYYY-MM-DDTHH:MM:SS[.ffffff], UTC or with a zone (Z, ±HH:MM), not ${show(value)}`,
  );
}

builder.queryType({ description: 'What can be asked.' });
builder.mutationType({ description: 'What can be done. What a caller can put right is a member of the result.' });
builder.subscriptionType({ description: 'What can be watched.' });

/** Options of a field or an argument, with its description. */
export const time = (description: string) => ({ type: 'DateTime', description }) as const;
export const timeOrNull = (description: string) => ({ type: 'DateTime', nullable: true, description }) as const;
export const bigInt = (description: string) => ({ type: 'BigInt', description }) as const;
export const bigIntOrNull = (description: string) => ({ type: 'BigInt', nullable: true, description }) as const;
export const nullable = (description: string) => ({ nullable: true, description }) as const;

/** Returns the values of an enum with their descriptions. */
export function describeValues<Name extends string>(texts: Record<Name, string>, end = '') {
  const entries = Object.entries<string>(texts).map(([name, text]) => [name, { description: `${text}${end}` }]);
  return Object.fromEntries(entries) as Record<Name, { description: string }>;
}

/** Arguments of a connection say how many items it reads; nested lists multiply. */
export function pageComplexity(args: { first?: number | null | undefined; last?: number | null | undefined }) {
  return { field: 1, multiplier: Math.min(args.first ?? args.last ?? PAGE_SIZE, MAX_PAGE_SIZE) / 10 };
}
