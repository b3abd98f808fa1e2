/** What is left at the systems behind staging libraries: of what Tapegate was told the name of, and of what leaves by itself. */
import type { Remote } from './remote.js';

/**
 * Notes which files have had which names of demands, as far as that was committed: what is in no row any more may be wanted
 * there still. A name whose answer was lost is in none of them, and is nobody's to release.
 */
export const WATCH_DEMANDS = `
  CREATE TABLE torture_noted_demand (library text NOT NULL, name text NOT NULL, path text NOT NULL);
  CREATE FUNCTION torture_note_demand() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO torture_noted_demand SELECT b.name, NEW.remote_id, f.path FROM library b, tape_file f
      WHERE b.id = NEW.library_id AND f.id = NEW.file_id;
    RETURN NEW;
  END $$;
  CREATE TRIGGER torture_demand AFTER INSERT OR UPDATE OF remote_id ON staging FOR EACH ROW
    WHEN (NEW.remote_id IS NOT NULL) EXECUTE FUNCTION torture_note_demand();`;

export const READ_DEMANDS = 'SELECT DISTINCT library, name, path FROM torture_noted_demand';

export interface NotedDemand {
  library: string;
  name: string;
  path: string;
}

/** A file that a system has, or is about to have, on disk for Tapegate. */
export interface LeftFile {
  library: string;
  path: string;
  why: string;
  /** When it leaves by itself, as ISO 8601; null: when it is released. */
  until: string | null;
}

export interface Left {
  files: LeftFile[];
  /** Wanted by demands of whose names nobody has heard: only their lifetimes end them. */
  unnamed: number;
}

/** Where demands have no names, all of them are known. */
export function listLeft({ name: library, system }: Remote, noted: readonly NotedDemand[]): Left {
  const known = new Set(noted.filter((each) => each.library === library).map(({ name, path }) => `${name} ${path}`));
  const wanted = [...system.demands].flatMap(([name, paths]) => [...paths].map((path) => ({ name, path })));
  const named = wanted.filter(({ name, path }) => !system.ids || known.has(`${name} ${path}`));
  const staying = [...system.disk].flatMap(([path, until]) =>
    until && system.isStaged(path) ? [{ library, path, why: 'on disk', until: until.toISOString() }] : [],
  );
  const held = named.map(({ name, path }) => ({ library, path, why: `wanted by ${name}`, until: null }));
  return { files: [...held, ...staying], unnamed: wanted.length - named.length };
}
