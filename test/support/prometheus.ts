/** A real Prometheus that scrapes what it is given, every second, and evaluates the rules of deploy/ as often. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/package-root.js';
import { takePort } from './ports.js';
import { kill, startProcess } from './process.js';
import { makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';

export const RULES = path.join(packageRoot, 'deploy/prometheus/tapegate.rules.yml');

export interface Prometheus {
  /** The values of an expression, with the labels of each. */
  query(expression: string): Promise<{ labels: Record<string, string>; value: number }[]>;
  /** The names of the alerts that fire. */
  firing(): Promise<string[]>;
  /** Why scrapes failed last; nothing where none did. */
  faults(): Promise<string[]>;
  close(): Promise<void>;
}

interface Answer<Data> {
  status: string;
  data: Data;
}

/** @param change of the rules: nobody waits for their times in a test */
export async function startPrometheus(target: string, change: (rules: string) => string): Promise<Prometheus> {
  const dir = makeTempDir();
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.yml'],
    scrape_configs: [{ job_name: 'tapegate-gateway', static_configs: [{ targets: [new URL(target).host] }] }],
  };
  writeFileSync(path.join(dir, 'prometheus.yml'), JSON.stringify(config)); // JSON is YAML
  writeFileSync(path.join(dir, 'rules.yml'), change(readFileSync(RULES, 'utf8')));
  const { port, letGo } = await takePort();
  await letGo();
  const running = startProcess('prometheus', [
    `--config.file=${path.join(dir, 'prometheus.yml')}`,
    `--storage.tsdb.path=${path.join(dir, 'data')}`,
    `--web.listen-address=127.0.0.1:${port}`,
  ]);
  const ask = async <Data>(place: string): Promise<Data> => {
    const answer = await fetch(`http://127.0.0.1:${port}/api/v1/${place}`);
    return ((await answer.json()) as Answer<Data>).data;
  };
  await waitFor('Prometheus to be ready', async () => {
    if (running.child.exitCode !== null) throw new Error(running.stderr());
    return await fetch(`http://127.0.0.1:${port}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  });
  return {
    query: async (expression) => {
      type Found = { result: { metric: Record<string, string>; value: [number, string] }[] };
      const { result } = await ask<Found>(`query?query=${encodeURIComponent(expression)}`);
      return result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
    },
    firing: async () => {
      const { alerts } = await ask<{ alerts: { state: string; labels: { alertname: string } }[] }>('alerts');
      const names = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname);
      return [...new Set(names)].sort();
    },
    faults: async () => {
      const { activeTargets } = await ask<{ activeTargets: { lastError: string }[] }>('targets');
      return activeTargets.map(({ lastError }) => lastError).filter((fault) => fault !== '');
    },
    close: () => kill(running),
  };
}
