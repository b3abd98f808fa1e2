/** What GraphiQL opens with: what people here ask first, to be run as it is or changed. It takes no variables of ours: they have defaults. */

export const START_QUERY = `# Tapegate restores files from tape. Choose an operation at the button that runs them.
# What stands after $… is for the demo archive: give your own below, under "Variables", such as { "match": "/archive" }
# Where the door is closed, give your token below, under "Headers": { "Authorization": "Bearer …" }

# Who am I here, and what may I?
query Me {
  caller { name roles way isReadOnly }
  quotas(first: 10) { edges { node { user size used } } }
}

# Files whose path holds a text, with how large they are and where they are on disk.
query Files($match: String = "/demo/ocean/2024", $first: Int = 20) {
  tapeFiles(match: $match, first: $first) {
    totalCount
    edges { node { path size stage restoredPath volume { name } } }
  }
}

# What a request would take, before it is made.
query WhatWouldItTake($wish: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  estimateRequest(input: $wish) {
    __typename
    ... on Estimate { files bytes bytesOnDisk bytesToRecall end { earliest planned latest } }
    ... on Failure { message }
  }
}

# The newest requests, how far they are, and what they wait for.
query Requests($last: Int = 10) {
  requests(last: $last) {
    totalCount
    edges {
      node {
        requestId label state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk
        waiting { place end { earliest planned latest } }
      }
    }
  }
}

# Asks for files: they are charged to the quota.
mutation Restore($wish: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  createRequest(input: $wish) {
    __typename
    ... on Request { requestId state filesTotal bytesTotal }
    ... on Failure { message }
  }
}

# A request as it goes on, until it is complete.
subscription Progress($id: Int! = 1) {
  requestProgress(id: $id) { state filesOnDisk filesTotal filesFailed bytesOnDisk bytesTotal eta eventId }
}

# Files as they come and go, all that you may see.
subscription Changes {
  stageChanges { path from to at eventId }
}
`;
