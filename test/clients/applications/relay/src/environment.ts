/** The Relay environment of an application: the store, queries and mutations over HTTP, and subscriptions over graphql-sse. */
import { createClient, type ExecutionResult } from 'graphql-sse';
import { Environment, type GraphQLResponse, Network, Observable, RecordSource, Store } from 'relay-runtime';

const { TAPEGATE_URL = 'http://127.0.0.1:8080', TAPEGATE_TOKEN } = process.env;
const headers: Record<string, string> = TAPEGATE_TOKEN ? { Authorization: `Bearer ${TAPEGATE_TOKEN}` } : {};
const streams = createClient({ url: `${TAPEGATE_URL}/graphql/stream`, headers });

export const environment = new Environment({
  store: new Store(new RecordSource()),
  network: Network.create(
    async ({ text: query }, variables) => {
      const response = await fetch(`${TAPEGATE_URL}/graphql`, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: JSON.stringify({ query, variables }),
      });
      return (await response.json()) as GraphQLResponse;
    },
    ({ text }, variables) =>
      Observable.create((sink) => {
        // if the stream breaks, the client sends these variables again, and the gateway continues after the last event
        const sent: Record<string, unknown> = { ...variables };
        const next = (result: ExecutionResult<Record<string, { eventId?: string }>, unknown>) => {
          for (const { eventId } of Object.values(result.data ?? {})) if (eventId) sent.after = eventId;
          sink.next(result as GraphQLResponse);
        };
        return streams.subscribe({ query: text ?? '', variables: sent }, { ...sink, next });
      }),
  ),
});
