/** A database URL with several servers. */
import { expect, test } from 'vitest';
import { askHosts } from '../../src/database/hosts.js';
import { nameOfUrl, splitHosts } from '../../src/database-url.js';

test.each([
  [
    'postgresql://u:p,w%40@a,b:5433/tapes?sslmode=require',
    ['a', 'b:5433'].map((h) => `postgresql://u:p,w%40@${h}/tapes?sslmode=require`),
  ],
  ['postgres://a,[::1]:5433/tapes', ['postgres://a/tapes', 'postgres://[::1]:5433/tapes']],
  ['postgresql://a/tapes?options=-c%20x,y', ['postgresql://a/tapes?options=-c%20x,y']],
  ['postgresql:///tapes?host=/run/postgresql', ['postgresql:///tapes?host=/run/postgresql']],
  ['postgresql://a/ta,pes', ['postgresql://a/ta,pes']],
])('%s is split into a URL for each server', (url, urls) => {
  expect(splitHosts(url)).toEqual(urls);
});

test('the name of a URL contains all servers and no secret', () => {
  expect(nameOfUrl('postgresql://u:secret@a,b:5433/tapes')).toBe('a,b:5433/tapes');
  expect(nameOfUrl('postgresql:///tapes?host=/run/postgresql')).toBe('/run/postgresql/tapes');
});

test('the first answer of a server counts; a refusal counts more than a server that is away', async () => {
  const away = Object.assign(new Error('away'), { syscall: 'connect' });
  const answers: Record<string, unknown> = {
    'postgresql://a/t': away,
    'postgresql://b/t': 'here',
    'postgresql://c/t': new Error('no'),
  };
  const ask = async (url: string) => {
    const answer = answers[url];
    if (answer instanceof Error) throw answer;
    return answer;
  };
  expect(await askHosts('postgresql://a,b,c/t', ask)).toBe('here');
  await expect(askHosts('postgresql://a,c/t', ask)).rejects.toThrow('no');
  await expect(askHosts('postgresql://a/t', ask)).rejects.toThrow('away');
});
