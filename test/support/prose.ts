/** Collects the texts of this repository that people read: documents, comments and messages. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'build-typescript';
import { packageRoot } from '../../src/core/package-root.js';

export interface Prose {
  file: string;
  kind: 'docs' | 'other documents' | 'comments' | 'messages';
  text: string;
}

const LEAST_WORDS = 4;

export const countWords = (text: string): number => text.match(/[\p{L}\p{N}][\p{L}\p{N}'’_-]*/gu)?.length ?? 0;

/**
 * Returns the text of a Markdown document without code, HTML comments and link targets.
 * Generated parts are omitted too, because they repeat messages.
 */
export const readMarkdown = (text: string): string =>
  text
    .replace(/^ *(`{3,})[^\n]*\n[\s\S]*?^ *\1 *$/gm, '')
    .replace(/<!-- (\w+): npm run docs -->[\s\S]*?<!-- end of \1 -->/g, '')
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/`[^`\n]+`/g, 'X')
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/(?<=\S)\n(?=[a-z(])/g, ' ')
    .replace(/[*_[\]]/g, '')
    .replace(/ {2,}/g, ' ');

const isSql = (text: string) =>
  /\b(?:SELECT|INSERT|UPDATE|DELETE|WHERE|FROM|JOIN|VALUES|CREATE|ALTER|BEGIN|ORDER|RETURNING|AND)\b/.test(text);
const isGraphql = (text: string) => /^\s*(?:(?:query|mutation|subscription|fragment)\b|\{)/.test(text);

const withoutMarks = (comment: string) =>
  comment
    .replace(/^\/\*+|\*\/$|^\/\/+/g, '')
    .replace(/^ *\* ?/gm, '')
    .replace(/^ *@(?:param [\w.]+|returns|throws)/gm, '.')
    .replace(/`[^`\n]+`/g, 'X')
    .replace(/\n */g, ' ')
    .trim();

/**
 * Returns the comments of a TypeScript file and its messages.
 * Messages are strings, templates and JSX texts with at least four words.
 */
export function readSource(file: string, text: string): { comments: string; messages: string } {
  const isJsx = file.endsWith('x');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, isJsx ? ts.ScriptKind.TSX : undefined);
  const messages: string[] = [];
  /** End of each literal that the scanner alone would not recognize, by the literal's start. */
  const ends = new Map<number, number>();
  const add = (message: string) => {
    if (countWords(message) >= LEAST_WORDS && !isSql(message) && !isGraphql(message)) messages.push(message);
  };
  const visit = (node: ts.Node): void => {
    const isTagged = node.parent && ts.isTaggedTemplateExpression(node.parent);
    if (ts.isStringLiteralLike(node) && !isTagged) add(node.text);
    if (ts.isTemplateExpression(node) && !isTagged)
      add([node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join('X'));
    if (ts.isJsxText(node)) add(node.text.replace(/\s+/g, ' '));
    if (ts.isJsxText(node)) ends.set(node.pos, node.end);
    if (ts.isRegularExpressionLiteral(node) || ts.isTemplateMiddleOrTemplateTail(node))
      ends.set(node.getStart(source), node.end);
    ts.forEachChild(node, visit);
  };
  visit(source);
  const comments: string[] = [];
  const variant = isJsx ? ts.LanguageVariant.JSX : ts.LanguageVariant.Standard;
  const scanner = ts.createScanner(ts.ScriptTarget.Latest, false, variant, text);
  for (let token = scanner.scan(); token !== ts.SyntaxKind.EndOfFileToken; token = scanner.scan()) {
    const end = ends.get(scanner.getTokenStart());
    if (end !== undefined) scanner.resetTokenState(end);
    else if (token === ts.SyntaxKind.SingleLineCommentTrivia || token === ts.SyntaxKind.MultiLineCommentTrivia)
      comments.push(withoutMarks(scanner.getTokenText()));
  }
  return { comments: comments.join('\n'), messages: messages.join('\n\n') };
}

const readSchema = (text: string) => [...text.matchAll(/\/\/+ ?(.*)$/gm)].map(([, comment]) => comment).join('\n');

/** Returns the texts of documents, the database schema and sources, except files that Git ignores. */
export function readProse(): Prose[] {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: packageRoot, encoding: 'utf8' });
  return files.split('\n').flatMap((file): Prose[] => {
    const read = () => readFileSync(path.join(packageRoot, file), 'utf8');
    if (/^docs\/.*\.md$/.test(file)) return [{ file, kind: 'docs', text: readMarkdown(read()) }];
    if (file.endsWith('.md')) return [{ file, kind: 'other documents', text: readMarkdown(read()) }];
    if (file === 'prisma/schema.prisma') return [{ file, kind: 'comments', text: readSchema(read()) }];
    if (!/^(?:src|graphql|rest)\/.*\.tsx?$/.test(file) || file.startsWith('src/generated/')) return [];
    const { comments, messages } = readSource(file, read());
    return [
      { file, kind: 'comments', text: comments },
      { file, kind: 'messages', text: messages },
    ];
  });
}
