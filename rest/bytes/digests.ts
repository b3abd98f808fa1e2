/** Checksums of a file in the headers that tell them: `Repr-Digest` (RFC 9530), and `Digest` (RFC 3230), which grid clients ask for. */

/** Of the catalogue's algorithms: the name in `Digest` and how its value is written, and the name in `Repr-Digest`, whose values are base64. */
const algorithms: Record<string, { digest: string; form: 'hex' | 'base64'; repr: string }> = {
  adler32: { digest: 'adler32', form: 'hex', repr: 'adler' },
  md5: { digest: 'md5', form: 'base64', repr: 'md5' },
  sha256: { digest: 'sha-256', form: 'base64', repr: 'sha-256' },
};

/** What a reader has asked for by `Want-Digest` and `Want-Repr-Digest`; undefined: whatever is known. */
export interface Wanted {
  digest: string | undefined;
  repr: string | undefined;
}

/** @param checksums `algorithm:hex`; null where none is known */
export function digestHeaders(checksums: readonly (string | null)[], wanted: Wanted): Record<string, string> {
  const values = new Map(
    checksums.flatMap((checksum): [string, string][] => {
      const [, name = '', hex = ''] = /^(\w+):([0-9a-f]+)$/.exec(checksum ?? '') ?? [];
      return Object.hasOwn(algorithms, name) ? [[name, hex]] : [];
    }),
  );
  const named = [...values].map(([name, hex]) => ({ ...(algorithms[name] as (typeof algorithms)[string]), hex }));
  const inDigest = named.filter(({ digest }) => isWanted(wanted.digest, digest, /;\s*q=0(\.0*)?\s*$/));
  const inRepr = named.filter(({ repr }) => isWanted(wanted.repr, repr, /=0\s*$/));
  const base64 = (hex: string) => Buffer.from(hex, 'hex').toString('base64');
  return {
    ...(inDigest.length > 0 && {
      Digest: inDigest.map(({ digest, form, hex }) => `${digest}=${form === 'hex' ? hex : base64(hex)}`).join(','),
    }),
    ...(inRepr.length > 0 && { 'Repr-Digest': inRepr.map(({ repr, hex }) => `${repr}=:${base64(hex)}:`).join(', ') }),
  };
}

/** @param refused matches an algorithm that is named as one that is not wanted */
function isWanted(list: string | undefined, name: string, refused: RegExp): boolean {
  if (list === undefined) return true;
  return list.split(',').some((part) => {
    const [wanted = ''] = part.trim().split(/[;=]/);
    return wanted.trim().toLowerCase() === name && !refused.test(part);
  });
}
