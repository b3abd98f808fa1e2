/**
 * Library types that `staged-bytes.ts` measures. For each type: a stand-in in another process, the settings of a
 * library, and curl's URLs and options.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export interface StandIn {
  process: ChildProcess;
  /** Settings of a library of this type. */
  settings: object;
  /** Returns the URL of the file with this logical path. */
  urlOf(file: string): string;
  /** Options of curl besides URLs. */
  curlOptions: string[];
}

/**
 * @param dir for the stand-in's own files
 * @param source directory whose files the stand-in loads when it starts
 */
type Start = (dir: string, source: string) => Promise<StandIn>;

const libraries = mkdtempSync(path.join(tmpdir(), 'tapegate-bench-libraries-'));
for (const part of ['programs', 'secrets']) mkdirSync(path.join(libraries, part));
process.env.TAPEGATE_LIBRARY_DIR = libraries; // engine processes inherit the variable

/** Offers a program or a secret to libraries. @returns its name */
function offer(kind: 'programs' | 'secrets', name: string, file: string): string {
  rmSync(path.join(libraries, kind, name), { force: true });
  symlinkSync(file, path.join(libraries, kind, name));
  return name;
}

export const stagedKinds: Record<string, Start> = {
  wlcg: async (dir, source) => {
    const caFile = path.join(dir, 'ca.pem');
    const { process, settings } = await start('wlcg-stand-in.js', source, { STAGED: 'on', TLS: caFile });
    const names = { ...settings, caFile: offer('secrets', 'ca.pem', caFile) };
    return { process, settings: names, urlOf: (file) => `${settings.url}${file}`, curlOptions: ['--cacert', caFile] };
  },

  s3: async (dir, source) => {
    const { process: standIn, settings } = await start('s3-stand-in.js', source, { PUBLIC: 'on' });
    const keys = path.join(dir, 'keys');
    writeFileSync(keys, '[default]\naws_access_key_id=AKIATESTS\naws_secret_access_key=a secret of tests\n', {
      mode: 0o600,
    });
    writeFileSync(path.join(libraries, 'secrets/keys.hosts'), '127.0.0.1\n');
    const credentials = { credentialsFile: offer('secrets', 'keys', keys) };
    const urlOf = (file: string) => `${settings.endpoint}/${settings.bucket}${file}`;
    return { process: standIn, settings: { ...settings, ...credentials, pollSeconds: 1 }, urlOf, curlOptions: [] };
  },

  /** A site's scripts on top of the WLCG stand-in. The fetch script runs curl. */
  'command-staging': async (dir, source) => {
    const { process, settings, urlOf, curlOptions } = await (stagedKinds.wlcg as Start)(dir, source);
    const fetch = path.join(dir, 'fetch.sh');
    const { url } = settings as { url: string };
    const options = ['--silent', '--show-error', '--fail', ...curlOptions].join(' ');
    writeFileSync(fetch, `exec curl ${options} --range "$3-" "${url}$2"\n`);
    const isReady = ['/bin/sed', '-u', 's/}$/,"state":"ready"}/'];
    const scripts = {
      stage: [offer('programs', 'sh', '/bin/sh'), '-c', isReady.map((word) => `'${word}'`).join(' ')],
      fetch: ['sh', fetch],
    };
    return {
      process,
      settings: { ...scripts, poll: scripts.stage, release: [offer('programs', 'true', '/bin/true')] },
      urlOf,
      curlOptions,
    };
  },
};

async function start(script: string, source: string, changes: Record<string, string>) {
  const file = fileURLToPath(new URL(script, import.meta.url));
  const env = { ...process.env, ...changes };
  const child = spawn(process.execPath, [file, source], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return { process: child, settings: JSON.parse(line) as Record<string, string> };
}
