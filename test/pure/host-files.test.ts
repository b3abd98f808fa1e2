/** Hosts to which a library may send a secret. */
import { expect, test } from 'vitest';
import { checkHost, secretPath } from '../../src/tape/host-files.js';
import { addSecret, LIBRARY_ENV } from '../support/library-dir.js';

test.each([
  ['dcache.example.org', 'https://dcache.example.org:2880/'],
  ['dcache.example.org:2880', 'https://dcache.example.org:2880/'],
  ['DCACHE.example.org:443', 'https://dcache.example.org/'],
  ['store.example.org:80', 'http://store.example.org/'],
  ['[2001:db8::1]:443', 'https://[2001:db8::1]/'],
])('a secret for %s is sent to %s', async (host, url) => {
  await checkHost(secretPath(LIBRARY_ENV, addSecret('secret', [host])), new URL(url));
});

test.each([
  ['dcache.example.org:443', 'https://dcache.example.org:8443/', 'dcache.example.org:8443'],
  ['dcache.example.org:443', 'http://dcache.example.org/', 'dcache.example.org:80'],
  ['example.org', 'https://dcache.example.org/', 'dcache.example.org:443'],
])('a secret for %s is not sent to %s', async (host, url, found) => {
  const checked = checkHost(secretPath(LIBRARY_ENV, addSecret('secret', [host])), new URL(url));
  await expect(checked).rejects.toThrow(`does not list "${found}"`);
});
