/**
 * Generates parts of pages in docs/reference. Each generated part is between `<!-- name: npm run docs -->` and `<!--
 * end of name -->`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../core/package-root.js';
import { formatCommands } from './commands.js';
import { formatCosts, formatMutations, formatQueries, formatSubscriptions } from './graphql.js';
import { formatMetrics } from './metrics.js';
import { formatLimits, formatSettings } from './settings-table.js';

const parts: Record<string, () => string | Promise<string>> = {
  commands: formatCommands,
  settings: formatSettings,
  limits: formatLimits,
  metrics: formatMetrics,
  queries: formatQueries,
  costs: formatCosts,
  mutations: formatMutations,
  subscriptions: formatSubscriptions,
};

export interface Page {
  file: string;
  text: string;
  current: string;
}

export async function readPages(): Promise<Page[]> {
  const directory = path.join(packageRoot, 'docs/reference');
  const names = readdirSync(directory).filter((name) => name.endsWith('.md'));
  const missing = new Set(Object.keys(parts));
  const pages = await Promise.all(
    names.map(async (name) => {
      const file = path.join(directory, name);
      const text = readFileSync(file, 'utf8');
      return { file, text, current: await writeParts(text, missing) };
    }),
  );
  if (missing.size > 0) throw new Error(`no page contains the parts ${[...missing].join(', ')}`);
  return pages;
}

async function writeParts(text: string, missing: Set<string>): Promise<string> {
  let current = text;
  for (const [, name = ''] of text.matchAll(/^<!-- (\w+): npm run docs -->$/gm)) {
    const part = parts[name];
    if (!part) throw new Error(`${name} is not a generated part`);
    missing.delete(name);
    const between = new RegExp(`(<!-- ${name}: npm run docs -->\n)[\\s\\S]*?(<!-- end of ${name} -->\n)`);
    const written = await part();
    current = current.replace(between, (_all, start: string, end: string) => `${start}\n${written}\n\n${end}`);
  }
  return current;
}
