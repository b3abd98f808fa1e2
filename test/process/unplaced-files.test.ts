/** Files with a volume but no position: libraries that read by path restore them, other libraries cannot. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { readUnconfirmed } from '../../src/domain/catalogue/verifications.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { readLines } from '../support/command-bench.js';
import { ring } from '../support/engine-watch.js';
import { addFiles, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { LIBRARY_ENV } from '../support/library-dir.js';
import { useMemorySite } from '../support/memory-site.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

const tapes = makeTempDir('tapes');
const { app, query } = useMemorySite({ engine: { idleMs: 100, verifyMs: 200, env: LIBRARY_ENV } });

beforeAll(async () => {
  const script = `printf '%s at <%s>\\n' "$1" "$3" >> "$TAPES/reads"; exec cat "$TAPES/$2$1"`;
  const settings = { read: ['sh', '-c', script], environment: [`TAPES=${tapes}`] };
  await addLibrary(app.ctx, { name: 'site', kind: 'command', drives: 1, settings });
});
afterEach(() => rmSync(path.join(tapes, 'reads'), { force: true }));
afterAll(() => rmSync(tapes, { recursive: true }));

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

const request = (pattern: string) => makeRequest(app, { quota: 'alice', patterns: pattern, retention: '2099-01-01' });

const reads = () => readLines(path.join(tapes, 'reads'));

/** Requests files while the library is suspended, so that all files are planned together. */
async function readTogether(pattern: string): Promise<number> {
  await suspend(app, { kind: 'LIBRARY', name: 'site', mode: 'IMMEDIATE' });
  const id = await request(pattern);
  await resume(app, 'LIBRARY', 'site');
  return id;
}

test('files without a position are read after the others, by path, and the script gets no position', async () => {
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

test('estimates, waiting requests and the plan count files without a position', async () => {
  await put('V2', [{ path: '/c/1' }, { path: '/c/2', position: 1n }, { path: '/c/3' }]);
  const fields = 'filesToRecall filesWithoutPlace volumeCount mountCount';
  const query = `{ estimateRequest(input: { quota: "alice", pattern: "/c/" }) { estimate { ${fields} } } }`;
  expect(await askData(app, query)).toEqual({
    estimateRequest: { estimate: { filesToRecall: 3, filesWithoutPlace: 0, volumeCount: 1, mountCount: 1 } },
  });
  await suspend(app, { kind: 'LIBRARY', name: 'site', mode: 'IMMEDIATE' });
  const id = await request('/c/');
  type Parts = {
    request: { waiting: { parts: Edges<{ reason: string; fileCount: number; queuePosition: number | null }> } };
  };
  const told = await askData<Parts>(
    app,
    `{ request(requestId: ${id}) { waiting { parts { edges { node { reason fileCount queuePosition } } } } } }`,
  );
  expect(told.request.waiting.parts.edges.map(({ node }) => node)).toEqual([
    { reason: 'NO_DRIVE', fileCount: 3, queuePosition: null },
  ]);
  const { plan } = await askData<{ plan: { queue: Edges<{ volumeName: string; fileCount: number }> } }>(
    app,
    '{ plan { queue { edges { node { volumeName fileCount } } } } }',
  );
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([{ volumeName: 'V2', fileCount: 3 }]);
  await resume(app, 'LIBRARY', 'site');
  await waitForState(app, id, 'COMPLETED');
});

test('a position that becomes known leaves the copy as it is', async () => {
  const text = 'bytes of /d/1';
  await put('V3', [{ path: '/d/1' }]);
  await query(`UPDATE tape_file SET checksum = NULL WHERE path = '/d/1'`);
  const id = await request('/d/');
  await waitForState(app, id, 'COMPLETED');
  await query(`UPDATE tape_file SET checksum = NULL WHERE path = '/d/1'`);
  const row = { path: '/d/1', volume: 'V3', size: BigInt(text.length), stage: 'ONTAPE' as const };
  await addFiles(app.ctx, [{ ...row, position: 12n }]);
  expect((await viewRequest(app, id)).filesOnDisk).toBe(1);
  expect(reads()).toHaveLength(1);
});

test('tape copies without a position are confirmed like others, and no page of them leaves one out', async () => {
  const names = Array.from({ length: 9 }, (_, n) => `/e/${n}`);
  const suspension = { kind: 'LIBRARY', name: 'site', mode: 'IMMEDIATE' } as const;
  await suspend(app, suspension);
  await put(
    'V4',
    names.map((name, n) => ({ path: name, position: n < 4 ? 5n : null, stage: 'UNVERIFIED' as const })),
  );
  const [volume] = await query<{ id: number }>(`SELECT id FROM volume WHERE name = 'V4'`);
  const seen: bigint[] = [];
  for (let after: Awaited<ReturnType<typeof readUnconfirmed>>[number] | undefined; ; ) {
    const page = await readUnconfirmed(app.ctx, { volumeId: volume?.id ?? 0, after, limit: 2 });
    if (page.length === 0) break;
    seen.push(...page.map(({ fileId }) => fileId));
    after = page.at(-1);
  }
  expect([seen.length, new Set(seen).size]).toEqual([names.length, names.length]);
  await resume(app, 'LIBRARY', 'site');
  await waitFor('all to be confirmed', async () => {
    await ring(app, 'recall');
    return (await query(`SELECT FROM tape_file WHERE path LIKE '/e/%' AND stage = 'ONDISK'`)).length === names.length;
  });
  expect(new Set(reads()).size).toBe(names.length);
});

test('in a library that reads by position they fail with that reason', async () => {
  await addFiles(app.ctx, [{ path: '/f/1', volume: 'FIRST', position: null, size: 5n }]);
  const id = await request('/f/');
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.files[0]?.error).toContain('position');
});
