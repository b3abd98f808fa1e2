/** Settings of the gateway's own address, and of what browsers may do there. */
import { isIPv6 } from 'node:net';
import type { ConfigReader } from './config-reader.js';
import { findTlsFaults } from './tls-files.js';

export interface BrowserConfig {
  /** Where users find the gateway: scheme, name and path prefix, without a slash at its end. */
  publicUrl: string | undefined;
  /** Names and addresses, without ports, that the gateway goes by beside that of `publicUrl`, HOST and those of loopback. */
  allowedHosts: readonly string[];
  /** Origins whose pages may ask, each `scheme://host[:port]` as browsers write it. */
  corsOrigins: readonly string[];
  /** Serve the page for people at `/`. */
  dashboard: boolean;
  /** Serve GraphiQL to browsers. */
  graphiql: boolean;
  /** Answer questions about the GraphQL schema itself. */
  introspection: boolean;
  /** A file of documents by their ids, which clients may name. */
  trustedDocuments: string | undefined;
  /** Run no other documents, but for operators. */
  trustedOnly: boolean;
  /** Files of PEM: the certificate with those between it and its authority, and its key. Both or none: then without TLS. */
  tlsCert: string | undefined;
  tlsKey: string | undefined;
}

/** @param listens is it for a gateway? Nothing else needs the files of TLS */
export function readBrowserConfig({ text, parsed, oneOf, refuse }: ConfigReader, listens: boolean): BrowserConfig {
  const [tlsCert, tlsKey] = [text('TLS_CERT'), text('TLS_KEY')];
  if (tlsCert === undefined && tlsKey !== undefined) refuse('TLS_KEY needs TLS_CERT, the file of its certificate');
  if (tlsKey === undefined && tlsCert !== undefined)
    refuse("TLS_CERT needs TLS_KEY, the file of the certificate's key");
  if (listens && tlsCert !== undefined && tlsKey !== undefined) {
    for (const fault of findTlsFaults({ cert: tlsCert, key: tlsKey })) refuse(fault);
  }
  const trustedDocuments = text('TRUSTED_DOCUMENTS');
  const trustedOnly = oneOf('TRUSTED_ONLY', ['on', 'off'], 'off') === 'on';
  if (trustedOnly && trustedDocuments === undefined)
    refuse('TRUSTED_ONLY needs TRUSTED_DOCUMENTS, the file of the documents that are trusted');
  return {
    publicUrl: parsed(
      'PUBLIC_URL',
      parsePublicUrl,
      'a URL that begins with http:// or https://, without user, query, or a path of the gateway',
    ),
    allowedHosts:
      parsed('ALLOWED_HOSTS', (value) => parseList(value, parseHost), 'a list of names and addresses, without ports') ??
      [],
    corsOrigins:
      parsed(
        'CORS_ORIGINS',
        (value) => parseList(value, parseOrigin),
        'a list of origins such as https://example.org',
      ) ?? [],
    dashboard: oneOf('DASHBOARD', ['on', 'off'], 'on') === 'on',
    graphiql: oneOf('GRAPHIQL', ['on', 'off'], 'on') === 'on',
    introspection: oneOf('INTROSPECTION', ['on', 'off'], 'on') === 'on',
    trustedDocuments,
    trustedOnly,
    tlsCert,
    tlsKey,
  };
}

/** Paths of the gateway: below a prefix that begins as one of them does, nobody could tell them apart. */
const OWN_PATH = /^\/(graphql|health|metrics|tape_control|tape_rest|webdav)(\/|$)/i;

function parsePublicUrl(text: string): string | undefined {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return undefined;
  const { origin, pathname, search, hash, username, password } = new URL(text);
  if (search + hash + username + password !== '' || OWN_PATH.test(pathname)) return undefined;
  return (origin + pathname).replace(/\/+$/, '');
}

/** Everybody (`*`) is no origin: any page could spend quotas then. */
function parseOrigin(text: string): string | undefined {
  if (!/^https?:\/\/[^/?#@]+\/?$/i.test(text) || !URL.canParse(text)) return undefined;
  return new URL(text).origin;
}

function parseHost(text: string): string | undefined {
  const host = isIPv6(text) ? `[${text}]` : text;
  const isHost = (/^[\w.-]+$/.test(host) || host.startsWith('[')) && URL.canParse(`http://${host}/`);
  return isHost ? new URL(`http://${host}/`).hostname : undefined;
}

/** Of a list with commas, all or nothing. */
function parseList(text: string, parse: (part: string) => string | undefined): string[] | undefined {
  const parts = text.split(',').flatMap((part) => part.trim() || []);
  const values = parts.flatMap((part) => parse(part) ?? []);
  return parts.length > 0 && values.length === parts.length ? values : undefined;
}
