/** What answers have told of the server, and the marks of inputs that stand for it. */

const MAX_REQUESTS = 100;
const MAX_OTHERS = 60;
/** Of an answer, what is looked at. */
const LOOKED_AT = 4000;
/** A mark, and the quotes that it may stand between, in JSON, in JSON within JSON, and in a URL. */
const MARK = /(\\"|"|%22)?~([icenqskbwm])(\d{1,3})~(\\"|"|%22)?/g;

const FALLBACK: Record<string, string> = {
  i: '1',
  c: 'T1JEOjE=',
  e: '0',
  n: 'UmVxdWVzdDox',
  q: 'ample',
  s: 'none',
  k: 'none',
};

/** Where tokens stand in GraphQL's answers, once each. */
const SECRET = /"(tapegate_[\w-]{43})"/g;

export class Known {
  /** Every request that was answered with its id. */
  readonly acknowledged = new Set<number>();
  /** Those that lived while rules said who may ask for which folder. */
  readonly ruled = new Set<number>();
  /** By the kinds of marks: requests, cursors, events, nodes, tokens that the server has made; and tokens that callers show, alone and as Basic has them. */
  private readonly found: Record<string, string[]> = { i: [], c: [], e: [], n: [], s: [] };
  private readonly shown: Record<string, readonly string[]>;
  private readonly quotas = new Map<string, string>();

  /** @param shown tokens that callers show, in the order of `tokens` */
  constructor({ shown, mountpoints }: { shown: readonly { name: string; secret: string }[]; mountpoints: string[] }) {
    const basic = (name: string, secret: string): string => Buffer.from(`${name}:${secret}`).toString('base64');
    this.shown = {
      k: shown.map(({ secret }) => secret),
      b: shown.map(({ name, secret }) => basic(name, secret)),
      w: shown.map(({ name, secret }) => basic(`${name}?`, secret)),
      m: mountpoints,
    };
  }

  /** A request that was made. */
  add(id: number): void {
    this.acknowledged.add(id);
    this.name(id);
  }

  /** A request that there is, whoever made it. @param user whose it is */
  name(id: number, user?: string): void {
    this.keep('i', String(id), MAX_REQUESTS);
    if (user !== undefined) this.quotas.set(String(id), user);
  }

  /** Notes what an answer tells of ids and places. */
  learn(answer: string): void {
    const text = answer.slice(0, LOOKED_AT);
    for (const [, value = ''] of text.matchAll(/"cursor":"([^"\\]{1,200})"/g)) this.keep('c', value, MAX_OTHERS);
    for (const [, value = ''] of text.matchAll(/"eventId":"(\d+)"/g)) this.keep('e', value, MAX_OTHERS);
    for (const [, value = ''] of text.matchAll(/"id":"([A-Za-z0-9+/=]{8,60})"/g)) this.keep('n', value, MAX_OTHERS);
    for (const [, value = ''] of text.matchAll(SECRET)) this.keep('s', value, MAX_OTHERS);
  }

  /** A text with what its marks stand for now. */
  fill(text: string): string {
    return text.replace(MARK, (_all, open = '', kind: string, n: string, close = '') => {
      const found = this.shown[kind] ?? this.found[kind === 'q' ? 'i' : kind] ?? [];
      const named = found[Number(n) % found.length];
      const value = (kind === 'q' ? this.quotas.get(named ?? '') : named) ?? FALLBACK[kind] ?? '';
      const isNumber = kind === 'i' && open !== '' && open === close;
      return isNumber ? value : `${open}${open === '%22' ? encodeURIComponent(value) : value}${close}`;
    });
  }

  forgetAll(): void {
    this.acknowledged.clear();
    this.ruled.clear();
    this.quotas.clear();
    for (const list of Object.values(this.found)) list.length = 0;
  }

  private keep(kind: string, value: string, most: number): void {
    const list = this.found[kind] ?? [];
    if (list.includes(value)) return;
    list.push(value);
    if (list.length > most) list.shift();
  }
}
