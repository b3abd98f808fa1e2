/**
 * Apollo Client: a query that contains a field which only operators may read, a paginated list, and a mutation whose
 * payload contains errors.
 */
import { ApolloClient, CombinedGraphQLErrors, HttpLink, InMemoryCache } from '@apollo/client';
import { relayStylePagination } from '@apollo/client/utilities';
import { headers, url } from './gateway.js';
import { graphql } from './generated/index.js';

const client = new ApolloClient({
  link: new HttpLink({ uri: url, headers }),
  cache: new InMemoryCache({
    // lists with different arguments are different lists
    typePolicies: {
      Query: {
        fields: { requests: relayStylePagination(['quota', 'states', 'match', 'since', 'until', 'orderBy']) },
      },
    },
  }),
});

const SiteQuery = graphql(`
  query Site($user: String!) {
    caller {
      name
      roles
    }
    quota(user: $user) {
      id
      size
    }
    tokens {
      totalCount
    }
  }
`);

/** With the error policy `all`, a field that the caller may not read is null, and all others have their values. */
async function readSite(): Promise<void> {
  const { data, error } = await client.query({ query: SiteQuery, variables: { user: 'alice' }, errorPolicy: 'all' });
  console.log(`caller: ${data?.caller.name}, quota: ${data?.quota?.size}, tokens: ${data?.tokens}`);
  if (error && !CombinedGraphQLErrors.is(error)) throw error;
  for (const { path, extensions } of error?.errors ?? [])
    console.log(`error at ${path?.join('.')}: ${extensions?.code}`);
}

const RequestsQuery = graphql(`
  query Requests($first: Int!, $after: String) {
    requests(quota: "alice", first: $first, after: $after) {
      edges {
        node {
          id
          label
          state
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

/** `fetchMore` adds each page to the list in the cache. */
async function readPages(): Promise<void> {
  const options = { query: RequestsQuery, variables: { first: 2 } };
  let { data: page } = await client.query(options);
  const list = client.watchQuery(options);
  const subscription = list.subscribe({});
  while (page?.requests?.pageInfo.hasNextPage)
    ({ data: page } = await list.fetchMore({ variables: { after: page.requests.pageInfo.endCursor } }));
  const all = client.readQuery(options);
  console.log(`requests: ${all?.requests?.edges.map(({ node }) => node.label).join(', ')}`);
  subscription.unsubscribe();
}

const CreateMutation = graphql(`
  mutation Create($input: CreateRequestInput!) {
    createRequest(input: $input) {
      request {
        id
        label
        state
      }
      errors {
        code
        message
      }
    }
  }
`);

/** A rejected input is data, not an exception: the payload contains the errors that the user can correct. */
async function createRequest(): Promise<void> {
  const input = { quota: 'alice', pattern: '/demo/ocean/2023/', maxFiles: 1 };
  const { data } = await client.mutate({ mutation: CreateMutation, variables: { input } });
  const { request, errors } = data?.createRequest ?? {};
  console.log(`created: ${request?.label ?? null}`);
  for (const error of errors ?? []) console.log(`${error.code}: ${error.message}`);
}

await readSite();
await readPages();
await createRequest();
client.stop();
