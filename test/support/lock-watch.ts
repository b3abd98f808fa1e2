/** Watches the locks of transactions, and compares their order with src/db/lock-order.ts. */
import { type Lock, lockOrder } from '../../src/db/lock-order.js';
import { advisoryKeys } from '../../src/db/locks.js';
import { type Sql, sql } from '../../src/db/sql.js';
import { observeTransactions, type TransactionRun } from '../../src/db/transaction.js';

const lockOfTable: Record<string, Lock> = {
  ...{ library: 'library', volume: 'volume', request: 'request', quota: 'quota', tape_file: 'file', recall: 'recall' },
  ...{ drive: 'drive', restore_disk: 'disk', stager: 'stager', staging: 'staging', webhook: 'webhook' },
  ...{ mail_sender: 'sender', notification: 'email', idempotency_key: 'idempotencyKey' },
};
const lockOfAlias: Record<string, Lock> = {
  ...{ b: 'library', v: 'volume', r: 'request', q: 'quota', f: 'file', c: 'recall', d: 'drive', k: 'disk' },
  ...{ y: 'stager', g: 'staging', s: 'sender', n: 'email', w: 'webhook', i: 'idempotencyKey' },
};

/** Locks that a kind of transaction may take a second time, on rows that the transaction has already locked. */
const lockedAgain: Record<string, readonly Lock[]> = {
  closeUser: ['quota'],
  purgeUser: ['request', 'quota'], // all requests of the user and with the user's email address are locked first
  updateRequest: ['request', 'quota'], // its own request, when files join the request
  joinUnresolved: ['request'], // the request whose pattern is matched
  importRows: ['file'], // when requests are settled
  moveVolume: ['file'],
  retireVolume: ['file'],
  returnOrphans: ['request', 'file'], // when requests are settled: only here the locked files may differ
  returnMissing: ['request', 'file'],
  settleChanged: ['request', 'file'],
  repairAhead: ['file'],
};

/**
 * Lock of a statement. `row`: an explicit row lock; `write`: a lock by UPDATE or DELETE; `own`: rows that the
 * transaction inserts.
 */
interface Taking {
  lock: Lock;
  by: 'row' | 'write' | 'own';
  waits: boolean;
}

const advisoryLocks = new Map<unknown, Lock>([
  [advisoryKeys.catalogue, 'catalogue'],
  [advisoryKeys.webhooks, 'webhooks'],
]);

/** Returns the locks that a statement takes, in the order of the statement's text. */
export function takingsOf(statement: Sql): Taking[] {
  const { text } = statement;
  const found: { at: number; taking: Taking }[] = [];
  const add = (at: number, lock: Lock | undefined, by: Taking['by'], waits = true) => {
    if (lock) found.push({ at, taking: { lock, by, waits } });
  };
  for (const match of text.matchAll(/FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE) OF (\w)( SKIP LOCKED| NOWAIT)?/g)) {
    add(match.index, lockOfAlias[match[1] ?? ''], 'row', match[2] === undefined);
  }
  const isSkipped = (lock: Lock | undefined) =>
    found.some(({ taking }) => taking.lock === lock && !taking.waits && taking.by === 'row');
  for (const match of text.matchAll(/(?<!FOR |KEY |DO )\bUPDATE (\w+)|\bDELETE FROM (\w+)/g)) {
    const lock = lockOfTable[match[1] ?? match[2] ?? ''];
    add(match.index, lock, 'write', !isSkipped(lock));
  }
  for (const match of text.matchAll(/\bINSERT INTO (\w+)/g)) {
    const lock = lockOfTable[match[1] ?? ''];
    // safe: a transaction that inserts a notification has already locked the request
    const waits = lock !== 'email' && /ON CONFLICT/.test(text.slice(match.index));
    add(match.index, lock, waits ? 'write' : 'own');
  }
  if (/pg_advisory_xact_lock/.test(text)) {
    const key = statement.values.at(-1);
    add(0, advisoryLocks.get(key) ?? 'positions', 'row');
  }
  return found.sort((a, b) => a.at - b.at).map(({ taking }) => taking);
}

interface Seen {
  taken: Set<Lock>;
  own: Set<Lock>;
  last: Lock | undefined;
}

const rankOf = (lock: Lock | undefined) => (lock ? lockOrder.indexOf(lock) : -1);

/** @param options.verify also asks PostgreSQL for locked tables that the statements do not mention */
export function watchLocks(options: { verify?: boolean } = {}) {
  const runs = new WeakMap<TransactionRun, Seen>();
  /** Violations of the lock order, and the names of all observed transactions. */
  const [violations, names]: [string[], Set<string>] = [[], new Set()];
  const stop = observeTransactions({
    asks: options.verify ?? false,
    onBegin: (run) => {
      names.add(run.name);
      if (run.name !== 'test') runs.set(run, { taken: new Set(), own: new Set(), last: undefined });
    },
    onStatement: async (run, statement, ask) => {
      const seen = runs.get(run);
      if (!seen) return; // the transaction began before the watch
      for (const taking of takingsOf(statement)) {
        const problem = judgeTaking(run.name, seen, taking);
        if (problem) violations.push(`${run.name} ${problem}: ${statement.text.slice(0, 120)}`);
      }
      if (options.verify) violations.push(...(await findUnseen(run, seen, ask)));
    },
  });
  return { violations, names, stop };
}

function judgeTaking(name: string, seen: Seen, { lock, by, waits }: Taking): string | undefined {
  const hasIt = seen.taken.has(lock);
  if (by === 'own') seen.own.add(lock);
  else seen.taken.add(lock);
  if (by === 'own' || !waits) return undefined;
  if (by === 'write' && (hasIt || seen.own.has(lock))) return undefined;
  if (hasIt && lockedAgain[name]?.includes(lock)) return undefined;
  if (rankOf(lock) < rankOf(seen.last)) return `takes ${lock} after ${seen.last}`;
  seen.last = lock;
  return undefined;
}

/**
 * Returns violations for tables that PostgreSQL reports as changed, but that no statement of the transaction changes.
 */
async function findUnseen(
  run: TransactionRun,
  seen: Seen,
  ask: (statement: Sql) => Promise<object[]>,
): Promise<string[]> {
  const rows = (await ask(
    sql`SELECT c.relname AS "table" FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock' AND c.relkind = 'r'`,
  )) as { table: string }[];
  return rows.flatMap(({ table }) => {
    const lock = lockOfTable[table];
    if (!lock || seen.taken.has(lock) || seen.own.has(lock)) return [];
    return [`${run.name} changes ${table}, and no statement was seen to`];
  });
}
