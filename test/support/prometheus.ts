/** Runs a real Prometheus that scrapes a target and evaluates the rules of deploy/ every second. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { findFreePort } from './ports.js';
import { kill, startProcess } from './process.js';
import { makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';

export const RULES = path.join(packageRoot, 'deploy/prometheus/tapegate.rules.yml');

export type Prometheus = Awaited<ReturnType<typeof startPrometheus>>;

/** @param change returns the rules with shorter times */
export async function startPrometheus(target: string, change: (rules: string) => string) {
  const dir = makeTempDir();
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.yml'],
    scrape_configs: [{ job_name: 'tapegate-gateway', static_configs: [{ targets: [new URL(target).host] }] }],
  };
  writeFileSync(path.join(dir, 'prometheus.yml'), JSON.stringify(config)); // JSON is YAML
  writeFileSync(path.join(dir, 'rules.yml'), change(readFileSync(RULES, 'utf8')));
  const port = await findFreePort();
  const running = startProcess('prometheus', [
    `--config.file=${path.join(dir, 'prometheus.yml')}`,
    `--storage.tsdb.path=${path.join(dir, 'data')}`,
    `--web.listen-address=127.0.0.1:${port}`,
  ]);
  const ask = async <Data>(place: string): Promise<Data> => {
    const answer = await fetch(`http://127.0.0.1:${port}/api/v1/${place}`);
    return ((await answer.json()) as { data: Data }).data;
  };
  await waitFor('Prometheus to be ready', async () => {
    if (running.child.exitCode !== null) throw new Error(running.stderr());
    return await fetch(`http://127.0.0.1:${port}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  });
  return {
    /** Returns the values of an expression with their labels. */
    query: async (expression: string) => {
      type Found = { result: { metric: Record<string, string>; value: [number, string] }[] };
      const { result } = await ask<Found>(`query?query=${encodeURIComponent(expression)}`);
      return result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
    },
    /** Returns the names of the firing alerts. */
    firing: async () => {
      const { alerts } = await ask<{ alerts: { state: string; labels: { alertname: string } }[] }>('alerts');
      const names = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname);
      return [...new Set(names)].sort();
    },
    /** Returns the errors of the latest scrapes. */
    faults: async () => {
      const { activeTargets } = await ask<{ activeTargets: { lastError: string }[] }>('targets');
      return activeTargets.map(({ lastError }) => lastError).filter((fault) => fault !== '');
    },
    close: () => kill(running),
  };
}
