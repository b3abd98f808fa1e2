/** The kinds `command` and `command-staging`: libraries of a site's own scripts. README.md tells how these are written. */
import { type DriveKind, readSettings, type SettingsReader, type StagingKind } from '../kind.js';
import { readWait, type Wait, waitNames } from '../wait.js';
import { createCommandBackend, type DriveSettings } from './drive.js';
import { type CommonSettings, commonNames, createCaller, readCommand, readCommon } from './settings.js';
import { createCommandStaging, type StagingSettings } from './staging.js';

const DAY_SECONDS = 86_400;
const MOST_FILES = 10_000;

const seconds = (reader: SettingsReader, name: string, fallback: number) =>
  reader.integer(name, { least: 1, most: DAY_SECONDS, fallback });

const files = (reader: SettingsReader, name: string) =>
  reader.integer(name, { least: 1, most: MOST_FILES, fallback: 1000 });

const script = (reader: SettingsReader, name: string) => readCommand(name, reader.list(name));

function scriptOrNull(reader: SettingsReader, name: string): string[] | null {
  const given = reader.list(name, null);
  return given && readCommand(name, given);
}

export const command: DriveKind<DriveSettings & CommonSettings> = {
  contract: 'drive',
  findsBy: 'path',

  parse(settings) {
    const names = ['mount', 'read', 'unmount', 'mountSeconds', 'unmountSeconds', 'silenceSeconds'];
    const reader = readSettings(settings, [...names, ...commonNames]);
    return {
      mount: scriptOrNull(reader, 'mount'),
      read: script(reader, 'read'),
      unmount: scriptOrNull(reader, 'unmount'),
      mountSeconds: seconds(reader, 'mountSeconds', 900),
      unmountSeconds: seconds(reader, 'unmountSeconds', 900),
      silenceSeconds: seconds(reader, 'silenceSeconds', 600),
      ...readCommon(reader),
    };
  },

  create: (settings, site) => createCommandBackend(settings, createCaller(settings, site)),
};

export const commandStaging: StagingKind<StagingSettings & CommonSettings & { waitSeconds: Wait | undefined }> = {
  contract: 'staging',

  parse(settings) {
    const scripts = ['stage', 'poll', 'fetch', 'release', 'offsets'];
    const batches = ['stageBatch', 'pollBatch', 'releaseBatch'];
    const times = ['pollLeastSeconds', 'pollMostSeconds', 'callSeconds', 'silenceSeconds'];
    const reader = readSettings(settings, [...scripts, ...batches, ...times, ...waitNames, ...commonNames]);
    const least = seconds(reader, 'pollLeastSeconds', 30);
    return {
      stage: script(reader, 'stage'),
      poll: script(reader, 'poll'),
      fetch: script(reader, 'fetch'),
      release: scriptOrNull(reader, 'release'),
      offsets: reader.flag('offsets', true),
      stageBatch: files(reader, 'stageBatch'),
      pollBatch: files(reader, 'pollBatch'),
      releaseBatch: files(reader, 'releaseBatch'),
      pollSeconds: { least, most: Math.max(least, seconds(reader, 'pollMostSeconds', 600)) },
      callSeconds: seconds(reader, 'callSeconds', 300),
      silenceSeconds: seconds(reader, 'silenceSeconds', 600),
      waitSeconds: readWait(reader),
      ...readCommon(reader),
    };
  },

  create: (settings, site) => createCommandStaging(settings, createCaller(settings, site)),
  terms: ({ waitSeconds }) => (waitSeconds ? { waitSeconds } : {}),
};
