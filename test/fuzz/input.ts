/** What the fuzz sends: each input is plain data, which a seed and a path give again. */

/** The form that an answer must have; `any`: one of these, since the target may lead anywhere. */
export type Door = 'rest' | 'graphql' | 'any';

export interface HttpInput {
  kind: 'http';
  door: Door;
  method: string;
  target: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
  /** Where the client goes away: in the middle of its body, or when all of it has gone out. */
  cut?: 'body' | 'sent' | undefined;
  /** For how long a stream is read before the client goes away. */
  listenMs?: number | undefined;
  /** The operation, where it is one. */
  query?: string | undefined;
}

/** Operations on one stream, by the protocol of graphql-sse. */
export interface ExchangeInput {
  kind: 'exchange';
  operations: { id: string; body: string }[];
  /** Ids of operations that are dropped. */
  drops: string[];
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
