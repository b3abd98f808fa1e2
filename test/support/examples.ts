/** Reads the examples of a document: its fences in order, each with the answer below it. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';

/** Languages of fences with runnable examples, and of fences with answers. A fence in another language is an error. */
const EXAMPLES = ['sh', 'graphql'] as const;
const ANSWERS = ['json', 'text'] as const;

export interface Fence<Language> {
  language: Language;
  /** Line number of the first line. */
  line: number;
  text: string;
}

type Answer = Fence<(typeof ANSWERS)[number]>;

export interface Example extends Fence<(typeof EXAMPLES)[number]> {
  name: string;
  answer?: Answer;
}

/**
 * Reads the examples of a document. Skips fences without a language, which show text that a test cannot run.
 * @throws Error for a fence in an unknown language, and for an answer without an example
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
    else last.answer = fence;
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

/** Returns the first line that contains a word. */
const title = (text: string) => /^.*\w{3}.*$/m.exec(text)?.[0].trim() ?? '';

/**
 * Replaces dates, times and event ids, and removes keep-alive comments of event streams. Outputs of two runs are then
 * equal.
 */
function mask(text: string): string {
  return text
    .replace(/\d{4}-\d\d-\d\d(?=T00:00:00(?![.\d]))/g, '<date>')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?/g, '<time>')
    .replace(/("eventId": ?"|^id: )\d+/gm, '$1<event>')
    .replace(/^:\n\n/gm, '');
}

/** Compares an output with the answer. In the answer, JSON may span several lines, and `…` stands for any lines. */
export function expectAnswer(answer: Answer, output: string): void {
  const normal = (text: string) => mask(answer.language === 'json' ? text.replace(/\n\s*/g, '') : text).trim();
  const [shown, actual] = [normal(answer.text), normal(output)];
  if (fits(shown.split(/^…$/m), actual)) return;
  const byField = (text: string) => text.replace(/,(?=["{])/g, ',\n'); // one field a line makes differences readable
  expect(byField(actual), `line ${answer.line}`).toBe(byField(shown));
}

/** Returns whether the lines consist of the parts in order, with any text between two parts. */
function fits(parts: string[], lines: string): boolean {
  const text = `\n${lines}\n`;
  const [first = '', ...others] = parts.map((part) => `\n${part.trim()}\n`);
  const last = others.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let place = first.length - 1; // a line feed may end one part and begin the next
  for (const part of others) {
    const found = text.indexOf(part, place);
    if (found < 0) return false;
    place = found + part.length - 1;
  }
  return text.length - last.length >= place && text.endsWith(last);
}
