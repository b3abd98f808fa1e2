/** Text from users in emails, error messages and logs. */
import { expect, test } from 'vitest';
import { oneLine } from '../../src/core/errors.js';
import { escapeUnsafe, printable } from '../../src/core/text/printable.js';
import { composeMail } from '../../src/domain/notifications/mail/mail.js';

/** Control characters (C0, C1), line separators, and characters that change the text direction. */
const UNSAFE = [
  ...['\u0000', '\n', '\u001b', '\u007f', '\u0085', '\u009b', '\u2028', '\u2029', '\u061c', '\u200e', '\u200f'],
  ...['\u202a', '\u202b', '\u202c', '\u202d', '\u202e', '\u2066', '\u2067', '\u2068', '\u2069'],
];

function factsOf(label: string, character = '') {
  return {
    ...{ requestId: 1, link: undefined, label, pattern: `p${character}`, retention: '2026-01-01T00:00:00' },
    ...{ filesTotal: 2, filesOnDisk: 1, filesFailed: 1, filesUnknown: 1, filesRefused: 0, filesOverLimit: 0 },
    ...{ filesReleased: 0, bytesOnDisk: 1n, mountpoints: ['/restore'] },
    copies: [{ path: `/c${character}`, mountpoint: '/restore' }],
    failed: [{ path: `/f${character}`, error: `e${character}` }],
    unresolved: [{ path: `/w${character}`, reason: 'UNKNOWN' as const }],
  };
}

test.each(UNSAFE.map((character) => [character.charCodeAt(0).toString(16), character]))(
  'the character U+%s of a user reaches no email, terminal, error message or log',
  (code, character) => {
    const user = `a${character}b`;
    expect(printable(user)).toBe('a\ufffdb');
    expect(oneLine(user)).toBe('a b');
    expect(escapeUnsafe(user)).toBe(`a\\u${code.padStart(4, '0')}b`);
    const facts = factsOf(user, character);
    for (const kind of ['FIRST_FILE', 'LAST_FILE', 'EXPIRING'] as const) {
      const { subject, body } = composeMail(kind, facts);
      expect(subject).not.toContain(character);
      expect(body.replaceAll('\n', character === '\n' ? ' ' : '\n')).not.toContain(character);
      expect(subject).toContain('a\ufffdb');
    }
  },
);

test('a subject has at most 200 characters of a label, and a body all of them', () => {
  const label = 'x'.repeat(1999);
  for (const kind of ['FIRST_FILE', 'LAST_FILE', 'EXPIRING'] as const) {
    const { subject, body } = composeMail(kind, factsOf(label));
    expect(subject).toMatch(/: x{199}…$/);
    expect(body).toContain(label);
    expect(composeMail(kind, factsOf('x'.repeat(200))).subject).toMatch(/: x{200}$/);
  }
});
