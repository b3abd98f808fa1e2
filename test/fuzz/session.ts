/**
 * Sends inputs in parallel lanes, checks the responses, and records faults.
 * A run consists of segments. Each segment is a property of fast-check with its own seed.
 * An input can be repeated from its segment and its path in the segment, without other inputs.
 */
import fc from 'fast-check';
import { messageOf } from '../../src/core/errors.js';
import { checkAnswer, checkRaw, checkStream, type FaultKind, type Finding } from './check-answers.js';
import { type Answer, Client, Unanswered } from './client.js';
import { type HttpInput, type Input, inputs } from './inputs.js';
import { Known } from './known.js';
import { ServerEnded, type ServerProcess } from './server-process.js';

export interface Fault {
  kind: FaultKind | 'crash' | 'unanswered' | 'import' | 'warning' | 'memory' | 'busy' | 'invariant' | 'unsettled';
  text: string;
  /** Value of AT that repeats the input, if one input causes the fault. */
  at?: string | undefined;
  /** Smallest input that causes the fault. */
  input?: string | undefined;
}

/** Position of an input: its segment, and its index in the segment. */
interface Place {
  segment: number;
  index: number;
}

const SEGMENT = 200;
const MAX_SHRINKS = 100;
/**
 * Number of remembered inputs. The number exceeds the number of lanes, because an answered input may still end the
 * server.
 */
const RECENT = 40;
/** Time in which an ending server may still write its error after its connections have closed. */
const ENDING_MS = 15_000;

export class Session {
  readonly known: Known;
  readonly faults: Fault[] = [];
  readonly server: ServerProcess;
  /** Number of responses by status, and of other results. */
  readonly outcomes = new Map<string, number>();
  /** Number of successful operations in the audit, by operation. */
  readonly operations = new Map<string, number>();
  sent = 0;
  busy = 0;
  private readonly seed: number;
  private readonly client: Client;
  private nextSegment = 0;
  private turn: Promise<unknown> = Promise.resolve();
  private readonly active = new Map<Input, Place>();
  private readonly recent: [Input, Place][] = [];

  constructor(
    server: ServerProcess,
    {
      seed,
      lanes,
      tokens,
      mountpoints,
    }: { seed: number; lanes: number; tokens: { name: string; secret: string }[]; mountpoints: string[] },
  ) {
    this.server = server;
    this.seed = seed;
    this.known = new Known(tokens, mountpoints);
    this.client = new Client(server.url, this.known, lanes);
  }

  /** Whether the server has ended. */
  get isOver(): boolean {
    return this.server.end !== undefined;
  }

  close(): void {
    this.client.close();
  }

  closeStreams(): void {
    this.client.closeStreams();
  }

  /** Sends inputs until `until` inputs were sent in total, or `isEnough` returns true. */
  async run(options: { lanes: number; until: number; isEnough: () => boolean }): Promise<void> {
    const left = () => options.until - this.sent;
    const isOver = () => left() <= 0 || this.isOver || options.isEnough();
    const lane = async () => {
      while (!isOver()) await this.runSegment(this.nextSegment++, Math.ceil(left() / options.lanes), isOver);
    };
    await Promise.all(Array.from({ length: options.lanes }, lane));
  }

  /** Repeats one input and its smaller variants. @param at position of the input, as in a fault */
  async repeat(at: string): Promise<void> {
    const [segment = '', ...path] = at.split(':');
    await this.runSegment(Number(segment), 1, () => this.isOver, path.join(':'));
  }

