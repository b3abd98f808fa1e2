/**
 * The Prometheus metrics of a process: counters, numbers of connections and events, Node.js metrics, and site metrics.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { packageRoot } from '../core/package-root.js';
import { type Counted, counted, type Recorder, recordBy, startingAtZero, type Timed, timed } from '../core/signals.js';
import type { Context } from '../domain/context.js';
import { connectionsOf, type EngineFigures, engineFigures } from './forwarded.js';
import { LoopDelay } from './loop-delay.js';
import { addSiteGauges } from './site-metrics.js';

export interface Metrics {
  contentType: string;
  text(): Promise<string>;
}

interface GatewayFigures {
  answers(): number;
}

/** Creates a process's metrics. @param gateway the gateway's metrics, if the process runs a gateway */
export function openMetrics(ctx: Context, gateway?: GatewayFigures): Metrics {
  const common = processMetrics();
  const own = new Registry();
  addGauges(ctx, own, gateway);
  const updateSite = addSiteGauges(ctx, own);
  return {
    contentType: common.contentType,
    text: async () => {
      await updateSite();
      return `${await common.metrics()}\n${await own.metrics()}`;
    },
  };
}

interface MetricDescription {
  name: string;
  type: string;
  help: string;
  labels: readonly string[];
}

/** Returns descriptions of all metrics, from which a script generates the documentation. */
export function describeMetrics(): MetricDescription[] {
  const own = new Registry();
  const noContext = { db: {}, events: {} } as unknown as Context;
  addGauges(noContext, own, { answers: () => 0 });
  addSiteGauges(noContext, own);
  return [...processMetrics().getMetricsAsArray(), ...own.getMetricsAsArray()].map((metric) => {
    const { labelNames } = metric as unknown as { labelNames: readonly string[] };
    return { name: metric.name, type: String(metric.type), help: metric.help, labels: labelNames };
  });
}

const createGauges =
  (registers: Registry[]) => (name: string, help: string, labelNames: string[], set: (to: Gauge) => void) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        set(this);
      },
    });

function addGauges(ctx: Context, registry: Registry, gateway: GatewayFigures | undefined): void {
  const { db, events } = ctx;
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const gauge = createGauges([registry]);
  gauge('tapegate_build_info', 'Version of this process', ['version'], (to) => to.set({ version }, 1));
  const pools = { short: db.pool, lists: db.streamPool, imports: db.importPool };
  gauge('tapegate_database_connections', 'Database connections of this process', ['pool', 'state'], (to) => {
    for (const [pool, each] of Object.entries(pools)) {
      for (const [state, number] of Object.entries(connectionsOf(each))) to.set({ pool, state }, number);
    }
  });
  gauge('tapegate_database_connections_max', 'Maximum number of database connections', ['pool'], (to) => {
    for (const [pool, { options }] of Object.entries(pools)) to.set({ pool }, options.max ?? 0);
  });
  gauge('tapegate_database_up', '1 if the database answers this process', [], (to) =>
    to.set(Number(db.pulse.isAnswering)),
  );
  gauge(
    'tapegate_database_clock_plausible',
    '0 if expiry and removal are paused because the database clock jumped',
    [],
    (to) => to.set(Number(db.clock.isPlausible)),
  );
  gauge('tapegate_event_lag_seconds', 'Time since this process last read all new events', [], (to) =>
    to.set(events.lagSeconds),
  );
  gauge('tapegate_event_watchers', 'Event subscribers of this process', [], (to) => to.set(events.readers));
  if (gateway) {
    gauge('tapegate_http_requests_in_flight', 'HTTP requests in flight, including streams', [], (to) =>
      to.set(gateway.answers()),
    );
  }
}

let registry: Registry | undefined;

export function processMetrics(): Registry {
  registry ??= create();
  return registry;
}

