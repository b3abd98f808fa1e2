/** The token by which the gateway knows who uses the page. It is kept for this tab, or, where the user says so, for the browser. */

const KEY = 'tapegate.token';

export interface Kept {
  token: string;
  /** Of one that a provider gave: by which the next one is had, and until when it is good (milliseconds since 1970). */
  issuer?: string | undefined;
  refreshToken?: string | undefined;
  expiresAt?: number | undefined;
}

type Listener = () => void;
const listeners = new Set<Listener>();

/** So long before its end a token is exchanged for the next one. */
const RENEW_MS = 60_000;

const read = (): string | null => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

function readKept(): Kept | undefined {
  const text = read();
  return text === null ? undefined : (JSON.parse(text) as Kept);
}

export const isSignedIn = (): boolean => read() !== null;

let renewing: Promise<void> | undefined;

/** As it is sent: a new one where the last one is about to end, and it can be had. */
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

/** A provider that is away is asked again with the next call; what the old token is good for the gateway says. */
async function renewKept(kept: Kept): Promise<void> {
  const { renew } = await import('./oidc');
  const next = await renew(kept).catch(() => undefined);
  // who has signed out meanwhile stays so
  if (next && readKept()?.token === kept.token) write(next, localStorage.getItem(KEY) !== null);
}

export function keepToken(kept: Kept, isForLong: boolean): void {
  refusal = undefined;
  write(kept, isForLong);
  tell();
}

function write(kept: Kept, isForLong: boolean): void {
  forget();
  (isForLong ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(kept));
}

/** @param why for whoever signs in again; undefined where it was the user's wish */
export function dropToken(why?: string): void {
  refusal = why;
  forget();
  tell();
}

let refusal: string | undefined;

/** Why the last token is taken no longer. */
export const readRefusal = (): string | undefined => refusal;

/** Another tab of the browser has signed in or out. */
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
