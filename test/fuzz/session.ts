/** One fuzz as it goes on: inputs go out, answers are judged, and what is wrong is noted with the way to see it again. */
import { messageOf } from '../../src/errors.js';
import { checkAnswer, checkRaw, checkStream, type FaultKind, type Finding } from './check-answers.js';
import { type Answer, Client, Unanswered } from './client.js';
import type { HttpInput, Input } from './input.js';
import { Known } from './known.js';
import { Gone, type ServerProcess } from './server-process.js';

export interface Fault {
  kind: FaultKind | 'crash' | 'unanswered' | 'import' | 'warning' | 'memory' | 'busy' | 'invariant' | 'unsettled';
  text: string;
  /** For AT, where one input brings it. */
  at?: string | undefined;
  /** The smallest input that does. */
  input?: string | undefined;
}

interface Sent {
  place: Place;
  input: Input;
}

/** Where an input stands: the segment of the run, and its number there. */
export interface Place {
  segment: number;
  index: number;
}

/** More than are on their way at a time: what ends a server may do so after its answer, and then all that wait for one are answered so. */
const RECENT = 40;
/** A connection that breaks is the first that is seen of a server that ends, which still writes why. */
const DYING_MS = 15_000;

export class Session {
  readonly known: Known;
  readonly faults: Fault[] = [];
  readonly server: ServerProcess;
  /** Answers by status, and what else inputs came to. */
  readonly outcomes = new Map<string, number>();
  /** Milliseconds that inputs of a kind took together. */
  readonly times = new Map<string, number>();
  /** Operations that were done, by the audit. */
  readonly deeds = new Map<string, number>();
  sent = 0;
  busy = 0;
  private readonly client: Client;
  private turn: Promise<unknown> = Promise.resolve();
  private readonly onTheirWay = new Set<Sent>();
  /** What was answered last, whenever it went out: some take as long as hundreds of others. */
  private readonly answered: Sent[] = [];

  constructor(
    server: ServerProcess,
    options: { connections: number; shown: readonly { name: string; secret: string }[]; mountpoints: string[] },
  ) {
    this.server = server;
    this.known = new Known(options);
    this.client = new Client(server.url, this.known, options);
  }

  /** Nobody is there to be asked any more. */
  get isOver(): boolean {
    return this.server.end !== undefined;
  }

  close(): void {
    this.client.close();
  }

  /** Goes away from all streams that were left open. */
  leave(): void {
    this.client.leave();
  }

  /** Sends one input. @returns what is wrong with what came of it */
  async send(input: Input, place: Place): Promise<Fault | undefined> {
    const sent = { place, input };
    this.onTheirWay.add(sent);
    this.sent++;
    const start = performance.now();
    try {
      return await this.judge(input, place);
    } catch (error) {
      const isLate = error instanceof Unanswered;
      if (error instanceof Gone || (!isLate && (await this.server.hasEnded(DYING_MS)))) return undefined; // told by whoever looks
      const kind = isLate ? 'unanswered' : 'form';
      return { kind, text: `no answer: ${messageOf(error)}` };
    } finally {
      const key = input.kind === 'http' ? input.door : input.kind;
      this.times.set(key, (this.times.get(key) ?? 0) + performance.now() - start);
      this.count(key);
      this.onTheirWay.delete(sent);
      this.answered.push(sent);
      if (this.answered.length > RECENT) this.answered.shift();
    }
  }

  /** What was on its way as the server ended, or was answered before, the last one first, and so may have ended it. */
  suspects(): string {
    const last = [...this.answered, ...this.onTheirWay].reverse();
    return last.map(({ place, input }) => `  AT=${place.segment}:${place.index} ${show(input, 1000)}`).join('\n');
  }

  private async judge(input: Input, place: Place): Promise<Fault | undefined> {
    if (input.kind === 'http') return this.note([await this.judgeHttp(input, place)]);
    if (input.kind === 'raw') return this.note([checkRaw(await this.client.sendRaw(input))]);
    if (input.kind === 'exchange') {
      const answers = await this.client.exchange(input);
      return this.note(answers.map((answer) => this.judgeOne(EXCHANGE, answer)));
    }
    const error = await this.server.import(input);
    return error === null ? this.note([undefined]) : { kind: 'import', text: error };
  }

  private async judgeHttp(input: HttpInput, place: Place): Promise<Finding> {
    const answer = input.inTurn ? await this.sendInTurn(input) : await this.client.send(input);
    if (answer.later) this.count('stays');
    void answer.later?.then((text) => this.judgeStream(text, place));
    return this.judgeOne(input, answer);
  }

  /** When those before have been answered, however. */
  private async sendInTurn(input: HttpInput): Promise<Answer> {
    const sent = this.turn.then(() => this.client.send(input));
    this.turn = sent.catch(() => {});
    return await sent;
  }

  private judgeStream(text: string, { segment, index }: Place): void {
    const found = checkStream(text);
    if (typeof found !== 'object') return;
    this.faults.push({ ...found, at: `${segment}:${index}`, input: 'a stream that was left open' });
  }

  private judgeOne(input: HttpInput, answer: Answer): Finding {
    const { status, text } = answer;
    this.count(`${input.method} ${status}`);
    if (status === 200) {
      const made = input.method === 'POST' ? /"req_id":(\d+)/.exec(text)?.[1] : undefined;
      if (made !== undefined) this.known.add(Number(made));
      this.known.learn(text);
    }
    return checkAnswer(input, answer);
  }

  private note(findings: Finding[]): Fault | undefined {
    if (findings.includes('busy')) this.busy++;
    for (const finding of findings) if (typeof finding === 'object') return finding;
    return undefined;
  }

  private count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }
}

const EXCHANGE: HttpInput = { kind: 'http', door: 'any', method: 'POST', target: '/graphql/stream', headers: {} };

/** An input for people, whole unless it is very long. */
export function show(input: unknown, most = 6000): string {
  const text = JSON.stringify(input, (_key, value: unknown) => {
    return value instanceof Uint8Array ? { base64: Buffer.from(value).toString('base64') } : value;
  });
  return text.length <= most ? text : `${text.slice(0, most)}… (${text.length} characters)`;
}
