/** Stores the current view and its filters in the address, after `#`, so that links and bookmarks work. */
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  /** Path components after `#` in the address, such as `['requests', '12']`; empty for the start page. */
  parts: string[];
  search: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  return { parts: path.split('/').filter(Boolean).map(decode), search: new URLSearchParams(search) };
}

/** Decodes a part of the address. Returns an invalid encoding unchanged, because a user might have typed it. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function linkTo(parts: readonly (string | number)[], search: Record<string, string | undefined> = {}): string {
  const chosen = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) if (value) chosen.set(name, value);
  const text = chosen.toString();
  return `#/${parts.map((part) => encodeURIComponent(part)).join('/')}${text && `?${text}`}`;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const follow = () => setHash(location.hash);
    addEventListener('hashchange', follow);
    follow(); // read the address again, because it might have changed before the listener was added
    return () => removeEventListener('hashchange', follow);
  }, []);
  return parseRoute(hash);
}

const TYPED = 'typed';

/**
 * Changes the filters of a view. Each change is a step in the browser's history, but consecutive keystrokes in a text
 * field are one step.
 */
export function chooseHere(
  parts: readonly (string | number)[],
  search: Record<string, string | undefined>,
  { isTyped = false } = {},
): void {
  const link = linkTo(parts, search);
  if (link === location.hash) return;
  if (isTyped && history.state === TYPED) history.replaceState(TYPED, '', link);
  else history.pushState(isTyped ? TYPED : null, '', link);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Replaces the current view without a step in the browser's history. */
export function replaceRoute(hash: string): void {
  history.replaceState(null, '', hash);
  dispatchEvent(new HashChangeEvent('hashchange'));
}
