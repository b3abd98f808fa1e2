/** A site with one staging library of a real kind: files on its tapes and in the catalogue, requests, and an engine that restores them. */
import { randomBytes } from 'node:crypto';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from './app.js';
import { type Clock, createClock } from './clock.js';
import { addFiles, addQuota, checksumOf } from './factories.js';
import { askData } from './graphql.js';
import type { RealKind } from './real-kinds.js';
import { type RequestView, viewRequest } from './request-view.js';
import { makeRequest } from './rest.js';
import { readStates } from './staging.js';
import { waitFor } from './wait.js';

export const LIBRARY = 'silo';

/** So much time passes with each look. */
const LOOK_SECONDS = 5;

export interface Site {
  app: TestApp;
  kind: RealKind;
  clock: Clock;
  /** Puts files on tape and into the catalogue. @returns their bytes, by path */
  put(files: readonly SitedFile[]): Promise<Map<string, Buffer>>;
  /** Requests all files whose paths have this in them. */
  request(pattern: string): Promise<number>;
  /** What was asked for of these comes, and time passes, until the request is so. */
  bring(id: number, state: string, paths: readonly string[]): Promise<RequestView>;
  /** Time passes until what is noted of the library's files is so: path to state. */
  untilStaging(what: string, isIt: (states: Record<string, string>) => boolean): Promise<Record<string, string>>;
  /** Files that the library keeps though nobody needs them, as operators see them. */
  readKept(): Promise<{ path: string; until: string | null }[]>;
  close(): Promise<void>;
}

export interface SitedFile {
  path: string;
  /** Bytes. */
  size?: number;
  /** False: the catalogue knows no checksum. */
  isSummed?: boolean;
}

const ADD = `mutation ($input: AddLibraryInput!) {
  result: addLibrary(input: $input) { __typename ... on Failure { message } }
}`;
const KEPT = `{ libraries { edges { node { name staging { nextKept { path until } } } } } }`;

/** Adds a library before the system, as an operator does. */
export async function addKind(app: TestApp, name: string, kind: RealKind, drives = 2): Promise<void> {
  const input = { name, kind: kind.kind, settings: JSON.stringify(kind.settings), drives };
  const { result } = await askData<{ result: { __typename: string } }>(app, ADD, { input });
  if (result.__typename !== 'Library') throw new Error(`the library is not added: ${JSON.stringify(result)}`);
}

/** Puts files on the tapes of a library's system and into the catalogue. @returns their bytes, by path */
export async function putFiles(
  app: TestApp,
  library: string,
  { bench }: RealKind,
  files: readonly SitedFile[],
): Promise<Map<string, Buffer>> {
  const contents = new Map(files.map(({ path, size = 1000 }) => [path, randomBytes(size)]));
  for (const [path, bytes] of contents) await bench.put(path, bytes);
  const rows = files.map(({ path, isSummed = true }) => {
    const bytes = contents.get(path) ?? Buffer.alloc(0);
    const checksum = isSummed ? checksumOf(bytes) : null;
    return { path, size: BigInt(bytes.length), checksum, volume: library, library, position: null };
  });
  await addFiles(app.ctx, rows);
  return contents;
}

/** @param drives readers of the library */
export async function openSite(kind: RealKind, { drives = 2, clock = createClock() } = {}): Promise<Site> {
  const { bench, env } = kind;
  const engine = { idleMs: 200, env };
  const app = await startApp({ backend: createMemoryBackend(), now: clock.now, engine, config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  await addKind(app, LIBRARY, kind, drives);
  return {
    app,
    kind,
    clock,
    put: (files) => putFiles(app, LIBRARY, kind, files),
    request: (pattern) => makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: pattern }),
    bring: (id, state, paths) =>
      waitFor(`request ${id} to be ${state}`, async () => {
        await bench.arrive(paths);
        clock.advance(LOOK_SECONDS);
        const view = await viewRequest(app, id);
        return view.state === state && view;
      }),
    untilStaging: (what, isIt) =>
      waitFor(what, async () => {
        clock.advance(LOOK_SECONDS);
        const states = await readStates(app.ctx);
        return isIt(states) && states;
      }),
    readKept: async () => {
      interface Node {
        node: { name: string; staging: { nextKept: { path: string; until: string | null }[] } | null };
      }
      const { libraries } = await askData<{ libraries: { edges: Node[] } }>(app, KEPT);
      return libraries.edges.flatMap(({ node }) => (node.name === LIBRARY ? (node.staging?.nextKept ?? []) : []));
    },
    close: async () => {
      await app.close();
      await bench.close();
    },
  };
}
