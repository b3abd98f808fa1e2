/** How commands show times. */
import { expect, test } from 'vitest';
import { formatEnd, formatFromNow, formatSpan } from '../../src/commands/times.js';

test.each([
  [0.5, 'now'],
  [119, '119 s'],
  [7199, '120 min'],
  [7200, '2 h'],
  [9000, '2.5 h'],
  [5 * 86_400, '5 days'],
  [5.04 * 86_400, '5 days'],
  [5.1 * 86_400, '5.1 days'],
  [99_999.4 * 86_400, '99999 days'],
])('%d seconds are shown as %s', (seconds, text) => {
  expect(formatSpan(seconds)).toBe(text);
});

test.each([
  [0, 'now'],
  [300, 'in 5 min'],
  [-300, '5 min ago'],
])('%d seconds from now are shown as %s', (seconds, text) => {
  expect(formatFromNow(seconds)).toBe(text);
});

test('the end of a request with a retry is shown as that of the retry', () => {
  const now = '2026-01-02T03:04:05Z';
  const end = { earliest: now, planned: now, latest: now };
  expect(formatEnd(now, end)).toBe('done at once');
  expect(formatEnd(now, end, { nextTry: now })).toBe('done with its next try, which is due');
  expect(formatEnd(now, end, { nextTry: '2026-01-02T03:09:05Z' })).toBe('done with its next try, in 5 min');
  const later = '2026-01-02T03:14:05Z';
  const ends = { earliest: later, planned: later, latest: later };
  expect(formatEnd(now, ends, { nextTry: now })).toMatch(/^done in 10 min by the plan/);
});
