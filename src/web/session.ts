/** The token of the user, kept for this tab, or for the browser if the user chooses so. */

import type { StoredToken } from './oidc';

const KEY = 'tapegate.token';

type Listener = () => void;
const listeners = new Set<Listener>();

/** A token is renewed this long before its end. */
const RENEW_MS = 60_000;

const read = (): string | null => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

function readKept(): StoredToken | undefined {
  const text = read();
  return text === null ? undefined : (JSON.parse(text) as StoredToken);
}

export const isSignedIn = (): boolean => read() !== null;

let renewing: Promise<void> | undefined;

/** Returns the token, renewed if it is about to expire. */
export async function readToken(): Promise<string | undefined> {
  const kept = readKept();
  const isEnding = kept?.expiresAt !== undefined && kept.expiresAt - RENEW_MS < Date.now();
  if (!isEnding || kept?.refreshToken === undefined) return kept?.token;
  renewing ??= renewKept(kept).finally(() => {
    renewing = undefined;
  });
  await renewing;
  return readKept()?.token;
}

/** If the provider does not answer, the next call retries; the gateway decides whether the old token is valid. */
async function renewKept(kept: StoredToken): Promise<void> {
  const { renew } = await import('./oidc');
  const next = await renew(kept).catch(() => undefined);
  // not if the user has signed out meanwhile
  if (next && readKept()?.token === kept.token) write(next, localStorage.getItem(KEY) !== null);
}

export function keepToken(kept: StoredToken, isForLong: boolean): void {
  refusal = undefined;
  write(kept, isForLong);
  tell();
}

function write(kept: StoredToken, isForLong: boolean): void {
  forget();
  (isForLong ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(kept));
}

/** @param why for the sign-in page; undefined if the user signed out */
export function dropToken(why?: string): void {
  refusal = why;
  forget();
  tell();
}

let refusal: string | undefined;

export const readRefusal = (): string | undefined => refusal;

/** Reports that another tab has signed in or out. */
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

function forget(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

function tell(): void {
  for (const listener of listeners) listener();
}
