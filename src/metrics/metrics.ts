/** All metrics of a process, as Prometheus reads them: what it counts, its own connections and events, and the site. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Gauge, Registry } from 'prom-client';
import type { Context } from '../context.js';
import { packageRoot } from '../package-root.js';
import { connectionsOf } from './forwarded.js';
import { processMetrics } from './process.js';
import { addSiteGauges } from './site.js';

export interface Metrics {
  contentType: string;
  /** In the text format of Prometheus. */
  text(): Promise<string>;
}

/** What a gateway alone knows. */
export interface GatewayFigures {
  /** Answers that have begun, or wait, and have not ended. */
  answers(): number;
}

/** Counts from now on. @param gateway undefined of a process that is none */
export function openMetrics(ctx: Context, gateway?: GatewayFigures): Metrics {
  const common = processMetrics();
  const own = new Registry();
  addGauges(ctx, own, gateway);
  const lookAtSite = addSiteGauges(ctx, own);
  return {
    contentType: common.contentType,
    text: async () => {
      await lookAtSite();
      return `${await common.metrics()}\n${await own.metrics()}`;
    },
  };
}

function addGauges(ctx: Context, registry: Registry, gateway: GatewayFigures | undefined): void {
  const { db, events } = ctx;
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const gauge = (name: string, help: string, labelNames: string[], set: (to: Gauge) => void) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        set(this);
      },
    });
  gauge('tapegate_build_info', 'The version of this process', ['version'], (to) => to.set({ version }, 1));
  const pools = { short: db.pool, lists: db.streamPool, imports: db.importPool };
  gauge('tapegate_database_connections', 'Connections of this process', ['pool', 'state'], (to) => {
    for (const [pool, each] of Object.entries(pools)) {
      for (const [state, number] of Object.entries(connectionsOf(each))) to.set({ pool, state }, number);
    }
  });
  gauge('tapegate_database_connections_max', 'How many there may be', ['pool'], (to) => {
    for (const [pool, { options }] of Object.entries(pools)) to.set({ pool }, options.max ?? 0);
  });
  gauge('tapegate_database_up', '1 while the database answers this process', [], (to) =>
    to.set(Number(db.pulse.isAnswering)),
  );
  gauge('tapegate_event_lag_seconds', 'For so long this process has known of events that it could not read', [], (to) =>
    to.set(events.lagSeconds),
  );
  gauge('tapegate_event_watchers', 'Who is told of events here', [], (to) => to.set(events.readers));
  if (gateway) {
    gauge('tapegate_http_answers_in_hand', 'Requests that are being answered, streams included', [], (to) =>
      to.set(gateway.answers()),
    );
  }
}
