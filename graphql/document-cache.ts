/** What clients ask for again and again is parsed and validated once. */
import type { DocumentNode } from 'graphql';

/** A document that is parsed takes 235 bytes of memory a character at most: these are 24 MB, and plans of all of them (operation-plan.ts) some 100 MB. */
const MAX_CHARACTERS = 100_000;
/** Of one document: larger ones do not displace the others. */
const MAX_DOCUMENT = 10_000;

/** Bounded by how long the documents are together, since anybody may send as many as there are; the one that was used last stays longest. */
export class DocumentCache {
  private readonly documents = new Map<string, DocumentNode>();
  private characters = 0;

  get(text: string): DocumentNode | undefined {
    const document = this.documents.get(text);
    if (!document) return undefined;
    this.documents.delete(text);
    this.documents.set(text, document);
    return document;
  }

  set(text: string, document: DocumentNode): void {
    if (text.length > MAX_DOCUMENT || this.documents.has(text)) return;
    this.documents.set(text, document);
    this.characters += text.length;
    for (const [oldest] of this.documents) {
      if (this.characters <= MAX_CHARACTERS) return;
      this.documents.delete(oldest);
      this.characters -= oldest.length;
    }
  }
}

/** What cannot be parsed costs little to be found out again. */
export const noCache = { get: () => undefined, set: () => {} };
