/** Checks that texts for people contain few of the constructions in test/support/constructions.ts. */
import { describe, expect, test } from 'vitest';
import { findConstructions } from '../support/constructions.js';
import { countWords, type Prose, readMarkdown, readProse, readSource } from '../support/prose.js';

const stilted = [
  'Who stood still leaves no empty folder behind',
  'Whoever waits for such a file is informed',
  'a file of which nobody tells a checksum gets one at its first restore',
  'Its retention is over, and its files are let go',
  "the catalogue's clock is the only one",
  'A place at a list',
  'What breaks a visit counts against the volume',
  'So many at most, from the beginning or after X: 50 unless given',
  'the door is closed, and nobody is known by the request',
  'X is the name of nothing that is asked for',
  'others use what this needs: try again later',
  'As whom a request counts',
  'Those who come for an event stream',
  'with a slash at its end all of a folder',
  'Let its files go',
  'Files in hand',
  'what is no longer wanted goes',
  'X is what Tapegate calls nobody in person',
  'its hold, be it of an operator or of the engine, stays',
  'It has no place any more, as is so of other files',
  'Where the library is away, no volume is suspended',
  'the list is absent where none did',
  'It comes back by itself',
  'the copy is removed by hand',
  'a copy of before stands still in the way',
  'that of the engine is changed',
  'none of its files is on disk',
  'The names are given out and taken over',
  'an engine was left behind',
  'the library is there, and a disk stands beside it',
  'who breaks it off has withdrawn a part',
  'the clock is put in order',
  'a program from before',
  'the lease goes on',
];

const plain = [
  'Remove empty directories left by a stalled engine',
  'If the catalogue has no checksum for a file, the first restore computes and stores one',
  'The request has expired and its files have been released',
  "All timestamps come from the database server's clock",
  'A slot in the long-query limiter',
  'Unexpected errors while a volume is mounted are charged to the volume',
  'Returns the first n items after the cursor. Default 50, maximum 1000',
  'authentication required',
  'unknown operation',
  'conflict with a concurrent transaction; retry',
  'X is a reserved name',
  'Rate-limit key of a request',
  'Admission control for event-stream connections',
  'a trailing slash selects the whole directory',
  'Estimate. Request all 300 matching files. Release files',
  'Status: Idle. Active files. Active bytes',
  'The engine removes the copy',
  'Recalls are batched by volume because a mount takes 90 s.',
  'quota X is full: 36.0 MB requested, 10.0 MB of 10.0 MB free',
  'List tape files whose path contains <match>',
  'a request over quota returns 403 and stores nothing',
  'If the file does not arrive, tell an operator.',
  'X stands for one argument.',
  'Users who need a file again create a new request.',
  'The error says what to change.',
  'This page is for operators who own drives and disks.',
  'Choose a directory where the engine may write.',
  'The log says where the file is.',
  'When something goes wrong, run the doctor.',
  'Do not stop the gateway before the backup ends.',
  'Copy the token to the file and remove write access for other users.',
  'The command prints one line per file and exits with status 0.',
  'You see a progress bar. Press Ctrl-C to stop watching.',
  'The gateway closes the connection if the client sends nothing for 60 seconds.',
];

test.each(stilted)('"%s" contains a stilted construction', (text) => {
  expect(findConstructions(text)).not.toEqual([]);
});

test.each(plain)('"%s" is plain', (text) => {
  expect(findConstructions(text)).toEqual([]);
});

test('a construction counts once, by the first name that fits', () => {
  expect(findConstructions('Whoever waits is told, by whom')).toEqual([
    { name: 'whoever, whatever', words: 'Whoever' },
    { name: 'told', words: 'told' },
    { name: 'whoever, whatever', words: 'by whom' },
  ]);
});

test('code is not read: only text, comments and messages are', () => {
  expect(readMarkdown('Run `tell` now:\n\n```sh\nnobody tells\n```\n\n[a page](what-it-tells.md)\n')).not.toMatch(
    /tell/,
  );
  const source = [
    '/** Returns the\n * rest of it. */',
    `const a = \`one two \${/* inner */ "x"} three four\`; // after it`,
    "const b = 'SELECT what FROM nobody WHERE told';",
    "const c = /'\\/\\/ no comment/; const d = 'short text';",
    'const e = "http://a//b c d e f"; // last',
  ].join('\n');
  expect(readSource('a.ts', source)).toEqual({
    comments: 'Returns the rest of it.\ninner\nafter it\nlast',
    messages: 'one two X three four\n\nhttp://a//b c d e f',
  });
});

/**
 * Maximum number of constructions in 1,000 words. Restic and river have 1 or 2.
 * Lower a limit when texts have become plainer, and never raise a limit.
 */
const limits: Record<Prose['kind'], number> = { docs: 3, 'other documents': 3, comments: 3, messages: 3 };

describe('constructions in 1,000 words', () => {
  const texts = readProse();

  test.each(Object.entries(limits))('%s: at most %d', (kind, limit) => {
    const found = texts
      .filter((text) => text.kind === kind)
      .map(({ file, text }) => ({ file, words: countWords(text), hits: findConstructions(text) }));
    const words = found.reduce((sum, each) => sum + each.words, 0);
    const hits = found.reduce((sum, each) => sum + each.hits.length, 0);
    const worst = found
      .sort((a, b) => b.hits.length - a.hits.length)
      .slice(0, 10)
      .map(
        ({ file, hits: own }) =>
          `${own.length} in ${file}: ${own
            .slice(0, 12)
            .map((hit) => hit.words)
            .join(', ')}`,
      );
    const rate = words === 0 ? 0 : (hits * 1000) / words;
    expect(rate, `${hits} constructions in ${words} words; most of them\n${worst.join('\n')}`).toBeLessThanOrEqual(
      limit,
    );
  });
});
