/** What the tests of the engine look at: a request as GraphQL shows it, stage moves, and the restore area on disk. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { markerName } from '../../src/engine/disk/marker.js';
import { moves, type Stage, stageLetters } from '../../src/stages.js';
import { addSeconds, currentTime, isBefore } from '../../src/time.js';
import { type TestApp, waitFor } from './app.js';

export interface RequestView {
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  filesRefused: number;
  bytesTotal: number;
  bytesOnDisk: number;
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
  holds: { path: string; stage: string; state: string; errorClass: string | null; error: string | null }[];
  awaited: { path: string; reason: string }[];
}

const QUERY = `query ($id: Int!) { request(id: $id) {
  state filesTotal filesOnDisk filesFailed filesUnknown filesRefused bytesTotal bytesOnDisk
  tapestoreRequestStart tapestoreRequestEnd firstFilesOnDisk lastFilesOnDisk
  holds(first: 100) { edges { node { state errorClass error file { path stage } } } }
  awaited(first: 100) { edges { node { path reason } } }
} }`;

interface Edges<T> {
  edges: { node: T }[];
}
interface Answer {
  holds: Edges<{
    state: string;
    errorClass: string | null;
    error: string | null;
    file: { path: string; stage: string };
  }>;
  awaited: Edges<{ path: string; reason: string }>;
}

export async function graphql<T>(app: TestApp, query: string, variables: object = {}): Promise<T> {
  const response = await fetch(`${app.url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ query, variables }),
  });
  const { data, errors } = (await response.json()) as { data: T; errors?: unknown };
  if (errors) throw new Error(JSON.stringify(errors));
  return data;
}

export async function viewRequest(app: TestApp, id: number): Promise<RequestView> {
  const { request } = await graphql<{ request: Omit<RequestView, 'holds' | 'awaited'> & Answer }>(app, QUERY, { id });
  return {
    ...request,
    holds: request.holds.edges.map(({ node: { file, ...hold } }) => ({ ...file, ...hold })),
    awaited: request.awaited.edges.map(({ node }) => node),
  };
}

export async function waitForState(app: TestApp, id: number, state: string): Promise<RequestView> {
  return await waitForView(app, id, `to be ${state}`, (view) => view.state === state);
}

export async function waitForView(
  app: TestApp,
  id: number,
  what: string,
  isIt: (view: RequestView) => boolean,
): Promise<RequestView> {
  return await waitFor(`request ${id} ${what}`, async () => {
    const view = await viewRequest(app, id);
    return isIt(view) && view;
  });
}

export async function cancel(app: TestApp, id: number): Promise<void> {
  await graphql(app, `mutation ($id: Int!) { cancelRequest(id: $id) { __typename } }`, { id });
}

/** Is the time there, and between the two? */
export function isWithin(time: string | null, [from, to]: readonly [string, string]): boolean {
  return time !== null && !isBefore(time, from) && !isBefore(to, time);
}

/** A clock that goes on like the real one, can be moved forward, and can stand still. */
export function createClock() {
  let ahead = 0;
  let frozenAt: string | undefined;
  return {
    now: () => frozenAt ?? addSeconds(currentTime(), ahead),
    advance: (seconds: number) => {
      ahead += seconds;
    },
    freeze: () => {
      frozenAt = addSeconds(currentTime(), ahead);
    },
    goOn: () => {
      frozenAt = undefined;
    },
  };
}

/** Makes the engine look for work now, rather than when its next look is due. */
export async function ring(app: TestApp, bell: 'event' | 'recall' | 'notification'): Promise<void> {
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', $1)`, [bell]);
}

/** Something that the fake tape waits for. */
export function createGate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** The moves of the files whose path begins so, as letters (`TA`), in the order of the event table. */
export async function readMoves(app: TestApp, prefix: string): Promise<{ path: string; move: string }[]> {
  const { rows } = await app.ctx.db.pool.query<{ path: string; from: Stage; to: Stage }>(
    `SELECT f.path, e.from_stage AS "from", e.to_stage AS "to" FROM event e JOIN tape_file f ON f.id = e.file_id
     WHERE starts_with(f.path, $1) ORDER BY e.id`,
    [prefix],
  );
  return rows.map(({ path, from, to }) => ({ path, move: stageLetters[from] + stageLetters[to] }));
}

/** What breaks the rules of src/stages.ts in the whole event table: an illegal move, or one that is not from where the file was. */
export async function findIllegalMoves(app: TestApp): Promise<string[]> {
  const legal = new Set(moves.map(({ from, to }) => stageLetters[from] + stageLetters[to]));
  const at = new Map<string, string>();
  return (await readMoves(app, '/')).flatMap(({ path, move }) => {
    const [from = '', to = ''] = move;
    const isLegal = legal.has(move) && (at.get(path) ?? from) === from;
    at.set(path, to);
    return isLegal ? [] : [`${path}: ${move}`];
  });
}

export async function readStage(app: TestApp, file: string): Promise<string> {
  const { rows } = await app.ctx.db.pool.query<{ stage: Stage }>('SELECT stage FROM tape_file WHERE path = $1', [file]);
  return rows[0] ? stageLetters[rows[0].stage] : 'none';
}

/** The bytes of a file in the restore area; undefined when there is none. */
export function readRestored(app: TestApp, file: string): Buffer | undefined {
  const place = path.join(app.restoreDir, file);
  return existsSync(place) ? readFileSync(place) : undefined;
}

/** Everything below a directory, partial files and folders too, but for the marker; links are not followed. */
export function listTree(dir: string): string[] {
  const entries = readdirSync(dir, { withFileTypes: true }).filter((entry) => entry.name !== markerName);
  const names = entries.flatMap((entry) => [
    entry.name,
    ...(entry.isDirectory() ? listTree(path.join(dir, entry.name)).map((name) => `${entry.name}/${name}`) : []),
  ]);
  return names.sort();
}

export interface DiskFigures {
  used: bigint;
  reserved: bigint;
}

/** What all restore disks account for. */
export async function readDisks(app: TestApp): Promise<DiskFigures> {
  const { rows } = await app.ctx.db.pool.query<DiskFigures>(
    'SELECT sum(used)::bigint AS used, sum(reserved)::bigint AS reserved FROM restore_disk',
  );
  return rows[0] ?? { used: 0n, reserved: 0n };
}
