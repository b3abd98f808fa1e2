/** Restore disks as a gateway tells of them, which touches none. */
import type { DiskState } from '../engine/disk/setup.js';
import { ask, askPages, type Page } from './client.js';
import { serialOf } from './where.js';

/** In order of their mount points, as beside the database. */
export async function askDisks(url: string): Promise<DiskState[]> {
  const fields = 'id mountpoint size used reserved free problem suspension { mode reason }';
  const disks: DiskState[] = [];
  for await (const node of askNodes<DiskState>(url, fields)) disks.push(readRow(node));
  return disks.sort((a, b) => (a.mountpoint < b.mountpoint ? -1 : 1));
}

/** By mount point: the hosts whose engines have looked at each disk of late. */
export async function askHosts(url: string): Promise<Map<string, string[]>> {
  const hosts = new Map<string, string[]>();
  type Disk = { id: number; mountpoint: string; hosts: string[] };
  for await (const disk of askNodes<Disk>(url, 'mountpoint hosts')) hosts.set(disk.mountpoint, disk.hosts);
  return hosts;
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

async function* askNodes<Row extends { id: number }>(url: string, fields: string): AsyncGenerator<Node<Row>> {
  const query = `query ($first: Int, $after: String) {
    restoreDisks(first: $first, after: $after) { edges { node { ${fields} } } pageInfo { hasNextPage endCursor } }
  }`;
  const pages = askPages(Number.POSITIVE_INFINITY, async (page) => {
    return (await ask<{ restoreDisks: Page<Node<Row>> }>(url, query, page)).restoreDisks;
  });
  for await (const { edges } of pages) for (const { node } of edges) yield node;
}
