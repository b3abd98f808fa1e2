/** The values of INSERT, as `pg_dump` and `mysqldump` write them. */
import { SourceError } from './tables.js';

/** The beginning of a value: of a string, null, or what stands there without quotes. */
const VALUE = /\s*(?:(E|_binary\s+)?'|(NULL)(?!\w)|([\w.+-]+)\s*)/iy;
const AFTER_STRING = /(?:::[\w ]+)?\s*/y;
const AFTER_NULL = /\s*/y;
const ESCAPES: Record<string, string> = { '0': '\0', b: '\b', n: '\n', r: '\r', t: '\t', Z: '\x1a' };

/** The rows of a list of values. @param how.line for messages @throws SourceError */
export function* readValues(text: string, how: { line: number; hasEscapes: boolean }): Generator<(string | null)[]> {
  const fail = (at: number): never => {
    throw new SourceError(`line ${how.line}: a value cannot be read: ${JSON.stringify(text.slice(at, at + 40))}`);
  };
  for (let at = 0; ; ) {
    at = skip(text, at, '(') ?? fail(at);
    const row: (string | null)[] = [];
    for (;;) {
      const value = readValue(text, at, how.hasEscapes) ?? fail(at);
      row.push(value.text);
      at = value.end;
      const next = text[at++];
      if (next === ')') break;
      if (next !== ',') fail(at - 1);
    }
    yield row;
    const more = skip(text, at, ',');
    if (more === undefined) return;
    at = more;
  }
}

/** @returns where it goes on after a character; undefined where something else stands there */
function skip(text: string, at: number, character: string): number | undefined {
  let next = at;
  while (/\s/.test(text[next] ?? '')) next++;
  return text[next] === character ? next + 1 : undefined;
}

/** @returns undefined where no value stands */
function readValue(text: string, at: number, hasEscapes: boolean): { text: string | null; end: number } | undefined {
  const found = matchAt(VALUE, text, at);
  if (!found) return undefined;
  const [whole, prefix, isNull, bare] = found;
  const begin = at + whole.length;
  if (isNull !== undefined) return { text: null, end: begin + (matchAt(AFTER_NULL, text, begin)?.[0].length ?? 0) };
  if (bare !== undefined) return { text: bare, end: begin };
  const isEscaped = hasEscapes || prefix?.toUpperCase() === 'E';
  const end = endOfString(text, begin, isEscaped);
  if (end === undefined) return undefined;
  const raw = text.slice(begin, end).replaceAll("''", "'");
  return {
    text: isEscaped ? raw.replaceAll(/\\([\s\S])/g, (_, c: string) => ESCAPES[c] ?? c) : raw,
    end: end + 1 + (matchAt(AFTER_STRING, text, end + 1)?.[0].length ?? 0),
  };
}

function matchAt(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(text);
}

/**
 * By hand: an expression runs out of stack on a list of some hundred thousand paths.
 * @returns where its closing quote stands; undefined where there is none
 */
function endOfString(text: string, begin: number, isEscaped: boolean): number | undefined {
  for (let at = begin; at < text.length; at++) {
    if (isEscaped && text[at] === '\\') at++;
    else if (text[at] === "'" && text[at + 1] === "'") at++;
    else if (text[at] === "'") return at;
  }
  return undefined;
}
