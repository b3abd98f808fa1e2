/** When a standby answers reads, and when they are repeated at the primary. */
import pg from 'pg';
import { expect, test } from 'vitest';
import { askTogether, findMismatch, type PrimaryPosition, type StandbyPosition } from '../../src/database/positions.js';
import { NotFoundError, OverShareError, UnavailableError } from '../../src/errors.js';
import { isChanging } from '../../src/operations/audit/audited.js';
import { isOfStandby, listServers } from '../../src/operations/list-server.js';
import { type Operation, policy } from '../../src/operations/policy.js';

const primary: PrimaryPosition = { system: 7n, timeline: 2, database: 'tapes', written: 100n };
const standby: StandbyPosition = { ...primary, isStandby: true, replayed: 90n };

test.each<[string | undefined, Partial<StandbyPosition>]>([
  [undefined, {}],
  ['it is no standby', { isStandby: false }],
  ['it is no copy of the server that takes writes', { system: 8n }],
  ['it was asked for database other, not tapes', { database: 'other' }],
  ['it follows timeline 1, and the server that takes writes is on 2', { timeline: 1 }],
  ['it follows timeline 3, and the server that takes writes is on 2', { timeline: 3 }],
])('the problem of a standby is: %s', (problem, is) => {
  expect(findMismatch({ ...standby, ...is }, primary)).toBe(problem);
});

const ofPostgres = (code: string) => Object.assign(new pg.DatabaseError('x', 1, 'error'), { code });
const busy = (cause?: unknown) => new UnavailableError('busy', 'x', cause);

test.each([
  ['cancelled by replay', ofPostgres('40001'), true],
  ['deadlock with replay', ofPostgres('40P01'), true],
  ['gone', new UnavailableError('away', 'x', ofPostgres('57P01')), true],
  ['without a free connection', busy(ofPostgres('53300')), true],
  ['time limit', busy(ofPostgres('57014')), false],
  ['no free slot', busy(), false],
  ['over its share', new OverShareError('x'), false],
  ['an error of the caller', new NotFoundError('x'), false],
])('whether a failed read is repeated at the primary: %s', (_what, error, isAgain) => {
  expect(isOfStandby(error)).toBe(isAgain);
});

test('each reading operation declares which servers may answer it', () => {
  const reading = (Object.keys(policy) as Operation[]).filter((operation) => !isChanging(operation));
  expect(Object.keys(listServers).sort()).toEqual(reading.sort());
});

test('calls during a query share the next query', async () => {
  const answers: ((value: number) => void)[] = [];
  const ask = askTogether(() => new Promise<number>((resolve) => void answers.push(resolve)));
  const first = ask();
  const [second, third] = [ask(), ask()];
  expect(answers).toHaveLength(1);
  answers[0]?.(1);
  expect(await first).toBe(1);
  await Promise.resolve();
  expect(answers).toHaveLength(2);
  answers[1]?.(2);
  expect(await Promise.all([second, third])).toEqual([2, 2]);
  const fourth = ask();
  answers[2]?.(3);
  expect(await fourth).toBe(3);
});
