/**
 * Parent side of a fuzz test's server process. Sends calls to the server, and collects warnings and unexpected ends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/core/package-root.js';
import { MAIL_RATES } from '../torture/check-messages.js';
import type { ImportInput } from './inputs.js';
import type { Memory } from './memory.js';
import type { Message, Question } from './server.js';

const serverFile = path.join(packageRoot, 'dist/test/fuzz/server.js');
const START_MS = 30_000;
/** Limits low enough to reject some requests. `server.ts` sets more limits. */
const LIMITS = {
  ...{ TAPEGATE_STREAMS: '240', TAPEGATE_REQUEST_FILES: '200', TAPEGATE_MAIL_RATE: String(MAIL_RATES.mailRate) },
};
const MAX_STDERR = 4000;

export interface ServerOptions {
  dataDir: string;
  databaseUrl: string | undefined;
  smtpUrl: string;
}

/** Error of a call to a server that ended before the reply. */
export class ServerEnded extends Error {}

export class ServerProcess {
  url = '';
  /** Description of the process' end, once it has ended. */
  end: string | undefined;
  /** Log lines of unexpected errors, and warnings of Node.js. */
  readonly complaints: string[] = [];
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, { resolve(message: Message): void; reject(error: Error): void }>();
  private last = 0;
  private stderr = '';

  private constructor({ dataDir, databaseUrl, smtpUrl }: ServerOptions) {
    const { PATH } = process.env;
    this.child = spawn(process.execPath, ['--expose-gc', serverFile], {
      env: {
        ...{ PATH, PORT: '0', DATA_DIR: dataDir, SMTP_URL: smtpUrl, LOG_LEVEL: 'error', ...LIMITS },
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
      },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
    });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-MAX_STDERR);
      const lines = text.split('\n').filter((line) => /internal error|unhandled/i.test(line));
      this.complaints.push(...lines.map((line) => line.slice(0, MAX_STDERR)));
    });
    this.child.on('message', (message: Message) => {
      if (message.kind === 'warning') this.complaints.push(message.text);
      else if (message.kind !== 'ready') this.waiting.get(message.id)?.resolve(message);
    });
  }

  /** @throws Error if the server does not start */
  static async start(options: ServerOptions): Promise<ServerProcess> {
    const server = new ServerProcess(options);
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('the server does not start')), START_MS);
      server.child.on('message', (message: Message) => {
        if (message.kind !== 'ready') return;
        clearTimeout(timer);
        server.url = message.url;
        resolve();
      });
      // 'close' is emitted after all output has been read
      server.child.once('close', (code, signal) => {
        clearTimeout(timer);
        server.end = `it ended with ${signal ?? code}: ${server.stderr}`;
        for (const { reject: end } of server.waiting.values()) end(new ServerEnded('the server has ended'));
        reject(new Error(server.end));
      });
    });
    return server;
  }

  async hasEnded(withinMs: number): Promise<boolean> {
    for (const deadline = Date.now() + withinMs; this.end === undefined && Date.now() < deadline; ) await sleep(10);
    return this.end !== undefined;
  }

  async measure(): Promise<Memory> {
    return ((await this.ask({ ask: 'memory' })) as Message & { kind: 'memory' }).memory;
  }

  /** @returns the message of an unexpected error, or null. A bad file is no unexpected error. */
  async import({ bytes, chunkBytes }: ImportInput): Promise<string | null> {
    return ((await this.ask({ ask: 'import', bytes, chunkBytes })) as Message & { kind: 'import' }).error;
  }

  async stop(): Promise<void> {
    if (this.end !== undefined) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }

  private async ask(question: Question): Promise<Message> {
    if (this.end !== undefined) throw new ServerEnded('the server has ended');
    const id = ++this.last;
    try {
      return await new Promise<Message>((resolve, reject) => {
        this.waiting.set(id, { resolve, reject });
        this.child.send({ ...question, id }, (error) => error && reject(new ServerEnded(error.message)));
      });
    } finally {
      this.waiting.delete(id);
    }
  }
}