function create(): Registry {
  const made = new Registry();
  // take no samples of the event loop's delay here, because `addLoopGauges` replaces these figures
  collectDefaultMetrics({ register: made, eventLoopMonitoringPrecision: NEVER_MS });
  addLoopGauges(made);
  // remove Node.js gauges whose names end in `_total`, because Prometheus reserves this ending for counters
  for (const what of ['handles', 'requests', 'resources']) made.removeSingleMetric(`nodejs_active_${what}_total`);
  const registers = [made];
  const counters = Object.entries(counted).map(
    ([name, { help, labels }]) => [name, new Counter({ name, help, labelNames: labels, registers })] as const,
  );
  const histograms = Object.entries(timed).map(
    ([name, { help, labels, buckets }]) =>
      [name, new Histogram({ name, help, labelNames: labels, buckets: [...buckets], registers })] as const,
  );
  const [counterOf, histogramOf] = [new Map<string, Counter>(counters), new Map<string, Histogram>(histograms)];
  const recorder: Recorder = {
    count: (name: Counted, labels, by) => counterOf.get(name)?.inc(labels, by),
    time: (name: Timed, labels, seconds) => histogramOf.get(name)?.observe(labels, seconds),
  };
  recordBy(recorder);
  for (const [name, all] of Object.entries(startingAtZero)) {
    for (const labels of all) recorder.count(name as Counted, labels, 0);
  }
  addEngineGauges(registers);
  return made;
}

/** The longest interval of a timer, about 25 days. */
const NEVER_MS = 2 ** 31 - 1;
const LOOP_SAMPLE_MS = 10;
const LOOP_CHECK_MS = 2000;

const loopFigures = { min: 'minimum', max: 'maximum', mean: 'mean', stddev: 'standard deviation' } as const;

/** Replaces the event-loop figures of `prom-client`, whose samples use CPU time even while the process is idle. */
function addLoopGauges(made: Registry): void {
  const delay = new LoopDelay(LOOP_SAMPLE_MS);
  setInterval(() => delay.check(LOOP_CHECK_MS), LOOP_CHECK_MS).unref();
  let figures = delay.take();
  const gauge = createGauges([made]);
  for (const [name, what] of Object.entries(loopFigures)) {
    const full = `nodejs_eventloop_lag_${name}_seconds`;
    made.removeSingleMetric(full);
    gauge(full, `The ${what} of the recorded event loop delays.`, [], (to) => {
      if (name === 'min') figures = delay.take();
      to.set(figures[name as keyof typeof loopFigures]);
    });
  }
  for (const percentile of [50, 90, 99] as const) {
    const full = `nodejs_eventloop_lag_p${percentile}_seconds`;
    made.removeSingleMetric(full);
    gauge(full, `The ${percentile}th percentile of the recorded event loop delays.`, [], (to) =>
      to.set(figures[`p${percentile}`]),
    );
  }
}

function addEngineGauges(registers: Registry[]): void {
  const gauge = createGauges(registers);
  const each = (visit: (figures: EngineFigures) => void) => {
    for (const figures of engineFigures.values()) visit(figures);
  };
  gauge('tapegate_engine_processes', 'Running engine processes', ['part'], (to) =>
    each(({ part }) => to.inc({ part })),
  );
  gauge('tapegate_engine_resident_memory_bytes', 'Resident memory of engine processes', ['part'], (to) =>
    each(({ part, residentBytes }) => to.inc({ part }, residentBytes)),
  );
  gauge('tapegate_engine_database_connections', 'Database connections of engine processes', ['part', 'state'], (to) =>
    each(({ part, connections }) => {
      for (const [state, number] of Object.entries(connections)) to.inc({ part, state }, number);
    }),
  );
  gauge(
    'tapegate_engine_event_loop_delay_seconds',
    'Longest recent event-loop delay of an engine process',
    ['part'],
    (to) => {
      const worst = new Map<string, number>();
      each(({ part, loopSeconds }) => worst.set(part, Math.max(worst.get(part) ?? 0, loopSeconds)));
      for (const [part, seconds] of worst) to.set({ part }, seconds);
    },
  );
}
