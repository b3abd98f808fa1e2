/** What the fuzz sends: each input is plain data, which a seed and a path give again. */

/** The form that an answer must have; `any`: one of these, since the target may lead anywhere. */
export type Door = 'rest' | 'graphql' | 'upload' | 'any';

export interface HttpInput {
  kind: 'http';
  door: Door;
  method: string;
  target: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
  /** The body goes out in pieces of so many bytes, and says nothing of its length. */
  chunkBytes?: number | undefined;
  /** There is one at a time, so that the server need not refuse it. */
  inTurn?: boolean | undefined;
  /** Where the client goes away: in the middle of its body, or when all of it has gone out. */
  cut?: 'body' | 'sent' | undefined;
  /** For how long a stream is read before the client goes away. */
  listenMs?: number | undefined;
  /** A stream is left open: until so many others have been, with what comes read or not. */
  stays?: 'read' | 'unread' | undefined;
  /** The operation, where it is one. */
  query?: string | undefined;
}

/** Operations on one stream, by the protocol of graphql-sse. */
export interface ExchangeInput {
  kind: 'exchange';
  operations: { id: string; body: string }[];
  /** Ids of operations that are dropped. */
  drops: string[];
  /** What its caller shows, and what is shown with its operations: mostly the same. */
  headers: Record<string, string>;
  shown: Record<string, string>;
  /** The stream is opened before its operations, after them, or never. */
  opens: 'first' | 'last' | 'never';
  listenMs: number;
}

/** Bytes as they are, whether they are HTTP or not; each part is written by itself. */
export interface RawInput {
  kind: 'raw';
  parts: string[];
}

/** A file for `import`, in chunks. */
export interface ImportInput {
  kind: 'import';
  bytes: Uint8Array;
  chunkBytes: number;
}

export type Input = HttpInput | ExchangeInput | RawInput | ImportInput;
