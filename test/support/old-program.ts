/** An older Tapegate, built from the history of this checkout, to run beside the present one. */
import { execFileSync } from 'node:child_process';
import { existsSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/package-root.js';
import { makeTempDir } from './temp-dir.js';

const git = (...args: string[]): string =>
  execFileSync('git', args, { cwd: packageRoot, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();

/** The commit before the latest one that brought a migration, or what UPGRADE_FROM names; undefined without a history. */
export function findOldCommit(): string | undefined {
  try {
    const latest = git('log', '-1', '--format=%H', '--', 'prisma/migrations');
    return git('rev-parse', '--verify', `${process.env.UPGRADE_FROM ?? `${latest}^`}^{commit}`);
  } catch {
    return undefined; // an archive of the files, or a clone of a few commits
  }
}

/** It has the packages of this checkout. @returns its program */
export function buildOldProgram(commit: string): string {
  const root = makeTempDir();
  const archive = execFileSync('git', ['archive', commit], { cwd: packageRoot, maxBuffer: 2 ** 30 });
  execFileSync('tar', ['-x', '-C', root], { input: archive });
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(root, 'node_modules'));
  execFileSync('npm', ['run', '--silent', 'build'], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] });
  const program = path.join(root, 'dist/src/tapegate.js');
  if (!existsSync(program)) throw new Error(`${commit} has been built, and there is no ${program}`);
  return program;
}
