/**
 * Configures the Pothos schema builder: its plugins, its limits, and scalar types for large integers and exact times.
 */
import SchemaBuilder, { type OutputType } from '@pothos/core';
import ComplexityPlugin from '@pothos/plugin-complexity';
import PrismaPlugin from '@pothos/plugin-prisma';
import RelayPlugin, { resolveNodes } from '@pothos/plugin-relay';
import { GraphQLError, Kind, type ValueNode } from 'graphql';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import { parseZonedTime } from '../../src/core/time.js';
import { readAllowed } from '../../src/domain/access/paths.js';
import type { Context } from '../../src/domain/context.js';
import { allow, type Operation } from '../../src/domain/policy.js';
import type PrismaTypes from '../../src/generated/pothos-prisma-types.js';
import { getDatamodel } from '../../src/generated/pothos-prisma-types.js';
import type { EventCursor } from './event-cursor.js';
import { PAGE_ARGUMENTS } from './page-arguments.js';

export type Types = typeof builder extends PothosSchemaTypes.SchemaBuilder<infer Known> ? Known : never;

interface SchemaTypes {
  Context: Context & { cursor?: EventCursor };
  PrismaTypes: PrismaTypes;
  DefaultFieldNullability: false;
  Scalars: {
    BigInt: { Input: bigint; Output: bigint };
    DateTime: { Input: string; Output: string };
    ID: { Input: string; Output: string | number | bigint };
  };
}

export const PAGE_SIZE = 50;
export const MAX_PAGE_SIZE = 1000;

const SIZES = `Default ${PAGE_SIZE}, maximum ${MAX_PAGE_SIZE}.`;
const PAGE_CURSOR = {
  start:
    "The cursor of the first item on the page. If the page is empty, the value is the query's `after` or `before` argument, or null if the query has neither argument.",
  end: "The cursor of the last item on the page. If the page is empty, the value is the query's `after` or `before` argument, or null if the query has neither argument.",
};

export const builder = new SchemaBuilder<SchemaTypes>({
  plugins: [PAGE_ARGUMENTS, ComplexityPlugin, RelayPlugin, PrismaPlugin],
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
    nodeTypeOptions: { description: 'An object with a global ID.' },
    idFieldOptions: {
      description: 'The global ID. Clients can pass it to the query `node`, and use it as a cache key.',
    },
    pageInfoTypeOptions: {
      description: 'The cursors of a page, and whether more items may precede or follow the page.',
    },
    startCursorFieldOptions: { description: PAGE_CURSOR.start },
    endCursorFieldOptions: { description: PAGE_CURSOR.end },
    hasNextPageFieldOptions: { description: 'Whether more items may follow this page.' },
    hasPreviousPageFieldOptions: { description: 'Whether more items may precede this page.' },
    defaultConnectionTypeOptions: { description: 'A page of a list.' },
    edgesFieldOptions: { description: 'The items of the page with their cursors.' },
    pageInfoFieldOptions: {
      description: 'The cursors of the page, and whether more items may precede or follow the page.',
    },
    defaultEdgeTypeOptions: { description: 'An item of a list with its cursor.' },
    nodeFieldOptions: { description: 'The item.' },
    cursorFieldOptions: {
      description:
        "The item's cursor, which can be passed as `after` or `before`. The cursor stays valid even if the item is removed from the list.",
    },
    firstArgOptions: {
      description: `Returns the first n items of the list, or the first n items after the \`after\` cursor. ${SIZES}`,
    },
    lastArgOptions: {
      description: `Returns the last n items of the list, or the last n items before the \`before\` cursor. ${SIZES}`,
    },
    afterArgOptions: { description: 'Returns the items after this cursor.' },
    beforeArgOptions: { description: 'Returns the items before this cursor.' },
    nodesQueryOptions: {
      description: `Returns the objects with the given global IDs, in the given order. An object that does not exist is null. At most ${MAX_PAGE_SIZE} IDs.`,
      nullable: { list: true, items: true },
      complexity: ({ ids }) => ({ field: 1, multiplier: Math.min(ids.length, MAX_PAGE_SIZE) / 10 }),
      args: { ids: { description: 'The global IDs of the objects.' } },
      resolve: async (_root, { ids }, ctx, info): Promise<unknown[]> => {
        if (ids.length > MAX_PAGE_SIZE) {
          throw new InvalidInputError('ids', `must contain at most ${MAX_PAGE_SIZE} ids, not ${ids.length}`);
        }
        const visible = await findVisible(ctx, 'ids', ids);
        // the loader that Pothos passes to this function would load all ids of the query, also those of hidden objects
        const loaded = await resolveNodes(
          builder,
          ctx,
          info,
          ids.filter((_, index) => visible[index]),
        );
        return visible.map((isVisible) => (isVisible ? loaded.shift() : null));
      },
    },
    decodeGlobalID: readGlobalId,
    nodeQueryOptions: {
      description: 'Returns the object with the given global ID, or null if the object does not exist.',
      args: { id: { description: "The object's global ID." } },
      resolve: async (_root, { id }, ctx, _info, load) => {
        const [isVisible] = await findVisible(ctx, 'id', [id]);
        return isVisible ? load(id) : null;
      },
    },
  },
  complexity: {
    disabled: true, // disable Pothos' own limits, because documents.ts checks the cost of each operation
    defaultComplexity: 1,
    defaultListMultiplier: 10,
  },
});

