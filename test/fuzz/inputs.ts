/** Inputs of the fuzz test. Inputs are plain data, and the same seed and path generate the same input. */
import type { Arbitrary } from 'fast-check';
import { graphqlInput, streamInput } from './graphql-inputs.js';
import { importInput, importRequest, rawInput, restInput } from './http-inputs.js';
import { choose, type Headers } from './values.js';

export interface HttpInput {
  kind: 'http';
  /** API that determines the form of the response. `any`: the target may belong to any API. */
  api: 'rest' | 'graphql' | 'upload' | 'any';
  method: string;
  target: string;
  headers: Headers;
  body?: string | Uint8Array | undefined;
  /** Size of the body's chunks. With chunks, the request has no Content-Length. */
  chunkBytes?: number | undefined;
  /** Whether the input waits until the previous input with `inTurn` has been answered. */
  inTurn?: boolean | undefined;
  /** When the client closes the connection: in the middle of the body, or after it. */
  cut?: 'body' | 'sent' | undefined;
  /** Milliseconds after which the client closes a stream. */
  listenMs?: number | undefined;
  /** Whether a stream stays open until many newer streams are open, and whether the client reads the stream. */
  stays?: 'read' | 'unread' | undefined;
  /** GraphQL operation in the input. */
  query?: string | undefined;
}

/** Operations on one stream in the protocol of graphql-sse. */
export interface ExchangeInput {
  kind: 'exchange';
  operations: { id: string; body: string }[];
  /** Ids of operations that the client stops. */
  drops: string[];
  /** Credentials of the stream. Most inputs have the same credentials in `shown`, for the operations. */
  headers: Headers;
  shown: Headers;
  /** When the client opens the stream, relative to the operations. */
  opens: 'first' | 'last' | 'never';
  listenMs: number;
}

/** Bytes to send in several writes. Not all bytes are valid HTTP. */
export interface RawInput {
  kind: 'raw';
  parts: string[];
}

/** File to import with the command `import`. */
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
