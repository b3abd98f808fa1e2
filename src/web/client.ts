/** How the page asks: queries and changes one by one, and all that is live over one stream, which comes back by itself. */
import { Client, type ClientOptions, fetchExchange, mapExchange, subscriptionExchange } from '@urql/core';
import { createClient as createStream } from 'graphql-sse';
import { messageOf } from './parts/problem';
import { dropToken, isSignedIn, readToken } from './session';

/** Relative to the page, wherever it is served. */
export const at = (path: string): string => new URL(path, document.baseURI).href;

/** What is wrong with the line to the gateway, for whoever looks at the page. */
export type Line = 'open' | 'broken';

/** A gateway that is restarted is back in seconds, and all its pages with it: not all at once. */
const LONGEST_PAUSE_MS = 10_000;

/** With the first of them the gateway spares the page the browser's own dialog for a name and a password. */
export const sentHeaders = async (): Promise<Record<string, string>> => {
  const token = await readToken();
  const spared = { 'x-requested-with': 'XMLHttpRequest' };
  return token === undefined ? spared : { ...spared, authorization: `Bearer ${token}` };
};

/** The gateway takes the token no longer: who uses the page is asked again. */
function leave(why: string): void {
  if (isSignedIn()) dropToken(why);
}

/** @param onLine told when the stream breaks and when it is back */
export function openClient(onLine: (line: Line) => void): { client: Client; close(): void } {
  const stream = createStream({
    url: at('graphql/stream'),
    singleConnection: true,
    lazy: true,
    lazyCloseTimeout: 1000,
    headers: sentHeaders,
    fetchFn: async (input: RequestInfo, init?: RequestInit) => {
      const response = await fetch(input, init);
      if (response.status === 401) leave('Your sign-in is not known any more.');
      return response;
    },
    retryAttempts: Number.POSITIVE_INFINITY,
    retry: async (retries) => {
      onLine('broken');
      const ms = Math.min(LONGEST_PAUSE_MS, 250 * 2 ** retries);
      await new Promise((resolve) => setTimeout(resolve, ms * (0.5 + Math.random() / 2)));
    },
    on: { connected: () => onLine('open') },
  });
  const options: ClientOptions = {
    url: at('graphql'),
    preferGetMethod: false,
    fetch: async (input, init) =>
      await fetch(input, { ...init, headers: { ...(init?.headers as object), ...(await sentHeaders()) } }),
    exchanges: [
      mapExchange({
        onError(error) {
          if (error.response?.status === 401) leave(messageOf(error));
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
