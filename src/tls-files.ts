/** Checks of a gateway's certificate and key, at the start and when they change. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { messageOf } from './errors.js';

export interface TlsFiles {
  cert: string;
  key: string;
}

export interface TlsCredentials {
  cert: Buffer;
  key: Buffer;
}

const parts = {
  cert: {
    variable: 'TAPEGATE_TLS_CERT',
    parse: (bytes: Buffer) => new X509Certificate(bytes),
    is: 'certificate in PEM',
  },
  key: { variable: 'TAPEGATE_TLS_KEY', parse: createPrivateKey, is: 'key in PEM without a passphrase' },
} as const;

/** Returns all faults of the files: a line for each, or one if they do not belong together. */
export function findTlsFaults(files: TlsFiles): string[] {
  const faults: string[] = [];
  const read = (part: keyof typeof parts): Buffer | undefined => {
    try {
      const bytes = readFileSync(files[part]);
      checkPart(part, bytes);
      return bytes;
    } catch (error) {
      faults.push(describeFault(files, part, error));
      return undefined;
    }
  };
  const [cert, key] = [read('cert'), read('key')];
  if (!cert || !key) return faults;
  try {
    checkTogether(files, { cert, key });
  } catch (error) {
    faults.push(messageOf(error));
  }
  return faults;
}

export function checkTls(files: TlsFiles, credentials: TlsCredentials): void {
  for (const part of ['cert', 'key'] as const) {
    try {
      checkPart(part, credentials[part]);
    } catch (error) {
      throw new Error(describeFault(files, part, error), { cause: error });
    }
  }
  checkTogether(files, credentials);
}

export function describeFault(files: TlsFiles, part: keyof typeof parts, error: unknown): string {
  return `${parts[part].variable} ${files[part]} cannot be used: ${messageOf(error)}`;
}

function checkPart(part: keyof typeof parts, bytes: Buffer): void {
  const { parse, is } = parts[part];
  try {
    parse(bytes);
  } catch (error) {
    throw new Error(`it is no ${is} (${messageOf(error)})`, { cause: error });
  }
}

function checkTogether({ cert, key }: TlsFiles, credentials: TlsCredentials): void {
  if (!new X509Certificate(credentials.cert).checkPrivateKey(createPrivateKey(credentials.key))) {
    throw new Error(`the key of TAPEGATE_TLS_KEY ${key} is not that of the certificate in TAPEGATE_TLS_CERT ${cert}`);
  }
  try {
    createSecureContext({ ...credentials }); // what stands after the certificate is read only here
  } catch (error) {
    throw new Error(describeFault({ cert, key }, 'cert', error), { cause: error });
  }
}
