/** Where files begin on their cartridge: asked of LTFS by a command for each, several at a time. */
import { oneLine, TapeError } from '../../errors.js';
import { CommandFailure, runCommand } from './commands.js';
import { fill, type LtfsSettings } from './settings.js';

/** LTFS answers from memory: what takes time is to start the commands. */
const AT_ONCE = 8;

interface Placed<File> {
  /** In the file system. */
  place: string;
  file: File;
}

export class StartBlocks {
  private readonly settings: LtfsSettings;
  private readonly signal: AbortSignal;

  constructor(settings: LtfsSettings, signal: AbortSignal) {
    this.settings = settings;
    this.signal = signal;
  }

  /** In the same order. @throws TapeError */
  async *add<File extends { size: bigint }>(
    files: AsyncIterable<Placed<File>>,
  ): AsyncGenerator<File & { position: bigint }> {
    const asked: Promise<File & { position: bigint }>[] = [];
    try {
      for await (const { place, file } of files) {
        const answer = this.read(place, file.size).then((position) => ({ ...file, position }));
        answer.catch(() => {}); // told when its turn comes
        asked.push(answer);
        const first = asked.length >= AT_ONCE ? asked.shift() : undefined;
        if (first) yield await first;
      }
      for (const answer of asked.splice(0)) yield await answer;
    } finally {
      await Promise.allSettled(asked);
    }
  }

  private async read(place: string, size: bigint): Promise<bigint> {
    if (size === 0n) return 0n; // it has no block, and is read without a move
    const { commands, seconds } = this.settings;
    const said = await this.ask(fill(commands.startBlock, { file: place }), seconds.startBlock, place);
    if (/^\d{1,18}$/.test(said.trim())) return BigInt(said.trim());
    throw new TapeError(
      'PERMANENT',
      `the start block of ${place} must be a number, not ${JSON.stringify(oneLine(said, 100))}`,
    );
  }

  private async ask(args: string[], seconds: number, place: string): Promise<string> {
    try {
      return await runCommand(args, { seconds, signal: this.signal });
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      throw new TapeError('TRANSIENT', `the start block of ${place} is not known: ${error.message}`, { cause: error });
    }
  }
}
