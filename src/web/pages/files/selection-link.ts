/**
 * Writes a small selection as a text for the address. `*` separates the paths. A path in the same folder as the path
 * before it is written as its name.
 */

/** Maximum length of the text, as the address encodes it. Longer addresses do not work in all programs. */
const MAX_LINK = 4000;

/** Maximum number of paths in a link. The text of more paths is longer than `MAX_LINK`. */
const MAX_PATHS = 2000;

const encode = (name: string): string => name.replace(/[%*]/g, encodeURIComponent).replace(/\*/g, '%2A');

/** Returns undefined if there are no paths, or if the text is too long. */
export function writeLink(paths: Iterable<string>, count: number): string | undefined {
  if (count === 0 || count > MAX_PATHS) return undefined;
  let folder = '';
  const parts: string[] = [];
  for (const path of [...paths].sort()) {
    const cut = path.lastIndexOf('/');
    parts.push(encode(path.slice(0, cut) === folder && folder !== '' ? path.slice(cut + 1) : path));
    folder = path.slice(0, cut);
  }
  const text = parts.join('*');
  return new URLSearchParams({ sel: text }).toString().length <= MAX_LINK ? text : undefined;
}

export function readLink(text: string): string[] {
  let folder = '';
  return text.split('*').flatMap((part) => {
    const name = decode(part);
    if (name === '') return [];
    const path = name.startsWith('/') ? name : `${folder}/${name}`;
    folder = path.slice(0, path.lastIndexOf('/'));
    return [path];
  });
}

/** Decodes a part of a link. Returns an invalid encoding unchanged, because a user might have changed the link. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
