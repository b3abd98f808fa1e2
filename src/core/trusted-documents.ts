/** Reads the file of trusted GraphQL documents (TAPEGATE_TRUSTED_DOCUMENTS). */
import { readFileSync } from 'node:fs';
import { messageOf, quote } from './errors.js';
import { isObject } from './text/json.js';

/** Returns the id of a GraphQL document in lower case, without a prefix such as `sha256:`. */
export const withoutAlgorithm = (id: string) => id.replace(/^sha(1|256|512):/i, '').toLowerCase();

/** Reads a JSON file that maps ids to GraphQL documents. @throws Error if the file is invalid */
export function readTrusted(file: string): Map<string, string> {
  let found: unknown;
  try {
    found = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new Error(`TAPEGATE_TRUSTED_DOCUMENTS: ${file} cannot be read: ${messageOf(error)}`);
  }
  const entries = isObject(found) ? Object.entries(found) : [];
  const documents = entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string');
  if (documents.length === 0 || documents.length < entries.length) {
    throw new Error(
      `TAPEGATE_TRUSTED_DOCUMENTS: ${file} must be a JSON object that maps document ids to document texts`,
    );
  }
  const byName = new Map<string, string>();
  for (const [id, text] of documents) {
    const name = withoutAlgorithm(id);
    if ((byName.get(name) ?? text) !== text) {
      throw new Error(
        `TAPEGATE_TRUSTED_DOCUMENTS: ${file} contains two documents with the id ${quote(name)}; document ids are not case-sensitive`,
      );
    }
    byName.set(name, text);
  }
  return byName;
}