interface NodeType {
  /** The operation that a caller must be allowed to call, so that the caller may read nodes of the type. */
  operation: Operation;
  /** Returns whether a text can be the local id of a node of the type. */
  isId(id: string): boolean;
  /** Returns the tape file that the node shows. Path rules can hide this file, and the node with it. */
  fileOf?(id: string): bigint;
}

const isInt = (id: string) => isPositive(id) && BigInt(id) < 2n ** 31n;
const isBigInt = (id: string) => isPositive(id) && BigInt(id) < 2n ** 63n;
const isPositive = (id: string) => /^[1-9]\d{0,18}$/.test(id);

/** Splits the local id of a request file into the ids of the request and the file. */
export const splitPair = (id: string): [first: string, second: string] => {
  const at = id.indexOf('/');
  return [id.slice(0, Math.max(at, 0)), id.slice(at + 1)];
};

const nodeTypes: Readonly<Record<string, NodeType>> = {
  TapeFile: { operation: 'getFile', isId: isBigInt, fileOf: BigInt },
  Volume: { operation: 'listVolumes', isId: isInt },
  Drive: { operation: 'listDrives', isId: isInt },
  Library: { operation: 'listLibraries', isId: isInt },
  RestoreDisk: { operation: 'listDisksByPage', isId: isInt },
  Request: { operation: 'getRequest', isId: isInt },
  RequestFile: {
    operation: 'getRequest',
    isId: (id) => isInt(splitPair(id)[0]) && isBigInt(splitPair(id)[1]),
    fileOf: (id) => BigInt(splitPair(id)[1]),
  },
  Quota: { operation: 'getQuota', isId: isInt },
  QuotaMember: {
    operation: 'getQuota',
    isId: (id) => isInt(splitPair(id)[0]) && /^(USER|GROUP)\/[^\0]+$/.test(splitPair(id)[1]),
  },
  PathRule: { operation: 'listPathRules', isId: isInt },
  Suspension: { operation: 'listSuspensions', isId: (id) => /^[A-Z]+\/[^\0]*$/.test(id) },
  Recall: { operation: 'listRecalls', isId: isBigInt, fileOf: BigInt },
  VerificationFailure: { operation: 'listVerifications', isId: isBigInt, fileOf: BigInt },
  Token: { operation: 'listTokens', isId: isInt },
  Webhook: { operation: 'listWebhooks', isId: isInt },
  WebhookMessage: { operation: 'listWebhookMessages', isId: isBigInt },
  AuditEntry: { operation: 'listAudit', isId: isBigInt },
};

interface NodeId {
  typename: string;
  id: string;
}

/**
 * Parses the global id of a node. For a malformed id, returns an empty type name, which `findVisible` later rejects. Never
 * throws, because an error while Pothos computes the query cost would fail the whole query.
 */
function readGlobalId(globalId: string): NodeId {
  const [, typename = '', id = globalId] = /^(\w+):(.+)$/s.exec(Buffer.from(globalId, 'base64').toString()) ?? [];
  return { typename, id };
}

/**
 * Returns for each node whether the caller may see it. A file that is hidden by path rules counts as missing.
 * @throws InvalidInputError if an id is not valid; ForbiddenError
 */
async function findVisible(ctx: Context, argument: 'id' | 'ids', nodes: readonly NodeId[]): Promise<boolean[]> {
  const checked = nodes.map((node) => checkNode(ctx, argument, node));
  const fileIds = checked.flatMap((node) => (node?.fileId === undefined ? [] : node.fileId));
  const listed = fileIds.length > 0 ? await readAllowed(ctx, 'LIST', fileIds) : undefined;
  return checked.map((node) => node !== undefined && (node.fileId === undefined || listed?.get(node.fileId) === true));
}

/** Returns the file that a node shows, if there is one. Returns undefined if no node can have the id. */
function checkNode(ctx: Context, argument: 'id' | 'ids', { typename, id }: NodeId): { fileId?: bigint } | undefined {
  const type = Object.hasOwn(nodeTypes, typename) ? nodeTypes[typename] : undefined;
  if (type === undefined) {
    const types = Object.keys(nodeTypes)
      .join(', ')
      .replace(/, (\w+)$/, ' or $1');
    const text = typename === '' ? id : `${typename}:${id}`;
    throw new InvalidInputError(argument, `must be the global id of a ${types}, not ${quote(text)}`);
  }
  allow(ctx, type.operation);
  if (!type.isId(id)) return undefined;
  return type.fileOf ? { fileId: type.fileOf(id) } : {};
}

