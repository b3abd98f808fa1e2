/** Simulates the next version of Tapegate: the built program of this checkout with one more migration. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { cliFile } from './process.js';
import { makeDiskDir } from './temp-dir.js';

const MIGRATION = '29990101000000_next';

/** Adds a migration that older versions of the program are compatible with. @returns the name of the migration */
export function addMigration(migrations: string, sql: string): string {
  mkdirSync(path.join(migrations, MIGRATION));
  writeFileSync(path.join(migrations, MIGRATION, 'migration.sql'), sql);
  const file = path.join(migrations, 'compatibility.json');
  const compatibility: Record<string, string> = JSON.parse(readFileSync(file, 'utf8'));
  const [oldest = ''] = Object.values(compatibility);
  writeFileSync(file, JSON.stringify({ ...compatibility, [MIGRATION]: oldest }));
  return MIGRATION;
}

/** @returns the path of the next version's program */
export function makeNextProgram(sql: string): string {
  const root = makeDiskDir();
  execFileSync('cp', ['-al', 'package.json', 'dist', root], { cwd: packageRoot });
  // copied instead of linked, because `compatibility.json` changes
  execFileSync('cp', ['-r', '--parents', 'prisma/migrations', root], { cwd: packageRoot });
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(root, 'node_modules'));
  addMigration(path.join(root, 'prisma/migrations'), sql);
  return path.join(root, path.relative(packageRoot, cliFile));
}
