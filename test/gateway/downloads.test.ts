/** Download links: several restored files as one zip archive. */
import { once } from 'node:events';
import { mkdirSync, readdirSync, readlinkSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { hostname } from 'node:os';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import type { TransferConfig } from '../../src/config/config.js';
import { addPathRule, removePathRule } from '../../src/domain/access/path-rules.js';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { pruneLinks } from '../../src/domain/disks/downloads.js';
import { startBeside } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';
import { readZip } from '../support/zip.js';

const library = createMemoryLibrary();
const transfer: TransferConfig = {
  siteName: 'TEST',
  webdav: 'all',
  gateways: new Map([['elsewhere', 'https://elsewhere.example.org:8443/t']]),
  diskCalls: 4,
};
const tokens: Record<string, string> = {};
const app = useApp({ library, config: { transfer, access: { auth: new Set(['token']) } } }, async () => {
  for (const name of ['alice', 'bob']) {
    await addQuota(app.ctx, name, 10n ** 12n);
    tokens[name] = (await createToken(app.ctx, { name, role: 'USER' })).secret;
  }
});

const as = (user: string) => ({ url: app.url, token: tokens[user] });

interface Created {
  downloadPath: string;
  fileCount: number;
  skippedCount: number;
  bytes: string;
  errors: { message: string }[];
}

/** Restores files for alice. @returns the id of the request, and the files' bytes by path */
async function restore(
  files: { path: string; size?: number }[],
): Promise<{ id: number; contents: Map<string, Uint8Array> }> {
  volume++;
  const contents = await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: `D${volume}` })),
  );
  const create =
    'mutation($files: [String!]!) { result: createRequest(input: { quota: "alice", files: $files }) { request { requestId } } }';
  const { result } = await askData<{ result: { request: { requestId: number } } }>(as('alice'), create, {
    files: [...contents.keys()],
  });
  const id = result.request.requestId;
  await waitFor(`request ${id} to be complete`, async () => {
    const { request } = await askData<{ request: { state: string } }>(
      as('alice'),
      `{ request(requestId: ${id}) { state } }`,
    );
    return request.state === 'COMPLETED';
  });
  return { id, contents };
}
let volume = 0;

const CREATE = `mutation($requestId: Int!, $paths: [String!]) {
  result: createDownload(input: { requestId: $requestId, paths: $paths }) { downloadPath fileCount skippedCount bytes errors { message } } }`;

const create = async (requestId: number, paths?: string[], user = 'alice') =>
  (await askData<{ result: Created }>(as(user), CREATE, { requestId, paths })).result;

const linkOf = async (requestId: number, paths?: string[]) => (await create(requestId, paths)).downloadPath;

async function download(link: string, headers: Record<string, string> = {}, gateway: { url: string } = app) {
  const response = await fetch(gateway.url + link, { headers, redirect: 'manual' });
  const bytes = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: response.headers, bytes };
}
const statusOf = async (...given: Parameters<typeof download>) => (await download(...given)).status;

const copyOf = (name: string) => path.join(app.restoreDir, name);

test('a link downloads files as one archive, with their names below their common directory', async () => {
  const { id, contents } = await restore([
    { path: '/z/run/a.nc', size: 300_000 },
    { path: '/z/run/b/ü.nc', size: 700_001 },
    { path: '/z/run/empty', size: 0 },
    { path: '/z/other', size: 10 },
  ]);
  const paths = ['/z/run/b/ü.nc', '/z/run/a.nc', '/z/run/empty'];
  const created = await create(id, paths);
  expect(created).toMatchObject({ fileCount: 3, bytes: '1000001', errors: [] });
  const { status, headers, bytes } = await download(created.downloadPath);
  expect([
    status,
    headers.get('content-type'),
    headers.get('content-disposition'),
    headers.get('content-length'),
  ]).toEqual([200, 'application/zip', `attachment; filename="request-${id}.zip"`, String(bytes.length)]);
  const files = readZip(bytes);
  expect([...files.keys()].sort()).toEqual(['a.nc', 'b/ü.nc', 'empty']);
  for (const name of paths)
    expect(files.get(name.slice('/z/run/'.length))?.equals(contents.get(name) as Uint8Array)).toBe(true);
  const all = await download(await linkOf(id));
  expect([...readZip(all.bytes).keys()].sort()).toEqual(['other', 'run/a.nc', 'run/b/ü.nc', 'run/empty']);
});

test('an archive with a long directory has the announced length', async () => {
  const { id, contents } = await restore(
    Array.from({ length: 600 }, (_, index) => ({ path: `/long/${'x'.repeat(60)}-${index}`, size: 1 })),
  );
  const { headers, bytes } = await download(await linkOf(id));
  expect([headers.get('content-length'), readZip(bytes).size]).toEqual([String(bytes.length), contents.size]);
});

