/**
 * Supports `sslmode` in a database URL as libpq does. The driver pg makes only one attempt to connect, with or without
 * encryption. This module adds the second attempt, and remembers which attempt each server accepts. `sslmode=require`
 * is stricter than in libpq: Tapegate checks the server's certificate, as with `verify-full`.
 */
import { codeOf, messageOf } from '../core/errors.js';

/** Modes of the first and the second attempt to connect, for each `sslmode` that allows two attempts. */
const ways = new Map<string, readonly [first: string, second: string]>([
  ['allow', ['disable', 'no-verify']],
  ['prefer', ['no-verify', 'disable']],
]);

/** Database URLs, without secrets, to which this process has connected. */
const reached = new Set<string>();

/**
 * Database URLs, without secrets, of servers that refused the first mode. Later attempts to connect use only the second
 * mode.
 */
const onSecondWay = new Set<string>();

const nameOf = (url: URL): string => `${url.host}?${url.searchParams}`;

export interface Encryption {
  url: string;
  /** Returns whether the caller must try the second `sslmode`, because the server refused the first one. */
  learn(error: unknown): boolean;
  recordConnected(): void;
  /**
   * If the server does not support TLS, and this process has never connected to it, returns an error that names the
   * remedy. Returns any other error unchanged.
   */
  explain(error: unknown): unknown;
}

export function readEncryption(url: string): Encryption {
  const parsed = new URL(url);
  const mode = parsed.searchParams.get('sslmode') ?? '';
  const name = nameOf(parsed);
  const recordConnected = () => void reached.add(name);
  const [first, second] = ways.get(mode) ?? [];
  if (first === undefined || second === undefined) {
    const explain = (error: unknown) => (isOfNoTls(error) && !reached.has(name) ? explainNoTls(mode, error) : error);
    return { url: asPgReads(url, parsed, mode), learn: () => false, recordConnected, explain };
  }
  const isSecond = onSecondWay.has(name);
  return {
    recordConnected,
    explain: (error) => error,
    url: withMode(url, isSecond ? second : first),
    learn: (error) => {
      if (!isOfEncryption(error)) return false;
      if (isSecond) onSecondWay.delete(name);
      else onSecondWay.add(name);
      return true;
    },
  };
}

/**
 * Rewrites the URL for the driver pg, which would warn about `sslmode` values whose meaning will change in a later
 * version of pg.
 */
function asPgReads(url: string, { searchParams }: URL, mode: string): string {
  const isOfSystem = searchParams.get('sslrootcert') === 'system';
  const plain = isOfSystem ? url.replace(/([?&])sslrootcert=system(&|$)/, '$1') : url;
  const hasRoot = searchParams.has('sslrootcert') && !isOfSystem;
  if (mode === 'verify-ca' && hasRoot) return `${plain}&uselibpqcompat=true`;
  return mode === 'require' || mode === 'verify-ca' ? withMode(plain, 'verify-full') : plain;
}

const withMode = (url: string, mode: string): string => url.replace(/([?&]sslmode=)[^&#]*/, `$1${mode}`);

/**
 * Returns whether pg reports that the server does not support TLS. Compares the error message, because the error has no
 * code.
 */
export const isOfNoTls = (error: unknown): boolean => /^The server does not support SSL/.test(messageOf(error));

function explainNoTls(mode: string, cause: unknown): Error {
  const demand = mode === '' ? 'its URL' : `sslmode=${mode}`;
  const remedy = 'enable ssl on the server, or use sslmode=prefer or sslmode=disable';
  return new Error(`the database server does not support TLS, and ${demand} requires it: ${remedy}`, { cause });
}

/**
 * Returns whether an error concerns encryption. Code `28000` can mean that pg_hba.conf has no entry
 * for this kind of connection, encrypted or unencrypted.
 */
function isOfEncryption(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  return code === '28000' || /^(EPROTO$|ERR_SSL_)/.test(code) || isOfNoTls(error);
}
