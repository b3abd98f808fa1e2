/** Reads what the site restored in the last hour. */
import { HistoryDocument } from '../../../generated/operations.js';
import { useNow } from '../../now';
import { useLiveQuery } from './live';

const HOUR_MS = 3_600_000;
const SLOT_MS = 300_000;
const SLOTS = HOUR_MS / SLOT_MS;

export interface LastHour {
  bytes: number;
  files: number;
  filesFailed: number;
  /** Length of the time in which these files were restored, in seconds. */
  seconds: number;
  /** Longest time, in seconds, that a file had waited when this was last measured; null if unknown. */
  oldestSeconds: number | null;
  /** Bytes restored in each period of five minutes, the oldest first. */
  slots: number[];
}

/** Returns the last hour's figures, which are updated every five minutes; undefined while they load. */
export function useLastHour(): LastHour | undefined {
  const now = useNow();
  const end = (Math.floor(now / SLOT_MS) + 1) * SLOT_MS;
  // the same query for an hour, because another query would show no figures until its response arrives
  const since = new Date((Math.floor(now / HOUR_MS) - 1) * HOUR_MS).toISOString();
  const { data } = useLiveQuery(HistoryDocument, { since }, 'HISTORY');
  if (!data?.history) return undefined;
  const slotOf = (at: string) => SLOTS - Math.round((end - Date.parse(at)) / SLOT_MS);
  const points = data.history
    .map((point) => ({ ...point, slot: slotOf(point.at), bytes: Number(point.bytesRestored) }))
    .filter(({ slot }) => slot >= 0 && slot < SLOTS);
  return {
    bytes: points.reduce((sum, { bytes }) => sum + bytes, 0),
    files: points.reduce((sum, { filesRestored }) => sum + filesRestored, 0),
    filesFailed: points.reduce((sum, { filesFailed }) => sum + filesFailed, 0),
    seconds: HOUR_MS / 1000,
    oldestSeconds: points.findLast(({ oldestSeconds }) => oldestSeconds !== null)?.oldestSeconds ?? null,
    slots: Array.from({ length: SLOTS }, (_, slot) => points.find((point) => point.slot === slot)?.bytes ?? 0),
  };
}
