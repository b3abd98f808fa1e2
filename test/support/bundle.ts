/** Bundles programs of `support/programs`, for tests that need a separate process. */
import path from 'node:path';
import { build } from 'vite';
import { packageRoot } from '../../src/core/package-root.js';

/** Bundles the program with all its imports. @returns the path of the bundle */
export async function bundle(name: 'crash' | 'start-embedded' | 'visit-cartridge'): Promise<string> {
  const outDir = path.join(packageRoot, 'dist/test-programs'); // from here, Node finds packages that are not bundled
  await build({
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    ssr: { target: 'node', noExternal: true },
    build: {
      ssr: path.join(packageRoot, `test/support/programs/${name}.ts`),
      outDir,
      emptyOutDir: false,
      target: 'node20',
      sourcemap: 'inline',
      rolldownOptions: { output: { format: 'cjs', entryFileNames: '[name].cjs' } },
    },
  });
  return path.join(outDir, `${name}.cjs`);
}
