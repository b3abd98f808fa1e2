/** Faults of staging libraries and of bulks, to be planted into a system that has settled: checker.test.ts shows that each is found. */
import { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import type { BulkPoll } from './bulk-polls.js';
import { type LeftFile, listLeft, type NotedDemand, READ_DEMANDS, WATCH_DEMANDS } from './remote-left.js';
import type { ViolationKind } from './violations.js';

/** What they are planted into: a system in which nobody waits for `FILE`, and a request holds `HELD`. */
export interface StagingSoil {
  run(text: string): Promise<unknown>;
  read<Row extends object>(text: string): Promise<Row[]>;
  outside: { staged: readonly LeftFile[]; bulks: ReadonlySet<string>; polls: readonly BulkPoll[] };
}

type Plant = (soil: StagingSoil) => Promise<unknown>;

const FILE = '/s/gone';
const HELD = '/s/a';
const LIBRARY = 'silo';
const BULK = '0b9f6f1e-0000-4000-8000-000000000000';
const LEAVES = new Date('2100-01-01T00:00:00.123Z');

const ADD_LIBRARY = `INSERT INTO library (name, kind, contract, drives, added_at) VALUES ('${LIBRARY}', 'torture', 'STAGING', 2, now())`;
const FORGET_ROW = 'DELETE FROM staging';

const addRow = (state: string, { name = 'NULL', until = 'NULL' } = {}) =>
  `INSERT INTO staging (file_id, library_id, state, batch, remote_id, size, asked_at, since, due_at, ready_until)
   SELECT f.id, b.id, '${state}', gen_random_uuid(), ${name}, f.size, now(), now(), now(), ${until}
   FROM tape_file f, library b WHERE f.path = '${FILE}' AND b.name = '${LIBRARY}'`;

/** A system that has the file on tape, as the checker looks at it. */
async function lookAt(soil: StagingSoil, system: MemoryTapeSystem): Promise<void> {
  const noted = await soil.read<NotedDemand>(READ_DEMANDS);
  soil.outside.staged = listLeft({ name: LIBRARY, url: '', system }, noted).files;
}

function startSystem(options: ConstructorParameters<typeof MemoryTapeSystem>[0] = {}): MemoryTapeSystem {
  const system = new MemoryTapeSystem(options);
  system.put(FILE, new Uint8Array(10));
  return system;
}

/** The system wants the file for a demand. @param steps what the database has noted of it; `demand-1` is its name */
function plantDemand(steps: readonly string[], options?: { ids: false }): Plant {
  return async (soil) => {
    for (const step of [WATCH_DEMANDS, ADD_LIBRARY, ...steps]) await soil.run(step);
    const system = startSystem(options);
    system.want([FILE]);
    await lookAt(soil, system);
  };
}

/** The file is on disk until `LEAVES`, and nobody wants it there. */
function plantKept(steps: readonly string[]): Plant {
  return async (soil) => {
    for (const step of [WATCH_DEMANDS, ADD_LIBRARY, ...steps]) await soil.run(step);
    const system = startSystem({ ids: false, releases: false });
    system.disk.set(FILE, LEAVES);
    await lookAt(soil, system);
  };
}

const named = { name: `'demand-1'` };

/** Each is the only fault then. */
export const stagingFaults: readonly [ViolationKind, what: string, plant: Plant][] = [
  ...['INTENDED', 'ASKED', 'READY', 'RELEASING'].map((state): (typeof stagingFaults)[number] => [
    'staging-open',
    `a file for which nobody waits is ${state} at a staging library`,
    async ({ run }) => {
      await run(ADD_LIBRARY);
      await run(addRow(state));
    },
  ]),
  ['staging-left', 'a demand was forgotten whose name was noted', plantDemand([addRow('ASKED', named), FORGET_ROW])],
  [
    'staging-left',
    'a demand was forgotten whose name was noted late',
    plantDemand([addRow('INTENDED'), `UPDATE staging SET remote_id = 'demand-1'`, FORGET_ROW]),
  ],
  [
    'staging-left',
    'a demand was forgotten of a system without names',
    plantDemand([addRow('ASKED'), FORGET_ROW], { ids: false }),
  ],
  [
    'staging-left',
    'a file is said to be kept that is still demanded',
    plantDemand([addRow('KEPT', { ...named, until: 'now()' })]),
  ],
  ['staging-left', 'a file is kept, and that was forgotten', plantKept([])],
  [
    'staging-kept',
    'a file is kept until another time than is noted',
    plantKept([addRow('KEPT', { until: `'2100-01-01T00:00:00'` })]),
  ],
  ['staging-kept', 'a file is kept, and it is not noted until when', plantKept([addRow('KEPT')])],
];

/** What the lifetimes of the system end. */
export const stagingLeftovers: readonly [what: string, plant: Plant][] = [
  ['a demand of whose name nobody was told', plantDemand([])],
  ['a demand whose name was noted of another file', plantDemand([addRow('ASKED', { name: `'demand-2'` }), FORGET_ROW])],
  ['a file that is kept until the time that is noted', plantKept([addRow('KEPT', { until: `'${toStored(LEAVES)}'` })])],
];

const addBulk = (path: string) =>
  `WITH made AS (INSERT INTO bulk (id, quota_id, made_at) SELECT '${BULK}', r.quota_id, now() FROM request r JOIN hold h ON h.request_id = r.id
     JOIN tape_file f ON f.id = h.file_id WHERE f.path = '${HELD}' RETURNING id)
   INSERT INTO bulk_file (bulk_id, path, given, ordinal, request_id, file_id)
   SELECT m.id, f.path, f.path, 1, h.request_id, f.id FROM made m, tape_file f, hold h JOIN tape_file g ON g.id = h.file_id
   WHERE f.path = '${path}' AND g.path = '${HELD}'`;

/** The same. */
export const bulkFaults: readonly [ViolationKind, what: string, plant: Plant][] = [
  [
    'bulk-lost',
    'a request lives for what was staged under an id that nobody knows any more',
    async ({ run, outside }) => {
      await run(`UPDATE request SET label = 'stage ${BULK}' WHERE id = (SELECT h.request_id FROM hold h JOIN tape_file f ON f.id = h.file_id
        WHERE f.path = '${HELD}')`);
      outside.bulks = new Set([BULK]);
    },
  ],
  [
    'bulk-open',
    'a client is told that a file is still to come',
    async ({ outside }) => {
      outside.polls = [{ id: BULK, isOver: false, states: { [HELD]: 'SUBMITTED' } }];
    },
  ],
  [
    'bulk-open',
    'a client is told that all has ended, and that it has not',
    async ({ outside }) => {
      outside.polls = [{ id: BULK, isOver: false, states: { [HELD]: 'COMPLETED' } }];
    },
  ],
  ['bulk-hold', 'a file of a bulk is not in its request', ({ run }) => run(addBulk(FILE))],
  [
    'bulk-hold',
    'a client is told that a file has failed which is on disk',
    async ({ run, outside }) => {
      await run(addBulk(HELD));
      outside.polls = [{ id: BULK, isOver: true, states: { [HELD]: 'FAILED' } }];
    },
  ],
];

function toStored(time: Date): string {
  return time.toISOString().slice(0, -1);
}
