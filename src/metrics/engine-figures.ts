/** What the processes of an engine said last of themselves, in the one that keeps them. It loads nothing, since each of them has it. */

export interface EngineFigures {
  part: string;
  residentBytes: number;
  loopSeconds: number;
  connections: Connections;
}

/** Of a pool. */
export interface Connections {
  used: number;
  idle: number;
  waiting: number;
}

/** By their pids. */
export const engineFigures = new Map<number, EngineFigures>();
