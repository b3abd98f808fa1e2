/** The time that passes while somebody looks at the page. */
import { useEffect, useState } from 'preact/hooks';

const STEP_MS = 10_000;

/** The browser's time in milliseconds, for what is told as a span. */
export function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), STEP_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
