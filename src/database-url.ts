/** Splits a DATABASE_URL with several servers, as for libpq: `postgresql://user@a,b:5433/tapegate`. */
export function splitHosts(url: string): string[] {
  const [, scheme, user = '', hosts, rest] = /^([a-z]+:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(url) ?? [];
  if (scheme === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${scheme}${user}${host}${rest}`);
}

/** Returns servers and database without secrets. */
export function nameOfUrl(url: string): string {
  const urls = splitHosts(url).map((each) => new URL(each));
  const hosts = urls.map(({ host, searchParams }) => searchParams.get('host') ?? host);
  return `${hosts.join(',')}${urls[0]?.pathname ?? ''}`;
}