  private async runSegment(segment: number, most: number, isOver: () => boolean, path?: string): Promise<void> {
    let failing: Fault | undefined;
    let [index, shrinks] = [-1, 0];
    const property = fc.asyncProperty(inputs, async (input) => {
      const isEnough = failing ? ++shrinks > MAX_SHRINKS || this.isOver : isOver();
      if (isEnough) throw new fc.PreconditionFailure(true);
      if (!failing) index++;
      const fault = await this.send(input, { segment, index });
      if (!fault || (failing && failing.kind !== fault.kind)) return;
      failing = fault;
      throw new Error(fault.text);
    });
    const seed = (this.seed + segment * 0x9e3779b1) | 0;
    const result = await fc.check(property, { seed, numRuns: Math.min(most, SEGMENT), ...(path && { path }) });
    if (!failing || !result.failed) return;
    const at = `${segment}:${result.counterexamplePath}`;
    this.faults.push({ ...(failing as Fault), at, input: show(result.counterexample?.[0]) });
  }

  private async send(input: Input, place: Place): Promise<Fault | undefined> {
    this.active.set(input, place);
    this.sent++;
    try {
      return await this.check(input, place);
    } catch (error) {
      const isLate = error instanceof Unanswered;
      // run.ts reports the end of the server
      if (error instanceof ServerEnded || (!isLate && (await this.server.hasEnded(ENDING_MS)))) return undefined;
      return { kind: isLate ? 'unanswered' : 'form', text: `no response: ${messageOf(error)}` };
    } finally {
      this.count(input.kind === 'http' ? input.api : input.kind);
      this.active.delete(input);
      this.recent.push([input, place]);
      if (this.recent.length > RECENT) this.recent.shift();
    }
  }

  /** Describes the inputs that may have ended the server, newest first. */
  suspects(): string {
    const last = [...this.recent, ...this.active].reverse();
    return last.map(([input, { segment, index }]) => `  AT=${segment}:${index} ${show(input, 1000)}`).join('\n');
  }

  private async check(input: Input, place: Place): Promise<Fault | undefined> {
    const findings: Finding[] = [];
    if (input.kind === 'raw') findings.push(checkRaw(await this.client.sendRaw(input)));
    if (input.kind === 'exchange') {
      for (const answer of await this.client.exchange(input)) findings.push(this.checkHttp(EXCHANGE, answer));
    }
    if (input.kind === 'http') {
      const answer = input.inTurn ? await this.sendInTurn(input) : await this.client.send(input);
      if (answer.later) this.count('stays');
      void answer.later?.then((text) => this.checkLater(text, place));
      findings.push(this.checkHttp(input, answer));
    }
    if (input.kind === 'import') {
      const error = await this.server.import(input);
      if (error !== null) return { kind: 'import', text: error };
    }
    if (findings.includes('busy')) this.busy++;
    return findings.find((finding) => typeof finding === 'object');
  }

  private async sendInTurn(input: HttpInput): Promise<Answer> {
    const sent = this.turn.then(() => this.client.send(input));
    this.turn = sent.catch(() => {});
    return await sent;
  }

  private checkLater(text: string, { segment, index }: Place): void {
    const found = checkStream(text);
    if (typeof found === 'object')
      this.faults.push({ ...found, at: `${segment}:${index}`, input: 'a stream that was left open' });
  }

  private checkHttp(input: HttpInput, answer: Answer): Finding {
    const { status, text } = answer;
    this.count(`${input.method} ${status}`);
    if (status === 200) {
      const made = input.method === 'POST' ? /"req_id":(\d+)/.exec(text)?.[1] : undefined;
      if (made !== undefined) {
        this.known.acknowledged.add(Number(made));
        this.known.name(Number(made));
      }
      this.known.learn(text);
    }
    return checkAnswer(input, answer);
  }

  private count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }
}

const EXCHANGE: HttpInput = { kind: 'http', api: 'any', method: 'POST', target: '/graphql/stream', headers: {} };

/** Describes an input as JSON, which is shortened to `most` characters. */
function show(input: unknown, most = 6000): string {
  const text = JSON.stringify(input, (_key, value: unknown) =>
    value instanceof Uint8Array ? { base64: Buffer.from(value).toString('base64') } : value,
  );
  return text.length <= most ? text : `${text.slice(0, most)}… (${text.length} characters)`;
}
