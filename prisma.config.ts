import fs from 'node:fs';

const schema = 'prisma/schema.prisma';

/**
 * Generates the client from a derived schema in which `DateTime @db.Timestamp(6)` is `String`. The columns stay timestamp(6), and values
 * pass as text with six fractional digits, because a JavaScript Date has only three. Migrations read the original schema.
 */
function writeClientSchema(): string {
  const file = 'prisma/client.prisma';
  const derived = fs
    .readFileSync(schema, 'utf8')
    .replace(/\bDateTime(\??)(\s.*?)\s*@db\.Timestamp\(6\)/g, 'String$1$2');
  fs.writeFileSync(file, `// made by prisma.config.ts from schema.prisma\n${derived}`);
  return file;
}

// `prisma generate` requires a schema engine, which it never starts, and downloads one if the file is missing. Any file works.
if (process.argv.includes('generate')) process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath;

export default {
  schema: process.argv.includes('generate') ? writeClientSchema() : schema,
  migrations: { path: 'prisma/migrations' },
  // only `prisma migrate` reads this URL
  datasource: { url: process.env.DATABASE_URL ?? 'postgresql://unused' },
};
