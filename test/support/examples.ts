/** The examples of a document: its fences in order, each with the answer below it. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';

/** Languages of fences that are run, and of answers. Others are errors. */
const EXAMPLES = ['sh', 'graphql', 'ts', 'python', 'html', 'js'] as const;
const ANSWERS = ['json', 'text'] as const;

export interface Fence<Language> {
  language: Language;
  /** The number of its first line. */
  line: number;
  text: string;
}

export interface Answer extends Fence<(typeof ANSWERS)[number]> {
  /** The example runs until it is interrupted. */
  isEndless: boolean;
}

export interface Example extends Fence<(typeof EXAMPLES)[number]> {
  name: string;
  answer?: Answer;
}

/**
 * Skips fences without a language, which show what a test cannot run.
 * @throws Error for a fence in another language, and for an answer to nothing
 */
export function readExamples(document: string): Example[] {
  const examples: Example[] = [];
  for (const fence of readFences(readFileSync(path.join(packageRoot, document), 'utf8'))) {
    const place = `${document}:${fence.line}`;
    const last = examples.at(-1);
    if (fence.language === '') continue;
    if (isOneOf(EXAMPLES, fence)) examples.push({ ...fence, name: `${place} ${fence.language}: ${title(fence.text)}` });
    else if (!isOneOf(ANSWERS, fence)) throw new Error(`${place}: no example has the language ${fence.language}`);
    else if (!last || last.answer) throw new Error(`${place} answers no example`);
    else last.answer = { ...fence, text: fence.text.replace(/^\^C$/m, ''), isEndless: /^\^C$/m.test(fence.text) };
  }
  return examples;
}

export function* readFences(text: string): Generator<Fence<string>> {
  let open: Fence<string> | undefined;
  for (const [index, line] of text.split('\n').entries()) {
    const [, ticks, language = ''] = /^(\s*`{3,})(.*)$/.exec(line) ?? [];
    if (ticks === undefined) {
      if (open) open.text += `${line}\n`;
    } else if (open) {
      yield open;
      open = undefined;
    } else {
      open = { language, line: index + 2, text: '' };
    }
  }
  if (open) throw new Error(`the fence at line ${open.line - 1} is left open`);
}

function isOneOf<Language extends string>(
  languages: readonly Language[],
  fence: Fence<string>,
): fence is Fence<Language> {
  return (languages as readonly string[]).includes(fence.language);
}

/** Returns the first line with a word. */
const title = (text: string) => /^.*\w{3}.*$/m.exec(text)?.[0].trim() ?? '';

/** Makes two runs comparable: replaces dates, times and event ids, and removes the comments that keep a stream alive. */
function mask(text: string): string {
  return text
    .replace(/\d{4}-\d\d-\d\d(?=T00:00:00(?![.\d]))/g, '<date>')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?/g, '<time>')
    .replace(/("eventId": ?"|^id: )\d+/gm, '$1<event>')
    .replace(/^:\n\n/gm, '');
}

/** Has an example printed the whole answer? */
export function isAnswered(answer: Answer, output: string): boolean {
  return explainDifference(answer, output) === undefined;
}

/** Compares an output with the answer. JSON may be broken into lines; `…` stands for any lines of text. */
export function expectAnswer(answer: Answer, output: string): void {
  const difference = explainDifference(answer, output);
  const byField = (text: string) => text.replace(/,(?=["{])/g, ',\n'); // for a readable difference
  if (difference) expect(byField(difference.actual), `line ${answer.line}`).toBe(byField(difference.shown));
}

function explainDifference(answer: Answer, output: string): { shown: string; actual: string } | undefined {
  const normal = (text: string) => mask(answer.language === 'json' ? text.replace(/\n\s*/g, '') : text).trim();
  const [shown, actual] = [normal(answer.text), normal(output)];
  return fits(shown.split(/^…$/m), actual) ? undefined : { shown, actual };
}

/** Do the lines consist of these parts in order, from the beginning to the end? */
function fits(parts: string[], lines: string): boolean {
  const text = `\n${lines}\n`;
  const [first = '', ...others] = parts.map((part) => `\n${part.trim()}\n`);
  const last = others.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let place = first.length - 1; // parts may share the end of a line
  for (const part of others) {
    const found = text.indexOf(part, place);
    if (found < 0) return false;
    place = found + part.length - 1;
  }
  return text.length - last.length >= place && text.endsWith(last);
}
