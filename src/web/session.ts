/** The token by which the gateway knows who uses the page. It is kept for this tab, or, where the user says so, for the browser. */

const KEY = 'tapegate.token';

type Listener = () => void;
const listeners = new Set<Listener>();

export function readToken(): string | undefined {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? undefined;
}

export function keepToken(token: string, isForLong: boolean): void {
  forget();
  (isForLong ? localStorage : sessionStorage).setItem(KEY, token);
  tell();
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
