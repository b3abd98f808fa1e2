/**
 * Confirms tape copies while a drive has nothing to recall: a file is read back from tape and compared with what the
 * catalogue says of it. Recalls go first: it stops after the file in hand as soon as one waits.
 */
import type { Context } from '../../context.js';
import { TapeError } from '../../errors.js';
import {
  endVerification,
  findUnconfirmed,
  readUnconfirmed,
  type UnconfirmedCopy,
  type UnconfirmedVolume,
  type VerificationFailure,
} from '../../operations/catalogue/verifications.js';
import { setMount } from '../../operations/recalls/drives.js';
import { hasReadyRecalls } from '../../operations/recalls/queue.js';
import { isSuspended } from '../../operations/suspensions.js';
import type { MountedVolume, TapeBackend } from '../../tape/backend.js';
import { addSeconds } from '../../time.js';
import { createChecksum } from '../checksum.js';
import type { HeldLease } from './lease.js';
import { classifyError, pauseSeconds } from './retry.js';

const PAGE = 100;

/** @returns whether there was anything to do */
export async function verifyNext(
  ctx: Context,
  backend: TapeBackend,
  lease: HeldLease,
  stop: AbortSignal,
): Promise<boolean> {
  const volume = await findUnconfirmed(ctx);
  if (!volume || !(await setMount(ctx, lease, volume.volumeId))) return false;
  try {
    await verifyVolume(ctx, backend, lease, { volume, stop });
  } finally {
    await setMount(ctx, lease, null);
  }
  return true;
}

async function verifyVolume(
  ctx: Context,
  backend: TapeBackend,
  lease: HeldLease,
  { volume, stop }: { volume: UnconfirmedVolume; stop: AbortSignal },
): Promise<void> {
  let mounted: MountedVolume | undefined;
  try {
    for (let after = -1n; ; ) {
      const copies = await readUnconfirmed(ctx, { volumeId: volume.volumeId, after, limit: PAGE });
      for (const copy of copies) {
        if (stop.aborted || (await hasReadyRecalls(ctx, lease.driveId)) || (await isSuspended(ctx, lease.driveName)))
          return;
        let failure: VerificationFailure | undefined;
        try {
          mounted ??= await backend.mount(volume.volume, lease.driveName, lease.signal);
          await compare(mounted, copy, lease.signal);
        } catch (error) {
          if (lease.signal.aborted) return;
          failure = judge(ctx, copy, error);
        }
        await endVerification(ctx, { ...copy, volumeId: volume.volumeId }, failure);
        if (!mounted) return; // each file would fail alike: the next mount may not
      }
      if (copies.length < PAGE) return;
      after = copies.at(-1)?.position ?? after;
    }
  } finally {
    await mounted?.unmount();
  }
}

/** @throws TapeError MEDIA when the bytes are not those of the catalogue */
async function compare(volume: MountedVolume, copy: UnconfirmedCopy, signal: AbortSignal): Promise<void> {
  const checksum = createChecksum(copy.checksum);
  let bytes = 0n;
  for await (const chunk of volume.read(copy.position, signal)) {
    signal.throwIfAborted();
    bytes += BigInt(chunk.length);
    checksum.update(chunk);
  }
  const digest = checksum.digest();
  if (bytes === copy.size && digest === copy.checksum) return;
  const [got, wanted] = bytes === copy.size ? [digest, copy.checksum] : [`${bytes} bytes`, `${copy.size} bytes`];
  throw new TapeError('MEDIA', `the tape copy is ${got}, and the catalogue says ${wanted}`);
}

function judge(ctx: Context, copy: UnconfirmedCopy, thrown: unknown): VerificationFailure {
  const { errorClass, error } = classifyError(thrown);
  const pause = pauseSeconds(errorClass, copy.attempts, Math.random());
  ctx.log.warn({ path: copy.path, errorClass, attempts: copy.attempts + 1, pause }, `not confirmed: ${error}`);
  return { errorClass, error, notBefore: pause === undefined ? undefined : addSeconds(ctx.now(), pause) };
}
