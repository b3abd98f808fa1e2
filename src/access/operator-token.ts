/** The operator's token of a host: `DATA_DIR/operator.token`, for the commands of whoever may read it there. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../context.js';
import { codeOf } from '../errors.js';
import { createToken, findToken } from '../operations/access/tokens.js';

export function operatorTokenFile(dataDir: string): string {
  return path.join(dataDir, 'operator.token');
}

/** Makes one where there is none that is good. Only who runs this program can read it. */
export async function ensureOperatorToken(ctx: Context): Promise<void> {
  const { dataDir } = ctx.config;
  const file = operatorTokenFile(dataDir);
  const known = await readOperatorToken(dataDir);
  if (known !== undefined && (await findToken(ctx, known))?.role === 'OPERATOR') return;
  const note = `made at a start, in ${path.resolve(file)}`;
  const { secret } = await createToken(ctx, { name: 'operator', role: 'OPERATOR', note });
  await mkdir(dataDir, { recursive: true });
  // under another name first: a name that somebody else has made is not written to
  const fresh = `${file}.${randomUUID()}`;
  try {
    await writeFile(fresh, `${secret}\n`, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
}

/** Undefined where there is none, or where it is not for us to read. */
export async function readOperatorToken(dataDir: string): Promise<string | undefined> {
  try {
    return (await readFile(operatorTokenFile(dataDir), 'utf8')).trim();
  } catch (error) {
    if (['ENOENT', 'EACCES', 'ENOTDIR'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  }
}
