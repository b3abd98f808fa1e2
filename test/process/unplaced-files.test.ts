/** Files of which the catalogue has a volume and no position: libraries that go by paths read them, others cannot. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { addLibrary } from '../../src/operations/libraries/add.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { readLines } from '../support/command-bench.js';
import { ring } from '../support/engine-watch.js';
import { addFiles, addQuota, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const tapes = makeTempDir('tapes');
const alice = { quota: 'alice', retention: '2099-01-01' };

beforeAll(async () => {
  app = await startApp({ backend: createMemoryBackend(), engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  const script = `printf '%s at <%s>\\n' "$1" "$3" >> "$TAPES/reads"; exec cat "$TAPES/$2$1"`;
  const settings = { read: ['/bin/sh', '-c', script], environment: [`TAPES=${tapes}`] };
  await addLibrary(app.ctx, { name: 'site', kind: 'command', drives: 1, settings });
});
afterEach(() => rmSync(path.join(tapes, 'reads'), { force: true }));
afterAll(async () => {
  await app.close();
  rmSync(tapes, { recursive: true });
});

interface OnTape {
  path: string;
  position?: bigint | null;
  stage?: 'ONTAPE' | 'UNVERIFIED';
}

async function put(volume: string, files: readonly OnTape[]): Promise<void> {
  for (const { path: name } of files) {
    mkdirSync(path.dirname(path.join(tapes, volume, name)), { recursive: true });
    writeFileSync(path.join(tapes, volume, name), `bytes of ${name}`);
  }
  await addFiles(
    app.ctx,
    files.map(({ path: name, position = null, ...more }) => {
      const text = `bytes of ${name}`;
      return {
        ...{ volume, library: 'site', path: name, position, size: BigInt(text.length) },
        verified: null,
        checksum: checksumOf(text),
        ...more,
      };
    }),
  );
}

const reads = () => readLines(path.join(tapes, 'reads'));

/** All that waits is planned together. */
async function readTogether(pattern: string): Promise<number> {
  await suspend(app, { kind: 'BACKEND', name: 'site', mode: 'HELD' });
  const id = await makeRequest(app, { ...alice, patterns: pattern });
  await resume(app, 'BACKEND', 'site');
  return id;
}

test('they are read after those that have one, in the order of their paths, and the script is given no position', async () => {
  const names = ['/a/z', '/a/m', '/a/b'];
  await put('V1', [
    ...names.map((name) => ({ path: name })),
    { path: '/a/y', position: 7n },
    { path: '/a/x', position: 3n },
  ]);
  const id = await readTogether('/a/');
  await waitForState(app, id, 'COMPLETED');
  expect(reads()).toEqual(['/a/x at <3>', '/a/y at <7>', '/a/b at <>', '/a/m at <>', '/a/z at <>']);
  expect(readFileSync(path.join(app.restoreDir, '/a/m'), 'utf8')).toBe('bytes of /a/m');
});

test('an estimate, and what is told of a request that waits, counts them', async () => {
  await put('V2', [{ path: '/c/1' }, { path: '/c/2', position: 1n }, { path: '/c/3' }]);
  const fields = 'filesToRecall filesWithoutPlace volumes mounts';
  const query = `{ estimate: estimateRequest(input: { quota: "alice", pattern: "/c/" }) { ... on Estimate { ${fields} } } }`;
  const { estimate } = await askData<{ estimate: object }>(app, query);
  expect(estimate).toEqual({ filesToRecall: 3, filesWithoutPlace: 0, volumes: 1, mounts: 1 });
  await suspend(app, { kind: 'BACKEND', name: 'site', mode: 'HELD' });
  const id = await makeRequest(app, { ...alice, patterns: '/c/' });
  type Parts = { request: { waiting: { parts: Edges<{ reason: string; files: number; place: number | null }> } } };
  const told = await askData<Parts>(
    app,
    `{ request(id: ${id}) { waiting { parts { edges { node { reason files place } } } } } }`,
  );
  expect(told.request.waiting.parts.edges.map(({ node }) => node)).toEqual([
    { reason: 'NO_DRIVE', files: 3, place: null },
  ]);
  const { plan } = await askData<{ plan: { queue: Edges<{ volume: string; files: number }> } }>(
    app,
    '{ plan { queue { edges { node { volume files } } } } }',
  );
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([{ volume: 'V2', files: 3 }]);
  await resume(app, 'BACKEND', 'site');
  await waitForState(app, id, 'COMPLETED');
});

test('that a position has become known leaves the copy as it is', async () => {
  const text = 'bytes of /d/1';
  await put('V3', [{ path: '/d/1' }]);
  await app.ctx.db.pool.query(`UPDATE tape_file SET checksum = NULL WHERE path = '/d/1'`);
  const id = await makeRequest(app, { ...alice, patterns: '/d/' });
  await waitForState(app, id, 'COMPLETED');
  await app.ctx.db.pool.query(`UPDATE tape_file SET checksum = NULL WHERE path = '/d/1'`);
  const row = { path: '/d/1', volume: 'V3', size: BigInt(text.length), stage: 'ONTAPE' as const };
  await addFiles(app.ctx, [{ ...row, position: 12n }]);
  expect((await viewRequest(app, id)).filesOnDisk).toBe(1);
  expect(reads()).toHaveLength(1);
});

test('a copy without a position is confirmed as others are, and of many none is left out', async () => {
  const count = 130;
  await put(
    'V4',
    Array.from({ length: count }, (_, n) => ({
      path: `/e/${n}`,
      position: n < 10 ? 5n : null,
      stage: 'UNVERIFIED' as const,
    })),
  );
  await waitFor('all to be confirmed', async () => {
    await ring(app, 'recall');
    const { rows } = await app.ctx.db.pool.query<{ n: number }>(
      `SELECT count(*)::int AS n FROM tape_file WHERE path LIKE '/e/%' AND stage = 'ONDISK'`,
    );
    return rows[0]?.n === count;
  });
  expect(new Set(reads()).size).toBe(count);
});

test('in a library that goes by positions they fail, and say so', async () => {
  await addFiles(app.ctx, [{ path: '/f/1', volume: 'FIRST', position: null, size: 5n }]);
  const id = await makeRequest(app, { ...alice, patterns: '/f/' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.holds[0]?.error).toContain('position');
});
