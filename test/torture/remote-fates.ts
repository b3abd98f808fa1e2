/** What goes wrong between engines and the systems behind staging libraries: how often it is to, and how often it did. */
import { pickWeighted, type Random } from './random.js';

export const calls = ['stage', 'poll', 'release'] as const;

export type RemoteCall = (typeof calls)[number];

/** Of a call: what comes late, or lacks its reply, has been done all the same. */
const callTroubles = [
  'requests lost',
  'requests late',
  'replies lost',
  'replies cut',
  'replies late',
  'busy',
  'errors',
] as const;

export type CallFate = 'goes well' | (typeof callTroubles)[number];

const readTroubles = ['broken off', 'wrong bytes', 'too short', 'too long', 'gone', 'errors'] as const;

export type ReadFate = 'goes well' | (typeof readTroubles)[number];

/** What tapes and disks there do by themselves. */
const tapeTroubles = [
  'demands forgotten',
  'copies gone early',
  'lifetimes over',
  'files lost for a while',
  'files not to be had for a while',
] as const;

export type Trouble =
  | `${RemoteCall}: ${(typeof callTroubles)[number]}`
  | `reads: ${(typeof readTroubles)[number]}`
  | (typeof tapeTroubles)[number];

/** Of a hundred. */
const READ_FATES: readonly (readonly [number, ReadFate])[] = [
  [80, 'goes well'],
  [7, 'broken off'],
  [3, 'wrong bytes'],
  [2, 'too short'],
  [2, 'too long'],
  [3, 'gone'],
  [3, 'errors'],
];

/** By weight. */
const CALL_FATES: readonly (readonly [number, CallFate])[] = [
  [50, 'goes well'],
  [3, 'requests lost'],
  [2, 'requests late'],
  [6, 'replies lost'],
  [2, 'replies cut'],
  [2, 'replies late'],
  [2, 'busy'],
  [3, 'errors'],
];

/** Chooses what goes wrong, until there is peace, and counts it. */
export class RemoteTroubles {
  /** Of each kind; what has not happened is there as well. */
  readonly counts = new Map<Trouble, number>([
    ...calls.flatMap((call) => callTroubles.map((what) => [`${call}: ${what}`, 0] as const)),
    ...readTroubles.map((what) => [`reads: ${what}`, 0] as const),
    ...tapeTroubles.map((what) => [what, 0] as const),
  ]);
  /** By the process's own clock; undefined while things go wrong. */
  calmSince: number | undefined;
  readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  get isCalm(): boolean {
    return this.calmSince !== undefined;
  }

  note(what: Trouble, times = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + times);
  }

  chooseForCall(call: RemoteCall): CallFate {
    const fate = this.isCalm ? 'goes well' : pickWeighted(this.random, CALL_FATES);
    if (fate !== 'goes well') this.note(`${call}: ${fate}`);
    return fate;
  }

  chooseForRead(): ReadFate {
    const fate = this.isCalm ? 'goes well' : pickWeighted(this.random, READ_FATES);
    if (fate !== 'goes well') this.note(`reads: ${fate}`);
    return fate;
  }
}
