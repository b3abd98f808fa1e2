/** What the settings of both kinds of command libraries have in common. */
import os from 'node:os';
import { SettingsError } from '../../errors.js';
import type { SettingsReader, Site } from '../kind.js';
import type { Caller } from './calls.js';

export const commonNames = ['environment', 'killSeconds'];

export interface CommonSettings {
  /** Of the scripts, beside what each has. */
  environment: Readonly<Record<string, string>>;
  killSeconds: number;
}

export function readCommon(reader: SettingsReader): CommonSettings {
  return {
    environment: readEnvironment(reader.list('environment', [])),
    killSeconds: reader.integer('killSeconds', { least: 1, most: 300, fallback: 10 }),
  };
}

/** Program and arguments. @throws SettingsError when it is given and its program is no absolute path and no plain name */
export function readCommand(name: string, command: string[]): string[] {
  const [program = ''] = command;
  // hosts are started in different folders; a plain name is looked for in the PATH that scripts have
  if (program.startsWith('/') || (program !== '' && !program.includes('/'))) return command;
  throw new SettingsError(
    name,
    `must begin with the absolute path of a program, or its plain name, not ${JSON.stringify(program)}`,
  );
}

/** What is in the settings is in the database. */
const SECRET = /(SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS|KEY)$/i;

function readEnvironment(lines: readonly string[]): Record<string, string> {
  const pairs = lines.map((line) => {
    const [, variable, value] = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s.exec(line) ?? [];
    if (variable === undefined || value === undefined) {
      // a value may be a secret
      throw new SettingsError(
        'environment',
        `must be a list of NAME=value, and has a line that is not so, of ${line.length} characters`,
      );
    }
    if (SECRET.test(variable)) {
      const problem = `must not have the secret ${variable}, which would stand in the database: a script reads it from a file`;
      throw new SettingsError('environment', problem);
    }
    return [variable, value] as const;
  });
  return Object.fromEntries(pairs);
}

/** What every script has; nothing else of the environment of Tapegate gets there. */
export function createCaller({ environment, killSeconds }: CommonSettings, { name }: Site): Caller {
  return {
    environment: {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      HOME: os.homedir(),
      LANG: 'C.UTF-8',
      TZ: 'UTC',
      TAPEGATE_LIBRARY: name,
      ...environment,
    },
    killMs: killSeconds * 1000,
  };
}
