/**
 * The section on another Tapegate in the document of the library type `wlcg`. The test runs all steps of both operators
 * as printed.
 */
import { randomBytes } from 'node:crypto';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { expectSession, readSteps } from '../support/console-session.js';
import { readFences } from '../support/examples.js';
import { libraryDir, secretFile } from '../support/library-dir.js';
import { findProgram } from '../support/run-example.js';
import { makeTempDir } from '../support/temp-dir.js';
import { closeSites, FarSite, NearSite } from '../support/two-tapegates.js';

let far: FarSite | undefined;
let near: NearSite | undefined;

afterAll(() => closeSites(far, near));

const document = readFileSync(path.join(packageRoot, 'docs/operators/libraries/wlcg.md'), 'utf8');
const section = document.split('## Another Tapegate\n')[1]?.split(/^##/m)[0] ?? '';

const programs = ['bash', 'curl', 'jq'];

test.skipIf(programs.some((name) => !findProgram(name)))(
  'another Tapegate is set up as a library and read as the document shows',
  async () => {
    far = await FarSite.create();
    const contents = [1, 2, 3].map((n) => [`/raw/2024/${n}.dat`, randomBytes(1_500_000)] as const);
    await far.archive(new Map(contents));
    await far.startGateway();
    await far.startEngine();
    near = await NearSite.start();
    await near.site.run(['quota', 'set', 'alice', '--size', '1T']);
    const home = makeTempDir();
    copyFileSync(far.caFile, secretFile('tapes.pem'));
    writeFileSync(secretFile('tapes.token.hosts'), '127.0.0.1\n');
    const { host } = new URL(far.url);
    const asHere = (text: string) =>
      text
        .replaceAll('tapes.example.org:8443', host)
        .replaceAll('tapes.example.org', '127.0.0.1')
        .replaceAll('/etc/tapegate/libraries', libraryDir)
        .replaceAll('/home/ada/tapegate/data', near?.site.dataDir ?? '');
    const sessions = [...readFences(section)].filter(({ language }) => language === 'console');
    const [there = [], here = [], ...others] = sessions.map(({ text }) => readSteps(asHere(text)));
    expect([there.length, here.length, others]).toEqual([2, 5, []]);
    await expectSession(there, { env: far.site.env, cwd: home });
    copyFileSync(path.join(home, 'example.net.token'), secretFile('tapes.token'));
    await expectSession(here, { env: near.site.env, cwd: home });
    for (const [file, bytes] of contents) {
      const restored = readFileSync(path.join(near.site.restoreDir, 'tapes', file));
      expect(restored.equals(bytes)).toBe(true);
    }
    await far.site.waitForNothing();
  },
);
