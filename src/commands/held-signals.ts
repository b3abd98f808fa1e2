/** Work that a Ctrl-C does not tear apart. */
import { present } from './io.js';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** What would end the process waits for the end of what must not be torn apart, which is bounded. */
export async function holdSignals<T>(work: () => Promise<T>): Promise<T> {
  if (present().signal) return await work(); // the process is not the command's
  let held: NodeJS.Signals | undefined;
  const hold = (signal: NodeJS.Signals) => {
    held ??= signal;
  };
  const others = SIGNALS.map((signal) => ({
    signal,
    listeners: process.rawListeners(signal) as NodeJS.SignalsListener[],
  }));
  for (const { signal } of others) process.removeAllListeners(signal).on(signal, hold);
  try {
    return await work();
  } finally {
    for (const { signal, listeners } of others) {
      process.off(signal, hold);
      for (const listener of listeners) process.on(signal, listener);
    }
    if (held) process.kill(process.pid, held);
  }
}
