/** A field that is refused or that fails does not remove the other fields of a response. */
import {
  type GraphQLField,
  getNamedType,
  isInterfaceType,
  isLeafType,
  isObjectType,
  isRequiredArgument,
} from 'graphql';
import { describe, expect, test } from 'vitest';
import { schema } from '../../graphql/schema/schema.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { addPaths, addQuota } from '../support/factories.js';
import { ask } from '../support/graphql.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

type Field = GraphQLField<unknown, unknown>;

const roles = ['anonymous', 'USER', 'SERVICE', 'VIEWER', 'OPERATOR'] as const;
const tokens = new Map<string, string>();

const app = useApp({ config: { access: { auth: new Set(['token', 'open']) } } }, async () => {
  for (const user of ['ann', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
  await addPaths(app.ctx, '/a/1', '/a/2');
  const { pool } = app.ctx.db;
  await pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  await pool.query(`INSERT INTO drive (name) VALUES ('drive-1')`);
  await pool.query(`UPDATE tape_file SET volume_id = (SELECT id FROM volume WHERE name = 'V1'), position = id`);
  await makeRequest(app, { quota: 'ann', patterns: '/a/' });
  await suspend(app.ctx, { kind: 'VOLUME', name: 'V1', mode: 'DRAINING', reason: 'cleaning' });
  for (const role of roles.slice(1)) {
    const of = role === 'SERVICE' ? { quotas: ['ann'] } : {};
    const made = { name: role === 'USER' ? 'ann' : role.toLowerCase(), role, ...of };
    tokens.set(role, (await createToken(app.ctx, made as Parameters<typeof createToken>[1])).secret);
  }
});

/** Values of required arguments, by the argument's name. */
const values: Record<string, string> = {
  'node.id': '"UXVvdGE6MQ=="',
  'nodes.ids': '["UXVvdGE6MQ==", "UmVxdWVzdDox"]',
  'request.requestId': '1',
  'webhookMessages.webhookId': '1',
  'volume.name': '"V1"',
  'simulatePlan.input': '{ suspend: [{ kind: VOLUME, name: "V1" }] }',
  'nameSuggestions.word': '"on"',
  paths: '["/a/1", "/a/3"]',
  path: '"/a/1"',
  user: '"ann"',
  since: '"2026-01-01"',
  input: '{ quota: "ann", pattern: "/a/" }',
};

function argumentsOf(field: Field): string {
  const given = field.args.filter(isRequiredArgument).map(({ name }) => {
    const value = values[`${field.name}.${name}`] ?? values[name];
    if (value === undefined) throw new Error(`no value for the argument ${name} of ${field.name}`);
    return `${name}: ${value}`;
  });
  // pages of the default size would exceed the maximum cost
  if (field.args.some(({ name }) => name === 'first')) given.push('first: 20');
  return given.length > 0 ? `(${given.join(', ')})` : '';
}

/** Returns the text of a field with all leaf fields below it, down to `depth` levels of objects. */
function select(field: Field, depth: number): string | undefined {
  const type = getNamedType(field.type);
  if (isLeafType(type)) return `${field.name}${argumentsOf(field)}`;
  if (depth === 0 || !(isObjectType(type) || isInterfaceType(type))) {
    return depth === 0 ? undefined : `${field.name}${argumentsOf(field)} { __typename }`;
  }
  const isPage = /(?:Connection|Edge)$/.test(type.name);
  const inner = Object.values(type.getFields()).flatMap((each) => select(each, isPage ? depth : depth - 1) ?? []);
  return inner.length > 0 ? `${field.name}${argumentsOf(field)} { ${inner.join(' ')} }` : undefined;
}

const queries = Object.values(schema.getQueryType()?.getFields() ?? {});

describe.each(roles)('as %s', (role) => {
  test.each(queries.map((field) => [field.name, field] as const))('%s', async (_name, field) => {
    const token = tokens.get(role);
    const gateway = token === undefined ? { url: app.url } : { url: app.url, token };
    const { data, errors = [] } = await ask(gateway, `{ result: ${select(field, 2)} caller { name } }`);
    expect(data, JSON.stringify(errors)).toMatchObject({ caller: { name: expect.any(String) } });
    // an error removes only the field at its path, not the objects around the field
    for (const { path = [], message } of errors) {
      const parent = path
        .slice(0, -1)
        .reduce<unknown>((at, part) => (at as Record<string, unknown> | null)?.[part], data);
      expect(parent, `${path.join('.')}: ${message}`).toMatchObject({ [path.at(-1) ?? '']: null });
    }
  });
});
