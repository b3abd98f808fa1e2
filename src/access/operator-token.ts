/** The operator's token of a host is made, for the commands of whoever may read it there. */
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

/** Starts that make one at the same time may each take the other's for an old one. */
const MAX_TRIES = 3;

/** So long it is good unless a gateway that runs there renews it: of a host that is no more, as a container's, nobody else ends it. */
const GOOD_SECONDS = 30 * 86_400;

/** So often a gateway does. */
const RENEW_MS = 86_400_000;

/**
 * Makes one where there is none that is good and ours alone, else lets it be good for longer; those that were made there before are good
 * no longer.
 */
export async function ensureOperatorToken(ctx: Context): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const known = await readOperatorToken(ctx.config.dataDir);
    const token = known && (await findToken(ctx, known.secret));
    if (token?.role === 'OPERATOR') return await prolongToken(ctx, token.id, endOf(ctx));
    await leaveOperatorToken(ctx);
  }
}

const endOf = (ctx: Context) => addSeconds(ctx.now(), GOOD_SECONDS);

/** As long as the process runs. @param onError is told where it could not be done */
export function keepOperatorToken(ctx: Context, onError: (error: unknown) => void): () => void {
  const timer = setInterval(() => void ensureOperatorToken(ctx).catch(onError), RENEW_MS).unref();
  return () => clearInterval(timer);
}

async function leaveOperatorToken(ctx: Context): Promise<void> {
  const { dataDir } = ctx.config;
  const file = operatorTokenFile(dataDir);
  const note = `made at a start, in ${path.resolve(file)} of ${hostname()}`;
  await mkdir(dataDir, { recursive: true });
  // under another name first: a name that somebody else has made is not written to
  const fresh = `${file}.${randomUUID()}`;
  const handle = await open(fresh, 'wx', 0o600);
  try {
    await handle.write(' '.repeat(ROOM_BYTES)); // a token that nobody can keep is not made
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

/** More than a token takes. */
const ROOM_BYTES = 256;

async function keep(handle: FileHandle, { secret, fresh, file }: Record<'secret' | 'fresh' | 'file', string>) {
  const { bytesWritten } = await handle.write(`${secret}\n`, 0);
  await handle.truncate(bytesWritten);
  await rename(fresh, file);
}
