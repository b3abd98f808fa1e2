/** Runs the examples of documents. */
import { accessSync, constants, symlinkSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import type { Example } from './examples.js';
import { startProcess } from './process.js';
import { makeTempDir } from './temp-dir.js';

/** URL of the gateway in the documents. */
export const SHOWN_URL = 'http://127.0.0.1:8080';

/** Time limit of an example in seconds. */
const LIMIT = '30';

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

/**
 * Runs an example to its end.
 * @param token of an operator, for GraphQL examples
 * @returns the standard output
 */
export async function runExample({ language, text }: Example, { url, token }: { url: string; token: string }) {
  const example = text.replaceAll(SHOWN_URL, url);
  const headers = ['-H', 'Content-Type: application/json', '-H', `Authorization: Bearer ${token}`];
  const command =
    language === 'sh'
      ? ['bash', '-euo', 'pipefail', '-c', example]
      : ['curl', '-sN', `${url}/graphql`, ...headers, '--data-binary', JSON.stringify({ query: example })];
  const { code, stdout, stderr } = await startProcess('timeout', [LIMIT, ...command]).ended;
  if (code === 0) return stdout;
  throw new Error(`${code === 124 ? 'timed out' : `ended with ${code}`}: ${stdout}${stderr}`);
}
