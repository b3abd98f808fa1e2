/** A drive library of a site's own scripts: one mounts, one gives the bytes of a file, one unmounts. */
import { quote } from '../../errors.js';
import type { TapeBackend } from '../backend.js';
import { type Caller, endSeconds, runScript, streamScript } from './calls.js';

export interface DriveSettings {
  /** Program and arguments of each; null where nothing is to be done. */
  mount: readonly string[] | null;
  read: readonly string[];
  unmount: readonly string[] | null;
  mountSeconds: number;
  unmountSeconds: number;
  silenceSeconds: number;
}

export function createCommandBackend(settings: DriveSettings, caller: Caller): TapeBackend {
  const { mount, read, unmount } = settings;
  const ended = (seconds: number) => seconds + endSeconds(caller);
  return {
    ownSeconds: {
      mount: ended(settings.mountSeconds),
      read: ended(settings.silenceSeconds),
      unmount: ended(settings.unmountSeconds),
    },

    async mount(volume, drive, signal) {
      const what = `mount of ${quote(volume)}`;
      signal.throwIfAborted();
      if (mount) {
        const command = [...mount, '--', volume, drive];
        await runScript(caller, { what, command, concern: 'volume' }, settings.mountSeconds, signal);
      }
      return {
        read({ path, position, size }, readSignal) {
          const call = {
            what: `read of ${quote(path)} at ${quote(volume)}, ${position === null ? 'without a position' : `position ${position}`}`,
            command: [...read, '--', path, volume, String(position ?? ''), String(size), drive],
            concern: 'file' as const,
          };
          return streamScript(caller, call, settings.silenceSeconds, readSignal);
        },

        async unmount() {
          if (!unmount) return;
          const call = {
            what: `unmount of ${quote(volume)}`,
            command: [...unmount, '--', volume, drive],
            concern: 'volume' as const,
          };
          await runScript(caller, call, settings.unmountSeconds, new AbortController().signal);
        },
      };
    },
  };
}
