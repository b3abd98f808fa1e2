/**
 * What a user has set for all commands: `tapegate/config.json` in the user's own configuration (XDG_CONFIG_HOME, else `~/.config`), beside
 * the tokens that are kept. The environment goes before it, and options go before that.
 */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { type Environment, readConfigDir } from '../../core/environment.js';
import { codeOf, messageOf } from '../../core/errors.js';
import { UsageError } from '../terminal/failure.js';

export interface OwnSettings {
  /** URL of the gateway, where TAPEGATE_URL names none. */
  server?: string;
  /** The user whose quota is charged, where `--quota` names none. */
  quota?: string;
}

const known = ['server', 'quota'];

export function ownSettingsFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'config.json');
}

/** @throws UsageError that names the file, and what is wrong with it */
export function readOwnSettings(env: Environment): OwnSettings {
  const file = ownSettingsFile(env);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) return {};
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`);
  }
  const settings = parse(text, file);
  const faults = Object.entries(settings).flatMap(([name, value]) => {
    if (!known.includes(name)) return [`${file}: ${JSON.stringify(name)} is no setting; there are ${known.join(', ')}`];
    if (typeof value === 'string' && value !== '') return [];
    return [`${file}: ${name} must be a text, not ${JSON.stringify(value)}`];
  });
  if (faults.length > 0) throw new UsageError(faults.join('\n'));
  return settings;
}

function parse(text: string, file: string): OwnSettings {
  try {
    const settings: unknown = JSON.parse(text);
    if (typeof settings === 'object' && settings !== null && !Array.isArray(settings)) return settings;
  } catch (error) {
    throw new UsageError(`${file} is no JSON: ${messageOf(error)}`);
  }
  throw new UsageError(`${file} must be an object, such as {"server": "https://archive.example.org", "quota": "ada"}`);
}
