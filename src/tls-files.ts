/** Checks of a gateway's certificate and key, at the start and when they change. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { messageOf } from './errors.js';

export interface TlsFiles {
  cert: string;
  key: string;
}

const parts = {
  cert: {
    variable: 'TAPEGATE_TLS_CERT',
    parse: (bytes: Buffer) => new X509Certificate(bytes),
    is: 'certificate in PEM',
  },
  key: { variable: 'TAPEGATE_TLS_KEY', parse: createPrivateKey, is: 'key in PEM without a passphrase' },
} as const;

/**
 * Returns all faults of the files: a line for each, or one if they do not belong together.
 * @param contents of each file, or the error of reading it
 */
export function findTlsFaults(files: TlsFiles, { cert, key }: Record<keyof TlsFiles, unknown>): string[] {
  const describe = (part: keyof TlsFiles, problem: string) =>
    `${parts[part].variable} ${files[part]} cannot be used: ${problem}`;
  const problems = { cert: problemOf('cert', cert), key: problemOf('key', key) };
  const faults = (['cert', 'key'] as const).flatMap((part) => {
    const problem = problems[part];
    return problem === undefined ? [] : [describe(part, problem)];
  });
  if (faults.length > 0) return faults;
  const credentials = { cert: cert as Buffer, key: key as Buffer };
  if (!new X509Certificate(credentials.cert).checkPrivateKey(createPrivateKey(credentials.key))) {
    return [
      `the key of TAPEGATE_TLS_KEY ${files.key} is not that of the certificate in TAPEGATE_TLS_CERT ${files.cert}`,
    ];
  }
  try {
    createSecureContext(credentials); // what stands after the certificate is read only here
    return [];
  } catch (error) {
    return [describe('cert', messageOf(error))];
  }
}

function problemOf(part: keyof typeof parts, content: unknown): string | undefined {
  if (!Buffer.isBuffer(content)) return messageOf(content);
  const { parse, is } = parts[part];
  try {
    parse(content);
    return undefined;
  } catch (error) {
    return `it is no ${is} (${messageOf(error)})`;
  }
}
