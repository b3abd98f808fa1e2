/** Signature version 4 of AWS, from the side that checks it. */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { S3Error } from './s3-store.js';

export interface S3Account {
  accessKeyId: string;
  secretAccessKey: string;
  region: string;
}

const MAX_SKEW_MS = 15 * 60_000;

/** Of the string that is signed: what the provider documents as the canonical request. */
const FORM =
  /^AWS4-HMAC-SHA256 Credential=([^/,]+)\/(\d{8})\/([^/,]+)\/s3\/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$/;

/** @throws S3Error as S3 answers it */
export function checkSignature(req: IncomingMessage, body: Buffer, account: S3Account): void {
  const { authorization } = req.headers;
  if (authorization === undefined) throw new S3Error(403, 'AccessDenied');
  const [, accessKeyId, day = '', region = '', names = '', signature = ''] = FORM.exec(authorization) ?? [];
  if (accessKeyId === undefined) throw new S3Error(400, 'AuthorizationHeaderMalformed');
  if (accessKeyId !== account.accessKeyId) throw new S3Error(403, 'InvalidAccessKeyId');
  if (region !== account.region) throw new S3Error(400, 'AuthorizationHeaderMalformed', { Region: account.region });
  const date = String(req.headers['x-amz-date']);
  if (!date.startsWith(day) || Math.abs(Date.now() - parseDate(date)) > MAX_SKEW_MS)
    throw new S3Error(403, 'RequestTimeTooSkewed');
  for (const name of ['host', 'x-amz-date', 'x-amz-content-sha256']) {
    if (!names.split(';').includes(name)) throw new S3Error(403, 'SignatureDoesNotMatch');
  }
  if (req.headers['x-amz-content-sha256'] !== hash(body)) throw new S3Error(400, 'XAmzContentSHA256Mismatch');
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', date, scope, hash(canonicalOf(req, names.split(';')))].join('\n');
  const keys = [day, region, 's3', 'aws4_request'];
  const key = keys.reduce<string | Buffer>((made, part) => hmac(made, part), `AWS4${account.secretAccessKey}`);
  if (!timingSafeEqual(hmac(key, text), Buffer.from(signature, 'hex'))) throw new S3Error(403, 'SignatureDoesNotMatch');
}

function canonicalOf(req: IncomingMessage, names: readonly string[]): string {
  const [path = '', query = ''] = (req.url ?? '').split('?');
  const parameters = query === '' ? [] : query.split('&').map((each) => (each.includes('=') ? each : `${each}=`));
  const headers = names.map((name) => `${name}:${String(req.headers[name] ?? '').trim()}\n`).join('');
  const sum = String(req.headers['x-amz-content-sha256']);
  return [req.method, path, parameters.sort().join('&'), headers, names.join(';'), sum].join('\n');
}

/** As in `20261123T051405Z`. */
function parseDate(date: string): number {
  return Date.parse(date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z'));
}

function hash(text: string | Buffer): string {
  return createHash('sha256').update(text).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
