/** Creates the operator token of a host, for the commands of users who may read it. */
import { randomUUID } from 'node:crypto';
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Context } from '../context.js';
import {
  createToken,
  findNoted,
  findToken,
  prolongToken,
  revokeToken,
  START_NAME,
} from '../operations/access/tokens.js';
import { addSeconds } from '../time.js';
import { operatorTokenFile, readOperatorToken } from './operator-token-file.js';

/** Concurrent starts may each replace the other's token. */
const MAX_TRIES = 3;

/**
 * Lifetime unless a gateway on the host renews it. Nothing else ends the token of a host that no longer exists, such as
 * a container.
 */
const GOOD_SECONDS = 30 * 86_400;

/** Interval of renewals. */
const RENEW_MS = 86_400_000;

/** Prolongs the token of this host, or creates one if none is valid and private. Revokes older ones of this host. */
export async function ensureOperatorToken(ctx: Context): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const known = await readOperatorToken(ctx.config.dataDir);
    const token = known && (await findToken(ctx, known.secret));
    if (token?.role === 'OPERATOR') return await prolongToken(ctx, token.id, endOf(ctx));
    await leaveOperatorToken(ctx);
  }
}

const endOf = (ctx: Context) => addSeconds(ctx.now(), GOOD_SECONDS);

/** Renews it while the process runs. @param onError called on failure */
export function keepOperatorToken(ctx: Context, onError: (error: unknown) => void): () => void {
  const timer = setInterval(() => void ensureOperatorToken(ctx).catch(onError), RENEW_MS).unref();
  return () => clearInterval(timer);
}

async function leaveOperatorToken(ctx: Context): Promise<void> {
  const { dataDir } = ctx.config;
  const file = operatorTokenFile(dataDir);
  const note = `made at a start, in ${path.resolve(file)} of ${hostname()}`;
  await mkdir(dataDir, { recursive: true });
  // under another name first: never writes to a file that another user has created
  const fresh = `${file}.${randomUUID()}`;
  const handle = await open(fresh, 'wx', 0o600);
  try {
    await handle.write(' '.repeat(ROOM_BYTES)); // reserves the space first: no token is created that cannot be stored
    const made = await createToken(ctx, { name: START_NAME, role: 'OPERATOR', note, expiresAt: endOf(ctx) });
    await keep(handle, { secret: made.secret, fresh, file }).catch(async (error) => {
      await revokeToken(ctx, made.token.id);
      throw error;
    });
    for (const id of await findNoted(ctx, note)) if (id < made.token.id) await revokeToken(ctx, id);
  } finally {
    await handle.close();
    await rm(fresh, { force: true });
  }
}

/** Longer than a token. */
const ROOM_BYTES = 256;

async function keep(handle: FileHandle, { secret, fresh, file }: Record<'secret' | 'fresh' | 'file', string>) {
  const { bytesWritten } = await handle.write(`${secret}\n`, 0);
  await handle.truncate(bytesWritten);
  await rename(fresh, file);
}
