/** Values of the same kind that many fields ask for are read by one query. */
import DataLoader from 'dataloader';
import type { Context } from '../src/context.js';

/**
 * Returns a function that gives the value of a key, and reads the values of all keys that are asked for in one turn of the event loop at
 * once. A field of a list of fifty rows then takes one statement. Nothing is kept for later, so that a mutation's answer shows its change.
 * @param load returns the values by their keys; keys may be missing
 */
export function createBatch<Key, Value>(load: (ctx: Context, keys: Key[]) => Promise<Map<Key, Value>>) {
  const loaders = new WeakMap<Context, DataLoader<Key, Value | undefined>>();
  return async (ctx: Context, key: Key): Promise<Value | undefined> => {
    let loader = loaders.get(ctx);
    if (!loader) {
      const loadAll = async (keys: readonly Key[]) => {
        const values = await load(ctx, [...new Set(keys)]);
        return keys.map((each) => values.get(each));
      };
      loader = new DataLoader(loadAll, { cache: false, batchScheduleFn: (run) => void setImmediate(run) });
      loaders.set(ctx, loader);
    }
    return await loader.load(key);
  };
}
