/**
 * urql with Graphcache, the normalized cache: a list that a mutation extends and a subscription keeps up to date. The
 * schema lets Graphcache check its configuration, and warn about mistakes.
 */
import { Client, fetchExchange } from '@urql/core';
import { cacheExchange } from '@urql/exchange-graphcache';
import { getIntrospectionQuery, type IntrospectionQuery } from 'graphql';
import { headers, url } from './gateway.js';
import type { CreateAndListMutation as Created } from './generated/graphql.js';
import { graphql } from './generated/index.js';

const [pattern = '/demo/ocean/2024/'] = process.argv.slice(2);

const RequestListQuery = graphql(`
  query RequestList {
    requests(quota: "alice") {
      edges {
        node {
          id
          label
          state
          filesOnDisk
        }
      }
    }
  }
`);

const CreateAndListMutation = graphql(`
  mutation CreateAndList($input: CreateRequestInput!) {
    createRequest(input: $input) {
      request {
        id
        requestId
        label
        state
        filesOnDisk
      }
      errors {
        code
        message
      }
    }
  }
`);

const ProgressSubscription = graphql(`
  subscription Progress($requestId: Int!) {
    requestProgress(requestId: $requestId) {
      request {
        id
        state
        filesOnDisk
      }
    }
  }
`);

// applications usually store the introspection result when they are built
const introspection = new Client({
  url,
  exchanges: [fetchExchange],
  fetchOptions: { headers },
  preferGetMethod: false,
});
const { data: schema, error } = await introspection.query<IntrospectionQuery>(getIntrospectionQuery(), {});
if (!schema) throw error;

const cache = cacheExchange({
  schema,
  // objects without an id belong to the object that contains them
  keys: {
    CreateRequestPayload: () => null,
    RequestConnection: () => null,
    RequestEdge: () => null,
    RequestProgress: () => null,
  },
  updates: {
    Mutation: {
      createRequest: ({ createRequest }: Created, _args, cache) => {
        const { request } = createRequest ?? {};
        if (!request) return;
        cache.updateQuery({ query: RequestListQuery }, (data) => {
          if (!data?.requests) return data;
          const edge = { __typename: 'RequestEdge' as const, node: { __typename: 'Request' as const, ...request } };
          return { ...data, requests: { ...data.requests, edges: [edge, ...data.requests.edges] } };
        });
      },
    },
  },
});

const client = new Client({
  url,
  exchanges: [cache, fetchExchange],
  fetchOptions: { headers },
  fetchSubscriptions: true, // the gateway sends event streams
  preferGetMethod: false,
});

let isFinished = () => {};
const finished = new Promise<void>((resolve) => {
  isFinished = resolve;
});

const list = client.query(RequestListQuery, {}).subscribe(({ data }) => {
  const newest = data?.requests?.edges[0]?.node;
  console.log(
    `${data?.requests?.edges.length} requests, newest: ${newest?.label} ${newest?.state} ${newest?.filesOnDisk}`,
  );
  if (newest?.label === 'urql' && newest.state === 'COMPLETED') isFinished();
});

await client.query(RequestListQuery, {});
const input = { quota: 'alice', pattern, label: 'urql' };
const { data } = await client.mutation(CreateAndListMutation, { input });
const requestId = data?.createRequest?.request?.requestId;
if (requestId === undefined) throw new Error(data?.createRequest?.errors[0]?.message);
const progress = client.subscription(ProgressSubscription, { requestId }).subscribe(() => {});
await finished;
progress.unsubscribe();
list.unsubscribe();
