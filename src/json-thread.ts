/**
 * Parses large JSON in a thread of its own, so that everybody else is served meanwhile. What it finds is handed over as a copy,
 * which costs a quarter of the parsing where it is a list of paths.
 */
import { Worker } from 'node:worker_threads';

/** Its own text: it needs nothing but the parser, and runs from wherever the program is. */
const THREAD = `
const { parentPort } = require('node:worker_threads');
parentPort.on('message', ({ id, bytes }) => {
  try {
    parentPort.postMessage({ id, value: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) });
  } catch (error) {
    parentPort.postMessage({ id, problem: error.message });
  }
});`;

interface Answer {
  id: number;
  value?: unknown;
  problem?: string;
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** What it has parsed stays on its heap for as long as it lives: a hundred megabytes and more of a list of files. */
const IDLE_MS = 2000;

let thread: Worker | undefined;
let idle: NodeJS.Timeout | undefined;
let last = 0;
const waiting = new Map<number, Waiting>();

/** @param bytes are given away. @throws SyntaxError where they are no JSON in UTF-8 */
export async function parseInThread(bytes: ArrayBuffer): Promise<unknown> {
  thread ??= startThread();
  clearTimeout(idle);
  const id = ++last;
  const parsed = new Promise<unknown>((resolve, reject) => waiting.set(id, { resolve, reject }));
  thread.postMessage({ id, bytes }, [bytes]);
  return await parsed;
}

function startThread(): Worker {
  const worker = new Worker(THREAD, { eval: true });
  worker.on('message', ({ id, value, problem }: Answer) => {
    const asked = waiting.get(id);
    waiting.delete(id);
    if (problem === undefined) asked?.resolve(value);
    else asked?.reject(new SyntaxError(problem));
    if (waiting.size === 0) idle = setTimeout(end, IDLE_MS).unref();
  });
  // one that has run out of memory, say: the next body has a new one
  worker.on('error', (error) => {
    thread = undefined;
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  });
  worker.unref(); // a listener of messages makes the process wait for it again
  return worker;
}

function end(): void {
  void thread?.terminate();
  thread = undefined;
}
