/**
 * Serves the files of a directory from memory, as a storage element with the WLCG Tape REST API does. A staged file is
 * on the stand-in's disk after SECONDS seconds (default 30). With this stand-in, a library of type `wlcg` can be tried
 * out or measured without a storage element.
 *
 * DIALECT (dcache, eos, storm) chooses the server that the stand-in imitates. With TLS=FILE the stand-in serves HTTPS,
 * and writes its certificate to FILE. With STAGED=on all files are on the stand-in's disk from the start, and stay
 * there.
 *
 * Usage: npm run compile && node dist/bench/wlcg-stand-in.js DIRECTORY
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { makeCertificate } from '../test/support/certificate.js';
import { type DialectName, dialects } from '../test/support/wlcg-dialects.js';
import { WlcgServer } from '../test/support/wlcg-server.js';

const [directory] = process.argv.slice(2);
const { DIALECT = 'eos', SECONDS = '30', STAGED, TLS } = process.env;

if (directory === undefined || !Object.hasOwn(dialects, DIALECT)) {
  console.error(
    `which directory, and which DIALECT (${Object.keys(dialects).join(', ')})? node dist/bench/wlcg-stand-in.js DIRECTORY`,
  );
  process.exit(1);
}

const certificate = TLS ? makeCertificate() : undefined;
const server = new WlcgServer({ dialect: DIALECT as DialectName, ...(certificate ? { certificate } : {}) });
const entries = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
for (const entry of entries) {
  const file = path.join(entry.parentPath, entry.name);
  const name = `/${path.relative(directory, file)}`;
  server.storage.put(name, readFileSync(file));
  if (STAGED === 'on') server.storage.disk.add(name);
}

server.onCall = (kind, paths) => {
  if (kind === 'stage') setTimeout(() => server.storage.arrive(paths), Number(SECONDS) * 1000);
  return undefined;
};

await server.listen();
if (certificate && TLS) writeFileSync(TLS, certificate.cert);
const { releases } = server.dialect;
if (STAGED === 'on') server.dialect.releases = false; // a released file stays on disk for the next reader
console.log(
  JSON.stringify({ url: server.origin, ...(TLS ? { caFile: path.basename(TLS) } : {}), releases, pollLeastSeconds: 5 }),
);
console.log(`${entries.length} files; ended by Ctrl-C`);
