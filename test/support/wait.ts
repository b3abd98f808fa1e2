/** How a test waits: on what it can see, or until it is let on; never for a fixed time. */

/** Waits until `look` gives something, and fails with what was waited for when it takes too long. */
export async function waitFor<T>(
  what: string,
  look: () => Promise<T | undefined | false>,
  timeoutMs = 60_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as T;
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export interface Gate {
  opened: Promise<void>;
  open(): void;
}

/** Something that waits for the test. */
export function createGate(): Gate {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
