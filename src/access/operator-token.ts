/** The operator's token of a host is made, for the commands of whoever may read it there. */
import { randomUUID } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Context } from '../context.js';
import { createToken, findNoted, findToken, revokeToken } from '../operations/access/tokens.js';
import { operatorTokenFile, readOperatorToken } from './operator-token-file.js';

/** Starts that make one at the same time may each take the other's for an old one. */
const MAX_TRIES = 3;

/** Makes one where there is none that is good and ours alone; those that were made there before are good no longer. */
export async function ensureOperatorToken(ctx: Context): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const known = await readOperatorToken(ctx.config.dataDir);
    if (known !== undefined && (await findToken(ctx, known.secret))?.role === 'OPERATOR') return;
    await leaveOperatorToken(ctx);
  }
}

async function leaveOperatorToken(ctx: Context): Promise<void> {
  const { dataDir } = ctx.config;
  const file = operatorTokenFile(dataDir);
  const note = `made at a start, in ${path.resolve(file)} of ${hostname()}`;
  const { token, secret } = await createToken(ctx, { name: 'operator', role: 'OPERATOR', note });
  await mkdir(dataDir, { recursive: true });
  // under another name first: a name that somebody else has made is not written to
  const fresh = `${file}.${randomUUID()}`;
  try {
    await writeFile(fresh, `${secret}\n`, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
  for (const id of await findNoted(ctx, note)) if (id < token.id) await revokeToken(ctx, id);
}
