/** The Relay environment of an application: the store, queries and mutations over HTTP, and subscriptions over graphql-sse. */
import { createClient } from 'graphql-sse';
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
      Observable.create((sink) =>
        streams.subscribe(
          { query: text ?? '', variables },
          { next: (result) => sink.next(result as GraphQLResponse), error: sink.error, complete: sink.complete },
        ),
      ),
  ),
});
