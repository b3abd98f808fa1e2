/**
 * Reads a user's settings from `tapegate/config.json` in XDG_CONFIG_HOME (default `~/.config`). Environment variables
 * take precedence over the settings in the file.
 */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { type Environment, readConfigDir } from '../../core/environment.js';
import { codeOf, messageOf } from '../../core/errors.js';
import { UsageError } from '../terminal/failure.js';

export interface OwnSettings {
  server?: string;
  quota?: string;
}

const known = ['server', 'quota'];

export function ownSettingsFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'config.json');
}

/** @throws UsageError that names the settings file and lists all faults in the file */
export function readOwnSettings(env: Environment): OwnSettings {
  const file = ownSettingsFile(env);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) return {};
    throw new UsageError(`cannot read ${file}: ${messageOf(error)}`);
  }
  const settings = parse(text, file);
  const faults = Object.entries(settings).flatMap(([name, value]) => {
    if (!known.includes(name))
      return [`${file}: unknown setting ${JSON.stringify(name)}; known settings: ${known.join(', ')}`];
    if (typeof value === 'string' && value !== '') return [];
    return [`${file}: ${name} must be a string, not ${JSON.stringify(value)}`];
  });
  if (faults.length > 0) throw new UsageError(faults.join('\n'));
  return settings;
}

function parse(text: string, file: string): OwnSettings {
  try {
    const settings: unknown = JSON.parse(text);
    if (typeof settings === 'object' && settings !== null && !Array.isArray(settings)) return settings;
  } catch (error) {
    throw new UsageError(`${file} is not JSON: ${messageOf(error)}`);
  }
  throw new UsageError(
    `${file} must contain a JSON object, such as {"server": "https://archive.example.org", "quota": "ada"}`,
  );
}
