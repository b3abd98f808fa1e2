/** Maps paths to route templates, which metrics, traces and logs contain instead of the paths. */

const templates = [
  '/',
  '/graphql',
  '/graphql/stream',
  '/graphql/schema.graphql',
  '/import',
  '/metrics',
  '/openapi.json',
  '/health/live',
  '/health/ready',
  '/assets/{name}',
  '/downloads/{link}',
  '/.well-known/oauth-protected-resource',
  '/.well-known/wlcg-tape-rest-api',
  '/tape_control/api/v1/requests',
  '/tape_control/api/v1/requests/{id}',
  '/tape_control/api/v1/files',
  '/tape_control/api/v1/quota/{user}',
  '/tape_rest/v1/stage',
  '/tape_rest/v1/stage/{id}',
  '/tape_rest/v1/stage/{id}/cancel',
  '/tape_rest/v1/release/{id}',
  '/tape_rest/v1/archiveinfo',
] as const;

const patterns = templates.map((template) => {
  const pattern = template.replaceAll('.', '\\.').replace(/\{\w+\}/g, '[^/]+');
  return [new RegExp(`^${pattern}/?$`), template] as const;
});

const WEBDAV = /^\/+webdav(\/|$)/;

export function routeOf(target: string): string {
  const [path = ''] = target.split('?', 1);
  const [, template] = patterns.find(([pattern]) => pattern.test(path)) ?? [];
  return template ?? (WEBDAV.test(path) ? '/webdav/{path}' : 'other');
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PROPFIND']);

/** Returns `other` for an unknown method, so that clients cannot add label values to metrics. */
export function methodOf(method: string | undefined): string {
  return method !== undefined && METHODS.has(method) ? method : 'other';
}
