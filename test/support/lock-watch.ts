/** Watches the locks that transactions really take, and holds them against the table of src/database/lock-order.ts. */
import { type Lock, lockOrder, transactionLocks } from '../../src/database/lock-order.js';
import { advisoryKeys } from '../../src/database/locks.js';
import { type Sql, sql } from '../../src/database/sql.js';
import { observeTransactions, type TransactionRun } from '../../src/database/transaction.js';

const lockOfTable: Record<string, Lock> = {
  library: 'library',
  volume: 'volume',
  request: 'request',
  quota: 'quota',
  tape_file: 'file',
  recall: 'recall',
  drive: 'drive',
  restore_disk: 'disk',
  stager: 'stager',
  staging: 'staging',
  mail_sender: 'turns',
  mail_turn: 'turns',
  notification: 'letter',
  webhook: 'webhook',
};
const lockOfAlias: Record<string, Lock> = {
  b: 'library',
  v: 'volume',
  r: 'request',
  q: 'quota',
  f: 'file',
  c: 'recall',
  d: 'drive',
  k: 'disk',
  y: 'stager',
  g: 'staging',
  s: 'turns',
  n: 'letter',
  w: 'webhook',
};

/** Locks of rows that the transaction is known to have already; anywhere else a second lock would be of other rows. */
const lockedAgain: Record<string, readonly Lock[]> = {
  forgetTraces: ['request', 'quota'], // all of the user's and those with the addresses are locked first
  forgetUser: ['request', 'quota'],
  repairForgotten: ['request', 'quota'],
  updateRequest: ['request', 'quota'], // its own, when files join it
  joinAwaited: ['request'], // the one whose files are searched for by its pattern
  importRows: ['file'], // when the requests are settled
  moveVolume: ['file'],
  retireVolume: ['file'],
  returnOrphans: ['request', 'file'], // when they are settled: the one case in which the files may be others
  returnMissing: ['request', 'file'],
  settleChanged: ['request', 'file'],
  repairAhead: ['file'],
  repairUncopied: ['file'],
};

/** `row`: asked for by itself; `write`: comes with a change; `own`: rows that the transaction makes. */
interface Taking {
  lock: Lock;
  by: 'row' | 'write' | 'own';
  waits: boolean;
}

const advisoryLocks = new Map<unknown, Lock>([
  [advisoryKeys.catalogue, 'catalogue'],
  [advisoryKeys.webhooks, 'webhooks'],
]);

/** In the order of the text. */
export function takingsOf(statement: Sql): Taking[] {
  const { text } = statement;
  const found: { at: number; taking: Taking }[] = [];
  const add = (at: number, lock: Lock | undefined, by: Taking['by'], waits = true) => {
    if (lock) found.push({ at, taking: { lock, by, waits } });
  };
  for (const match of text.matchAll(/FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE) OF (\w)( SKIP LOCKED| NOWAIT)?/g)) {
    add(match.index, lockOfAlias[match[1] ?? ''], 'row', match[2] === undefined);
  }
  const isPassedOver = (lock: Lock | undefined) =>
    found.some(({ taking }) => taking.lock === lock && !taking.waits && taking.by === 'row');
  for (const match of text.matchAll(/(?<!FOR |KEY |DO )\bUPDATE (\w+)|\bDELETE FROM (\w+)/g)) {
    const lock = lockOfTable[match[1] ?? match[2] ?? ''];
    add(match.index, lock, 'write', !isPassedOver(lock));
  }
  for (const match of text.matchAll(/\bINSERT INTO (\w+)/g)) {
    const lock = lockOfTable[match[1] ?? ''];
    // a letter is made by whoever has its request locked
    const waits = lock !== 'letter' && /ON CONFLICT/.test(text.slice(match.index));
    add(match.index, lock, waits ? 'write' : 'own');
  }
  if (/pg_advisory_xact_lock/.test(text)) {
    const key = statement.values.at(-1);
    add(0, advisoryLocks.get(key) ?? 'places', 'row');
  }
  return found.sort((a, b) => a.at - b.at).map(({ taking }) => taking);
}

interface Seen {
  taken: Set<Lock>;
  own: Set<Lock>;
  last: Lock | undefined;
}

const rankOf = (lock: Lock | undefined) => (lock ? lockOrder.indexOf(lock) : -1);

export interface LockWatch {
  /** What was against the table, a line each. */
  violations: string[];
  /** The names of the transactions that were seen. */
  names: Set<string>;
  stop(): void;
}

/** @param options.verify asks PostgreSQL after each statement whether it has locked a table that was not seen here */
export function watchLocks(options: { verify?: boolean } = {}): LockWatch {
  const runs = new WeakMap<TransactionRun, Seen>();
  const watch: LockWatch = { violations: [], names: new Set(), stop: () => {} };
  watch.stop = observeTransactions({
    asks: options.verify ?? false,
    onBegin: (run) => {
      watch.names.add(run.name);
      if (run.name !== 'test') runs.set(run, { taken: new Set(), own: new Set(), last: undefined });
    },
    onStatement: async (run, statement, ask) => {
      const seen = runs.get(run);
      if (!seen) return; // it began before the watch
      for (const taking of takingsOf(statement)) {
        const problem = judgeTaking(run.name, seen, taking);
        if (problem) watch.violations.push(`${run.name} ${problem}: ${statement.text.slice(0, 120)}`);
      }
      if (options.verify) watch.violations.push(...(await findUnseen(run, seen, ask)));
    },
  });
  return watch;
}

function judgeTaking(name: string, seen: Seen, { lock, by, waits }: Taking): string | undefined {
  const hasIt = seen.taken.has(lock);
  if (by === 'own') seen.own.add(lock);
  else seen.taken.add(lock);
  if (by === 'own' || !waits) return undefined;
  if (by === 'write' && (hasIt || seen.own.has(lock))) return undefined;
  const line = transactionLocks[name];
  if (!line) return 'is not in the table';
  if (!line.includes(lock)) return `takes ${lock}, which is not in its line`;
  if (hasIt && lockedAgain[name]?.includes(lock)) return undefined;
  if (rankOf(lock) < rankOf(seen.last)) return `takes ${lock} after ${seen.last}`;
  seen.last = lock;
  return undefined;
}

/** Tables that PostgreSQL says are being changed, and of which no statement was seen to say so. */
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
