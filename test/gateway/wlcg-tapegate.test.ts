/** One Tapegate as the storage of another, through the library type `wlcg`. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { parseSettings } from '../../src/tape/kind.js';
import { NotReadyError, type StagedFile, type StagingLibrary } from '../../src/tape/staging.js';
import { wlcg } from '../../src/tape/wlcg/index.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryBackend } from '../support/memory-backend.js';
import { ask, errorOf, readStaged, settle, staged, wordsOf } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const backend = createMemoryBackend();
const hooks = { onRead: backend.onRead };
let library: StagingLibrary;

const door = { siteName: 'TEST', webdav: 'all' as const, gateways: new Map(), diskCalls: 2 };
const app = useApp({ backend, config: { door, access: { auth: new Set(['token']) } } }, async () => {
  await addQuota(app.ctx, 'other-site', 10n ** 12n);
  const tokenFile = path.join(app.dataDir, 'token');
  const { secret } = await createToken(app.ctx, { name: 'other-site', role: 'USER' });
  writeFileSync(tokenFile, `${secret}\n`, { mode: 0o600 });
  const paths = { pathPrefix: '/here', remotePathPrefix: '/there' };
  const settings = { url: `${app.url}/webdav`, ...paths, tokenFile, diskLifetime: 'P1D' };
  library = wlcg.create(parseSettings(wlcg.settings, settings), { name: 'tape', dataDir: app.dataDir, env: {} });
});
afterEach(() => Object.assign(backend, hooks));

let position = 0n;

async function putThere(names: readonly string[], bytes: Uint8Array): Promise<StagedFile[]> {
  const files = names.map((name) => {
    position += 1n;
    return { path: `/there/${name}`, position, bytes };
  });
  await addTaped(app.ctx, backend, files);
  return names.map((name) => staged(`/here/${name}`, bytes.length));
}

const stageOf = async (name: string): Promise<string> =>
  (await askData<{ tapeFile: { stage: string } }>(app, `{ tapeFile(path: "/there/${name}") { stage } }`)).tapeFile
    .stage;

test('files are staged, read from the start or from an offset, and removed from disk when they are released', async () => {
  const gate = holdReads(backend);
  const bytes = Buffer.alloc(3_000_000, 'the bytes');
  const files = await putThere(['a b/ü%', 'c'], bytes);
  const [file = staged('')] = files;
  expect(await errorOf(readStaged(library, file))).toBeInstanceOf(NotReadyError);
  const asked = await ask(library, [...files, staged('/here/missing', 7)]);
  const [first] = (await library.poll({ ...asked.demand, files: [file] }, quiet())) ?? [];
  expect(first).toEqual({ path: file.path, state: 'waiting' });
  gate.open();
  const states = await settle(library, asked);
  expect(wordsOf(states, ['/here/a b/ü%', '/here/c', '/here/missing'])).toEqual(['ready', 'ready', 'failed']);
  expect(states.get('/here/missing')).toMatchObject({ error: { errorClass: 'PERMANENT' } });
  expect((await readStaged(library, file)).equals(bytes)).toBe(true);
  expect((await readStaged(library, file, 2_999_000n)).equals(bytes.subarray(2_999_000))).toBe(true);
  expect(await library.release({ ...asked.demand, files: [file] }, quiet())).toEqual([]);
  await waitFor('the file to be removed', async () => (await stageOf('a b/ü%')) === 'ONTAPE');
  expect(await stageOf('c')).toBe('RESTORED');
  await library.release(asked.demand, quiet());
  await waitFor('the other file to be removed', async () => (await stageOf('c')) === 'ONTAPE');
});

test('a file that is released before it was staged is not staged, and an unknown stage request is reported', async () => {
  const gate = holdReads(backend);
  const [one = staged(''), two = staged('')] = await putThere(['one', 'two'], Buffer.from('bytes'));
  const { demand } = await ask(library, [one, two]);
  await gate.begun();
  await library.release({ ...demand, files: [two] }, quiet());
  gate.open();
  await settle(library, await ask(library, [one]));
  await waitFor('the other file to be released', async () => (await stageOf('two')) === 'ONTAPE');
  expect(await library.poll({ id: '00000000-0000-4000-8000-000000000000', files: [two] }, quiet())).toEqual([
    { path: two.path, state: 'forgotten' },
  ]);
});
