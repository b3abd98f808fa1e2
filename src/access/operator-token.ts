/** The operator's token of a host is made, for the commands of whoever may read it there. */
import { randomUUID } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../context.js';
import { createToken, findToken } from '../operations/access/tokens.js';
import { operatorTokenFile, readOperatorToken } from './operator-token-file.js';

/** Makes one where there is none that is good. Only who runs this program can read it. */
export async function ensureOperatorToken(ctx: Context): Promise<void> {
  const { dataDir } = ctx.config;
  const file = operatorTokenFile(dataDir);
  const known = await readOperatorToken(dataDir);
  if (known !== undefined && (await findToken(ctx, known.secret))?.role === 'OPERATOR') return;
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
