/** DATABASE_URL, which names several servers as libpq has it: `postgresql://user@a,b:5433/tapegate`. */

/** A URL for each server that a URL names, in its order; the URL itself where it names one. */
export function splitHosts(url: string): string[] {
  const [, scheme, user = '', hosts, rest] = /^([a-z]+:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(url) ?? [];
  if (scheme === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${scheme}${user}${host}${rest}`);
}

/** Servers and database of a URL, and nothing that is secret. */
export function nameOfUrl(url: string): string {
  const urls = splitHosts(url).map((each) => new URL(each));
  const hosts = urls.map(({ host, searchParams }) => searchParams.get('host') ?? host);
  return `${hosts.join(',')}${urls[0]?.pathname ?? ''}`;
}
