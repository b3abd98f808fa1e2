/** Generates the table in docs/reference/metrics.md. */
import { describeMetrics } from '../../telemetry/metrics.js';

/** Returns a table of Tapegate's own metrics. Omits Node.js metrics. */
export function formatMetrics(): string {
  const rows = describeMetrics()
    .filter(({ name }) => name.startsWith('tapegate_'))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(
      ({ name, type, help, labels }) =>
        `| \`${name}\` | ${type} | ${labels.join(', ')} | ${help.replace(/\. Every process reports the same value$/, '')} |`,
    );
  return ['| Metric | Type | Labels | Meaning |\n|---|---|---|---|', ...rows].join('\n');
}
