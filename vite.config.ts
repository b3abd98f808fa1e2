/**
 * Bundles the program for users into dist/program: an entry file for each process, and a chunk for each part that is loaded on demand.
 * `npm run compile` compiles the sources file by file, for benchmarks, the torture test and the fuzz test.
 */
import { chmodSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const at = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export default defineConfig({
  publicDir: false,
  plugins: [
    {
      name: 'executable',
      // npx makes the program executable only when it installs the package, not after a build
      writeBundle: () => chmodSync(at('dist/program/tapegate.cjs'), 0o755),
    },
  ],
  ssr: { target: 'node', noExternal: true },
  build: {
    ssr: true,
    outDir: at('dist/program'),
    target: 'node20',
    sourcemap: true,
    reportCompressedSize: false,
    license: { fileName: 'licenses.md' }, // a release contains only this copy of the packages' licences
    rolldownOptions: {
      // the value in Node.js 21 and newer; without it, pg loads fetch (20 ms) to detect Cloudflare
      transform: { define: { 'navigator.userAgent': '"Node.js"', navigator: '{ userAgent: "Node.js" }' } },
      input: { tapegate: at('src/main/tapegate.ts'), 'engine-process': at('src/main/engine-process.ts') },
      output: {
        format: 'cjs', // a command starts a tenth faster than with ES modules
        entryFileNames: '[name].cjs',
        chunkFileNames: 'chunks/[name]-[hash].cjs',
        minify: { compress: false, mangle: false }, // remove only comments and whitespace: stack traces keep function names
        sourcemapExcludeSources: true,
        // one chunk for each of these files with its imports, because many small chunks load slower
        codeSplitting: {
          groups: [
            { name: 'base', test: /\/src\/core\/(environment|errors|text\/json)\.ts$/ },
            { name: 'program', test: /\/src\/main\/program\.ts$/ },
            { name: 'client', test: /\/src\/cli\/connection\/gateway-client\.ts$/ },
            { name: 'config', test: /\/src\/config\/config\.ts$/ },
          ],
        },
      },
    },
  },
  logLevel: 'warn',
});