builder.scalarType('BigInt', {
  specifiedByURL: 'https://www.w3.org/TR/xmlschema11-2/#long',
  description:
    'A signed 64-bit integer. Tapegate returns the value as a string of decimal digits, because JavaScript numbers are exact only up to 2^53. Accepts a string of decimal digits, a JSON number below 2^53, or an integer literal in a GraphQL document.',
  serialize: (value) => String(parseInteger(value)),
  parseValue: parseInteger,
  parseLiteral: (node) => parseInteger(node.kind === Kind.INT || node.kind === Kind.STRING ? node.value : node.kind),
});

function parseInteger(value: unknown): bigint {
  if (typeof value === 'bigint') return value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  if (Number.isInteger(value)) {
    throw new GraphQLError('BigInt beyond 2^53 must be a string, because JSON parsers round larger numbers');
  }
  if (typeof value === 'string' && /^-?\d{1,19}$/.test(value)) return BigInt(value);
  throw new GraphQLError(`BigInt must be an integer of at most 19 digits, not ${show(value)}`);
}

/**
 * Formats a value for an error message. Omits the content of lists and objects, because a client can send lists and
 * objects of any size.
 */
function show(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object';
  return quote(String(value));
}

builder.scalarType('DateTime', {
  specifiedByURL: 'https://www.rfc-editor.org/rfc/rfc3339',
  description:
    'An RFC 3339 date and time. Tapegate returns times in UTC, with six fractional digits unless all of them are zero, such as `2026-11-20T08:13:39.613601Z`. Accepts any time zone and up to six fractional digits. A time without a time zone is interpreted as UTC, and a date without a time as midnight UTC.',
  serialize: (value) => `${value}Z`,
  parseValue: readTime,
  parseLiteral: (node: ValueNode) => readTime(node.kind === Kind.STRING ? node.value : node.kind),
});

function readTime(value: unknown): string {
  const time = typeof value === 'string' ? parseZonedTime(value) : undefined;
  if (time !== undefined) return time;
  throw new GraphQLError(
    `DateTime must be a date (YYYY-MM-DD) or a date and time (YYYY-MM-DDTHH:MM:SS[.ffffff]), optionally with a time zone (Z or ±HH:MM), not ${show(value)}`,
  );
}

builder.queryType({ description: 'The queries.' });
builder.mutationType({
  description: 'The mutations. Each returns a payload with the result, or with errors that the caller can correct.',
});
builder.subscriptionType({ description: 'The subscriptions.' });

export const time = (description: string) => ({ type: 'DateTime', description }) as const;
export const timeOrNull = (description: string) => ({ type: 'DateTime', nullable: true, description }) as const;
export const bigInt = (description: string) => ({ type: 'BigInt', description }) as const;
export const bigIntOrNull = (description: string) => ({ type: 'BigInt', nullable: true, description }) as const;
export const nullable = (description: string) => ({ nullable: true, description }) as const;

/** Resolves a field to the text in a column. Returns null for an empty string, which the column contains if no text is set. */
export const textOrNull = (text: string): string | null => text || null;

/** Returns the values of an enum type that has the same names in the schema and in the code. */
export function describeValues<Name extends string>(texts: Record<Name, string>) {
  const entries = Object.entries<string>(texts).map(([name, text]) => [name, { description: sentence(text) }]);
  return Object.fromEntries(entries) as Record<Name, { description: string }>;
}

/** Returns the values of an enum type whose names in the code are in lower case, such as `lto-9` for `LTO_9`. */
export function nameValues<Name extends string>(texts: Record<Name, string>) {
  const entries = Object.entries<string>(texts).map(([name, text]) => [
    name.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_'),
    { value: name, description: sentence(text) },
  ]);
  return Object.fromEntries(entries) as Record<string, { value: Name; description: string }>;
}

/** Turns a description that is also part of a message into a sentence. */
const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`.replace(/\.?$/, '.');

/**
 * Returns the names of a connection and its edges, such as `RequestConnection` and `RequestEdge`, for a connection to
 * which the Prisma plugin adds `totalCount`.
 */
export const connectionOf = (node: string) => [{ name: `${node}Connection` }, { name: `${node}Edge` }] as const;

/** A connection that counts its items only if the query selects `totalCount`. */
export interface Counted {
  totalCount: () => Promise<number> | number;
}

/** Defines a connection with `totalCount`, and its edges, such as `RequestConnection` and `RequestEdge`. */
export const countedConnection = <Type extends OutputType<Types>>(type: Type, node: string) =>
  builder.connectionObject(
    {
      type,
      name: `${node}Connection`,
      fields: (t) => ({ totalCount: t.int({ resolve: (page) => (page as object as Counted).totalCount() }) }),
    },
    { name: `${node}Edge` },
  );

/** Computes the query cost of a connection from its page size. */
export function pageComplexity(args: { first?: number | null | undefined; last?: number | null | undefined }) {
  return { field: 1, multiplier: Math.min(args.first ?? args.last ?? PAGE_SIZE, MAX_PAGE_SIZE) / 10 };
}
