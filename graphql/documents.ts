/** How the text of an operation is parsed and validated, whichever way it came. */
import { type DocumentNode, GraphQLError, NoSchemaIntrospectionCustomRule, parse, type ValidationRule } from 'graphql';
import { LRUCache } from 'lru-cache';
import { limitCounts, limitIntrospection } from './cost-rules.js';
import { refuseOptionalSubscription } from './subscription-rule.js';

/** A query of ordinary size has some hundred tokens. Parsing one of millions takes seconds. */
const MAX_TOKENS = 10_000;

const PARSE_FAILED = { code: 'GRAPHQL_PARSE_FAILED', http: { spec: true, status: 400 } };

/** Parses a document of a limited number of tokens. @throws GraphQLError */
export function parseDocument(text: string): DocumentNode {
  try {
    return parse(text, { maxTokens: MAX_TOKENS });
  } catch (error) {
    // the parser runs out of stack if a query is nested too deeply
    const fault = error instanceof RangeError ? new GraphQLError('the query is nested too deeply') : error;
    if (fault instanceof GraphQLError) Object.assign(fault.extensions, PARSE_FAILED);
    throw fault;
  }
}

/** Returns the validation rules that hold beside those of the specification. */
export function ownRules({ introspection }: { introspection: boolean }): ValidationRule[] {
  const rules: ValidationRule[] = [refuseOptionalSubscription, limitIntrospection, limitCounts];
  return introspection ? rules : [...rules, NoSchemaIntrospectionCustomRule];
}

/** A parsed document takes up to 235 bytes of memory for each character of its text: 24 MB for this limit. */
const MAX_CHARACTERS = 100_000;
/** A larger document is parsed each time, so that it does not displace all others. */
const MAX_DOCUMENT = 10_000;

/** Creates a cache of documents by their texts, limited by the length of these, since any client may send new ones. */
export function createDocumentCache(): LRUCache<string, DocumentNode> {
  return new LRUCache({
    maxSize: MAX_CHARACTERS,
    maxEntrySize: MAX_DOCUMENT,
    sizeCalculation: (_document, text) => Math.max(text.length, 1),
  });
}
