import fs from 'node:fs';

const schema = 'prisma/schema.prisma';

/**
 * The client is generated from a derived schema in which `DateTime @db.Timestamp(6)` is `String`: the columns stay
 * timestamp(6) and values pass as text with all six digits, where a JavaScript Date holds three.
 * Migrations read the real schema.
 */
function writeClientSchema(): string {
  const file = 'prisma/client.prisma';
  const derived = fs
    .readFileSync(schema, 'utf8')
    .replace(/\bDateTime(\??)(\s.*?)\s*@db\.Timestamp\(6\)/g, 'String$1$2');
  fs.writeFileSync(file, `// made by prisma.config.ts from schema.prisma\n${derived}`);
  return file;
}

// `prisma generate` looks for a schema engine that it never starts, and downloads one if it finds none: any file will do.
if (process.argv.includes('generate')) process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath;

export default {
  schema: process.argv.includes('generate') ? writeClientSchema() : schema,
  migrations: { path: 'prisma/migrations' },
  // `prisma migrate` needs it; `prisma generate` does not read it
  datasource: { url: process.env.DATABASE_URL ?? 'postgresql://unused' },
};
