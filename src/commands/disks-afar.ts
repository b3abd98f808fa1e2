/** Restore disks as a gateway tells of them, which touches none. */
import type { DiskState } from '../engine/disk/setup.js';
import { askNodes } from './client.js';
import { serialOf } from './where.js';

/** In order of their mount points, as beside the database. */
export async function askDisks(url: string): Promise<DiskState[]> {
  const fields = 'id mountpoint size used reserved free problem suspension { mode reason }';
  const disks = (await askNodes<Node<DiskState>>(url, ['restoreDisks', fields])).map((node) =>
    readRow<DiskState>(node),
  );
  return disks.sort((a, b) => (a.mountpoint < b.mountpoint ? -1 : 1));
}

/** By mount point: the hosts whose engines have looked at each disk of late. */
export async function askHosts(url: string): Promise<Map<string, string[]>> {
  type Disk = { mountpoint: string; hosts: string[] };
  const disks = await askNodes<Disk>(url, ['restoreDisks', 'mountpoint hosts']);
  return new Map(disks.map(({ mountpoint, hosts }) => [mountpoint, hosts]));
}

/** The hosts whose engines have looked at a disk of late; undefined: there is no such disk. */
export async function hostsOf(url: string, mountpoint: string): Promise<string[] | undefined> {
  return (await askHosts(url)).get(mountpoint);
}

/** The id of a node stands for the number that the database knows. */
export function readRow<Row extends { id: number }>(node: Node<Row>): Row {
  return { ...node, id: serialOf(node.id) } as unknown as Row;
}

type Node<Row extends { id: number }> = Omit<Row, 'id'> & { id: string };
