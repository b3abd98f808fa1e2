/** A client of GraphQL over HTTP that shows answers whole, with exact integers. */
import pg from 'pg';
import { parseJson } from '../../src/json.js';
import type { TestApp } from './app.js';

export interface GraphqlAnswer {
  data?: unknown;
  errors?: { message: string; path?: (string | number)[]; extensions?: Record<string, unknown> }[];
}

/** @param variables an object, or the text of one, which is sent as it is */
export async function ask(app: TestApp, query: string, variables: object | string = {}): Promise<GraphqlAnswer> {
  const text = typeof variables === 'string' ? variables : JSON.stringify(variables);
  const response = await fetch(`${app.url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: `{"query":${JSON.stringify(query)},"variables":${text}}`,
  });
  return parseJson(await response.text()) as GraphqlAnswer;
}

/** The data of a query that must succeed. */
export async function askData<Data>(app: TestApp, query: string, variables: object | string = {}): Promise<Data> {
  const { data, errors } = await ask(app, query, variables);
  if (errors) throw new Error(`${query} answered ${JSON.stringify(errors)}`);
  return data as Data;
}

/** The messages of a query that must fail. */
export async function askErrors(app: TestApp, query: string, variables: object | string = {}): Promise<string[]> {
  const { errors } = await ask(app, query, variables);
  if (!errors) throw new Error(`${query} was answered without an error`);
  return errors.map((error) => error.message);
}

export interface Connection<Node> {
  totalCount?: number;
  edges: { cursor: string; node: Node }[];
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null };
}

export const PAGE_INFO = 'pageInfo { hasNextPage hasPreviousPage startCursor endCursor }';

export interface Statement {
  text: string;
  /** How many it gave. */
  rows: number;
}

/** The SQL statements that the process sends while `work` runs, but for the feed's looks for new events. */
export async function recordStatements(work: () => Promise<unknown>): Promise<Statement[]> {
  const statements: Statement[] = [];
  const original = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  pg.Client.prototype.query = function recorded(this: pg.Client, ...args: unknown[]) {
    const [first, last] = [args[0], args.at(-1)];
    const statement = { text: typeof first === 'string' ? first : (first as { text: string }).text, rows: 0 };
    statements.push(statement);
    const note = (result: unknown) => {
      statement.rows = (result as pg.QueryResult | undefined)?.rows.length ?? 0;
      return result;
    };
    if (typeof last === 'function')
      args[args.length - 1] = (error: unknown, result: unknown) => last(error, note(result));
    const result = original.apply(this, args);
    return result instanceof Promise ? result.then(note) : result;
  } as typeof pg.Client.prototype.query;
  try {
    await work();
  } finally {
    pg.Client.prototype.query = original as typeof pg.Client.prototype.query;
  }
  return statements.filter(({ text }) => !text.includes('FROM event'));
}
