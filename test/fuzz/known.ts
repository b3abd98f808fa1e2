/** What answers have told of the server, and the marks of inputs that stand for it. */

const MAX_REQUESTS = 100;
const MAX_OTHERS = 60;
/** Of an answer, what is looked at. */
const LOOKED_AT = 4000;
/** A mark, and the quotes that it may stand between, in JSON, in JSON within JSON, and in a URL. */
const MARK = /(\\"|"|%22)?~([icenk])(\d{1,3})~(\\"|"|%22)?/g;

const FALLBACK: Record<string, string> = { i: '1', c: 'T1JEOjE=', e: '0', n: 'UmVxdWVzdDox', k: 'none' };

export class Known {
  /** Every request that was answered with its id. */
  readonly acknowledged = new Set<number>();
  private readonly found: Record<string, string[]> = { i: [], c: [], e: [], n: [] };
  private readonly secrets: readonly string[];

  /** @param secrets tokens that callers show, in the order of `tokenMarks` */
  constructor(secrets: readonly string[]) {
    this.secrets = secrets;
  }

  /** A request that was made. */
  add(id: number): void {
    this.acknowledged.add(id);
    this.name(id);
  }

  /** A request that there is, whoever made it. */
  name(id: number): void {
    this.keep('i', String(id), MAX_REQUESTS);
  }

  /** Notes what an answer tells of ids and places. */
  learn(answer: string): void {
    const text = answer.slice(0, LOOKED_AT);
    for (const [, value = ''] of text.matchAll(/"cursor":"([^"\\]{1,200})"/g)) this.keep('c', value, MAX_OTHERS);
    for (const [, value = ''] of text.matchAll(/"eventId":"(\d+)"/g)) this.keep('e', value, MAX_OTHERS);
    for (const [, value = ''] of text.matchAll(/"id":"([A-Za-z0-9+/=]{8,60})"/g)) this.keep('n', value, MAX_OTHERS);
  }

  /** A text with what its marks stand for now. */
  fill(text: string): string {
    return text.replace(MARK, (_all, open = '', kind: string, n: string, close = '') => {
      const found = kind === 'k' ? this.secrets : (this.found[kind] ?? []);
      const value = found[Number(n) % found.length] ?? FALLBACK[kind] ?? '';
      const isNumber = kind === 'i' && open !== '' && open === close;
      return isNumber ? value : `${open}${open === '%22' ? encodeURIComponent(value) : value}${close}`;
    });
  }

  forgetAll(): void {
    this.acknowledged.clear();
    for (const list of Object.values(this.found)) list.length = 0;
  }

  private keep(kind: string, value: string, most: number): void {
    const list = this.found[kind] ?? [];
    if (list.includes(value)) return;
    list.push(value);
    if (list.length > most) list.shift();
  }
}
