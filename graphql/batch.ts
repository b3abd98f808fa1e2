/** Many questions of the same kind, asked in one turn of the event loop, become one query. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Context } from '../src/context.js';

/**
 * A function that gives the value of one key and reads the values of all keys asked for in the same turn at once.
 * A field of a list of fifty things then costs one statement, not fifty.
 * @param load gives the values by their keys; a key may be missing
 */
export function createBatch<Key, Value>(load: (ctx: Context, keys: Key[]) => Promise<Map<Key, Value>>) {
  const open = new WeakMap<Context, { keys: Set<Key>; values: Promise<Map<Key, Value>> }>();
  return async (ctx: Context, key: Key): Promise<Value | undefined> => {
    let batch = open.get(ctx);
    if (!batch) {
      const keys = new Set<Key>();
      const values = nextTurn().then(() => {
        open.delete(ctx);
        return load(ctx, [...keys]);
      });
      batch = { keys, values };
      open.set(ctx, batch);
    }
    batch.keys.add(key);
    return (await batch.values).get(key);
  };
}
