/** Reads zip archives without compression, as the gateway writes them. */
import { crc32 } from 'node:zlib';

const END = 0x06054b50;
const LOCAL_HEADER = 30;
const RECORD = 46;

/** Returns the files of an archive by name. Throws an error if the archive is damaged. */
export function readZip(bytes: Buffer): Map<string, Buffer> {
  const end = bytes.lastIndexOf(Buffer.from([0x50, 0x4b, 5, 6]));
  if (end === -1 || bytes.readUInt32LE(end) !== END) throw new Error('the archive has no end');
  // the format Zip64 has its own end record 76 bytes before the usual one
  const isLong = bytes.readUInt16LE(end + 10) === 0xffff;
  const count = isLong ? Number(bytes.readBigUInt64LE(end - 76 + 32)) : bytes.readUInt16LE(end + 10);
  let at = isLong ? Number(bytes.readBigUInt64LE(end - 76 + 48)) : bytes.readUInt32LE(end + 16);
  const files = new Map<string, Buffer>();
  for (let index = 0; index < count; index++) {
    const [sum, size] = [bytes.readUInt32LE(at + 16), bytes.readUInt32LE(at + 24)];
    const [nameLength, extra, comment] = [28, 30, 32].map((offset) => bytes.readUInt16LE(at + offset)) as [
      number,
      number,
      number,
    ];
    const name = bytes.toString('utf8', at + RECORD, at + RECORD + nameLength);
    const header = bytes.readUInt32LE(at + 42);
    const start = header + LOCAL_HEADER + bytes.readUInt16LE(header + 26) + bytes.readUInt16LE(header + 28);
    const content = bytes.subarray(start, start + size);
    if (crc32(content) !== sum) throw new Error(`${name} has a wrong checksum`);
    files.set(name, content);
    at += RECORD + nameLength + extra + comment;
  }
  return files;
}
