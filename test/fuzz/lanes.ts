/**
 * Lanes send at the same time. The run is cut into segments, each a property of fast-check with a seed of its own, so that
 * an input is found again by its segment and its path there, whatever the others did meanwhile.
 */
import fc from 'fast-check';
import { inputs } from './inputs.js';
import { type Fault, type Session, show } from './session.js';

const SEGMENT = 200;
/** Tries to find a smaller input that fails in the same way. */
const SHRINKS = 100;

export class Lanes {
  /** The next one; lanes take them in turn. */
  private next = 0;
  private readonly session: Session;
  private readonly seed: number;

  constructor(session: Session, seed: number) {
    this.session = session;
    this.seed = seed;
  }

  /** Sends until so many inputs have gone out in all, or there is enough, and nothing is in hand any more. */
  async run(options: { lanes: number; until: number; isEnough: () => boolean }): Promise<void> {
    const left = () => options.until - this.session.sent;
    const isOver = () => left() <= 0 || this.session.isOver || options.isEnough();
    const lane = async () => {
      while (!isOver()) await this.runSegment(this.next++, Math.ceil(left() / options.lanes), isOver);
    };
    await Promise.all(Array.from({ length: options.lanes }, lane));
  }

  /** Sends one input, and those that are smaller, again. @param at as a fault tells it */
  async repeat(at: string): Promise<void> {
    const [segment = '', ...path] = at.split(':');
    await this.runSegment(Number(segment), 1, () => this.session.isOver, path.join(':'));
  }

  private async runSegment(segment: number, most: number, isOver: () => boolean, path?: string): Promise<void> {
    let failing: Fault | undefined;
    let [index, shrinks] = [-1, 0];
    const property = fc.asyncProperty(inputs, async (input) => {
      if (failing ? ++shrinks > SHRINKS || this.session.isOver : isOver()) throw new fc.PreconditionFailure(true); // no more
      if (!failing) index++;
      const fault = await this.session.send(input, { segment, index });
      if (!fault || (failing && failing.kind !== fault.kind)) return;
      failing = fault;
      throw new Error(fault.text);
    });
    const seed = (this.seed + segment * 0x9e3779b1) | 0;
    const result = await fc.check(property, { seed, numRuns: Math.min(most, SEGMENT), ...(path && { path }) });
    if (!failing || !result.failed) return;
    const at = `${segment}:${result.counterexamplePath}`;
    this.session.faults.push({ ...(failing as Fault), at, input: show(result.counterexample?.[0]) });
  }
}