test('a name that leads out of the directory on Windows is encoded', async () => {
  const { id } = await restore([
    { path: '/win/..\\up', size: 1 },
    { path: '/win/C:x', size: 1 },
  ]);
  expect([...readZip((await download(await linkOf(id))).bytes).keys()].sort()).toEqual(['..%5Cup', 'C%3Ax']);
});

test('a link works once, on any gateway, and for a minute', async () => {
  const { id } = await restore([{ path: '/once/a' }, { path: '/once/b' }]);
  const link = await linkOf(id);
  const other = await startBeside(app, {});
  try {
    expect(await Promise.all([statusOf(link), statusOf(link, {}, other)]).then((all) => all.sort())).toEqual([
      200, 404,
    ]);
  } finally {
    await other.close();
  }
  expect(await statusOf(link)).toBe(404);
  const late = await linkOf(id);
  await app.ctx.db.pool.query("UPDATE download_link SET expires_at = expires_at - interval '1 minute'");
  const { status, bytes } = await download(late);
  expect([status, JSON.parse(bytes.toString()).detail]).toEqual([
    404,
    expect.stringContaining('already used or has expired'),
  ]);
  await pruneLinks(app.ctx);
  expect((await app.ctx.db.pool.query('SELECT FROM download_link')).rowCount).toBe(0);
  expect(await statusOf('/downloads/tapegate_link_x')).toBe(404);
});

test('a caller has at most ten unused links', async () => {
  const { id } = await restore([{ path: '/many/a' }]);
  const links: string[] = [];
  for (let index = 0; index < 11; index++) links.push(await linkOf(id));
  expect([await statusOf(links[0] ?? ''), await statusOf(links[1] ?? '')]).toEqual([404, 200]);
});

test("another user cannot create a link for someone's request, nor use such a link with an own token", async () => {
  const { id } = await restore([{ path: '/mine/a' }]);
  expect((await create(id, undefined, 'bob')).errors).toEqual([
    { message: `there is no request ${id}, or you are not allowed to see it` },
  ]);
  const link = await linkOf(id);
  expect(await statusOf(link, { Authorization: `Bearer ${tokens.bob}` })).toBe(403);
  expect(await statusOf(link, { Authorization: 'Bearer wrong' })).toBe(401);
  expect(await statusOf(link, { Authorization: `Bearer ${tokens.alice}` })).toBe(200);
});

