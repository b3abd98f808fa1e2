/** Shifts the clock of a program by CLOCK_SECONDS (`node --import`). Elapsed times are not shifted. */
const ms = Number(process.env.CLOCK_SECONDS) * 1000;
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...values) {
    super(...(values.length === 0 ? [RealDate.now() + ms] : values));
  }
  static now() {
    return RealDate.now() + ms;
  }
};
Object.defineProperty(performance, 'timeOrigin', { value: performance.timeOrigin + ms });
