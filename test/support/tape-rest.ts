/** Client of the WLCG Tape REST API and of WebDAV. */

import { createToken } from '../../src/domain/access/tokens.js';
import type { Context } from '../../src/domain/context.js';
import { type Answer, type Gateway, request, send } from './http.js';
import { waitFor } from './wait.js';

export interface TapeClient extends Gateway {
  token: string;
}

export const TAPE = '/tape_rest/v1';

/** Creates a client with a token of a user. */
export async function createTapeClient(app: { url: string; ctx: Context }, name: string): Promise<TapeClient> {
  return { url: app.url, token: (await createToken(app.ctx, { name, role: 'USER' })).secret };
}

export const bearer = ({ token }: TapeClient) => ({ Authorization: `Bearer ${token}` });

/** Sends a WebDAV request. */
export async function fetchWebdav(client: TapeClient, target: string, headers = {}, method = 'GET') {
  const call = { method, headers: { ...bearer(client), ...headers } };
  const response = await request(client, `/webdav${target}`, call);
  return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
}

export async function callTape(client: TapeClient, method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = {
    Authorization: `Bearer ${client.token}`,
    ...(body !== undefined && { 'Content-Type': 'application/json' }),
  };
  return await send(client, `${TAPE}${path}`, { method, headers, body });
}

interface StagedFile {
  path: string;
  diskLifetime?: string;
  targetedMetadata?: unknown;
}

/** Creates a stage request. Throws an error if the call fails. @returns the id of the stage request */
export async function stageFiles(client: TapeClient, files: readonly StagedFile[]): Promise<string> {
  const { status, text, body, headers } = await callTape(client, 'POST', '/stage', { files });
  if (status !== 201) throw new Error(`POST /stage answered ${status}: ${text}`);
  const { requestId } = body as { requestId: string };
  if (headers.get('location') !== `${client.url}${TAPE}/stage/${requestId}`)
    throw new Error(`Location ${headers.get('location')}`);
  return requestId;
}

interface Poll {
  id: string;
  createdAt: number;
  startedAt: number;
  completedAt?: number;
  files: { path: string; state: string; startedAt?: number; error?: string }[];
}

export async function poll(client: TapeClient, id: string): Promise<Poll> {
  const { status, text, body } = await callTape(client, 'GET', `/stage/${id}`);
  if (status !== 200) throw new Error(`GET /stage/${id} answered ${status}: ${text}`);
  return body as Poll;
}

/** Waits until a stage request is complete. */
export async function waitForStaged(client: TapeClient, id: string): Promise<Poll> {
  return await waitFor(`stage request ${id} to be complete`, async () => {
    const answer = await poll(client, id);
    return answer.completedAt === undefined ? undefined : answer;
  });
}

/** Returns the states of files by path. */
export const statesOf = ({ files }: Poll): Record<string, string> =>
  Object.fromEntries(files.map(({ path, state }) => [path, state]));
