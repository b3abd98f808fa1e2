/**
 * Documents that a client names instead of sending them: automatic ones (Apollo's automatic persisted queries), and
 * trusted ones from a file. Both pass the same checks as sent documents.
 * Yoga's plugins do not handle event streams, callers or the text of trusted documents, and conflict with each other.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { LRUCache } from 'lru-cache';
import { type Caller, hasRole } from '../src/caller.js';
import type { Context } from '../src/context.js';
import { messageOf, quote } from '../src/errors.js';
import { HttpError } from '../src/http-body.js';

interface Named {
  query?: unknown;
  documentId?: unknown;
  extensions?: Record<string, unknown> | null;
}

export interface Documents {
  /** @returns the text; undefined if the request has none and names none @throws RefusedDocument */
  find(given: Named, caller: Caller): string | undefined;
}

/** An error that clients recognise by its code. */
export class RefusedDocument extends HttpError {
  readonly code: string;

  /** @param status 200 if the protocol requires it: clients then look at the errors */
  constructor(status: number, code: string, message: string) {
    super(status, message);
    this.code = code;
  }
}

/** @throws Error if the file of trusted documents is invalid */
export function openDocuments({
  trustedDocuments,
  trustedOnly,
}: Pick<Context['config'], 'trustedDocuments' | 'trustedOnly'>): Documents {
  const trusted = trustedDocuments === undefined ? new Map<string, string>() : readTrusted(trustedDocuments);
  const texts = new Set(trusted.values());
  const kept = new LRUCache<string, string>({
    maxSize: MAX_CHARACTERS,
    maxEntrySize: MAX_DOCUMENT,
    sizeCalculation: (text) => text.length,
  });
  const mayAll = (caller: Caller) => !trustedOnly || hasRole(caller, 'operator');
  return {
    find: (given, caller) => {
      const id = readId(given);
      const known = id === undefined ? undefined : trusted.get(id.name);
      if (given.query !== undefined && given.query !== null && given.query !== '') {
        if (typeof given.query !== 'string') return undefined; // its reader reports that
        if (!mayAll(caller) && !texts.has(given.query)) throw untrusted();
        if (id?.isAutomatic && known === undefined && kept.get(id.name) !== given.query) {
          checkHash(id.name, given.query);
          kept.set(id.name, given.query);
        }
        return given.query;
      }
      if (id === undefined || known !== undefined) return known;
      if (!mayAll(caller)) throw untrusted();
      const text = id.isAutomatic ? kept.get(id.name) : undefined;
      if (text !== undefined) return text;
      if (!id.isAutomatic)
        throw new RefusedDocument(404, 'PERSISTED_QUERY_NOT_FOUND', `there is no document ${quote(id.name)}`);
      throw new RefusedDocument(200, 'PERSISTED_QUERY_NOT_FOUND', 'PersistedQueryNotFound');
    },
  };
}

const untrusted = () =>
  new RefusedDocument(
    403,
    'UNTRUSTED_DOCUMENT',
    'only documents that the site trusts are run here (TAPEGATE_TRUSTED_ONLY)',
  );

/** @throws RefusedDocument */
function readId({ documentId, extensions }: Named): { name: string; isAutomatic: boolean } | undefined {
  if (typeof documentId === 'string') return { name: withoutAlgorithm(documentId), isAutomatic: false };
  const named = extensions?.persistedQuery as { version?: unknown; sha256Hash?: unknown } | null | undefined;
  if (named === undefined || named === null) return undefined;
  const { version, sha256Hash } = named;
  if (version !== 1 || typeof sha256Hash !== 'string') {
    throw new RefusedDocument(
      400,
      'PERSISTED_QUERY_NOT_SUPPORTED',
      'persistedQuery must have the version 1 and a sha256Hash',
    );
  }
  return { name: withoutAlgorithm(sha256Hash), isAutomatic: true };
}

const withoutAlgorithm = (id: string) => id.replace(/^sha(1|256|512):/i, '').toLowerCase();

/** Maximum characters of automatic documents, in total and of each. */
const MAX_CHARACTERS = 2_000_000;
const MAX_DOCUMENT = 50_000;

/** @throws RefusedDocument if the hash is that of another text */
function checkHash(hash: string, text: string): void {
  if (createHash('sha256').update(text).digest('hex') === hash) return;
  throw new RefusedDocument(400, 'PERSISTED_QUERY_HASH_MISMATCH', 'sha256Hash is not the hash of the query');
}

/** A JSON object of documents by id, as code generators write it. */
function readTrusted(file: string): Map<string, string> {
  let found: unknown;
  try {
    found = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new Error(`TAPEGATE_TRUSTED_DOCUMENTS: ${file} cannot be read: ${messageOf(error)}`);
  }
  const entries = typeof found === 'object' && found !== null && !Array.isArray(found) ? Object.entries(found) : [];
  const documents = entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string');
  if (documents.length === 0 || documents.length < entries.length) {
    throw new Error(
      `TAPEGATE_TRUSTED_DOCUMENTS: ${file} must be a JSON object with the texts of documents by their ids`,
    );
  }
  const byName = new Map<string, string>();
  for (const [id, text] of documents) {
    const name = withoutAlgorithm(id);
    if ((byName.get(name) ?? text) !== text) {
      throw new Error(
        `TAPEGATE_TRUSTED_DOCUMENTS: ${file} has two documents for the id ${quote(name)}, in which case does not count`,
      );
    }
    byName.set(name, text);
  }
  return byName;
}
