/**
 * A tape system of files, for tests: node staging.mjs stage|poll|release -- [ID], with files as JSON lines.
 *
 * Below $TAPES: tape/PATH is a file on tape, disk/PATH a staged file, demands/ID.json the files of a stage call, spoiled.json the lost or
 * unavailable files. `calls` contains a line for each call. The files `busy` (seconds) and `lose-CALL` cause one failure each.
 * TAPE_IDS=off: stage calls have no ids. TAPE_UNTIL: seconds for which a file stays on disk.
 */
import { randomUUID } from 'node:crypto';
import { appendFileSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';

const [verb, , id] = process.argv.slice(2);
const { TAPES: root, TAPE_IDS: ids, TAPE_UNTIL: seconds } = process.env;
const files = readFileSync(0, 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line));
const spoiled = existsSync(`${root}/spoiled.json`) ? JSON.parse(readFileSync(`${root}/spoiled.json`, 'utf8')) : {};
const answers = [];

/** Returns the files of a stage call, or of all calls if calls have no ids; undefined if the call does not exist. */
function wantedBy(name) {
  const names = ids === 'off' ? demandNames() : [name].filter((each) => existsSync(`${root}/demands/${each}.json`));
  if (ids !== 'off' && names.length === 0) return undefined;
  return new Set(names.flatMap((each) => JSON.parse(readFileSync(`${root}/demands/${each}.json`, 'utf8'))));
}

function demandNames() {
  return readdirSync(`${root}/demands`)
    .filter((file) => file.endsWith('.json'))
    .map((file) => file.slice(0, -5));
}

function note(name, paths) {
  writeFileSync(`${root}/demands/${name}.new`, JSON.stringify([...paths]));
  renameSync(`${root}/demands/${name}.new`, `${root}/demands/${name}.json`);
}

function stateOf(path, wanted) {
  if (!existsSync(`${root}/tape${path}`) || spoiled[path] === 'lost') {
    return { path, state: 'failed', class: 'PERMANENT', message: `no tape has ${path}` };
  }
  if (spoiled[path]) return { path, state: 'failed', class: 'TRANSIENT', message: `the tape of ${path} is away` };
  if (!wanted?.has(path)) return { path, state: 'forgotten' };
  if (!existsSync(`${root}/disk${path}`)) return { path, state: 'waiting' };
  const until = seconds && new Date(Date.now() + Number(seconds) * 1000).toISOString();
  return { path, state: 'ready', ...(until && { until }) };
}

const calls = {
  stage() {
    const known = files.map(({ path }) => path).filter((path) => existsSync(`${root}/tape${path}`));
    const name = randomUUID();
    note(name, known);
    if (ids !== 'off') answers.push({ id: name });
    answers.push(...files.map(({ path }) => stateOf(path, new Set(known))));
  },

  poll() {
    const wanted = wantedBy(id);
    answers.push(...files.map(({ path }) => stateOf(path, wanted)));
  },

  release() {
    const wanted = wantedBy(id);
    if (!wanted) return;
    const left = files.map(({ path }) => path).filter((path) => wanted.delete(path));
    note(id, wanted);
    const others = new Set(demandNames().flatMap((name) => [...(wantedBy(name) ?? [])]));
    for (const path of left.filter((each) => !others.has(each))) rmSync(`${root}/disk${path}`, { force: true });
  },
};

/** Returns whether a failure of this kind was set, and removes it. */
function meets(trouble) {
  if (!existsSync(`${root}/${trouble}`)) return undefined;
  const text = readFileSync(`${root}/${trouble}`, 'utf8');
  rmSync(`${root}/${trouble}`);
  return text;
}

appendFileSync(`${root}/calls`, `${verb} ${files.length}\n`);
const busy = meets('busy');
if (busy !== undefined) {
  process.stderr.write(`retry-after: ${busy}\nthe library is busy\n`);
  process.exitCode = 106;
} else {
  calls[verb]();
  if (meets(`lose-${verb}`) === undefined)
    process.stdout.write(answers.map((each) => `${JSON.stringify(each)}\n`).join(''));
  else process.exitCode = 105;
}
