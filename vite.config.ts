/**
 * Bundles the program, as users run it, into dist/program: an entry file for each process, and a chunk for each part that
 * is loaded when it is needed. `npm run compile` compiles the sources file by file, for benchmarks, the torture and the fuzz.
 */
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const at = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export default defineConfig({
  publicDir: false,
  ssr: { target: 'node', noExternal: true },
  build: {
    ssr: true,
    outDir: at('dist/program'),
    target: 'node20',
    sourcemap: true,
    reportCompressedSize: false,
    rolldownOptions: {
      // what Node.js 21 and newer say; without it pg loads fetch (20 ms) to find out whether it runs at Cloudflare
      transform: { define: { 'navigator.userAgent': '"Node.js"', navigator: '{ userAgent: "Node.js" }' } },
      input: { tapegate: at('src/main/tapegate.ts'), 'engine-process': at('src/main/engine-process.ts') },
      // large files that are read only when they are needed
      external: ['@graphql-yoga/render-graphiql', /\.wasm-base64\.mjs$/],
      output: {
        format: 'cjs', // a command starts a tenth faster than with ES modules
        entryFileNames: '[name].cjs',
        chunkFileNames: 'chunks/[name]-[hash].cjs',
        minify: { compress: false, mangle: false }, // comments and blanks only: stacks keep the names of functions
        sourcemapExcludeSources: true,
        // each of these files with all that it imports is one chunk, because many small ones take longer to load
        codeSplitting: {
          groups: [
            { name: 'base', test: /\/src\/core\/(environment|errors|json)\.ts$/ },
            { name: 'program', test: /\/src\/main\/program\.ts$/ },
            { name: 'client', test: /\/src\/cli\/connection\/client\.ts$/ },
            { name: 'config', test: /\/src\/config\/config\.ts$/ },
          ],
        },
      },
    },
  },
  logLevel: 'warn',
});
