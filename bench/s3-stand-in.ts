/**
 * Serves the files of a directory from memory as S3 objects of storage class GLACIER. A restore takes SECONDS seconds
 * (default 30). With this stand-in, a library of type `s3` can be tried out or measured without an S3 account.
 *
 * Prints the settings of the library and a TAPEGATE_LIBRARY_DIR. The directory contains the credentials until the
 * stand-in ends.
 *
 * With PUBLIC=on, objects need no signature and no restore.
 *
 * Usage: npm run compile && node dist/bench/s3-stand-in.js DIRECTORY
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startHash } from '../src/core/running-hash.js';
import { startS3Server } from '../test/support/s3-server.js';

const [directory] = process.argv.slice(2);
const restoreMs = Number(process.env.SECONDS ?? 30) * 1000;
const isPublic = process.env.PUBLIC === 'on';

if (directory === undefined) {
  console.error('which directory? node dist/bench/s3-stand-in.js DIRECTORY');
  process.exit(1);
}

const server = await startS3Server({ isPublic });
const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
for (const entry of entries.filter((each) => each.isFile())) {
  const file = path.join(entry.parentPath, entry.name);
  const bytes = readFileSync(file);
  const checksum = { 'x-amz-checksum-crc64nvme': await checksumOf(bytes), 'x-amz-checksum-type': 'FULL_OBJECT' };
  server.store.put(path.relative(directory, file), bytes, {
    storageClass: isPublic ? 'STANDARD' : 'GLACIER',
    checksum,
  });
}

/** Returns the checksum that S3 computes for an object uploaded without a checksum. */
async function checksumOf(bytes: Buffer): Promise<string> {
  const hash = await startHash('crc64nvme');
  hash.update(bytes);
  return hash.digest().toString('base64');
}

server.onRequest = async ({ operation, key }) => {
  if (operation === 'RestoreObject') setTimeout(() => server.store.arrive([key]), restoreMs);
  return undefined;
};

const { accessKeyId, secretAccessKey, region } = server.account;
const libraryDir = mkdtempSync(path.join(tmpdir(), 's3-stand-in-'));
process.on('exit', () => rmSync(libraryDir, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit());
const credentialsFile = 'stand-in';
const secret = path.join(libraryDir, 'secrets', credentialsFile);
mkdirSync(path.dirname(secret));
const section = `[default]\naws_access_key_id=${accessKeyId}\naws_secret_access_key=${secretAccessKey}\n`;
writeFileSync(secret, section, { mode: 0o600 });
writeFileSync(`${secret}.hosts`, `${new URL(server.url).hostname}\n`);

const settings = { bucket: server.bucket, region, endpoint: server.url, forcePathStyle: true, credentialsFile };
console.log(JSON.stringify(settings));
console.log(`TAPEGATE_LIBRARY_DIR='${libraryDir}'`);
console.log(`${server.store.keys().length} objects; ended by Ctrl-C`);
