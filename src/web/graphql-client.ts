/** Creates the GraphQL client, which receives live data over one stream and reconnects after a failure. */
import { Client, type ClientOptions, fetchExchange, mapExchange, subscriptionExchange } from '@urql/core';
import { createClient as createStream } from 'graphql-sse';
import { readIntegers } from '../../clients/typescript/responses.js';
import { messageOf } from './parts/problem';
import { dropToken, isSignedIn, readToken } from './sign-in/session';

/** Returns the URL for a path relative to the page. */
export const at = (path: string): string => new URL(path, document.baseURI).href;

/**
 * State of the connection to the gateway. `intercepted` means that a proxy responds instead of the gateway, for example
 * with a login page.
 */
export type ConnectionState = 'open' | 'broken' | 'intercepted';

/**
 * Maximum pause before a page reconnects. Each page waits for a random time, because otherwise all open pages would
 * reconnect at once after the gateway restarts.
 */
const MAX_PAUSE_MS = 10_000;

/**
 * Returns the headers for a request. The header `x-requested-with` prevents the browser from showing its own login
 * dialog.
 */
export const sentHeaders = async (): Promise<Record<string, string>> => {
  const token = await readToken();
  const spared = { 'x-requested-with': 'XMLHttpRequest' };
  return token === undefined ? spared : { ...spared, authorization: `Bearer ${token}` };
};

/** @param why the gateway's reason, which is not a whole sentence */
function signOut(why: string): void {
  const sentence = `${why.charAt(0).toUpperCase()}${why.slice(1)}${why.endsWith('.') ? '' : '.'}`;
  if (isSignedIn()) dropToken(sentence);
}

/** @param onConnection called when the stream breaks, and when it works again */
export function openClient(onConnection: (connection: ConnectionState) => void): { client: Client; close(): void } {
  let isIntercepted = false;
  const stream = createStream({
    url: at('graphql/stream'),
    singleConnection: true,
    lazy: true,
    lazyCloseTimeout: 1000,
    headers: sentHeaders,
    fetchFn: async (input: RequestInfo, init?: RequestInit) => {
      isIntercepted = false;
      const response = await fetch(input, init);
      const isPage = response.headers.get('content-type')?.startsWith('text/html') === true;
      isIntercepted = response.redirected || (response.ok && isPage);
      if (response.status === 401) signOut('Your sign-in is no longer valid.');
      return response;
    },
    retryAttempts: Number.POSITIVE_INFINITY,
    retry: async (retries) => {
      // keep retrying, because the user might log in at the proxy in another tab
      onConnection(isIntercepted ? 'intercepted' : 'broken');
      const ms = Math.min(MAX_PAUSE_MS, 250 * 2 ** retries);
      await new Promise((resolve) => setTimeout(resolve, ms * (0.5 + Math.random() / 2)));
    },
    on: { connected: () => onConnection('open') },
  });
  const options: ClientOptions = {
    url: at('graphql'),
    preferGetMethod: false,
    fetch: async (input, init) =>
      await fetch(input, { ...init, headers: { ...(init?.headers as object), ...(await sentHeaders()) } }),
    exchanges: [
      mapExchange({
        onResult(result) {
          readIntegers(result.data);
        },
        onError(error) {
          if (error.response?.status === 401) signOut(messageOf(error));
        },
      }),
      fetchExchange,
      subscriptionExchange({
        forwardSubscription: ({ query, variables }) => ({
          subscribe: (sink) => ({
            unsubscribe: stream.subscribe({ query: query ?? '', variables: variables ?? {} }, sink as never),
          }),
        }),
      }),
    ],
  };
  return { client: new Client(options), close: () => stream.dispose() };
}
