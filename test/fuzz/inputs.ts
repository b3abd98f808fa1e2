/** What the fuzz sends. Each input is plain data, which a seed and a path repeat. */
import type { Arbitrary } from 'fast-check';
import { graphqlInput, streamInput } from './graphql-inputs.js';
import { importInput, importRequest, rawInput, restInput } from './http-inputs.js';
import { choose, type Headers } from './values.js';

export interface HttpInput {
  kind: 'http';
  /** The API that determines the form of the response; `any` if the target may lead anywhere. */
  api: 'rest' | 'graphql' | 'upload' | 'any';
  method: string;
  target: string;
  headers: Headers;
  body?: string | Uint8Array | undefined;
  /** Sends the body in chunks of this size, without its length. */
  chunkBytes?: number | undefined;
  /** Sends it when the last one has been answered. */
  inTurn?: boolean | undefined;
  /** Closes the connection in the middle of the body, or after it. */
  cut?: 'body' | 'sent' | undefined;
  /** Closes a stream after this time. */
  listenMs?: number | undefined;
  /** Leaves a stream open until a number of others were opened, and reads it or not. */
  stays?: 'read' | 'unread' | undefined;
  /** The GraphQL operation. */
  query?: string | undefined;
}

/** Operations on one stream, by the protocol of graphql-sse. */
export interface ExchangeInput {
  kind: 'exchange';
  operations: { id: string; body: string }[];
  /** Ids of operations that are stopped. */
  drops: string[];
  /** The credentials for the stream, and for its operations: mostly the same. */
  headers: Headers;
  shown: Headers;
  /** When the stream is opened. */
  opens: 'first' | 'last' | 'never';
  listenMs: number;
}

/** Bytes, HTTP or not, in several writes. */
export interface RawInput {
  kind: 'raw';
  parts: string[];
}

/** A file for `import`. */
export interface ImportInput {
  kind: 'import';
  bytes: Uint8Array;
  chunkBytes: number;
}

export type Input = HttpInput | ExchangeInput | RawInput | ImportInput;

export const inputs: Arbitrary<Input> = choose<Input>(
  [42, restInput],
  [41, graphqlInput],
  [8, streamInput],
  [7, rawInput],
  [1, importInput],
  [2, importRequest],
);
