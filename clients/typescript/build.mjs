/** Builds the client package in dist/client, ready for `npm pack`. The package contains its dependencies. */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const top = path('../../');
const target = `${top}dist/client`;
const { version, license, engines } = JSON.parse(readFileSync(`${top}package.json`, 'utf8'));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
writeFileSync(`${target}/package.json`, JSON.stringify({ version, type: 'module' })); // replaced below when the package is complete

/** Modules that need the database or an engine. Commands of the client never load them, because `withContext` fails first. */
const AWAY =
  /\/graphql\/server\/here\.|\/src\/(main\/(commands\/|app\.|demo\.)|cli\/(backup|adopt|takeover|simulate|catalogue\/(archive|scan))\.|cli\/connection\/runtime\.|engine\/|restore-area\/|adoption\/|telemetry\/|db\/(backup|embedded)\/|domain\/(disks|doctor)\/|domain\/import\/import\.|domain\/catalogue\/withdrawals\.)/;

const withoutDatabase = {
  name: 'without-database',
  enforce: 'pre',
  async resolveId(source, importer, options) {
    const found = await this.resolve(source, importer, { ...options, skipSelf: true });
    if (found === null) return null;
    if (found.id.endsWith('/src/cli/connection/context.ts')) return path('no-database.ts');
    if (AWAY.test(found.id)) return '\0away';
    return found;
  },
  load: (id) => (id === '\0away' ? 'export default undefined;' : null),
};

await build({
  configFile: false,
  root: top,
  logLevel: 'warn',
  plugins: [withoutDatabase],
  ssr: { noExternal: true, target: 'node' },
  build: {
    ssr: true,
    outDir: `${target}/dist`,
    target: 'node20',
    minify: true,
    reportCompressedSize: false,
    rolldownOptions: {
      input: { cli: path('cli.ts'), client: path('client.ts') },
      output: { banner: ({ name }) => (name === 'cli' ? '#!/usr/bin/env node' : '') },
    },
  },
});
chmodSync(`${target}/dist/cli.js`, 0o755);

execFileSync(`${top}node_modules/.bin/tsc`, ['-p', path('tsconfig.build.json'), '--outDir', `${target}/types`], {
  stdio: 'inherit',
});

writeFileSync(
  `${target}/package.json`,
  `${JSON.stringify(
    {
      name: 'tapegate-client',
      version,
      description: 'Commands and a typed client for Tapegate, which restores files from tape to disk',
      license,
      type: 'module',
      engines,
      bin: { tapegate: 'dist/cli.js' },
      exports: { '.': { types: './types/clients/typescript/client.d.ts', default: './dist/client.js' } },
    },
    undefined,
    2,
  )}\n`,
);
cpSync(path('README.md'), `${target}/README.md`);
cpSync(`${top}LICENSE`, `${target}/LICENSE`);
