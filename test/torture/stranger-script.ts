/** What the stranger does, as a script of a process of another user: a line of JSON in, a line of JSON out. */

/** Deeds by name; each tells what was made of it, and throws what keeps it from being done. */
export const strangerScript = String.raw`
const fs = require('node:fs'); const net = require('node:net'); const path = require('node:path');
const crypto = require('node:crypto'); const { execFileSync } = require('node:child_process');
const home = process.argv[1]; process.chdir(home); let count = 0;
const fresh = () => path.join(home, 'new-' + process.pid + '-' + ++count);
const hash = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const file = (bytes) => { const at = fresh(); fs.writeFileSync(at, bytes, { mode: 0o644 }); return { at, kind: 'file', content: hash(bytes) }; };
const make = {
  file: () => file(crypto.randomBytes(1 + Math.floor(Math.random() * 3000))),
  link: ({ target }) => { const at = fresh(); fs.symlinkSync(target, at); return { at, kind: 'link', content: target }; },
  pipe: () => { const at = fresh(); execFileSync('mkfifo', [at]); return { at, kind: 'pipe', content: '' }; },
  socket: async () => {
    const at = fresh(); const server = net.createServer(); server.unref();
    await new Promise((done, fail) => { server.once('error', fail); server.listen(path.basename(at), done); });
    return { at, kind: 'socket', content: '' };
  },
  // as many bytes as what stands there, and its time of modification
  twin: ({ place }) => {
    const { size, mtime, atime } = fs.statSync(place); const twin = file(crypto.randomBytes(size));
    fs.utimesSync(twin.at, atime, mtime); return twin;
  },
};
const known = (made) => ({ kind: made.kind, content: made.content, ino: String(fs.lstatSync(made.at, { bigint: true }).ino) });
const deeds = {
  // replaces nothing
  put: async (given) => { const made = await make[given.kind](given); const own = known(made); fs.linkSync(made.at, given.place); fs.unlinkSync(made.at); return own; },
  // whatever stands there goes
  swap: async (given) => { const made = await make[given.kind](given); const own = known(made); fs.renameSync(made.at, given.place); return own; },
  folder: ({ place }) => { fs.mkdirSync(place, 0o755); return known({ at: place, kind: 'folder', content: '' }); },
  rename: ({ place, to }) => { if (fs.existsSync(to)) throw new Error('taken'); fs.renameSync(place, to); },
  remove: ({ place }) => { fs.lstatSync(place).isDirectory() ? fs.rmdirSync(place) : fs.unlinkSync(place); },
  chmod: ({ place, mode }) => fs.chmodSync(place, mode),
  write: ({ place }) => fs.writeFileSync(place, 'by a stranger', { flag: 'r+' }),
  list: ({ place }) => fs.readdirSync(place),
};
(async () => {
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    const { deed, ...given } = JSON.parse(line);
    let answer;
    try { answer = { made: (await deeds[deed](given)) ?? null }; } catch (error) { answer = { error: error.message }; }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
})();
`;
