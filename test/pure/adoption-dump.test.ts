/** Reads dumps of `pg_dump` and `mysqldump` with their options: each text is read exactly, or the dump is refused. */
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { readDump } from '../../src/operations/adoption/dump.js';
import { readSourceTime } from '../../src/operations/adoption/tables.js';

const notes = "it's C:\\new\ntwo";
const columns = ['id', 'user', 'size', 'email_address', 'notes'];
const others = {
  tapefile: ['id', 'logical_path', 'size', 'verified', 'stage', 'restore_disk_id'],
  taperequest: [
    ...['id', 'label', 'retention', 'request_date', 'active_request', 'storaged_request_start', 'storaged_request_end'],
    ...['first_files_on_disk', 'last_files_on_disk', 'request_files', 'request_patterns', 'notify_on_first_file'],
    ...['notify_on_last_file', 'quota_id'],
  ],
};
const tables = (quote: string) =>
  Object.entries({ quota: columns, ...others })
    .map(
      ([name, names]) =>
        `CREATE TABLE ${quote}nla_control_${name}${quote} (\n${names.map((column) => `  ${quote}${column}${quote} text,`).join('\n')}\n);\n`,
    )
    .join('');
const escaped = String.raw`it\'s C:\\new\ntwo`;

async function readNotes(dump: string | Buffer): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const { table, rows } of readDump(Readable.from([typeof dump === 'string' ? Buffer.from(dump) : dump]))) {
    if (table === 'quota') found.push(...rows.map((row) => row[4]));
  }
  return found;
}

test.each([
  ['MySQL', '`', '/*!40101 SET NAMES utf8mb4 */;', 'INSERT INTO `nla_control_quota`', `'${escaped}'`],
  [
    '--compatible=ansi',
    '"',
    '-- MySQL dump 10.13',
    'INSERT INTO "nla_control_quota"',
    `'${escaped}'`,
    '-- Dump completed',
  ],
  ['--skip-quote-names', '', '/*!40101 SET NAMES utf8 */;', 'INSERT INTO nla_control_quota', `'${escaped}'`],
  ['--insert-ignore', '`', '', 'INSERT  IGNORE INTO `nla_control_quota`', `'${escaped}'`],
  ['--replace', '`', '', 'REPLACE INTO `nla_control_quota`', `_binary '${escaped}'`],
  [
    'pg_dump --inserts',
    '',
    "SET client_encoding = 'UTF8';",
    'INSERT INTO public.nla_control_quota',
    `'${notes.replace("'", "''")}'`,
  ],
  [
    'standard_conforming_strings',
    '',
    'SET standard_conforming_strings = off;',
    'INSERT INTO public.nla_control_quota',
    "'it''s C:\\\\new\ntwo'",
  ],
])('a dump with %s is read exactly', async (_what, quote, head, insert, text, end = '') => {
  const dump = `${head}\n${tables(quote)}${insert} VALUES (1,'ada',5,NULL,${text});\n${end}\n`;
  expect(await readNotes(dump)).toEqual([notes]);
});

test('a text with 50,000 paths is read', async () => {
  const list = '/badc/a-folder/with-a-name/and-another-one/0000000.nc\\n'.repeat(50_000);
  const dump = `${tables('`')}INSERT INTO \`nla_control_quota\` VALUES (1,'ada',5,NULL,'${list}');\n`;
  expect(String((await readNotes(dump))[0])).toHaveLength(list.length - 50_000);
});

test('a dump without line ends, or with a text that does not end, is refused before it fills the memory', async () => {
  const megabyte = Buffer.alloc(1_000_000, 'x');
  const read = async (head: string, more: Buffer): Promise<{ problem: string; megabytes: number }> => {
    let megabytes = 0;
    const endless = function* () {
      yield Buffer.from(head);
      for (;;) {
        megabytes++;
        yield more;
      }
    };
    const batches = readDump(Readable.from(endless()), '/tmp/nla.sql');
    const problem = await batches.next().then(
      () => 'none',
      (error) => error.message,
    );
    return { problem, megabytes };
  };
  const whole = await read('', megabyte);
  expect(whole.problem).toBe('/tmp/nla.sql, line 1: it goes on for more than 128 MB, which no row of a dump has');
  expect(whole.megabytes).toBeLessThan(200);
  megabyte[0] = 0x0a;
  const open = await read(`${tables('')}INSERT INTO public.nla_control_quota VALUES (1, 'ada', 5, NULL, 'x`, megabyte);
  expect(open.problem).toMatch(/^\/tmp\/nla.sql, line 1\d\d: it goes on for more than 128 MB/);
  expect(open.megabytes).toBeLessThan(200);
});

test('rows of another table are not read as statements', async () => {
  const evil = 'INSERT INTO public.nla_control_quota VALUES (2, 3, 4, NULL, 5);';
  const dump = `${tables('')}COPY public.other (name) FROM stdin;\n${evil}\n\\.\nINSERT INTO public.nla_control_quota VALUES (1, 'ada', 5, NULL, 'x');\n`;
  expect(await readNotes(dump)).toEqual(['x']);
});

test.each([
  ['from another database', "INSERT INTO `users` VALUES (1,'x');\n", 'no table of nla_control'],
  ['without rows', tables('`'), 'no rows'],
  [
    'without requests',
    'COPY public.nla_control_quota (id, "user", size, email_address, notes) FROM stdin;\n\\.\n',
    'no table nla_control_tapefile',
  ],
  [
    'without its end',
    `-- PostgreSQL database dump\n${tables('')}INSERT INTO public.nla_control_quota VALUES (1, 'ada', 5, NULL, 'x');\n`,
    'breaks off',
  ],
  ['in Latin-1', '/*!40101 SET NAMES latin1 */;\n', 'is in latin1'],
  [
    'in Latin-1 that claims to be UTF-8',
    Buffer.from(
      "INSERT INTO `nla_control_quota` (`id`, `user`, `size`, `email_address`, `notes`) VALUES (1,2,3,4,'\xe9');\n",
      'latin1',
    ),
    'must be in UTF-8',
  ],
  ['from PostgreSQL in Latin-1', "SET client_encoding = 'LATIN1';\n", 'is in LATIN1'],
])('a dump %s is refused', async (_, dump, message) => {
  await expect(readNotes(dump)).rejects.toThrow(message);
});

test('times with a zone are converted to UTC, and do not exceed the year 9999', () => {
  expect(readSourceTime('10000-01-01 05:29:59.999999+05:30')).toBe('9999-12-31T23:59:59.999999');
  expect(readSourceTime('2026-07-01 05:30:00.000001+05:30')).toBe('2026-07-01T00:00:00.000001');
});

test('UTF-8 is read exactly, and other tables may contain other bytes', async () => {
  const text = 'é 日本 😀 \ufeff\ufffd';
  const rows = `INSERT INTO \`nla_control_quota\` VALUES (1,'ada',5,NULL,'${text}');\n`;
  const other = Buffer.from("INSERT INTO `other` VALUES ('\xff\xe9');\n", 'latin1');
  expect(await readNotes(Buffer.concat([Buffer.from(tables('`')), other, Buffer.from(rows)]))).toEqual([text]);
});
