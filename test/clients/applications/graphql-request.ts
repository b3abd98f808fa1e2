/** graphql-request: a query and a mutation with typed documents, for scripts that do not need a cache. */
import { ClientError, GraphQLClient } from 'graphql-request';
import { headers, url } from './gateway.js';
import { graphql } from './generated/index.js';

const EstimateQuery = graphql(`
  query Estimate($input: CreateRequestInput!) {
    estimateRequest(input: $input) {
      estimate {
        fileCount
        bytes
      }
      errors {
        code
        message
      }
    }
  }
`);

const RestoreMutation = graphql(`
  mutation Restore($input: CreateRequestInput!) {
    createRequest(input: $input) {
      request {
        requestId
        label
        filesTotal
      }
      errors {
        code
        message
        ... on QuotaExceeded {
          requested
          used
          size
        }
      }
    }
  }
`);

const client = new GraphQLClient(url, { headers });

const input = { quota: 'alice', pattern: '/demo/ocean/2023/sst_202308', label: 'August' };

const { estimateRequest } = await client.request(EstimateQuery, { input });
console.log(`estimate: ${estimateRequest?.estimate?.fileCount} files, ${estimateRequest?.estimate?.bytes} bytes`);

// with an idempotency key, the script may send the mutation again if no response arrives
const { createRequest } = await client.request(RestoreMutation, {
  input: { ...input, idempotencyKey: crypto.randomUUID() },
});
console.log(`created: ${createRequest?.request?.label}, ${createRequest?.request?.filesTotal} files`);

// errors that the caller can correct are in the payload
const tooLarge = await client.request(RestoreMutation, { input: { ...input, maxBytes: '1' } });
for (const { code, message } of tooLarge.createRequest?.errors ?? []) console.log(`${code}: ${message}`);

// all other errors are thrown
try {
  await client.request(EstimateQuery, { input: { ...input, maxBytes: 'many' } });
} catch (error) {
  if (!(error instanceof ClientError)) throw error;
  console.log(`thrown: ${error.response.errors?.[0]?.extensions?.code}`);
}
