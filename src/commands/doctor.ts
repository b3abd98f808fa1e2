/** `doctor`: what is on disk, and what the database says of it. */
import type { Config } from '../config.js';
import { examine, type Report } from '../engine/doctor/doctor.js';
import type { Finding } from '../operations/doctor/findings.js';
import { openRuntime } from '../runtime.js';
import { exitCodes } from './failure.js';
import { type OutputOptions, printJson, printLine } from './output.js';

export interface DoctorOptions extends OutputOptions {
  repair?: boolean;
  checksums?: boolean;
}

/** Exit code 1 when something is wrong, and still is. */
export async function doctor(config: Config, options: DoctorOptions): Promise<void> {
  const runtime = await openRuntime(config);
  try {
    const { json = false, repair = false, checksums = false } = options;
    const tell = (finding: Finding) => (json ? printJson(finding) : printLine(lineOf(finding)));
    const report = await examine(runtime.ctx, { repair, checksums }, tell);
    if (json) printJson(report);
    else printLine(summaryOf(report));
    if (report.repaired < report.found) process.exitCode = exitCodes.failed;
  } finally {
    await runtime.close();
  }
}

function lineOf({ kind, thing, expected, found, isRepaired }: Finding): string {
  return `${kind}: ${thing}: expected ${expected}; found ${found}${isRepaired ? ' (repaired)' : ''}`;
}

function summaryOf({ lookedAt, found, repaired }: Report): string {
  const { quotas, requests, holds, recalls, disks, copies, checksums, notCompared, files, folders } = lookedAt;
  const looked = `looked at ${quotas} quotas, ${requests} requests, ${holds} holds, ${recalls} recalls, ${disks} disks, ${copies} noted copies (${checksums} of them read)${notCompared === 0 ? '' : `, but not at ${notCompared}`}, ${files} files in ${folders} folders`;
  if (found === 0) return `${looked}: nothing is wrong`;
  return `${looked}: ${found} faults, ${repaired} of them repaired`;
}