test('a link ends with the token of its creator', async () => {
  const { id } = await restore([{ path: '/token/a' }]);
  const { token, secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const { result } = await askData<{ result: Created }>({ url: app.url, token: secret }, CREATE, { requestId: id });
  await revokeToken(app.ctx, token.id);
  expect(await statusOf(result.downloadPath)).toBe(404);
});

test('path rules are checked when a link is created and when it is used', async () => {
  const { id } = await restore([{ path: '/ruled/a' }, { path: '/free/b' }]);
  const link = await linkOf(id);
  const rule = { prefix: '/ruled', action: 'FETCH', kind: 'USER', name: 'bob' } as const;
  await addPathRule(app.ctx, rule);
  try {
    expect(await statusOf(link)).toBe(403);
    expect((await create(id, ['/ruled/a'])).errors[0]?.message).toContain('"/ruled/a" is closed to you');
    expect(await create(id)).toMatchObject({ fileCount: 1, skippedCount: 1 });
    expect(await statusOf(await linkOf(id, ['/free/b']))).toBe(200);
  } finally {
    await removePathRule(app.ctx, rule);
  }
  expect(await statusOf(link)).toBe(200);
});

test('files that are no longer on disk for the request refuse the whole archive', async () => {
  const { id } = await restore([{ path: '/gone/a' }, { path: '/gone/b' }, { path: '/gone/c' }]);
  const link = await linkOf(id);
  await withdrawFiles(app.ctx, { path: '/gone/c' });
  expect(await statusOf(await linkOf(id))).toBe(200); // the copy of a withdrawn file stays while a request contains it
  await askData(
    as('alice'),
    `mutation { releaseFiles(input: { requestId: ${id}, paths: ["/gone/a"] }) { errors { message } } }`,
  );
  const { status, bytes } = await download(link);
  expect([status, JSON.parse(bytes.toString()).detail]).toEqual([415, expect.stringContaining('"/gone/a" is on tape')]);
  expect((await create(id, ['/gone/a'])).errors[0]?.message).toContain('"/gone/a" is not on disk for this request');
  const rest = await linkOf(id);
  await askData(as('alice'), `mutation { cancelRequest(input: { requestId: ${id} }) { errors { message } } }`);
  expect(await statusOf(rest)).toBe(404);
  expect((await create(id)).errors[0]?.message).toContain('has ended');
});

test('an archive of all files omits those that cannot be downloaded, and chosen files are refused', async () => {
  const { id } = await restore([{ path: '/some/a' }, { path: '/some/b' }, { path: '/some/c' }]);
  // as if another program had changed the copies
  await app.ctx.db.pool.query(
    `UPDATE tape_file SET stage = 'UNVERIFIED', changed_disk_id = disk_id, disk_id = NULL WHERE path IN ('/some/a', '/some/b')`,
  );
  expect(await create(id)).toMatchObject({ fileCount: 1, skippedCount: 2, errors: [] });
  expect((await create(id, ['/some/a', '/some/b', '/some/c'])).errors[0]?.message).toMatch(
    /^paths contains a file that cannot be downloaded: "\/some\/a" .*\(and 1 more\)$/,
  );
});

test('a link can be checked without being used', async () => {
  const { id } = await restore([{ path: '/checked/a' }]);
  const link = await linkOf(id);
  expect(await statusOf(`${link}?check`)).toBe(204);
  expect(await statusOf(link)).toBe(200);
  const { status, bytes } = await download(`${link}?check`);
  expect([status, JSON.parse(bytes.toString()).detail]).toEqual([404, expect.stringContaining('already used')]);
});

test('unusable inputs return errors', async () => {
  const { id } = await restore([{ path: '/input/a' }]);
  const messageOf = async (paths?: string[]) => (await create(id, paths)).errors[0]?.message;
  expect(await messageOf(['/input/a', '/input/none'])).toBe(
    `paths must all be in request ${id}, which does not contain "/input/none"`,
  );
  expect(await messageOf([])).toBe('paths must not be empty');
  expect(await messageOf(Array.from({ length: 10_001 }, (_, index) => `/input/${index}`))).toBe(
    'paths must contain at most 10000 files for one archive, not 10001',
  );
  await app.ctx.db.pool.query(`UPDATE request SET files_total = 20000, files_on_disk = 20000 WHERE id = ${id}`);
  expect(await messageOf()).toContain(`at most 10000 files for one archive, not the 20000 files of request ${id}`);
});

test('a site that serves no file contents creates no links and refuses earlier links', async () => {
  const { id } = await restore([{ path: '/off/a' }]);
  const link = await linkOf(id);
  Object.assign(app.ctx.config.transfer, { webdav: 'off' });
  try {
    expect(await statusOf(link)).toBe(404);
    expect((await create(id)).errors[0]?.message).toContain('this site does not serve file contents');
  } finally {
    Object.assign(app.ctx.config.transfer, { webdav: 'all' });
  }
  expect(await statusOf(link)).toBe(200);
});

test('a file that disappears during the download breaks the connection', async () => {
  const size = 16 * 1024 * 1024;
  const { id } = await restore([
    { path: '/vanish/a', size },
    { path: '/vanish/b', size },
  ]);
  const asked = http.get(app.url + (await linkOf(id)));
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
  rmSync(copyOf('/vanish/b'));
  await expect(buffer(response).then(({ length }) => length)).rejects.toThrow('aborted');
});

test('a file that changes during the download breaks the connection', async () => {
  const size = 16 * 1024 * 1024;
  const { id } = await restore([
    { path: '/change/a', size },
    { path: '/change/b', size },
  ]);
  const asked = http.get(app.url + (await linkOf(id)));
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
  writeFileSync(copyOf('/change/a'), 'x', { flag: 'a' });
  await expect(buffer(response).then(({ length }) => length)).rejects.toThrow('aborted');
});

test('a client that disconnects ends the reading', async () => {
  const { id } = await restore([
    { path: '/leave/a', size: 16 * 1024 * 1024 },
    { path: '/leave/b', size: 1000 },
  ]);
  const asked = http.get(app.url + (await linkOf(id)));
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
  const isOpen = async () => openFiles().includes(copyOf('/leave/a'));
  await waitFor('the file to be opened', isOpen);
  response.destroy();
  await waitFor('the file to be closed', async () => !(await isOpen()));
});

function openFiles(): string[] {
  return readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // the descriptor was closed meanwhile
    }
  });
}

test('a gateway without the disks redirects to one that has them, and the link stays usable', async () => {
  const { id } = await restore([{ path: '/away2/a' }]);
  const link = await linkOf(id);
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir);
  try {
    expect(await statusOf(link)).toBe(503);
    await app.ctx.db.pool.query(
      `INSERT INTO disk_measurement (disk_id, host, free, problem, measured_at)
       SELECT id, h.host, 1, NULL, timezone('utc', clock_timestamp()) FROM restore_disk, (VALUES ('elsewhere'), ('${hostname()}')) h (host)
       ON CONFLICT DO NOTHING`,
    );
    const { status, headers } = await download(link);
    expect([status, headers.get('location')]).toEqual([307, `https://elsewhere.example.org:8443/t${link}`]);
  } finally {
    rmSync(app.restoreDir, { recursive: true });
    renameSync(`${app.restoreDir}-away`, app.restoreDir);
  }
  expect(await statusOf(link)).toBe(200);
});

test('a link can only be used with GET', async () => {
  const { id } = await restore([{ path: '/method/a' }]);
  const link = await linkOf(id);
  expect((await fetch(app.url + link, { method: 'HEAD' })).status).toBe(405);
  expect(await statusOf(link)).toBe(200);
});
