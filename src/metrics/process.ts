/** The metrics of this process, once for all that runs in it: what is told by signals, and what Node.js knows of itself. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { type Counted, counted, type Recorder, recordBy, type Timed, timed } from '../signals.js';
import { type EngineFigures, engineFigures } from './engine-figures.js';

let registry: Registry | undefined;

/** Counts from the first call on. */
export function processMetrics(): Registry {
  registry ??= create();
  return registry;
}

function create(): Registry {
  const made = new Registry();
  collectDefaultMetrics({ register: made });
  // gauges that are called as only counters may be; of each there are figures by type as well
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
  // of a counter that begins with its first event nobody sees that it has grown
  for (const place of ['disk', 'tape']) recorder.count('tapegate_hung_calls_total', { place }, 0);
  for (const code of ['INTERNAL', 'UNAVAILABLE']) recorder.count('tapegate_errors_total', { class: code }, 0);
  addEngineGauges(registers);
  return made;
}

/** Sums over the processes of a part; the greatest delay. */
function addEngineGauges(registers: Registry[]): void {
  const gauge = (name: string, help: string, labelNames: string[], set: (gauge: Gauge) => void) =>
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
  const each = (tell: (figures: EngineFigures) => void) => {
    for (const figures of engineFigures.values()) tell(figures);
  };
  gauge('tapegate_engine_processes', 'Processes of the engine that live', ['part'], (to) =>
    each(({ part }) => to.inc({ part })),
  );
  gauge('tapegate_engine_resident_memory_bytes', 'Memory of the processes of the engine', ['part'], (to) =>
    each(({ part, residentBytes }) => to.inc({ part }, residentBytes)),
  );
  gauge('tapegate_engine_database_connections', 'Their connections', ['part', 'state'], (to) =>
    each(({ part, connections }) => {
      for (const [state, number] of Object.entries(connections)) to.inc({ part, state }, number);
    }),
  );
  gauge('tapegate_engine_event_loop_delay_seconds', 'The worst delay of their event loops of late', ['part'], (to) => {
    const worst = new Map<string, number>();
    each(({ part, loopSeconds }) => worst.set(part, Math.max(worst.get(part) ?? 0, loopSeconds)));
    for (const [part, seconds] of worst) to.set({ part }, seconds);
  });
}
