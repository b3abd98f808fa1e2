/** Values that responses have revealed, and the replacement of marks in inputs by such values. */

const MOST: Record<string, number> = { i: 100 };
const MOST_OTHERS = 60;
const READ_CHARACTERS = 4000;
/** Matches a mark with optional quotes in JSON, in JSON within JSON, or in a URL. */
const MARK = /(\\"|"|%22)?~([icenqskbwm])(\d{1,3})~(\\"|"|%22)?/g;

/** Matches request marks in GraphQL operations, where request ids are numbers. */
export const NUMBER_MARK = /~i\d+~/g;

const FALLBACK: Record<string, string> = {
  i: '1',
  c: 'T1JEOjE=',
  e: '0',
  n: 'UmVxdWVzdDox',
  q: 'ample',
  s: 'none',
  k: 'none',
};

/** Patterns of values in GraphQL responses: cursors, event ids, node ids and tokens. */
const PATTERNS: Record<string, RegExp> = {
  c: /"cursor":"([^"\\]{1,200})"/g,
  e: /"eventId":"(\d+)"/g,
  n: /"id":"([A-Za-z0-9+/=]{8,60})"/g,
  s: /"(tapegate_[\w-]{43})"/g,
};

export class Known {
  /** Ids of requests that responses have returned. */
  readonly acknowledged = new Set<number>();
  /** Ids of requests that were live while path rules existed. */
  readonly ruled = new Set<number>();
  /** Values by kind of mark. `i`: request ids; `c`, `e`, `n`, `s`: matches of `PATTERNS`. */
  private readonly found: Record<string, string[]> = { i: [], c: [], e: [], n: [], s: [] };
  private readonly fixed: Record<string, readonly string[]>;
  private readonly quotas = new Map<string, string>();

  /** @param tokens in the order of `tokens` in values.ts */
  constructor(tokens: readonly { name: string; secret: string }[], mountpoints: readonly string[]) {
    const basic = (user: string, secret: string) => Buffer.from(`${user}:${secret}`).toString('base64');
    this.fixed = {
      k: tokens.map(({ secret }) => secret),
      b: tokens.map(({ name, secret }) => basic(name, secret)),
      w: tokens.map(({ name, secret }) => basic(`${name}?`, secret)),
      m: mountpoints,
    };
  }

  /** Adds a request. @param user name of the request's quota */
  name(id: number, user?: string): void {
    this.keep('i', String(id));
    if (user !== undefined) this.quotas.set(String(id), user);
  }

  learn(response: string): void {
    const text = response.slice(0, READ_CHARACTERS);
    for (const [kind, pattern] of Object.entries(PATTERNS)) {
      for (const [, value = ''] of text.matchAll(pattern)) this.keep(kind, value);
    }
  }

  /** Replaces the marks in a text by values. */
  fill(text: string): string {
    return text.replace(MARK, (_all, open = '', kind: string, n: string, close = '') => {
      const values = this.fixed[kind] ?? this.found[kind === 'q' ? 'i' : kind] ?? [];
      const named = values[Number(n) % values.length];
      const value = (kind === 'q' ? this.quotas.get(named ?? '') : named) ?? FALLBACK[kind] ?? '';
      const isNumber = kind === 'i' && open !== '' && open === close;
      return isNumber ? value : `${open}${open === '%22' ? encodeURIComponent(value) : value}${close}`;
    });
  }

  clear(): void {
    this.acknowledged.clear();
    this.ruled.clear();
    this.quotas.clear();
    for (const values of Object.values(this.found)) values.length = 0;
  }

  private keep(kind: string, value: string): void {
    const values = this.found[kind] ?? [];
    if (values.includes(value)) return;
    values.push(value);
    if (values.length > (MOST[kind] ?? MOST_OTHERS)) values.shift();
  }
}
