/** Configures the build of the dashboard, whose files a gateway serves. */
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = fileURLToPath(new URL('.', import.meta.url));

export default defineConfig({
  root: here,
  base: './', // use relative URLs, so that the dashboard works below any path
  cacheDir: fileURLToPath(new URL('../../node_modules/.vite/web', import.meta.url)),
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: fileURLToPath(new URL('../../dist/web', import.meta.url)),
    emptyOutDir: true,
    target: 'es2022',
    // do not inline assets or polyfills, because the content security policy forbids data: URLs and inline scripts
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    license: { fileName: 'licenses.md' },
    rolldownOptions: {
      // ignore the directive "use client" of components, which is for frameworks that render on a server
      onLog: (level, log, report) => log.code !== 'MODULE_LEVEL_DIRECTIVE' && report(level, log),
    },
  },
  logLevel: 'warn',
});
