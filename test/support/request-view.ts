/** Reads a request over GraphQL, and waits for states. */
import type { TestApp } from './app.js';
import type { Clock } from './clock.js';
import { ring } from './engine-watch.js';
import { askData, type Edges } from './graphql.js';
import type { Gateway } from './http.js';
import { waitFor } from './wait.js';

export interface RequestView {
  state: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  filesRefused: number;
  bytesTotal: string;
  bytesOnDisk: string;
  recallsStartedAt: string | null;
  recallsEndedAt: string | null;
  firstFileOnDiskAt: string | null;
  finishedAt: string | null;
  files: { path: string; stage: string; state: string; errorClass: string | null; error: string | null }[];
  unresolved: { path: string; reason: string }[];
}

const QUERY = `query ($id: Int!) { request(requestId: $id) {
  state filesTotal filesOnDisk filesFailed filesUnknown filesRefused bytesTotal bytesOnDisk
  recallsStartedAt recallsEndedAt firstFileOnDiskAt finishedAt
  files(first: 100) { edges { node { state errorClass error file { path stage } } } }
  unresolved(first: 100) { edges { node { path reason } } }
} }`;

type RequestFileNode = Omit<RequestView['files'][number], 'path' | 'stage'> & { file: { path: string; stage: string } };

interface Answered extends Omit<RequestView, 'files' | 'unresolved'> {
  files: Edges<RequestFileNode>;
  unresolved: Edges<RequestView['unresolved'][number]>;
}

export async function viewRequest(gateway: Gateway, id: number): Promise<RequestView> {
  const { request } = await askData<{ request: Answered }>(gateway, QUERY, { id });
  return {
    ...request,
    files: request.files.edges.map(({ node: { file, ...requestFile } }) => ({ ...file, ...requestFile })),
    unresolved: request.unresolved.edges.map(({ node }) => node),
  };
}

export async function waitForState(gateway: Gateway, id: number, state: string): Promise<RequestView> {
  return await waitFor(`request ${id} to be ${state}`, () => viewOnceIn(gateway, id, state));
}

/**
 * Returns the request if the request is in the given state, and false otherwise. A check of the state costs one small
 * query.
 */
async function viewOnceIn(gateway: Gateway, id: number, state: string): Promise<RequestView | false> {
  const query = 'query ($id: Int!) { request(requestId: $id) { state } }';
  const { request } = await askData<{ request: { state: string } }>(gateway, query, { id });
  if (request.state !== state) return false;
  const view = await viewRequest(gateway, id);
  return view.state === state && view;
}

export async function waitForView(
  gateway: Gateway,
  id: number,
  what: string,
  isIt: (view: RequestView) => boolean,
): Promise<RequestView> {
  return await waitFor(`request ${id} ${what}`, async () => {
    const view = await viewRequest(gateway, id);
    return isIt(view) && view;
  });
}

/** Waits for a state, and advances the clock by 600 s before each check to skip the pauses between retries. */
export async function waitThroughPauses(app: TestApp, clock: Clock, id: number, state: string): Promise<RequestView> {
  return await waitFor(`request ${id} to be ${state}`, async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return await viewOnceIn(app, id, state);
  });
}
