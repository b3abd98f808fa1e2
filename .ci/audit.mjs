// Asks the registry for known vulnerabilities in production packages. A finding of level high or critical fails. An unreachable
// registry is reported and does not fail, because a build must not depend on the registry.
import { spawnSync } from 'node:child_process';

const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { encoding: 'utf8', timeout: 60_000 });
const report = readReport(stdout);
const counts = report.metadata?.vulnerabilities;

if (counts === undefined) {
  console.log(`npm audit: the registry is unreachable (${report.statusCode ?? 'no answer'})`);
} else {
  const findings = Object.values(report.vulnerabilities).map(
    ({ severity, name, range }) => `${severity}: ${name} ${range}`,
  );
  console.log([`npm audit: ${counts.total} findings`, ...findings].join('\n  '));
  process.exitCode = counts.high + counts.critical > 0 ? 1 : 0;
}

function readReport(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
