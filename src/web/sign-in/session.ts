/** Stores the user's token for this tab or, if the user asks for it, for the whole browser. */

import type { StoredToken } from './oidc';

const KEY = 'tapegate.token';

type Listener = () => void;
const listeners = new Set<Listener>();

/** The page renews a token this many milliseconds before its expiry. */
const RENEW_MS = 60_000;

const read = (): string | null => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

function readStored(): StoredToken | undefined {
  const text = read();
  return text === null ? undefined : (JSON.parse(text) as StoredToken);
}

export const isSignedIn = (): boolean => read() !== null;

let renewing: Promise<void> | undefined;

/** Returns the user's token. Renews the token first if it is about to expire. */
export async function readToken(): Promise<string | undefined> {
  const kept = readStored();
  const isEnding = kept?.expiresAt !== undefined && kept.expiresAt - RENEW_MS < Date.now();
  if (!isEnding || kept?.refreshToken === undefined) return kept?.token;
  renewing ??= renewStored(kept).finally(() => {
    renewing = undefined;
  });
  await renewing;
  return readStored()?.token;
}

/**
 * Renews the stored token. Two tabs never renew a token simultaneously, because a provider might revoke a login if its
 * refresh token is used twice. If the provider does not answer, the next call retries, and the page keeps the old
 * token.
 */
async function renewStored(kept: StoredToken): Promise<void> {
  const { renew } = await import('./oidc');
  const changed = new AbortController();
  addEventListener('storage', ({ key }) => key === KEY && changed.abort(), { signal: changed.signal });
  await withLock(async (hasWaited) => {
    // a browser may show this tab the other tab's token only after the other tab has released the lock
    if (hasWaited && readStored()?.token === kept.token) await untilAborted(changed.signal, STORAGE_MS);
    changed.abort();
    // do not renew the token if another tab has renewed it, or the user has signed out
    if (readStored()?.token !== kept.token) return;
    const next = await renew(kept).catch(() => undefined);
    // discard the new token if the user has signed out during the renewal
    if (next && readStored()?.token === kept.token) write(next, localStorage.getItem(KEY) !== null);
  });
}

/** Maximum milliseconds until a browser shows a tab what another tab has stored. */
const STORAGE_MS = 1000;

function untilAborted(signal: AbortSignal, mostMs: number): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, mostMs);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/**
 * Calls `use` while holding a lock that all tabs share. Browsers offer locks only on pages loaded over TLS or from this
 * host. On other pages, `use` runs without a lock.
 */
async function withLock(use: (hasWaited: boolean) => Promise<void>): Promise<void> {
  if (navigator.locks === undefined) return await use(false);
  const hasRun = await navigator.locks.request(KEY, { ifAvailable: true }, async (lock) => {
    if (lock) await use(false);
    return lock !== null;
  });
  if (!hasRun) await navigator.locks.request(KEY, () => use(true));
}

export function storeToken(kept: StoredToken, isPersistent: boolean): void {
  signOutReason = undefined;
  write(kept, isPersistent);
  notifyListeners();
}

/** Replaces the token in one step, because another tab must not take the replacement for a sign-out. */
function write(kept: StoredToken, isPersistent: boolean): void {
  const [chosen, other] = isPersistent ? [localStorage, sessionStorage] : [sessionStorage, localStorage];
  chosen.setItem(KEY, JSON.stringify(kept));
  other.removeItem(KEY);
}

/** Deletes the stored token. @param why the reason to show on the sign-in page; undefined if the user signed out */
export function dropToken(why?: string): void {
  signOutReason = why;
  clear();
  notifyListeners();
}

let signOutReason: string | undefined;

export const readSignOutReason = (): string | undefined => signOutReason;

/** Calls `listener` when the user signs in or out, in this tab or another tab. */
export function watchSession(listener: Listener): () => void {
  const onStorage = (event: StorageEvent) => {
    if (event.key === KEY || event.key === null) listener();
  };
  listeners.add(listener);
  addEventListener('storage', onStorage);
  return () => {
    listeners.delete(listener);
    removeEventListener('storage', onStorage);
  };
}

function clear(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

function notifyListeners(): void {
  for (const listener of listeners) listener();
}
