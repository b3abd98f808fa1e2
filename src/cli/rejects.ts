/** Writes the file of rejects, which lists the rows that `--skip-invalid` skips, with the reason for each row. */
import { type FileHandle, open, stat, unlink } from 'node:fs/promises';
import { plural } from '../core/plural.js';
import type { Reject } from '../domain/import/import-incoming.js';
import type { RowError } from '../domain/import/import-lines.js';
import type { RowSource } from '../domain/import/import-rows.js';
import { CommandError, UsageError } from './terminal/failure.js';
import { printLine } from './terminal/output.js';

export interface SkipOptions {
  skipInvalid?: boolean;
  rejects?: string;
}

export class Rejects {
  readonly file: string;
  /** Adds the name of the file to the line numbers in a message. */
  private readonly nameLines: (message: string) => string;
  private handle: FileHandle | undefined;
  count = 0;

  private constructor(file: string, nameLines: (message: string) => string) {
    this.file = file;
    this.nameLines = nameLines;
  }

  /**
   * @param source the path of the imported list; the default file of rejects is in the same directory
   * @returns undefined without `--skip-invalid`
   * @throws UsageError; CommandError if the file of rejects exists
   */
  static async open(
    { skipInvalid = false, rejects }: SkipOptions,
    source: string | undefined,
    nameLines = (message: string) => message,
  ): Promise<Rejects | undefined> {
    if (!skipInvalid && rejects !== undefined) throw new UsageError('--rejects needs --skip-invalid');
    if (!skipInvalid) return undefined;
    const file = rejects ?? (source && `${source}.rejects`);
    if (file === undefined)
      throw new UsageError('--skip-invalid needs --rejects <file> if the list is standard input or a cartridge');
    if (await stat(file).catch(() => undefined))
      throw new CommandError(`${file} already exists: give another file with --rejects`);
    return new Rejects(file, nameLines);
  }

  /** Yields rows with valid names, and writes all other rows to the file of rejects. */
  async *filter(rows: RowSource): ReturnType<typeof import('../domain/import/import-rows.js').skipBadNames> {
    const { skipBadNames } = await import('../domain/import/import-rows.js');
    yield* skipBadNames(rows, ({ line, problem }: RowError) => this.write([{ line, problem }]));
  }

  async write(rejects: readonly Reject[]): Promise<void> {
    if (rejects.length === 0) return;
    this.handle ??= await open(this.file, 'wx', 0o600);
    this.count += rejects.length;
    await this.handle.appendFile(
      rejects.map(({ line, problem }) => `${this.nameLines(`line ${line}: ${problem}`)}\n`).join(''),
    );
  }

  /** Closes the file of rejects, and removes it if nothing was imported. */
  async end({ isImported }: { isImported: boolean }): Promise<void> {
    await this.handle?.sync();
    await this.handle?.close();
    if (this.handle && !isImported) await unlink(this.file);
  }

  /** Fields about rejects that `--json` prints. */
  get facts(): { rejected: number; rejectsFile?: string } {
    return { rejected: this.count, ...(this.count > 0 && { rejectsFile: this.file }) };
  }

  print(): void {
    if (this.count === 0) return;
    printLine(`skipped: ${plural(this.count, 'name')} that cannot be restored, listed in ${this.file}`);
  }
}
