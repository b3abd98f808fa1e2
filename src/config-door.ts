/** Settings of what the world's transfer tools meet: the WLCG Tape REST API, and the door for the bytes of restored files. */
import type { ConfigReader } from './config-reader.js';

export interface DoorConfig {
  /** Of the WLCG Tape REST API; unset: the name of the host by which clients know the gateway. */
  siteName: string | undefined;
  /** Whose bytes are served: nobody's, those of copies that everybody on their host may read, or all. */
  webdav: 'off' | 'public' | 'all';
  /** Gateways that serve the bytes of disks that this one does not have: the URL of each, by the name of its host. */
  gateways: ReadonlyMap<string, string>;
  /** Calls on restore disks at once, each of which has one of the few threads of the process. */
  diskCalls: number;
}

/** Threads that libuv has unless it is told otherwise; the door has half of them, so that a disk that hangs leaves the others. */
const THREADS = 4;

export function readDoorConfig({ parsed, oneOf }: ConfigReader): DoorConfig {
  const threads = parsed('UV_THREADPOOL_SIZE', parseThreads, 'a whole number from 1 to 1024') ?? THREADS;
  return {
    siteName: parsed(
      'SITE_NAME',
      (name) => (/^[\x21-\x7e]{1,100}$/.test(name) ? name : undefined),
      'a name without spaces',
    ),
    webdav: oneOf('WEBDAV', ['off', 'public', 'all'], 'public') as DoorConfig['webdav'],
    gateways: new Map(
      parsed('BYTES_GATEWAYS', parseGateways, 'a list such as host1=https://host1.example.org:8443,host2=…') ?? [],
    ),
    diskCalls: Math.max(1, Math.floor(threads / 2)),
  };
}

function parseThreads(text: string): number | undefined {
  const threads = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  return threads >= 1 && threads <= 1024 ? threads : undefined;
}

function parseGateways(text: string): [string, string][] | undefined {
  const gateways = text.split(',').map((part): [string, string] | undefined => {
    const [, host, url = ''] = /^\s*([\w.-]+)=(https?:\/\/[^\s,]+?)\/*\s*$/.exec(part) ?? [];
    if (host === undefined || !URL.canParse(url)) return undefined;
    const { search, hash, username, password } = new URL(url);
    return search + hash + username + password === '' ? [host, url] : undefined;
  });
  const known = gateways.filter((gateway) => gateway !== undefined);
  return known.length === gateways.length ? known : undefined;
}
