/** Whoever asks. */
import { type ShownCaller, showCaller } from '../src/operations/access/caller.js';
import { builder } from './builder.js';

const CallerType = builder.objectRef<ShownCaller>('Caller').implement({
  description: 'Whoever asks, as it is known here.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'Its name; `anybody` where nobody has asked who it is.' }),
    way: t.exposeString('way', { description: 'How it is known: `token`, `oidc`, `proxy`, `certificate`, or `open`.' }),
    roles: t.exposeStringList('roles', { description: 'What it is to the service, such as `user`.' }),
    isReadOnly: t.exposeBoolean('isReadOnly', { description: 'It changes nothing, whatever its roles.' }),
    expiresAt: t.field({
      type: 'DateTime',
      nullable: true,
      description: 'When what it shows is good no longer; null where that has no end.',
      resolve: ({ expiresAt }) => expiresAt ?? null,
    }),
  }),
});

builder.queryField('caller', (t) =>
  t.field({
    authScopes: { operation: 'showCaller' },
    type: CallerType,
    description: 'Whoever asks this: so that one sees whether a token is taken, also where nobody has to show one.',
    resolve: (_root, _args, ctx) => showCaller(ctx),
  }),
);
