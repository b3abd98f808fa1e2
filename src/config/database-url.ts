/** Parses the URLs of PostgreSQL servers as libpq does. */

/**
 * Rewrites a URL with a user or port but no host, such as `postgresql://user:password@/db?host=/socket`. Moves the
 * user, password and port to query parameters. libpq accepts the original URL, but other parsers do not.
 */
export function normalizeUrl(url: string): string {
  const form = /^(postgres(?:ql)?:\/\/)(?:([^/?#]*)@)?(?::(\d+))?(?=[/?#]|$)(.*)$/s;
  const [, scheme = '', login, port, rest = ''] = form.exec(url) ?? [];
  if (login === undefined && port === undefined) return url;
  const [, user = '', password] = /^([^:]*)(?::(.*))?$/s.exec(login ?? '') ?? [];
  const given = Object.entries({ user, password, port }).filter(([, value]) => value);
  const parameters = given.map(([name, value = '']) => `${name}=${value.replace(/[+&]/g, encodeURIComponent)}`);
  return `${scheme}${rest.startsWith('/') ? '' : '/'}${rest}${rest.includes('?') ? '&' : '?'}${parameters.join('&')}`;
}

/** Splits a URL with several servers into one URL per server. */
export function splitHosts(url: string): string[] {
  const [, scheme, user = '', hosts, rest] = /^([a-z]+:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(url) ?? [];
  if (scheme === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${scheme}${user}${host}${rest}`);
}

/** Returns a URL's servers and database name, without secrets. */
export function nameOfUrl(url: string): string {
  const urls = splitHosts(url).map((each) => new URL(each));
  return `${urls.map(hostOf).join(',')}${urls[0]?.pathname ?? ''}`;
}

/** Returns the server that a URL names: a host with its port, or the directory of a Unix socket. */
export const hostOf = ({ host, searchParams }: URL): string => searchParams.get('host') ?? host;

/**
 * Valid values of `sslmode`: all values that libpq accepts, and `no-verify`, with which the driver pg skips the
 * certificate check.
 */
export const sslModes: readonly string[] = [
  ...(['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const),
  'no-verify',
];
