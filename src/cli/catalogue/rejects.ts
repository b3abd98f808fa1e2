/**
 * Writes the file of rejects: the rows that `--skip-invalid` skips, with the reasons. By default, each import of a list
 * replaces the file of rejects that the previous import of the same list wrote. The import never replaces an existing
 * file that the user names with `--rejects`. A dry run writes no file.
 */
import { type FileHandle, lstat, open, rename, rm } from 'node:fs/promises';
import { plural } from '../../core/text/plural.js';
import type { Reject } from '../../domain/import/import-incoming.js';
import type { RowError } from '../../domain/import/import-lines.js';
import type { RowSource } from '../../domain/import/import-rows.js';
import { CommandError, UsageError } from '../terminal/failure.js';
import { printLine } from '../terminal/output.js';

export interface SkipOptions {
  skipInvalid?: boolean;
  rejects?: string;
  dryRun?: boolean;
}

export class Rejects {
  readonly file: string;
  /** Temporary path of the file of rejects during an import. */
  private readonly partialFile: string;
  private readonly isDryRun: boolean;
  private readonly nameLines: (message: string) => string;
  private handle: FileHandle | undefined;
  count = 0;

  private constructor(
    { file, partialFile, isDryRun }: { file: string; partialFile: string; isDryRun: boolean },
    nameLines: (message: string) => string,
  ) {
    this.file = file;
    this.partialFile = partialFile;
    this.isDryRun = isDryRun;
    this.nameLines = nameLines;
  }

  /**
   * @param source path of the imported list; the default file of rejects is in the same directory
   * @returns undefined without `--skip-invalid`
   * @throws UsageError if `--rejects` is given without `--skip-invalid`; CommandError if the file given with
   * `--rejects` exists, or the default file is not a regular file
   */
  static async open(
    { skipInvalid = false, rejects, dryRun: isDryRun = false }: SkipOptions,
    source: string | undefined,
    nameLines = (message: string) => message,
  ): Promise<Rejects | undefined> {
    if (!skipInvalid && rejects !== undefined) throw new UsageError('--rejects needs --skip-invalid');
    if (!skipInvalid) return undefined;
    const file = rejects ?? (source && `${source}.rejects`);
    if (file === undefined)
      throw new UsageError(
        '--skip-invalid needs --rejects <file> for an import from standard input, or for a scan of a cartridge',
      );
    const isDefault = rejects === undefined;
    const found = await lstat(file).catch(() => undefined);
    if (found && !isDefault) throw new CommandError(`${file} already exists: give another file with --rejects`);
    if (found && !found.isFile())
      throw new CommandError(`${file} is not a regular file: give another file with --rejects`);
    return new Rejects({ file, partialFile: isDefault ? `${file}.partial` : file, isDryRun }, nameLines);
  }

  async *filter(rows: RowSource): ReturnType<typeof import('../../domain/import/import-rows.js').skipBadNames> {
    const { skipBadNames } = await import('../../domain/import/import-rows.js');
    yield* skipBadNames(rows, ({ line, problem }: RowError) => this.write([{ line, problem }]));
  }

  async write(rejects: readonly Reject[]): Promise<void> {
    this.count += rejects.length;
    if (rejects.length === 0 || this.isDryRun) return;
    this.handle ??= await this.create();
    await this.handle.appendFile(
      rejects.map(({ line, problem }) => `${this.nameLines(`line ${line}: ${problem}`)}\n`).join(''),
    );
  }

  private async create(): Promise<FileHandle> {
    // an interrupted import might have left a partial file of rejects
    if (this.partialFile !== this.file) await rm(this.partialFile, { force: true });
    return await open(this.partialFile, 'wx', 0o600);
  }

  /**
   * Closes the file of rejects, and removes the file if the import failed. If no row was rejected, removes the default
   * file of an earlier import.
   */
  async end({ isImported }: { isImported: boolean }): Promise<void> {
    await this.handle?.sync();
    await this.handle?.close();
    const isDefault = this.partialFile !== this.file;
    if (this.handle && !isImported) await rm(this.partialFile);
    else if (this.handle && isDefault) await rename(this.partialFile, this.file);
    else if (isImported && isDefault && !this.isDryRun) await rm(this.file, { force: true });
  }

  get facts(): { rejected: number; rejectsFile?: string } {
    return { rejected: this.count, ...(this.count > 0 && !this.isDryRun && { rejectsFile: this.file }) };
  }

  print(): void {
    if (this.count === 0) return;
    const where = this.isDryRun ? `; an import would list them in ${this.file}` : `, listed in ${this.file}`;
    printLine(`skipped: ${plural(this.count, 'name')} that cannot be restored${where}`);
  }
}
