/** Runs the examples of documents in a shell, as a program, or as a page in a browser. */
import { accessSync, constants, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import type { Window } from './chromium.js';
import { type Example, isAnswered } from './examples.js';
import { startProcess } from './process.js';
import type { Relay } from './relay.js';
import { makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';

/** URL of the gateway in the documents. */
export const SHOWN_URL = 'http://127.0.0.1:8080';

/** Time limit of an example. */
const LIMIT_MS = 30_000;

/** Creates a directory in which examples find the packages of the project. */
export function makeWorkDir(): string {
  const dir = makeTempDir();
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(dir, 'node_modules'));
  return dir;
}

export function findProgram(...names: string[]): string | undefined {
  const places = (process.env.PATH ?? '').split(':').flatMap((dir) => names.map((name) => path.join(dir, name)));
  return places.find((place) => {
    try {
      accessSync(place, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

interface Command {
  program: string;
  args: string[];
  stdin?: string;
}

/**
 * Runs an example to its end. An endless example is killed after it has printed the answer in the document.
 * @param token of an operator, for GraphQL examples without a command
 * @param dir directory with the compiled TypeScript
 * @returns the standard output
 */
export async function runExample(
  example: Example,
  { url, token }: { url: string; token: string },
  dir: string,
): Promise<string> {
  const { program, args, ...options } = prepare(example, { url, token }, dir);
  const running = startProcess(program, args, { ...options, cwd: dir, detached: true });
  const { answer } = example;
  const isOver = () => running.child.exitCode !== null || running.child.signalCode !== null;
  const isDone = async () => isOver() || (answer?.isEndless && isAnswered(answer, running.stdout()));
  await waitFor('the example', isDone, LIMIT_MS).catch(() => {}); // the caller compares the outputs
  if (!isOver()) process.kill(-running.pid, 'SIGKILL');
  const { code, stdout, stderr } = await running.ended;
  const isRight = answer?.isEndless ? code === null : code === 0;
  if (isRight) return stdout;
  throw new Error(`${code === null ? 'timed out' : `ended with ${code}`}: ${stdout}${stderr}`);
}

function prepare(
  { language, line, ...example }: Example,
  { url, token }: { url: string; token: string },
  dir: string,
): Command {
  const text = example.text.replaceAll(SHOWN_URL, url);
  const file = (extension: string, content: string) => {
    const name = path.join(dir, `line-${line}.${extension}`);
    writeFileSync(name, content);
    return name;
  };
  switch (language) {
    case 'sh':
      return { program: 'bash', args: ['-euo', 'pipefail', '-c', text] };
    case 'graphql': {
      const headers = ['-H', 'Content-Type: application/json', '-H', `Authorization: Bearer ${token}`];
      const body = JSON.stringify({ query: text });
      return { program: 'curl', args: ['-sN', `${url}/graphql`, ...headers, '--data-binary', '@-'], stdin: body };
    }
    case 'python':
      return { program: 'python3', args: [file('py', text)] };
    case 'ts': {
      const compiled = readFileSync(path.join(dir, `line-${line}.mjs`), 'utf8');
      return { program: process.execPath, args: [file('mjs', compiled.replaceAll(SHOWN_URL, url))] };
    }
    default:
      throw new Error(`${language} runs in a browser`);
  }
}

/**
 * Opens the page of an example, presses the page's button, and waits for the output in the document.
 * @returns the texts that the page shows and logs
 */
export async function runPage(
  { answer, language, text }: Example,
  relay: Relay,
  { page }: Window,
  onOutput: () => void,
): Promise<string> {
  if (!answer) throw new Error('a page needs an output in the document');
  relay.page = language === 'html' ? text : `<script type="module">${text}</script>`;
  let output = '';
  page.on('console', (message) => {
    // some browsers log failed loads, for example of the favicon
    if (message.text().startsWith('Failed to load resource')) return;
    output += `${message.text()}\n`;
    onOutput();
  });
  await page.goto(`${relay.url}/page`);
  if (language === 'html') {
    await page.evaluate(`const shown = document.querySelector('output');
      new MutationObserver(() => console.log(shown.textContent)).observe(shown, { childList: true })`);
    await page.getByRole('button').click();
  }
  await waitFor('the page', async () => isAnswered(answer, output), LIMIT_MS).catch(() => {}); // the caller compares
  return output;
}

/** Compiles all TypeScript examples into a directory. */
export async function compileExamples(examples: Example[], dir: string): Promise<void> {
  const sources = examples.filter(({ language }) => language === 'ts');
  const files = sources.map(({ line, text }) => {
    const file = path.join(dir, `line-${line}.mts`);
    writeFileSync(file, text);
    return file;
  });
  const project = path.join(dir, 'tsconfig.json');
  const base = path.join(packageRoot, 'tsconfig.json');
  writeFileSync(project, JSON.stringify({ extends: base, compilerOptions: { noEmit: false }, include: [], files }));
  const compiler = path.join(packageRoot, 'node_modules/.bin/tsc');
  const { code, stdout } = await startProcess(process.execPath, [compiler, '-p', project]).ended;
  if (code !== 0) throw new Error(stdout);
}
