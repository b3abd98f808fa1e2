/** Waits for conditions, never for fixed times. */
import type { Socket } from 'node:net';

/**
 * Polls until `look` returns a value other than undefined and false. Long waits have longer pauses, to use less
 * processor time.
 */
export async function waitFor<T>(
  what: string,
  look: () => Promise<T | undefined | false>,
  timeoutMs = 60_000,
): Promise<T> {
  const startedAt = Date.now();
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as T;
    const waitedMs = Date.now() - startedAt;
    if (waitedMs > timeoutMs) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, Math.min(10 + waitedMs / 10, 100)));
  }
}

/** Waits until a connection has closed normally or by a reset. */
export function whenClosed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.on('error', () => {}).once('close', () => resolve());
  });
}

export interface Gate {
  opened: Promise<void>;
  open(): void;
}

/** Creates a promise that the test resolves. */
export function createGate(): Gate {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
