/** A webhook that its author may no longer read is disabled, so that events do not go to the author's URL for good. */
import { expect, test } from 'vitest';
import { removeQuotaMember, setQuotaMember } from '../../src/domain/access/members.js';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import type { Context } from '../../src/domain/context.js';
import { createWebhook, listWebhooks, updateWebhook } from '../../src/domain/notifications/webhooks/webhooks.js';
import { purgeUser } from '../../src/domain/users/purge.js';
import { addQuota } from '../support/factories.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  for (const user of ['lab', 'team', 'staff', 'bob', 'eve', 'gus']) await addQuota(app.ctx, user, 10n ** 9n);
});

function callAs(name: string, role: 'user' | 'operator', quotas: readonly string[] = []): Context {
  const manages = role === 'operator' ? 'all' : new Set([name, ...quotas]);
  return { ...app.ctx, caller: { ...app.ctx.caller, name, way: 'token', roles: new Set([role]), manages } };
}

async function addWebhook(ctx: Context, quota: string | null): Promise<number> {
  const { webhook } = await createWebhook(ctx, { quota, url: `https://${ctx.caller.name}.example/` });
  return webhook.id;
}

/** Returns why webhooks are disabled, by id; null if enabled. Omits removed webhooks. */
async function readReasons(...ids: number[]): Promise<Record<number, string | null>> {
  const webhooks = await listWebhooks(app.ctx, { limit: 1000 });
  const known = webhooks.filter(({ id }) => ids.includes(id));
  return Object.fromEntries(known.map(({ id, disabledReason }) => [id, disabledReason]));
}

const LOST = 'the user who created the webhook may no longer receive its events';

test.each(['is removed', 'becomes a plain member'])('the webhook of a manager who %s is disabled', async (what) => {
  const bob = { quota: 'lab', kind: 'USER', name: 'bob' } as const;
  await setQuotaMember(app.ctx, { ...bob, isManager: true });
  const ofBob = await addWebhook(callAs('bob', 'user', ['lab']), 'lab');
  const others = [
    await addWebhook(callAs('lab', 'user'), 'lab'),
    await addWebhook(callAs('bob', 'operator'), 'lab'),
    await addWebhook(callAs('bob', 'user'), 'bob'),
  ];
  await setQuotaMember(app.ctx, { ...bob, isManager: true });
  expect(await readReasons(ofBob)).toEqual({ [ofBob]: null });

  if (what === 'is removed') await removeQuotaMember(app.ctx, bob);
  else await setQuotaMember(app.ctx, { ...bob, isManager: false });

  expect(await readReasons(ofBob)).toEqual({ [ofBob]: LOST });
  expect(Object.values(await readReasons(...others))).toEqual([null, null, null]);
});

test('a manager who enables such a webhook becomes its author', async () => {
  const bob = { quota: 'team', kind: 'USER', name: 'bob' } as const;
  await setQuotaMember(app.ctx, { ...bob, isManager: true });
  const id = await addWebhook(callAs('bob', 'user', ['team']), 'team');
  await removeQuotaMember(app.ctx, bob);
  const { disabledReason, madeBy } = await updateWebhook(callAs('team', 'user'), { id, isEnabled: true });
  expect({ disabledReason, madeBy }).toEqual({ disabledReason: null, madeBy: 'team' });
  await setQuotaMember(app.ctx, { ...bob, isManager: true });
  await removeQuotaMember(app.ctx, bob);
  expect(await readReasons(id)).toEqual({ [id]: null });
});

test('webhooks of users who may have managed a quota only through a removed group are disabled', async () => {
  const group = { quota: 'staff', kind: 'GROUP', name: 'curators' } as const;
  await setQuotaMember(app.ctx, { ...group, isManager: true });
  await setQuotaMember(app.ctx, { quota: 'staff', kind: 'USER', name: 'eve', isManager: true });
  const ofGus = await addWebhook(callAs('gus', 'user', ['staff']), 'staff');
  const others = [
    await addWebhook(callAs('eve', 'user', ['staff']), 'staff'),
    await addWebhook(callAs('staff', 'user'), 'staff'),
    await addWebhook(callAs('gus', 'operator'), 'staff'),
  ];
  await removeQuotaMember(app.ctx, group);
  expect(await readReasons(ofGus)).toEqual({ [ofGus]: LOST });
  expect(Object.values(await readReasons(...others))).toEqual([null, null, null]);
});

test("an operator's webhooks are disabled with the operator's last valid token", async () => {
  const chief = { name: 'chief', role: 'OPERATOR' } as const;
  const tokens = [await createToken(app.ctx, chief), await createToken(app.ctx, chief)].map(({ token }) => token.id);
  await createToken(app.ctx, { ...chief, isReadOnly: true });
  const id = await addWebhook(callAs('chief', 'operator'), null);
  await revokeToken(app.ctx, tokens[0] as number);
  expect(await readReasons(id)).toEqual({ [id]: null });
  await revokeToken(app.ctx, tokens[1] as number);
  expect(await readReasons(id)).toEqual({ [id]: LOST });
});

test("a purge removes the user's webhooks of other quotas, and disables those of the operator with the same name", async () => {
  await setQuotaMember(app.ctx, { quota: 'lab', kind: 'USER', name: 'eve', isManager: true });
  const ofUser = await addWebhook(callAs('eve', 'user', ['lab']), 'lab');
  const ofOperator = await addWebhook(callAs('eve', 'operator'), null);
  await purgeUser(app.ctx, 'eve');
  expect(await readReasons(ofUser, ofOperator)).toEqual({ [ofOperator]: 'its author was purged' });
});
