/**
 * Serves the files of a folder as objects of the class GLACIER, by a stand-in for S3 on this host: what is asked for is restored after
 * SECONDS (30). For trying out a library of the kind `s3` without an account, and for measuring one. The files are held in memory.
 *
 *   npm run compile && node dist/bench/s3-stand-in.js FOLDER
 *
 * Prints the settings of the library, and the TAPEGATE_LIBRARY_DIR with its credentials, which is removed at the end.
 *
 * With PUBLIC=on objects can be read without a signature, and all of them are there at once.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startHash } from '../src/core/running-hash.js';
import { startS3Server } from '../test/support/s3-server.js';

const [folder] = process.argv.slice(2);
const restoreMs = Number(process.env.SECONDS ?? 30) * 1000;
const isPublic = process.env.PUBLIC === 'on';

if (folder === undefined) {
  console.error('which folder? node dist/bench/s3-stand-in.js FOLDER');
  process.exit(1);
}

const server = await startS3Server({ isPublic });
const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
for (const entry of entries.filter((each) => each.isFile())) {
  const file = path.join(entry.parentPath, entry.name);
  const bytes = readFileSync(file);
  const checksum = { 'x-amz-checksum-crc64nvme': await checksumOf(bytes), 'x-amz-checksum-type': 'FULL_OBJECT' };
  server.store.put(path.relative(folder, file), bytes, { storageClass: isPublic ? 'STANDARD' : 'GLACIER', checksum });
}

/** As S3 makes one for whatever comes without. */
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
