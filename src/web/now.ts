/** Provides the current time, which is updated while a page is open. */
import { useEffect, useState } from 'preact/hooks';

const STEP_MS = 10_000;

/**
 * Returns the browser's time in milliseconds. Renders the calling component every 10 s, so that times such as `2
 * minutes ago` stay correct.
 */
export function useNow(): number {
  const [, step] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => step((before) => before + 1), STEP_MS);
    return () => clearInterval(timer);
  }, []);
  return Date.now();
}
