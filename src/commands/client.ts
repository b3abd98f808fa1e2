/** The way to a Tapegate server: GraphQL over HTTP, and over SSE for what goes on. */
import { ClientError, GraphQLClient } from 'graphql-request';
import { createClient } from 'graphql-sse';
import { codeOf, messageOf } from '../errors.js';
import { parseJson } from '../json.js';
import { CommandError } from './failure.js';

/** The server did not answer, or went away: trying again may help. */
export class ConnectionError extends CommandError {}

/** @throws CommandError in one line, whatever went wrong */
export async function ask<Result>(url: string, query: string, variables: object = {}): Promise<Result> {
  const client = new GraphQLClient(`${url}/graphql`, {
    jsonSerializer: { parse: parseJson as never, stringify: JSON.stringify },
  });
  try {
    return await client.request<Result>(query, variables);
  } catch (error) {
    if (error instanceof ClientError) {
      const [first] = error.response.errors ?? [];
      throw new CommandError(first?.message ?? `${url} answers ${error.response.status}`);
    }
    throw new ConnectionError(explainNetwork(url, error));
  }
}

/**
 * The values of a subscription. Ends when the server completes it.
 * @throws ConnectionError without trying again
 */
export async function* follow<Value>(
  url: string,
  query: string,
  variables: Record<string, unknown>,
): AsyncGenerator<Value> {
  let refusal: unknown; // graphql-sse keeps the text of an error and not its cause
  const client = createClient({
    url: `${url}/graphql/stream`,
    retryAttempts: 0,
    fetchFn: (...request: Parameters<typeof fetch>) =>
      fetch(...request).catch((error) => {
        refusal = error;
        throw error;
      }),
  });
  try {
    for await (const result of client.iterate<Value>({ query, variables })) {
      const [error] = result.errors ?? [];
      if (error) throw new CommandError(error.message);
      if (result.data) yield result.data;
    }
  } catch (error) {
    throw error instanceof CommandError ? error : new ConnectionError(explainNetwork(url, refusal ?? error));
  } finally {
    client.dispose();
  }
}

function explainNetwork(url: string, error: unknown): string {
  const cause = (error as { cause?: unknown }).cause;
  const isDown = codeOf(cause) === 'ECONNREFUSED' || codeOf(error) === 'ECONNREFUSED';
  return isDown ? `no Tapegate answers at ${url} (TAPEGATE_URL)` : `${url}: ${messageOf(cause ?? error)}`;
}
