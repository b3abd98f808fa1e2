/** The subject of a certificate as RFC 4514 (and 2253) write it: `CN=Ada Lovelace,OU=People,O=Example`. */

/** Attributes are apart by commas or pluses, which a backslash takes that meaning from. */
const ATTRIBUTE = /\s*([A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)*)\s*=\s*((?:\\[\s\S]|[^\\",+;<>])*)(?:[,+;]|$)/y;

/**
 * @returns the common name; undefined where there is none or more than one, and where the subject is written otherwise: in
 * `/O=Example/CN=Ada`, which has no escapes, nobody can tell an attribute from a part of one
 */
export function readCommonName(subject: string): string | undefined {
  const names: string[] = [];
  for (ATTRIBUTE.lastIndex = 0; ATTRIBUTE.lastIndex < subject.length; ) {
    const [, type = '', value = ''] = ATTRIBUTE.exec(subject) ?? [];
    if (type === '' || value.startsWith('#')) return undefined;
    if (/^(cn|2\.5\.4\.3)$/i.test(type)) names.push(unescapeValue(value.replace(/^ +|(?<!\\) +$/g, '')));
  }
  return names.length === 1 && names[0] !== '' ? names[0] : undefined;
}

/** `\2C` is a byte of UTF-8; any other backslash stands before the character that is meant. */
function unescapeValue(text: string): string {
  const bytes = text.match(/\\[0-9A-Fa-f]{2}|\\?[\s\S]/gu) ?? [];
  const parts = bytes.map((part) => {
    if (/^\\[0-9A-Fa-f]{2}$/.test(part)) return Buffer.from(part.slice(1), 'hex');
    return Buffer.from(part.length > 1 && part.startsWith('\\') ? part.slice(1) : part);
  });
  return Buffer.concat(parts).toString('utf8');
}
