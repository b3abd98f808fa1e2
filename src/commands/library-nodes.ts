/** Tape systems as commands read and show them, beside the database and by a gateway. */

import { formatBytes } from '../bytes.js';
import type { LibraryState } from '../operations/libraries/libraries.js';
import { plural } from '../plural.js';
import { UsageError } from './failure.js';
import { changeAfar } from './where.js';

export const LIBRARY_FIELDS = `name kind contract settings drives depthFiles depthBytes volumes suspension { mode reason }
  usage { request sent bytes }`;

/** For the help of whatever takes settings. */
export const SECRETS = `
Settings stand in the database. What is secret stays in a file or a variable of the engines' hosts, and a setting says
where: --set tokenFile=/etc/tapegate/token, --set tokenEnv=SITE_TOKEN.`;

/** `key=value`, each key once. @throws UsageError, without the value, which may be a secret */
export function readSettings(given: readonly string[]): object {
  const settings = new Map<string, unknown>();
  for (const each of given) {
    const at = each.indexOf('=');
    const key = each.slice(0, Math.max(at, 0));
    if (key === '') throw new UsageError('--set must be key=value, with a key before the sign');
    if (settings.has(key)) throw new UsageError(`--set gives ${key} twice`);
    settings.set(key, readValue(key, each.slice(at + 1)));
  }
  return Object.fromEntries(settings);
}

function readValue(key: string, text: string): unknown {
  if (!/^[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`--set gives ${key} a value that begins as JSON, and is none`);
  }
}

/** The same of GraphQL, which has the settings as a text. */
export type LibraryNode = Omit<LibraryState, 'id' | 'settings'> & { settings: string };

export function readNode({ settings, ...node }: LibraryNode): LibraryState {
  return { ...node, id: 0, settings: JSON.parse(settings) };
}

/** Asks a gateway for a change of a library. */
export async function changeLibrary(url: string, call: string, variables: object): Promise<LibraryState> {
  return readNode(await changeAfar<LibraryNode>(url, [call, `Library { ${LIBRARY_FIELDS} }`], variables));
}

/** In one order, by either way. */
export function presentLibrary(library: LibraryState): object {
  const { name, kind, contract, settings, drives, depthFiles, depthBytes, volumes, suspension, usage } = library;
  return { name, kind, contract, settings, drives, depthFiles, depthBytes, volumes, suspension, usage };
}

export function formatDrives({ contract, drives }: LibraryState): string {
  return contract === 'DRIVE' ? `${plural(drives, 'drive')}` : `stages files, read ${drives} at a time`;
}

export function formatDepth({ contract, depthFiles, depthBytes }: LibraryState): string {
  if (contract === 'DRIVE') return '-';
  const parts = [
    depthFiles === null ? [] : `${plural(depthFiles, 'file')}`,
    depthBytes === null ? [] : formatBytes(depthBytes),
  ];
  return parts.flat().join(', ') || 'default';
}

/** What it was sent, as far as that is counted. */
export function formatUsage({ usage }: LibraryState): string {
  if (usage.length === 0) return '-';
  const [sent, bytes] = [
    usage.reduce((sum, each) => sum + each.sent, 0n),
    usage.reduce((sum, each) => sum + each.bytes, 0n),
  ];
  return `${plural(sent, 'request')}, ${formatBytes(bytes)} read`;
}
