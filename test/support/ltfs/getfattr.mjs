/** Stands in for getfattr: `--absolute-names --only-values -n user.ltfs.startblock <state>/mnt/<n>/<path>`, of one file that is mounted. */
import { readFileSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { behave, fail } from './state.mjs';

const [absolute, only, flag, name, file, ...more] = process.argv.slice(2);
if (absolute !== '--absolute-names' || only !== '--only-values' || flag !== '-n' || more.length > 0) {
  fail('Usage: getfattr [-hRLP] [-n name|-d] [-e en] [-m pattern] path...', 2);
}
if (!statSync(file, { throwIfNoEntry: false })) fail(`getfattr: ${file}: No such file or directory`);
const [, place, number, below] =
  /^(.*)\/mnt\/(\d+)\/(.*)$/.exec(file) ?? fail(`getfattr: ${file}: Operation not supported`);
await behave(place, 'startBlock', () => {
  const blocks = JSON.parse(readFileSync(`${realpathSync(path.join(place, 'mnt', number))}.json`, 'utf8'));
  const block = name === 'user.ltfs.startblock' ? blocks[below] : undefined;
  if (block === undefined || statSync(file).size === 0) fail(`${file}: ${name}: No such attribute`);
  process.stdout.write(block);
});
