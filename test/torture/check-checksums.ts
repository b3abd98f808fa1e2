/** Files of which nobody has told a checksum: the first restore gives them one, and it is that of what lies at their place. */
import type { Facts, FileFact } from './facts.js';
import type { Report } from './violations.js';

export function checkChecksums(facts: Facts, report: Report): void {
  for (const file of facts.files) {
    const name = `file ${file.id} (${file.path})`;
    if (file.checksum === null && file.stage === 'RESTORED' && file.copyChecksum !== null) {
      report('checksum-missing', `${name} was restored with ${file.copyChecksum}, and has no checksum`);
    }
    const right = `sha256:${sha256Of(facts, file)}`;
    if (file.isChecksumTaken && file.checksum !== right) {
      report('checksum-wrong', `${name} was restored, and has ${file.checksum} since; what lies on tape has ${right}`);
    }
  }
}

/** Of the bytes that lie on tape where the file is now, or was last; undefined where nobody has put any there. */
export function sha256Of({ outside }: Facts, file: FileFact): string | undefined {
  const versions = outside.versions.get(file.path) ?? [];
  const moved = versions.find(({ volume, position }) => volume === file.volume && position === file.position);
  // where it was last is not told of a file that has left with its volume, and which version that was its checksum tells
  const checksum = file.volume === null ? (file.checksum ?? file.copyChecksum) : undefined;
  const gone = versions.find(({ sha256 }) => checksum === `sha256:${sha256}`);
  return (moved ?? gone ?? outside.sources.get(file.path))?.sha256;
}
