/**
 * graphql-codegen: a query with typed variables and a typed result. Each function declares its own data in a fragment. If
 * a document or a function uses a field that does not exist, the program does not compile.
 */

import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { print } from 'graphql';
import { headers, url } from './gateway.js';
import { type FragmentType, graphql, useFragment } from './generated/index.js';

const UsageFragment = graphql(`
  fragment Usage on Quota {
    user
    size
    used
  }
`);

const FileFragment = graphql(`
  fragment File on TapeFile {
    path
    size
    stage
    volume {
      name
    }
  }
`);

const ArchiveQuery = graphql(`
  query Archive($user: String!, $match: String!) {
    quota(user: $user) {
      ...Usage
    }
    tapeFiles(match: $match, first: 3) {
      totalCount
      edges {
        node {
          id
          ...File
        }
      }
    }
  }
`);

/** Sends an operation. The types of the variables and of the result are those of the document. */
async function execute<Data, Variables>(document: TypedDocumentNode<Data, Variables>, variables: Variables) {
  const body = JSON.stringify({ query: print(document), variables });
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body,
  });
  const { data, errors } = (await response.json()) as { data?: Data; errors?: { message: string }[] };
  if (!data || errors) throw new Error(errors?.[0]?.message ?? `status ${response.status}`);
  return data;
}

function describeUsage(quota: FragmentType<typeof UsageFragment>): string {
  const { user, size, used } = useFragment(UsageFragment, quota);
  return `${user} uses ${BigInt(used)} of ${BigInt(size)} bytes`;
}

function describeFile(file: FragmentType<typeof FileFragment>): string {
  const { path, size, stage, volume } = useFragment(FileFragment, file);
  return `${path}: ${size} bytes, ${stage}, on ${volume?.name ?? 'no volume'}`;
}

const { quota, tapeFiles } = await execute(ArchiveQuery, { user: 'alice', match: '/demo/ocean/2023/' });
if (quota) console.log(describeUsage(quota));
console.log(`${tapeFiles?.totalCount} files`);
for (const { node } of tapeFiles?.edges ?? []) console.log(describeFile(node));
