/** Serves the dashboard, which the build compiles from src/web/ to dist/web/, at the root path. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { RequestHandler } from 'express';
import type { AccessConfig, BrowserConfig } from '../../config/config.js';
import { packageRoot } from '../../core/package-root.js';
import { KeptBody } from '../http/encodings.js';
import { prefixOf } from '../http/http-target.js';

type DashboardConfig = Pick<BrowserConfig, 'publicUrl' | 'dashboard'> & { access: AccessConfig };

const DIRECTORY = path.join(packageRoot, 'dist/web');

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Paths of assets that browsers can cache forever, because the file names change with the contents. */
const HASHED = /^\/assets\//;
const IMMUTABLE = 'public, max-age=31536000, immutable';

interface Asset {
  body: KeptBody;
  type: string;
}

export function createDashboard(config: DashboardConfig): RequestHandler {
  if (!config.dashboard) return (_req, _res, next) => next();
  const policy = policyFor(config.access);
  let assets: Map<string, Asset> | undefined;
  return (req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') return next();
    assets ??= readAssets(config.publicUrl);
    const asset = assets.get(req.path);
    if (!asset) return next();
    res.setHeader('Content-Type', asset.type);
    res.setHeader('Content-Security-Policy', policy);
    asset.body.send(res, HASHED.test(req.path) ? IMMUTABLE : undefined).catch(next);
  };
}

function readAssets(publicUrl: string | undefined): Map<string, Asset> {
  const assets = new Map<string, Asset>();
  if (!existsSync(DIRECTORY)) return assets; // without a build, there is no dashboard to serve
  for (const name of readdirSync(DIRECTORY, { recursive: true, encoding: 'utf8' })) {
    const type = types[path.extname(name)];
    if (type === undefined) continue;
    const bytes = readFileSync(path.join(DIRECTORY, name));
    const isPage = name === 'index.html';
    assets.set(isPage ? '/' : `/${name}`, { body: new KeptBody(isPage ? withBase(bytes, publicUrl) : bytes), type });
  }
  return assets;
}

/**
 * Adds a base URL to the page if the gateway has a path prefix, so that the page works with and without a trailing
 * slash.
 */
function withBase(page: Buffer, publicUrl: string | undefined): Buffer {
  const prefix = prefixOf(publicUrl);
  if (prefix === '') return page;
  return Buffer.from(page.toString().replace('<head>', `<head><base href="${encodeURI(decodeURI(prefix))}/" />`));
}

function policyFor({ auth, oidcIssuers }: AccessConfig): string {
  const issuers = auth.has('oidc') ? oidcIssuers.map((issuer) => new URL(issuer).origin) : [];
  const directives = {
    'default-src': "'none'",
    'script-src': "'self'",
    'style-src': "'self'",
    'img-src': "'self'",
    'connect-src': ["'self'", ...new Set(issuers)].join(' '),
    'base-uri': "'self'",
    'form-action': "'none'",
    'frame-ancestors': "'none'",
    'require-trusted-types-for': "'script'",
  };
  return Object.entries(directives)
    .map((directive) => directive.join(' '))
    .join('; ');
}
