/** Hashes bytes that arrive in chunks. Uses hash-wasm for algorithms that Node.js does not support. */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { createAdler32, createCRC32, createCRC64, type IHasher } from 'hash-wasm';

interface RunningHash {
  update(chunk: Uint8Array): void;
  /** Returns the digest, most significant byte first. Callers must call `digest` only once, after the last chunk. */
  digest(): Buffer;
}

/**
 * Hash functions that the package hash-wasm implements. The CRC polynomials are in reflected form, and the CRCs have
 * the same names as in S3.
 */
const wasmHashes = {
  adler32: createAdler32,
  crc32c: () => createCRC32(0x82f63b78),
  crc64nvme: () => createCRC64('9a6c9329ac4bc9b5'),
};
type WasmHash = keyof typeof wasmHashes;

const nodeHashes = ['md5', 'sha1', 'sha256', 'sha512'] as const;

export type HashName = WasmHash | (typeof nodeHashes)[number] | 'crc32';

/** Idle hash-wasm hashers. They are reused for later files, because creating a hasher is slow. */
const idle: Record<WasmHash, IHasher[]> = { adler32: [], crc32c: [], crc64nvme: [] };

const isNodeHash = (name: HashName): name is (typeof nodeHashes)[number] => nodeHashes.some((each) => each === name);

export async function startHash(name: HashName): Promise<RunningHash> {
  if (name === 'crc32') return startCrc32();
  if (!isNodeHash(name)) return await startWasmHash(name);
  const hash = createHash(name);
  return { update: (chunk) => void hash.update(chunk), digest: () => hash.digest() };
}

function startCrc32(): RunningHash {
  let value = 0;
  return {
    update: (chunk) => {
      value = crc32(chunk, value);
    },
    digest: () => {
      const digest = Buffer.alloc(4);
      digest.writeUInt32BE(value);
      return digest;
    },
  };
}

async function startWasmHash(name: WasmHash): Promise<RunningHash> {
  const hasher = idle[name].pop() ?? (await wasmHashes[name]());
  hasher.init();
  return {
    update: (chunk) => void hasher.update(chunk),
    digest: () => {
      const digest = Buffer.from(hasher.digest('binary'));
      idle[name].push(hasher);
      return digest;
    },
  };
}
