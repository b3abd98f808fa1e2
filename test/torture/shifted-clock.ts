/** Loaded before the program: its wall clock is off by CLOCK_OFFSET_SECONDS, as that of a host without a time server. */
import { environment } from '../../src/config.js';

const offsetMs = Number(environment.CLOCK_OFFSET_SECONDS ?? 0) * 1000;
const TrueDate = Date;

class ShiftedDate extends TrueDate {
  constructor(...values: [] | [number | string | Date]) {
    if (values.length === 0) super(TrueDate.now() + offsetMs);
    else super(...(values as [number]));
  }

  static override now(): number {
    return TrueDate.now() + offsetMs;
  }
}

if (offsetMs !== 0) {
  globalThis.Date = ShiftedDate as DateConstructor;
  Object.defineProperty(performance, 'timeOrigin', { value: performance.timeOrigin + offsetMs });
}
