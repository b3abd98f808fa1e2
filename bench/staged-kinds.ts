/** The staging libraries of staged-bytes.ts: a stand-in for each, in another process, the settings of a library of it, and how curl reads from it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export interface StandIn {
  process: ChildProcess;
  /** Of a library of the kind. */
  settings: object;
  /** Of the file with this logical path. */
  urlOf(file: string): string;
  /** What curl needs to be given beside URLs. */
  curlOptions: string[];
}

/** @param dir for files of the stand-in's own @param source the folder whose files it has; they may go once it has begun */
type Start = (dir: string, source: string) => Promise<StandIn>;

export const stagedKinds: Record<string, Start> = {
  wlcg: async (dir, source) => {
    const caFile = path.join(dir, 'ca.pem');
    const { process, settings } = await start('wlcg-stand-in.js', source, { STAGED: 'on', TLS: caFile });
    return { process, settings, urlOf: (file) => `${settings.url}${file}`, curlOptions: ['--cacert', caFile] };
  },

  s3: async (_dir, source) => {
    const { process: standIn, settings } = await start('s3-stand-in.js', source, { PUBLIC: 'on' });
    Object.assign(process.env, { BENCH_S3_ID: 'AKIATESTS', BENCH_S3_SECRET: 'a secret of tests' }); // for the engine's processes
    const credentials = { accessKeyIdEnv: 'BENCH_S3_ID', secretAccessKeyEnv: 'BENCH_S3_SECRET' };
    const urlOf = (file: string) => `${settings.endpoint}/${settings.bucket}${file}`;
    return { process: standIn, settings: { ...settings, ...credentials, pollSeconds: 1 }, urlOf, curlOptions: [] };
  },

  /** A site's scripts, of which the one that gives the bytes is curl itself, at the stand-in for a storage element. */
  'command-staging': async (dir, source) => {
    const { process, settings, urlOf, curlOptions } = await (stagedKinds.wlcg as Start)(dir, source);
    const fetch = path.join(dir, 'fetch.sh');
    const { url } = settings as { url: string };
    const options = ['--silent', '--show-error', '--fail', ...curlOptions].join(' ');
    writeFileSync(fetch, `exec curl ${options} --range "$3-" "${url}$2"\n`);
    const isReady = ['/bin/sed', '-u', 's/}$/,"state":"ready"}/'];
    const scripts = {
      stage: ['/bin/sh', '-c', isReady.map((word) => `'${word}'`).join(' ')],
      fetch: ['/bin/sh', fetch],
    };
    return { process, settings: { ...scripts, poll: scripts.stage, release: ['/bin/true'] }, urlOf, curlOptions };
  },
};

async function start(script: string, source: string, changes: Record<string, string>) {
  const file = fileURLToPath(new URL(script, import.meta.url));
  const env = { ...process.env, ...changes };
  const child = spawn(process.execPath, [file, source], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return { process: child, settings: JSON.parse(line) as Record<string, string> };
}
