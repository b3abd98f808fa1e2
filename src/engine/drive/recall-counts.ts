/** Counts a drive's recalls by outcome and error class. */

import { errorClasses } from '../../core/errors.js';
import { count } from '../../core/signals.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';

type Ended = RecallOutcome['kind'] | 'superseded';

/** The possible outcomes of a recall. An outcome's value is true if recalls with this outcome have an error class. */
const OUTCOMES: Record<Ended, boolean> = {
  restored: false,
  existing: false,
  returned: false,
  superseded: false,
  failed: true,
  retry: true,
  postponed: true,
};

const NO_CLASS = 'none';

/**
 * Creates a claimed drive's counters with the value 0, so that Prometheus also sees the first recalls as an increase.
 */
export function addRecallCounters(drive: string): void {
  count('tapegate_recalls_started_total', { drive }, 0);
  count('tapegate_recalled_bytes_total', { drive }, 0);
  count('tapegate_drive_busy_seconds_total', { drive }, 0);
  for (const [outcome, hasClass] of Object.entries(OUTCOMES)) {
    const classes = hasClass ? errorClasses.map((each) => each.toLowerCase()) : [NO_CLASS];
    for (const each of classes) count('tapegate_recalls_ended_total', { drive, outcome, class: each }, 0);
  }
}

/**
 * Counts a recall that has ended.
 * @param isSuperseded whether an import has changed the file since the recall began
 */
export function countEnded(drive: string, outcome: RecallOutcome, isSuperseded: boolean): void {
  const ended: Ended = isSuperseded ? 'superseded' : outcome.kind;
  const errorClass = 'errorClass' in outcome && !isSuperseded ? outcome.errorClass.toLowerCase() : NO_CLASS;
  count('tapegate_recalls_ended_total', { drive, outcome: ended, class: errorClass });
}
