/**
 * Bundles the program, as users run it, into dist/program: an entry file for each process, and a chunk for each part that
 * is loaded when it is needed. `npm run build` also compiles the sources file by file, for benchmarks, the torture and the fuzz.
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
      input: { tapegate: at('src/tapegate.ts'), 'engine-process': at('src/engine-process.ts') },
      // large files that are read only when they are needed
      external: ['@graphql-yoga/render-graphiql', /\.wasm-base64\.mjs$/],
      output: { chunkFileNames: 'chunks/[name]-[hash].js', sourcemapExcludeSources: true },
    },
  },
  logLevel: 'warn',
});
