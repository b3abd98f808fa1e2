/**
 * Relay without React: two pages of a list in one connection, an object that is fetched again by its global id, a mutation
 * that appends to the list, and a subscription that updates the list. None of them needs an updater.
 */
import {
  commitMutation,
  createOperationDescriptor,
  fetchQuery,
  getRequest,
  graphql,
  requestSubscription,
} from 'relay-runtime';
import type { requestsCreateMutation } from './__generated__/requestsCreateMutation.graphql';
import type { requestsListQuery, requestsListQuery$data } from './__generated__/requestsListQuery.graphql';
import type { requestsNodeQuery } from './__generated__/requestsNodeQuery.graphql';
import type { requestsProgressSubscription } from './__generated__/requestsProgressSubscription.graphql';
import { environment } from './environment';

const ListQuery = graphql`
  query requestsListQuery($first: Int!, $after: String) {
    requests(quota: "alice", orderBy: { field: CREATED_AT, direction: ASC }, first: $first, after: $after)
      @connection(key: "List_requests", filters: ["quota"]) {
      __id
      edges { node { id label state filesOnDisk } }
      pageInfo { hasNextPage endCursor }
    }
  }
`;

const firstPage = { first: 2, after: null };
const list = createOperationDescriptor(getRequest(ListQuery), firstPage);

/** Returns the list as it is in the store. */
function readList() {
  const { requests } = environment.lookup(list.fragment).data as unknown as requestsListQuery$data;
  if (!requests) throw new Error('the list is not available');
  return requests;
}

function showList(): void {
  const rows = readList().edges.map(({ node: { label, state, filesOnDisk } }) => `${label} ${state} ${filesOnDisk}`);
  console.log(`list: ${rows.join(', ')}`);
}

async function loadMore(): Promise<void> {
  const { endCursor } = readList().pageInfo;
  await fetchQuery<requestsListQuery>(environment, ListQuery, { first: 2, after: endCursor }).toPromise();
}

const CreateMutation = graphql`
  mutation requestsCreateMutation($input: CreateRequestInput!, $connections: [ID!]!) {
    createRequest(input: $input) {
      request @appendNode(connections: $connections, edgeTypeName: "RequestEdge") {
        id
        requestId
        label
        state
        filesOnDisk
      }
      errors { code message }
    }
  }
`;

function createRequest(input: { quota: string; pattern: string; label: string }) {
  return new Promise<{ id: string; requestId: number }>((resolve, reject) => {
    commitMutation<requestsCreateMutation>(environment, {
      mutation: CreateMutation,
      variables: { input, connections: [readList().__id] },
      onCompleted: ({ createRequest }) => {
        if (createRequest?.request) resolve(createRequest.request);
        else reject(new Error(createRequest?.errors.map(({ code, message }) => `${code}: ${message}`).join()));
      },
      onError: reject,
    });
  });
}

const ProgressSubscription = graphql`
  subscription requestsProgressSubscription($requestId: Int!, $after: BigInt) {
    requestProgress(requestId: $requestId, after: $after) {
      eventId
      request { id state filesOnDisk }
    }
  }
`;

/** Keeps the request in the store up to date until the request has finished. */
function followProgress(requestId: number): Promise<void> {
  return new Promise((resolve, reject) => {
    requestSubscription<requestsProgressSubscription>(environment, {
      subscription: ProgressSubscription,
      variables: { requestId },
      onCompleted: () => resolve(),
      onError: reject,
    });
  });
}

const NodeQuery = graphql`
  query requestsNodeQuery($id: ID!) {
    node(id: $id) {
      ... on Request { label quota { user } }
    }
  }
`;

async function main(pattern = '/demo/ocean/2024/'): Promise<void> {
  const retained = environment.retain(list); // keeps the list in the store
  await fetchQuery<requestsListQuery>(environment, ListQuery, firstPage).toPromise();
  showList();
  await loadMore();
  showList();
  const subscription = environment.subscribe(environment.lookup(list.fragment), showList);
  const { id, requestId } = await createRequest({ quota: 'alice', pattern, label: 'relay' });
  await followProgress(requestId);
  const fetched = await fetchQuery<requestsNodeQuery>(environment, NodeQuery, { id }).toPromise();
  console.log(`node: ${fetched?.node?.label} of ${fetched?.node?.quota?.user}`);
  subscription.dispose();
  retained.dispose();
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
