/** The server of a fuzz as its parent sees it: a process that answers, tells of itself, and may end. */
import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/package-root.js';
import { MAIL_RATES } from '../torture/check-mail.js';
import type { ImportInput } from './input.js';
import type { PlantName } from './plants.js';
import type { Memory, Message, Question, Wish } from './server.js';

const serverFile = path.join(packageRoot, 'dist/test/fuzz/server.js');
const START_MS = 30_000;
/** Everybody is counted, and of some things there may be so few that some are refused. */
const LIMITS = {
  RATE_LOCAL: 'on',
  STREAMS: '120',
  CALLER_STREAMS: '48',
  REQUEST_FILES: '200',
  OPEN_REQUESTS: '100',
  STANDING_PATTERNS: '60',
  AWAITED_PATHS: '200',
};
/** Of what it said last on its standard error. */
const LAST_WORDS = 4000;

export interface ServerOptions {
  dataDir: string;
  databaseUrl: string | undefined;
  smtpUrl: string;
  plant: PlantName | undefined;
}

/** Asked of a server that ends meanwhile. */
export class Gone extends Error {}

export class ServerProcess {
  url = '';
  /** How it ended, once it has. */
  end: string | undefined;
  /** Lines of its log that tell of what nobody expected, and what Node warned of. */
  readonly complaints: string[] = [];
  private readonly child: ChildProcess;
  private readonly asked = new Map<number, { resolve(message: Message): void; reject(error: Error): void }>();
  private last = 0;
  private stderr = '';

  private constructor({ dataDir, databaseUrl, smtpUrl, plant }: ServerOptions) {
    this.child = spawn(process.execPath, ['--expose-gc', serverFile], {
      env: {
        PATH: process.env.PATH,
        PORT: '0',
        DATA_DIR: dataDir,
        SMTP_URL: smtpUrl,
        MAIL_RATE: String(MAIL_RATES.mailRate),
        USER_MAIL_RATE: String(MAIL_RATES.userMailRate),
        LOG_LEVEL: 'error',
        ...LIMITS,
        ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
        ...(plant === undefined ? {} : { FUZZ_PLANT: plant }),
      },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
    });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => this.hear(text));
    this.child.on('message', (message: Message) => this.take(message));
  }

  /** @throws Error when it does not come up */
  static async start(options: ServerOptions): Promise<ServerProcess> {
    const server = new ServerProcess(options);
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('the server does not come up')), START_MS);
      server.child.on('message', (message: Message) => {
        if (message.kind !== 'ready') return;
        clearTimeout(timer);
        server.url = message.url;
        resolve();
      });
      // when all that it said has come as well
      server.child.once('close', (code, signal) => {
        clearTimeout(timer);
        server.end = `it ended with ${signal ?? code}: ${server.stderr}`;
        for (const { reject: refuse } of server.asked.values()) refuse(new Gone('the server has ended'));
        reject(new Error(server.end));
      });
    });
    return server;
  }

  /** Waits for its end, for so long at most. */
  async hasEnded(withinMs: number): Promise<boolean> {
    for (const deadline = Date.now() + withinMs; this.end === undefined && Date.now() < deadline; ) await sleep(10);
    return this.end !== undefined;
  }

  /** @param snapshot where what is on the heap is written, if anywhere */
  async measure(snapshot?: string): Promise<Memory> {
    const message = await this.ask({ ask: 'memory', snapshot });
    return (message as Message & { kind: 'memory' }).memory;
  }

  /** @returns what went wrong, and should not have */
  async import({ bytes, chunkBytes }: ImportInput): Promise<string | null> {
    const message = await this.ask({ ask: 'import', bytes, chunkBytes });
    return (message as Message & { kind: 'import' }).error;
  }

  async stop(): Promise<void> {
    if (this.end !== undefined) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }

  private async ask(what: Wish): Promise<Message> {
    if (this.end !== undefined) throw new Gone('the server has ended');
    const id = ++this.last;
    try {
      return await new Promise<Message>((resolve, reject) => {
        this.asked.set(id, { resolve, reject });
        const question: Question = { ...what, id };
        this.child.send(question, (error) => error && reject(new Gone(error.message)));
      });
    } finally {
      this.asked.delete(id);
    }
  }

  private take(message: Message): void {
    if (message.kind === 'warning') this.complaints.push(message.text);
    else if (message.kind !== 'ready') this.asked.get(message.id)?.resolve(message);
  }

  private hear(text: string): void {
    this.stderr = (this.stderr + text).slice(-LAST_WORDS);
    for (const line of text.split('\n'))
      if (/internal error|unhandled/i.test(line)) this.complaints.push(line.slice(0, LAST_WORDS));
  }
}
