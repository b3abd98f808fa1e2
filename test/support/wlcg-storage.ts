/** Storage of a simulated tape API: files on tape, files on disk, and stage requests. */
import { createHash, randomUUID } from 'node:crypto';

export type TargetState = 'SUBMITTED' | 'COMPLETED' | 'FAILED' | 'CANCELLED';

/** A file of a stage request. */
export interface Target {
  state: TargetState;
  error: string | undefined;
  finishedAt: number | undefined;
  /** Whether the stage request keeps the file on disk. */
  isHeld: boolean;
}

export interface StageRequest {
  id: string;
  createdAt: number;
  /** Files by sanitised path, each with the path that the client sent. */
  files: Map<string, Target & { given: string }>;
}

export class FakeStorage {
  readonly tape = new Map<string, Buffer>();
  readonly disk = new Set<string>();
  readonly requests = new Map<string, StageRequest>();
  private readonly spoiled = new Map<string, 'lost' | 'unavailable'>();
  /** Files whose stage request was deleted before a release. No call can release these files any more. */
  private readonly orphans = new Set<string>();
  /** Whether a file leaves the disk when no stage request holds the file. */
  private readonly evicts: boolean;

  constructor({ evicts }: { evicts: boolean }) {
    this.evicts = evicts;
  }

  put(path: string, bytes: Uint8Array): void {
    this.tape.set(sanitise(path), Buffer.from(bytes));
    this.spoiled.delete(sanitise(path));
  }

  arrive(paths: readonly string[]): void {
    for (const path of paths.map(sanitise)) {
      for (const target of this.targetsOf(path)) {
        if (target.state !== 'SUBMITTED' || this.whyNot(path)) continue;
        this.disk.add(path);
        Object.assign(target, { state: 'COMPLETED', finishedAt: Date.now(), isHeld: true });
      }
    }
  }

  spoil(path: string, how: 'lost' | 'unavailable'): void {
    this.spoiled.set(path, how);
    this.disk.delete(path);
  }

  evict(path: string): void {
    this.disk.delete(path);
    for (const target of this.targetsOf(path)) target.isHeld = false;
  }

  forget(): void {
    this.requests.clear();
  }

  isStaged(path: string): boolean {
    if (!this.disk.has(path)) return false;
    return !this.evicts || this.isHeld(path);
  }

  stage(paths: readonly string[]): StageRequest {
    const request: StageRequest = { id: randomUUID(), createdAt: Date.now(), files: new Map() };
    for (const given of paths) {
      const path = sanitise(given);
      const error = this.whyNot(path);
      const isThere = this.disk.has(path);
      const state = error ? 'FAILED' : isThere ? 'COMPLETED' : 'SUBMITTED';
      const finishedAt = state === 'SUBMITTED' ? undefined : Date.now();
      request.files.set(path, { given, state, error, finishedAt, isHeld: state === 'COMPLETED' });
    }
    this.requests.set(request.id, request);
    return request;
  }

  /** Returns why the file cannot be staged, or undefined. */
  whyNot(path: string): string | undefined {
    const bytes = this.tape.get(path);
    if (!bytes) return 'No such file or directory';
    if (bytes.length === 0) return 'the file is empty and has no copy on tape';
    const how = this.spoiled.get(path);
    if (how === undefined) return undefined;
    return how === 'lost' ? 'no copy of the file is left' : 'the pool of the file is not available';
  }

  locality(path: string): string | undefined {
    const bytes = this.tape.get(path);
    if (!bytes) return undefined;
    if (bytes.length === 0) return 'NONE';
    const how = this.spoiled.get(path);
    if (how !== undefined) return how === 'lost' ? 'LOST' : 'UNAVAILABLE';
    return this.disk.has(path) ? 'DISK_AND_TAPE' : 'TAPE';
  }

  release(request: StageRequest, paths: readonly string[]): void {
    for (const path of paths.map(sanitise)) {
      const target = request.files.get(path);
      if (target) target.isHeld = false;
      if (this.evicts && !this.isHeld(path)) this.disk.delete(path);
    }
  }

  /** @param recallsGoOn whether recalls in progress continue and are not marked as cancelled */
  cancel(request: StageRequest, paths: readonly string[], recallsGoOn = false): void {
    for (const target of paths.map((path) => request.files.get(sanitise(path)))) {
      if (target?.state === 'SUBMITTED' && !recallsGoOn) target.state = 'CANCELLED';
    }
  }

  delete(request: StageRequest): void {
    this.cancel(request, [...request.files.keys()]);
    for (const [path, { isHeld }] of request.files) if (isHeld) this.orphans.add(path);
    this.requests.delete(request.id);
  }

  private isHeld(path: string): boolean {
    return this.orphans.has(path) || this.targetsOf(path).some((target) => target.isHeld);
  }

  private targetsOf(path: string): Target[] {
    return [...this.requests.values()].flatMap(({ files }) => files.get(path) ?? []);
  }
}

export function sanitise(path: string): string {
  return path.replace(/\/{2,}/g, '/');
}

export function adler32(bytes: Uint8Array): Buffer {
  let [a, b] = [1, 0];
  for (const byte of bytes) {
    a = (a + byte) % 65_521;
    b = (b + a) % 65_521;
  }
  const value = Buffer.alloc(4);
  value.writeUInt32BE(b * 65_536 + a);
  return value;
}

export function hashOf(algorithm: 'sha256' | 'md5', bytes: Uint8Array): string {
  return createHash(algorithm).update(bytes).digest('base64');
}
