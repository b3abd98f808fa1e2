/** The time that passes while somebody looks at the page. */
import { useEffect, useState } from 'preact/hooks';

const STEP_MS = 10_000;

/** The browser's time in milliseconds, as it is whenever something is shown anew, for what is told as a span. */
export function useNow(): number {
  const [, step] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => step((before) => before + 1), STEP_MS);
    return () => clearInterval(timer);
  }, []);
  return Date.now();
}
