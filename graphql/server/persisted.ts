/**
 * Finds trusted documents by id. A client can send a document's id instead of its text. Trusted documents pass the same
 * checks as other documents. Tapegate does not use Yoga's plugin for persisted documents, because the plugin does not
 * support event streams.
 */
import { type Caller, hasRole } from '../../src/core/caller.js';
import { quote } from '../../src/core/errors.js';
import { readTrusted, withoutAlgorithm } from '../../src/core/trusted-documents.js';
import type { Context } from '../../src/domain/context.js';
import { CodedHttpError } from './http.js';

interface DocumentParams {
  query?: unknown;
  documentId?: unknown;
  extensions?: Record<string, unknown> | null;
}

interface Documents {
  /**
   * @returns the document's text; undefined if the request contains neither a text nor an id
   * @throws CodedHttpError
   */
  find(given: DocumentParams, caller: Caller): string | undefined;
}

/** @throws Error if the file of trusted documents is invalid */
export function openDocuments({
  trustedDocuments,
  trustedOnly,
}: Pick<Context['config'], 'trustedDocuments' | 'trustedOnly'>): Documents {
  const trusted = trustedDocuments === undefined ? new Map<string, string>() : readTrusted(trustedDocuments);
  const texts = new Set(trusted.values());
  const mayAll = (caller: Caller) => !trustedOnly || hasRole(caller, 'operator');
  return {
    find: (given, caller) => {
      const id = readId(given);
      if (given.query !== undefined && given.query !== null && given.query !== '') {
        if (typeof given.query !== 'string') return undefined;
        if (!mayAll(caller) && !texts.has(given.query)) throw untrusted();
        return given.query;
      }
      const known = id && trusted.get(id.name);
      if (id === undefined || known !== undefined) return known;
      if (!mayAll(caller)) throw untrusted();
      // the error code PERSISTED_QUERY_NOT_SUPPORTED makes Apollo clients send the document's text instead of its hash
      if (id.isHash) throw new CodedHttpError(200, 'PERSISTED_QUERY_NOT_SUPPORTED', 'PersistedQueryNotSupported');
      throw new CodedHttpError(
        404,
        'PERSISTED_QUERY_NOT_FOUND',
        `there is no persisted document with the id ${quote(id.name)}`,
      );
    },
  };
}

const untrusted = () =>
  new CodedHttpError(
    403,
    'UNTRUSTED_DOCUMENT',
    'the gateway executes only documents from the file that TAPEGATE_TRUSTED_DOCUMENTS names, and this file does not contain the document',
  );

function readId({ documentId, extensions }: DocumentParams): { name: string; isHash: boolean } | undefined {
  if (typeof documentId === 'string') return { name: withoutAlgorithm(documentId), isHash: false };
  const named = extensions?.persistedQuery as { sha256Hash?: unknown } | null | undefined;
  return typeof named?.sha256Hash === 'string' ? { name: withoutAlgorithm(named.sha256Hash), isHash: true } : undefined;
}
