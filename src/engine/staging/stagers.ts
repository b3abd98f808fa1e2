/** The staging libraries of the site: each is turned to by a loop of its own, so that none waits for another one. */
import type { Context } from '../../context.js';
import type { Site } from '../../tape/kind.js';
import { askingKey, UsableLibraries } from '../usable-libraries.js';
import { openPlace } from './place.js';
import { runStager, type StagerOptions } from './stager.js';

interface Running {
  /** Of the library as it is asked. */
  key: string;
  stop: AbortController;
  ended: Promise<void>;
}

export class Stagers {
  private readonly ctx: Context;
  private readonly options: StagerOptions & { env: Site['env'] };
  private readonly usable: UsableLibraries;
  /** By the ids of their libraries. */
  private readonly running = new Map<number, Running>();
  private readonly leaving = new Set<Promise<void>>();

  constructor(ctx: Context, options: StagerOptions & { env: Site['env'] }) {
    this.ctx = ctx;
    this.options = options;
    this.usable = new UsableLibraries(ctx);
  }

  /** Takes up libraries that were added or changed, and leaves those that were removed. */
  async follow(): Promise<void> {
    const libraries = await this.usable.read('STAGING');
    const keys = new Map(libraries.map((library) => [library.id, askingKey(library)]));
    for (const [id, { key, stop, ended }] of this.running) {
      if (keys.get(id) === key) continue;
      this.running.delete(id);
      stop.abort();
      this.leaving.add(ended);
      void ended.then(() => this.leaving.delete(ended));
    }
    for (const library of libraries) {
      if (this.running.has(library.id) || this.options.stop.aborted) continue;
      const stop = new AbortController();
      const options = { ...this.options, stop: AbortSignal.any([this.options.stop, stop.signal]) };
      const ended = runStager(this.ctx, openPlace(this.ctx, library, this.options.env), options);
      this.running.set(library.id, { key: askingKey(library), stop, ended });
    }
  }

  /** Once all have stopped. */
  get ended(): Promise<unknown> {
    return Promise.all([...this.leaving, ...[...this.running.values()].map(({ ended }) => ended)]);
  }
}
