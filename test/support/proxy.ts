/** Settings and headers of a trusted proxy on this host. The proxy authenticates with a secret. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { TestApp } from './app.js';
import { makeTempDir } from './temp-dir.js';

export const PROXY_SECRET = 'a-secret-of-the-proxy';

/** Header that the proxy adds to each request. */
export const OF_PROXY = { 'X-Tapegate-Proxy-Secret': PROXY_SECRET };

/** Returns the header that the gateway's proxy adds, if the gateway expects a proxy secret. */
export const addedBy = ({ ctx }: TestApp): Record<string, string> =>
  ctx.config.access.proxySecret === undefined ? {} : OF_PROXY;

/** Returns the settings of a gateway behind the proxy. */
export function settingsOfProxy(addresses = '127.0.0.1'): Record<string, string> {
  const file = path.join(makeTempDir(), 'secret');
  writeFileSync(file, `${PROXY_SECRET}\n`, { mode: 0o600 });
  return { TAPEGATE_PROXY_ADDRESSES: addresses, TAPEGATE_PROXY_SECRET_FILE: file };
}
