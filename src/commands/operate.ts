/** `hold`, `drain`, `resume`, `suspensions`, `priority`: how operators steer a running Tapegate, over GraphQL. */
import { readId } from './arguments.js';
import { ask } from './client.js';
import { CommandError, UsageError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

interface SuspensionNode {
  kind: string;
  name: string;
  mode: 'HELD' | 'DRAINING';
  reason: string;
  since: string;
}

/** What a mutation gives, or the message of its refusal. */
type Result<Node> = Node & { message?: string };

function unwrap<Node extends object>({ message, ...node }: Result<Node>): Omit<Result<Node>, 'message'> {
  if (message !== undefined) throw new CommandError(message);
  return node;
}

const FIELDS = 'kind name mode reason since';

const SUSPEND = `mutation ($input: SuspendInput!) {
  suspend(input: $input) { ... on Suspension { ${FIELDS} } ... on Failure { message } }
}`;

export async function suspend(
  url: string,
  thing: { kind: string; name: string; mode: SuspensionNode['mode'] },
  options: OutputOptions & { reason?: string },
): Promise<void> {
  const input = { ...thing, kind: thing.kind.toUpperCase(), reason: options.reason };
  const answer = await ask<{ suspend: Result<SuspensionNode> }>(url, SUSPEND, { input });
  const suspension = unwrap(answer.suspend);
  if (options.json) return printJson(suspension);
  const reason = suspension.reason === '' ? '' : `: ${suspension.reason}`;
  printLine(`${thing.kind} ${suspension.name} is ${suspension.mode.toLowerCase()}${reason}`);
}

const RESUME = `mutation ($input: ResumeInput!) {
  resume(input: $input) { ... on Suspension { ${FIELDS} } ... on Failure { message } }
}`;

export async function resume(
  url: string,
  thing: { kind: string; name: string },
  options: OutputOptions,
): Promise<void> {
  const input = { kind: thing.kind.toUpperCase(), name: thing.name };
  const answer = await ask<{ resume: Result<SuspensionNode> }>(url, RESUME, { input });
  const ended = unwrap(answer.resume);
  if (options.json) printJson(ended);
  else printLine(`${thing.kind} ${ended.name} is in service again`);
}

const SUSPENSIONS = `query ($after: String) {
  suspensions(first: 1000, after: $after) { edges { node { ${FIELDS} } } pageInfo { hasNextPage endCursor } }
}`;

interface SuspensionPage {
  edges: { node: SuspensionNode }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

export async function suspensions(url: string, options: OutputOptions): Promise<void> {
  const nodes: SuspensionNode[] = [];
  for (let after: string | null = null; ; ) {
    const page: SuspensionPage = (await ask<{ suspensions: SuspensionPage }>(url, SUSPENSIONS, { after })).suspensions;
    nodes.push(...page.edges.map((edge) => edge.node));
    after = page.pageInfo.endCursor;
    if (!page.pageInfo.hasNextPage) break;
  }
  if (options.json) return nodes.forEach(printJson);
  if (nodes.length === 0) return printLine('everything is in service');
  printTable(
    ['KIND', 'NAME', 'MODE', 'SINCE', 'REASON'],
    nodes.map((node) => [node.kind.toLowerCase(), node.name, node.mode, node.since.slice(0, 19), node.reason]),
  );
}

const PRIORITY = `mutation ($id: Int!, $priority: Int!) {
  setPriority(id: $id, priority: $priority) { ... on Request { requestId priority } ... on Failure { message } }
}`;

export async function priority(url: string, id: string, value: string, options: OutputOptions): Promise<void> {
  if (!/^-?\d{1,9}$/.test(value)) {
    throw new UsageError(`a priority is a whole number, not ${JSON.stringify(value)}`);
  }
  type Node = { requestId: number; priority: number };
  const variables = { id: readId(id), priority: Number(value) };
  const answer = await ask<{ setPriority: Result<Node> }>(url, PRIORITY, variables);
  const request = unwrap(answer.setPriority);
  if (options.json) printJson(request);
  else printLine(`request ${request.requestId} has priority ${request.priority}`);
}
