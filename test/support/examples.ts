/** The examples of a document: its fences in their order, each with the answer that is shown below it. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { packageRoot } from '../../src/package-root.js';

/** What is run, and what is shown as an answer; a fence of anything else would never be looked at. */
const EXAMPLES = ['sh', 'graphql', 'ts', 'python', 'html', 'js'] as const;
const ANSWERS = ['json', 'text'] as const;

export interface Fence<Language> {
  language: Language;
  /** Of its first line, as an editor counts. */
  line: number;
  text: string;
}

export interface Answer extends Fence<(typeof ANSWERS)[number]> {
  /** The example goes on until it is ended. */
  isEndless: boolean;
}

export interface Example extends Fence<(typeof EXAMPLES)[number]> {
  name: string;
  answer?: Answer;
}

/** @throws Error for a fence that is neither, and for an answer to nothing */
export function readExamples(document: string): Example[] {
  const examples: Example[] = [];
  for (const fence of readFences(readFileSync(path.join(packageRoot, document), 'utf8'))) {
    const place = `${document}:${fence.line}`;
    const last = examples.at(-1);
    if (isOneOf(EXAMPLES, fence)) examples.push({ ...fence, name: `${place} ${fence.language}: ${title(fence.text)}` });
    else if (!isOneOf(ANSWERS, fence))
      throw new Error(`${place} is of ${fence.language || 'nothing'}: who would run it?`);
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

/** The first line that says something. */
const title = (text: string) => /^.*\w{3}.*$/m.exec(text)?.[0].trim() ?? '';

/**
 * Makes two runs comparable, on both sides: a time becomes `<time>`, a date at midnight keeps the midnight, the id of an
 * event becomes `<event>`, and the comments that keep a stream alive go.
 */
function mask(text: string): string {
  return text
    .replace(/\d{4}-\d\d-\d\d(?=T00:00:00(?![.\d]))/g, '<date>')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?/g, '<time>')
    .replace(/("eventId": ?"|^id: )\d+/gm, '$1<event>')
    .replace(/^:\n\n/gm, '');
}

/** Whether an example that goes on has said all that is shown. */
export function isAnswered(answer: Answer, output: string): boolean {
  return explainDifference(answer, output) === undefined;
}

/** A long line of JSON may be broken in the document; text may leave lines out, with `…` in their place. */
export function expectAnswer(answer: Answer, output: string): void {
  const difference = explainDifference(answer, output);
  const byField = (text: string) => text.replace(/,(?=["{])/g, ',\n'); // so that a difference can be read
  if (difference) expect(byField(difference.actual), `line ${answer.line}`).toBe(byField(difference.shown));
}

function explainDifference(answer: Answer, output: string): { shown: string; actual: string } | undefined {
  const normal = (text: string) => mask(answer.language === 'json' ? text.replace(/\n\s*/g, '') : text).trim();
  const [shown, actual] = [normal(answer.text), normal(output)];
  return fits(shown.split(/^…$/m), actual) ? undefined : { shown, actual };
}

/** Whether the lines are these parts in their order, the first at the beginning and the last at the end. */
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
