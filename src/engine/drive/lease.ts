/**
 * Holding a drive's lease: renewed in the background while the process lives. When it cannot be renewed in time, the
 * signal aborts, and `confirm` refuses whatever must not happen without the drive.
 */
import type { Context } from '../../context.js';
import { type Lease, renewLease } from '../../operations/recalls/drives.js';

/** A lease that is renewed until it is lost, or until the renewal is ended. */
export interface HeldLease extends Lease {
  /** Aborts when the lease is lost or the engine stops. */
  signal: AbortSignal;
  /** @throws Error when the lease is lost, or may be: the process may have stood still past its end */
  confirm(): void;
  /** Before the drive is given back; calling it twice is safe. */
  endRenewal(): void;
}

/**
 * Begins to renew a lease that was just claimed; `endRenewal` must end that.
 * @param options.stop ends all work with the drive, not the renewal
 */
export function holdLease(ctx: Context, lease: Lease, options: { leaseSeconds: number; stop: AbortSignal }): HeldLease {
  const lost = new AbortController();
  const leaseMs = options.leaseSeconds * 1000;
  // the process's own clock, which goes on while it is stopped
  let validUntil = performance.now() + leaseMs;
  const renew = async () => {
    const startedAt = performance.now();
    const isHeld = await renewLease(ctx, lease, options.leaseSeconds).catch(() => undefined);
    if (isHeld) validUntil = startedAt + leaseMs;
    else if (isHeld === false || performance.now() >= validUntil) lost.abort(lostError(lease));
  };
  const timer = setInterval(() => void renew(), leaseMs / 4);
  return {
    ...lease,
    signal: AbortSignal.any([lost.signal, options.stop]),
    confirm: () => {
      if (lost.signal.aborted || performance.now() >= validUntil) throw lostError(lease);
    },
    endRenewal: () => clearInterval(timer),
  };
}

function lostError(lease: Lease): Error {
  return new Error(`the lease of ${lease.driveName} is lost`);
}
