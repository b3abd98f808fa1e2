/** Suspends and resumes drives, volumes and other parts of Tapegate over GraphQL, and reads the state of recalls. */
import { askData, type Edges } from './graphql.js';
import type { Gateway } from './http.js';
import { mutate } from './payloads.js';

interface SuspensionView {
  kind: string;
  name: string;
  mode: string;
  reason: string;
  since: string;
}

export type Mode = 'IMMEDIATE' | 'DRAINING';

type Outcome = Record<string, unknown>;

const change = (gateway: Gateway, field: string, input: object) =>
  mutate<Outcome>(
    gateway,
    field,
    input,
    'suspension { __typename kind name mode reason since }',
    '__typename message code',
  );

/** Sends a suspend mutation. @returns the suspension, or the failure */
export function suspend(
  gateway: Gateway,
  input: { kind: string; name: string; mode: Mode; reason?: string | null },
): Promise<Outcome> {
  return change(gateway, 'suspend', input);
}

export function resume(gateway: Gateway, kind: string, name: string): Promise<Outcome> {
  return change(gateway, 'resume', { kind, name });
}

export async function readSuspensions(gateway: Gateway): Promise<SuspensionView[]> {
  const query = '{ suspensions { edges { node { kind name mode reason since } } } }';
  const { suspensions } = await askData<{ suspensions: Edges<SuspensionView> }>(gateway, query);
  return suspensions.edges.map((edge) => edge.node);
}

interface TriesView {
  state: string;
  recallState: string | null;
  attempts: number | null;
  lastErrorClass: string | null;
  lastError: string | null;
  nextTryAt: string | null;
}

/** Returns the attempts of the recalls of a request's files, by path. */
export async function readTries(gateway: Gateway, id: number): Promise<Record<string, TriesView>> {
  interface Answer {
    request: { files: Edges<TriesView & { file: { path: string } }> };
  }
  const fields = 'state recallState attempts lastErrorClass lastError nextTryAt file { path }';
  const query = `query ($id: Int!) { request(requestId: $id) { files(first: 1000) { edges { node { ${fields} } } } } }`;
  const { request } = await askData<Answer>(gateway, query, { id });
  return Object.fromEntries(request.files.edges.map(({ node: { file, ...tries } }) => [file.path, tries]));
}
