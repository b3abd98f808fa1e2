/** Checks that deploy/ and the operators' pages name only settings, files and commands that exist and work. */
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { commandFiles } from '../../src/main/table.js';
import { makeTempDir } from '../support/temp-dir.js';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

const pages = ['deploy', 'docs/operators'].flatMap((dir) =>
  readdirSync(path.join(packageRoot, dir), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => path.join(dir, name)),
);

/** Documented variables. */
const variables = new Set(
  [...read('docs/reference/settings.md').matchAll(/^\| `([A-Z_]+)` \|/gm)].map((match) => match[1]),
);

/** Variables of Docker files and of Node.js. */
const others =
  'EMBEDDED NODE NODE_ENV DATABASE_PASSWORD TLS_DIRECTORY POSTGRES_USER POSTGRES_DB POSTGRES_PASSWORD'.split(' ');

test('units, images and manifests set only variables that Tapegate knows', () => {
  const places: [string, RegExp][] = [
    ['deploy/systemd/tapegate.env', /^#?([A-Z_]+)=/gm],
    ['deploy/container/.env.example', /^#?([A-Z_]+)=/gm],
    ['deploy/container/compose.yaml', /^ +([A-Z_]{4,}): /gm],
    ['deploy/container/Dockerfile', /[ ]([A-Z_]{4,})=/g],
    ['deploy/kubernetes/tapegate.yaml', /^ {2}([A-Z_]{4,}): |\{name: ([A-Z_]+),/gm],
    ['deploy/systemd/tapegate-gateway.service', /^Environment=([A-Z_]+)/gm],
  ];
  for (const [file, pattern] of places) {
    const named = [...read(file).matchAll(pattern)].map((match) => match[1] ?? match[2] ?? '');
    expect({ file, found: named.length > 0 }).toEqual({ file, found: true });
    const unknown = named.filter((name) => !variables.has(name) && !others.includes(name));
    expect({ file, unknown }).toEqual({ file, unknown: [] });
  }
});

test('every link of a page leads to a file', () => {
  expect(pages.length).toBeGreaterThan(20);
  for (const page of pages) {
    for (const [, link = ''] of read(page).matchAll(/\]\(([^)#]*)(?:#[^)]*)?\)/g)) {
      expect(existsSync(path.join(packageRoot, path.dirname(page), link)), `${link} in ${page}`).toBe(true);
    }
  }
});

test('the pages name only files and commands that exist', () => {
  const usages = Object.values(commandFiles).flatMap(({ commands }) => Object.keys(commands));
  const known = new Set(usages.map((usage) => usage.split(' ')[0]));
  for (const page of pages) {
    for (const [, file = ''] of read(page).matchAll(/\b(deploy\/(?:systemd|container|kubernetes)\/[\w.-]+)/g)) {
      expect(existsSync(path.join(packageRoot, file)), `${file} in ${page}`).toBe(true);
    }
    for (const [, command = ''] of read(page).matchAll(/(?:-- |`|exec )tapegate ([a-z]+)/g)) {
      expect(known.has(command), `${command} in ${page}`).toBe(true);
    }
  }
});

test('the release contains the files that the image copies', () => {
  const { files } = JSON.parse(read('package.json')) as { files: string[] };
  const copied = [...read('deploy/container/Dockerfile').matchAll(/COPY --from=build \/build\/(\S+) /g)];
  expect(copied.length).toBeGreaterThan(0);
  expect(files).toEqual(expect.arrayContaining(copied.map(([, part]) => part)));
});

test('the documents name the current version', () => {
  const { version } = JSON.parse(read('package.json')) as { version: string };
  expect(read('CHANGELOG.md')).toContain(`## [${version}]`);
  const names = ['docs/operators/install.md', 'docs/users/quick-start.md', 'deploy/kubernetes/tapegate.yaml'].flatMap(
    (page) => [...read(page).matchAll(/tapegate(?:-client)?[-:](\d+\.\d+\.\d+)/g)].map(([, found]) => found),
  );
  expect(new Set(names)).toEqual(new Set([version]));
});

test('a released migration was not edited', () => {
  const released = { '20261120000000_init': '067abe4988bf04dca4e0dc382138515295b697c82d27d82ea8121c9bb9d35b2f' };
  for (const [name, hash] of Object.entries(released)) {
    const file = path.join(packageRoot, 'prisma/migrations', name, 'migration.sql');
    expect(createHash('sha256').update(readFileSync(file)).digest('hex'), name).toBe(hash);
  }
});

const SIGNS = ['X-Remote-User', 'X-Remote-Groups', 'X-SSL-Client-S-DN', 'X-SSL-Client-Verify'];

test('each example of a proxy sets or removes every header that identifies a caller', () => {
  const examples = [...read('docs/operators/access.md').matchAll(/```nginx\n([\s\S]*?)```/g)].map(([, text]) => text);
  expect(examples).toHaveLength(2);
  const files = ['container/nginx.conf', 'proxy/nginx.conf', 'proxy/apache.conf'];
  for (const example of [...examples, ...files.map((file) => read(`deploy/${file}`))]) {
    const missing = SIGNS.filter((name) => !new RegExp(`(?:proxy_set_header|unset) +${name} `).test(example ?? ''));
    expect({ example, missing }).toEqual({ example, missing: [] });
  }
});

test('the manifests have probes with timeouts, network policies, no trusted proxy, and a volume for tapes', () => {
  const manifests = read('deploy/kubernetes/tapegate.yaml');
  const probes = manifests.split(/\n(?= {10}\w+Probe:)/).slice(1);
  expect(probes).toHaveLength(3);
  for (const probe of probes) expect(probe).toContain('timeoutSeconds: 5');
  expect(manifests).toMatch(/readinessProbe:\n.*\n +periodSeconds: 3\n +timeoutSeconds: 5\n +failureThreshold: 3\n/);
  expect(manifests).toContain('proxy-request-buffering: "off"');
  expect(manifests).toMatch(/^ {2}TAPEGATE_PROXY_ADDRESSES: CHANGE$/m);
  const parts = manifests.split('\n---\n');
  for (const part of ['gateway', 'engine']) {
    expect(parts.some((text) => /^kind: NetworkPolicy$/m.test(text) && text.includes(`part: ${part} }`))).toBe(true);
  }
  const engine = parts.find((text) => /^kind: Deployment\nmetadata:\n {2}name: engine$/m.test(text));
  expect(engine).toContain('{ name: library, mountPath: /data/library }');
});

test('the upgrade commands work repeatedly, keep the running version if the new one does not start, and return to the old one', () => {
  const dir = makeTempDir();
  const scripts = [...read('docs/operators/upgrades.md').matchAll(/```sh\n(rm -rf \/opt[\s\S]*?)```/g)];
  const [commands = '', returning = ''] = scripts.map(([, script]) => script);
  expect(commands).toContain('tapegate-1.1.0.tgz');
  const here = (script: string) =>
    script.replace(/\/opt\//g, `${dir}/opt/`).replace(/\/usr\/local\/bin|\/etc\/systemd\/system/g, `${dir}/bin`);
  const env = { PATH: `${dir}/bin:${path.dirname(process.execPath)}:/usr/bin:/bin` };
  const run = (script: string) => execFileSync('/bin/sh', ['-c', here(script)], { cwd: dir, env, stdio: 'ignore' });
  mkdirSync(path.join(dir, 'bin'));
  const stub = (name: string, text: string) => {
    writeFileSync(path.join(dir, 'bin', name), `#!/bin/sh\n${text}\n`);
    chmodSync(path.join(dir, 'bin', name), 0o755);
  };
  stub('npm', 'mkdir -p node_modules');
  stub('systemctl', `cat ${dir}/opt/tapegate/dist/program/tapegate.cjs > ${dir}/started`);
  const upgrade = (version: number, program = `console.log(${version})`) => {
    const release = path.join(dir, `release-${version}`);
    for (const directory of ['dist/program', 'deploy/systemd'])
      mkdirSync(path.join(release, directory), { recursive: true });
    writeFileSync(path.join(release, 'dist/program/tapegate.cjs'), program);
    writeFileSync(path.join(release, 'deploy/systemd/tapegate'), `wrapper ${version}`);
    writeFileSync(path.join(release, 'deploy/systemd/tapegate.service'), `unit ${version}`);
    execFileSync('tar', ['-czf', 'tapegate-1.1.0.tgz', `release-${version}`], { cwd: dir });
    run(commands);
  };
  const found = (place: string) => readFileSync(path.join(dir, place), 'utf8');
  mkdirSync(path.join(dir, 'opt/tapegate/dist/program'), { recursive: true });
  writeFileSync(path.join(dir, 'opt/tapegate/dist/program/tapegate.cjs'), 'console.log(1)');
  mkdirSync(path.join(dir, 'opt/tapegate-next/half/of/one'), { recursive: true });
  for (const version of [2, 3, 4]) {
    upgrade(version);
    expect({
      now: found('opt/tapegate/dist/program/tapegate.cjs'),
      before: found('opt/tapegate-before/dist/program/tapegate.cjs'),
      started: found('started'),
      wrapper: found('bin/tapegate'),
      unit: found('bin/tapegate.service'),
      all: readdirSync(path.join(dir, 'opt')).sort(),
      within: readdirSync(path.join(dir, 'opt/tapegate')).sort(),
    }).toEqual({
      now: `console.log(${version})`,
      before: `console.log(${version - 1})`,
      started: `console.log(${version})`,
      wrapper: `wrapper ${version}`,
      unit: `unit ${version}`,
      all: ['tapegate', 'tapegate-before'],
      within: ['deploy', 'dist', 'node_modules'],
    });
  }
  const program = path.join(dir, 'opt/tapegate/dist/program/tapegate.cjs');
  upgrade(5, 'throw new Error("broken")');
  expect([readFileSync(program, 'utf8'), found('opt/tapegate-before/dist/program/tapegate.cjs')]).toEqual([
    'console.log(4)',
    'console.log(3)',
  ]);
  run(returning);
  expect([found('started'), found('bin/tapegate'), found('bin/tapegate.service')]).toEqual([
    'console.log(3)',
    'wrapper 3',
    'unit 3',
  ]);
});

const START = 'exec /usr/bin/env node /opt/tapegate/dist/program/tapegate.cjs "$@"';
const SETTINGS = 'settings=/etc/tapegate/tapegate.env';

/** Returns the environment and arguments that the wrapper script passes to a program. */
function readAs(text: string, ...args: string[]): { settings: Record<string, string>; args: string[] } {
  return readWith({}, text, ...args);
}

/** @param env environment of the wrapper's caller */
function readWith(env: Record<string, string>, text: string, ...args: string[]) {
  const dir = makeTempDir();
  const [wrapper, settings] = [path.join(dir, 'tapegate'), path.join(dir, 'tapegate.env')];
  writeFileSync(settings, text);
  const script = readFileSync(path.join(packageRoot, 'deploy/systemd/tapegate'), 'utf8');
  expect([script.includes(START), script.includes(SETTINGS)]).toEqual([true, true]);
  const print = 'console.log(JSON.stringify({ settings: process.env, args: process.argv.slice(1) }))';
  const started = script
    .replace(SETTINGS, () => `settings=${settings}`)
    .replace(START, () => `exec "${process.execPath}" -e '${print}' -- "$@"`);
  writeFileSync(wrapper, started);
  const { settings: found, ...rest } = JSON.parse(
    execFileSync('/bin/sh', [wrapper, ...args], { env, cwd: dir, encoding: 'utf8' }),
  );
  const { PWD, OLDPWD, _, SHLVL, ...own } = found; // the shell sets these variables
  return { settings: own, ...rest };
}

test('values are taken literally, and nothing in them is run', () => {
  const lines = {
    DATABASE_URL: 'postgresql://t:a$b@db/tapegate?sslmode=verify-full&sslrootcert=/etc/ca.pem',
    SMTP_URL: 'smtp://u:pa$word@mail.example.org',
    TAPEGATE_MAIL_FROM: 'Tapegate <tapegate@example.org>',
    OIDC_CLIENT_SECRET: '$(touch ran)`touch ran`; touch ran | touch ran # no comment',
    LABEL: 'it\'s "quoted" within, * ? [a] ~ !',
    EMPTY: '',
  };
  const text = Object.entries(lines).map(([name, value]) => `${name}=${value}\n`);
  const { settings, args } = readAs(text.join(''), 'ls', 'a b', '*');
  expect(settings).toEqual(lines);
  expect(args).toEqual(['ls', 'a b', '*']);
});

test.each([
  ['# A=1\n  ; B=2\n\n   C=3\nno setting\nexport D=4\n5E=6\n', { C: '3' }],
  ['A = spaced  \nB=\ttab\t\nC= a  b \n', { A: 'spaced', B: 'tab', C: 'a  b' }],
  [
    `A="a 'b' # \\"c\\" \\$d \\\`e \\\\ \\n"\nB='a "b" \\c $d'\n`,
    { A: 'a \'b\' # "c" $d `e \\ \\n', B: 'a "b" \\c $d' },
  ],
  ['A="one\n two"\nB=\'three\n\nfour\'\nC=5', { A: 'one\n two', B: 'three\n\nfour', C: '5' }],
  ['A=one\\\n two\nB="three\\\nfour"\nC=a\\ \\b\\\\\n', { A: 'one two', B: 'threefour', C: 'a b\\' }],
  [`A="one" 'two'three\nB=""\nC=''\n`, { A: 'onetwothree', B: '', C: '' }],
  ['A=1\r\nB="2"\r\nA=3\r\n', { A: '3', B: '2' }],
  ['A=\\', { A: '' }],
])('the file %j is read as systemd reads it', (text, expected) => {
  expect(readAs(text).settings).toEqual(expected);
});

test('a variable that the caller has set keeps its value, also if it is empty', () => {
  const env = { DATA_DIR: '/srv/drill', DATABASE_URL: '' };
  const text = 'DATA_DIR=/var/lib/tapegate\nDATABASE_URL=postgresql://db/tapegate\nPORT=1\nPORT=2\n';
  expect(readWith(env, text).settings).toEqual({ ...env, PORT: '2' });
});

test('units that may run several times on a host keep their common runtime directory', () => {
  for (const unit of ['tapegate', 'tapegate-gateway']) {
    expect(read(`deploy/systemd/${unit}.service`)).toMatch(/^RuntimeDirectoryPreserve=yes$/m);
  }
});

test('the probe of the image asks the gateway by its own protocol and address', async () => {
  const [, probe = ''] =
    /HEALTHCHECK [^\n]*\n {2}CMD ([\s\S]*?)\nENTRYPOINT/.exec(read('deploy/container/Dockerfile')) ?? [];
  const server = http.createServer((req, res) => res.writeHead(req.url === '/health/ready' ? 200 : 404).end());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const PORT = String((server.address() as AddressInfo).port);
  const run = promisify(execFile);
  const ask = async (env: Record<string, string>) =>
    await run('/bin/sh', ['-c', probe.replaceAll('\\\n', '')], { env: { PATH: process.env.PATH, PORT, ...env } }).then(
      () => 'healthy',
      () => 'unhealthy',
    );
  const hosts = ['0.0.0.0', '::', '127.0.0.1'].map((HOST) => ({ HOST }));
  expect(await Promise.all([{}, ...hosts].map(ask))).toEqual(Array(4).fill('healthy'));
  expect(await ask({ TAPEGATE_TLS_CERT: 'cert.pem' })).toBe('unhealthy'); // no TLS here
  server.close();
});

test('the settings file of the release is read literally', () => {
  const text = readFileSync(path.join(packageRoot, 'deploy/systemd/tapegate.env'), 'utf8');
  const lines = text.split('\n').filter((line) => /^[A-Z]/.test(line));
  expect(Object.entries(readAs(text).settings).map((setting) => setting.join('='))).toEqual(lines);
});

test.each(['tapegate', 'tapegate-gateway', 'tapegate-engine'])(
  '%s.service may list the addresses of the host',
  (unit) => {
    expect(read(`deploy/systemd/${unit}.service`)).toMatch(/^RestrictAddressFamilies=.*\bAF_NETLINK\b/m);
  },
);
