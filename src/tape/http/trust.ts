/** Certificates that one side does not take, which somebody has to mend: it does not pass by itself. */
import { codeOf } from '../../errors.js';

/** Of OpenSSL, when it looks at a server's certificate. */
const REFUSED_HERE =
  /^(CERT_\w+|CRL_\w+|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)_\w+|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED|HOSTNAME_MISMATCH|ERR_TLS_CERT_ALTNAME_INVALID)$/;

/** What a server says of the certificate that it was shown, or was not. */
const REFUSED_THERE = /^ERR_SSL_\w*ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)$/;

export function isUntrusted(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  if (REFUSED_HERE.test(code) || REFUSED_THERE.test(code)) return true;
  return error instanceof Error && error.cause !== undefined && isUntrusted(error.cause);
}
