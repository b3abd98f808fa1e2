/**
 * Installs and compiles the applications in test/clients/applications. Their packages are not among the project's
 * packages: `npm ci` installs them when the tests first run, and after each change of their package-lock.json.
 */
import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';

export const applications = path.join(packageRoot, 'test/clients/applications');

/** Errors of npm if no registry can be reached. */
const UNREACHABLE = /\b(?:EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ENOTCACHED|ENOTFOUND|ETIMEDOUT)\b/;

/**
 * Installs the packages of the applications, unless the installed packages are current.
 * @returns why the packages are not available, or undefined if they are
 */
export function installApplications(): string | undefined {
  if (timeOf('node_modules/.package-lock.json') >= timeOf('package-lock.json')) return undefined;
  try {
    runNpm('ci', '--prefer-offline', '--no-audit', '--no-fund', '--fetch-retries=1', '--fetch-timeout=60000');
    return undefined;
  } catch (error) {
    const [found] = UNREACHABLE.exec(String(error)) ?? [];
    if (found === undefined) throw error;
    return `the packages of the applications cannot be installed, because no registry is reachable (${found})`;
  }
}

/** Generates code for the applications' documents, checks their types and compiles them. */
export function compileApplications(): void {
  runNpm('run', 'build');
}

function timeOf(file: string): number {
  return statSync(path.join(applications, file), { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/** @throws Error with the output of npm */
function runNpm(...args: string[]): void {
  try {
    execFileSync('npm', [...args, '--prefix', applications, '--loglevel=error'], { stdio: 'pipe' });
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: Buffer; stderr?: Buffer };
    throw new Error(`npm ${args.join(' ')} failed: ${stdout}${stderr}`);
  }
}
