/** Checks the gateway's TLS certificate and private key. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { messageOf } from '../core/errors.js';

export interface TlsFiles {
  cert: string;
  key: string;
}

const parts = {
  cert: { variable: 'TAPEGATE_TLS_CERT', is: 'PEM certificate' },
  key: { variable: 'TAPEGATE_TLS_KEY', is: 'PEM private key without a passphrase' },
} as const;

/**
 * Returns one error for each unusable file, or one error if the certificate and the key do not match.
 * @param contents each file's content, or the error from reading the file
 */
export function findTlsFaults(files: TlsFiles, contents: Record<keyof TlsFiles, unknown>): string[] {
  const faults = (['cert', 'key'] as const).flatMap((part) => {
    const problem = problemOf(part, contents[part]);
    return problem === undefined ? [] : [`${parts[part].variable} ${files[part]} cannot be used: ${problem}`];
  });
  if (faults.length > 0) return faults;
  if (isPair(contents as Record<keyof TlsFiles, Buffer>)) return [];
  return [`the key in TAPEGATE_TLS_KEY ${files.key} does not match the certificate in TAPEGATE_TLS_CERT ${files.cert}`];
}

/**
 * Returns whether the key belongs to the certificate. This check is necessary because `createSecureContext` accepts,
 * for example, an RSA key for an EC certificate.
 */
function isPair({ cert, key }: Record<keyof TlsFiles, Buffer>): boolean {
  try {
    return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}

function problemOf(part: keyof TlsFiles, content: unknown): string | undefined {
  if (!Buffer.isBuffer(content)) return messageOf(content);
  try {
    createSecureContext({ [part]: content });
    return undefined;
  } catch (error) {
    return `it is not a ${parts[part].is} (${messageOf(error)})`;
  }
}
