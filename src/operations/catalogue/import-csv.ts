/**
 * Splits lines into the records of a CSV file (RFC 4180): a field may be quoted, and a quoted one may hold commas, line
 * ends, and quotes written twice. A record that cannot be split is passed over, and the next line begins another one.
 */
import { type Line, MAX_LINE_BYTES, RowError } from './import-lines.js';

export interface CsvRecord {
  /** On which the record begins. */
  line: number;
  fields: string[];
}

export interface CsvSplitter {
  /** @returns the record that ends with this line, if one does */
  read(line: Line): CsvRecord | RowError | undefined;
  /** To be called after the last line. */
  end(): RowError | undefined;
}

interface State {
  line: number;
  fields: string[];
  /** What there is so far of a quoted field that goes on in the next line. */
  open: string | undefined;
}

const NOT_CLOSED = 'a quoted field that begins in this row is not closed';

export function createCsvSplitter(): CsvSplitter {
  let state: State | undefined;
  return {
    read: ({ number, text }) => {
      const end = text.endsWith('\r') ? '\r\n' : '\n';
      const line = text.slice(0, text.length + 1 - end.length);
      if (!state && line === '') return undefined;
      state ??= { line: number, fields: [], open: undefined };
      const problem = readLine(state, line, end);
      if (problem === undefined && state.open !== undefined) return undefined;
      const record = state;
      state = undefined;
      return problem === undefined ? record : new RowError(record.line, problem);
    },
    end: () => state && new RowError(state.line, NOT_CLOSED),
  };
}

/** @returns what is wrong, if anything */
function readLine(state: State, line: string, end: string): string | undefined {
  for (let at = 0; ; ) {
    if (state.open === undefined && line[at] !== '"') {
      const comma = line.indexOf(',', at);
      const field = line.slice(at, comma < 0 ? line.length : comma);
      if (field.includes('"')) return 'a field that holds a quote must be quoted, with the quote written twice';
      state.fields.push(field);
      if (comma < 0) return undefined;
      at = comma + 1;
      continue;
    }
    if (state.open === undefined) at++;
    state.open ??= '';
    const quote = line.indexOf('"', at);
    state.open += quote < 0 ? line.slice(at) + end : line.slice(at, quote);
    if (quote < 0) return state.open.length > MAX_LINE_BYTES ? NOT_CLOSED : undefined;
    at = quote + 1;
    if (line[at] === '"') {
      state.open += '"';
      at++;
      continue;
    }
    state.fields.push(state.open);
    state.open = undefined;
    if (at === line.length) return undefined;
    if (line[at] !== ',') return `a quoted field is followed by ${JSON.stringify(line[at])} and not by a comma`;
    at++;
  }
}
