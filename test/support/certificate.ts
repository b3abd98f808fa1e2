/** Certificates that are created during a test. */
import { generateKeyPairSync, randomInt, sign } from 'node:crypto';

export interface Certificate {
  /** Self-signed certificate in PEM, which clients can also use as the certificate authority. */
  cert: string;
  key: string;
  /** Serial number in the form that Node reports for a peer's certificate. */
  serial: string;
}

/** Creates a certificate for `localhost` and 127.0.0.1, with ECDSA on P-256 (RFC 5280). */
export function makeCertificate(): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const serial = randomInt(0x10000000, 0x7fffffff).toString(16);
  const algorithm = sequence(ECDSA_WITH_SHA256);
  const name = sequence(der(0x31, sequence(COMMON_NAME, der(0x0c, Buffer.from(`tapegate ${serial}`)))));
  const times = [new Date(Date.now() - 86_400_000), new Date(Date.now() + 86_400_000)].map((time) =>
    der(0x17, Buffer.from(`${time.toISOString().slice(2, 19).replace(/\D/g, '')}Z`)),
  );
  const names = sequence(der(0x82, Buffer.from('localhost')), der(0x87, Buffer.from([127, 0, 0, 1])));
  const extensions = sequence(
    sequence(ALTERNATIVE_NAMES, der(0x04, names)),
    sequence(BASIC_CONSTRAINTS, der(0x01, Buffer.from([0xff])), der(0x04, sequence(der(0x01, Buffer.from([0xff]))))),
  );
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, Buffer.from(serial, 'hex')),
    algorithm,
    name,
    sequence(...times),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, extensions),
  );
  const signature = der(0x03, Buffer.from([0]), sign('sha256', body, privateKey));
  return {
    cert: toPem(sequence(body, algorithm, signature)),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    serial: serial.toUpperCase(),
  };
}

const ECDSA_WITH_SHA256 = Buffer.from('06082a8648ce3d040302', 'hex');
const COMMON_NAME = Buffer.from('0603550403', 'hex');
const ALTERNATIVE_NAMES = Buffer.from('0603551d11', 'hex');
const BASIC_CONSTRAINTS = Buffer.from('0603551d13', 'hex');

const sequence = (...parts: Buffer[]) => der(0x30, ...parts);

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function toPem(bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}
