/** Letters that wait to be sent. */
import { listWaitingMail, type MailWait, type WaitingMail } from '../src/operations/mail/outbox.js';
import { builder, pageComplexity } from './builder.js';
import { createIntCursors, resolveCursorPage } from './cursors.js';

const meanings: Record<MailWait, string> = {
  ENGINE: 'For an engine with a mail server: where there is one it is sent at once.',
  RETRY: 'For its next try, or the end of this one.',
  USER_RATE: 'For its turn: the user has had the letters of a minute (half of `MAIL_RATE`).',
  RATE: 'For its turn: all users together have had the letters of a minute (`MAIL_RATE`).',
};

const MailWaitType = builder.enumType('MailWait', {
  description: 'What a letter waits for.',
  values: Object.fromEntries(Object.entries(meanings).map(([name, description]) => [name, { description }])) as Record<
    MailWait,
    { description: string }
  >,
});

const WaitingMailType = builder.objectRef<WaitingMail>('WaitingMail').implement({
  description: 'Letters of a user that wait to be sent. None is lost: they go out in order, each once.',
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Whose requests they are about.' }),
    letters: t.exposeInt('letters', { description: 'How many wait.' }),
    since: t.expose('since', { type: 'DateTime', description: 'When the oldest of them was written.' }),
    waitsFor: t.expose('waitsFor', { type: MailWaitType, description: 'What the first of them waits for.' }),
    nextAt: t.expose('nextAt', { type: 'DateTime', description: 'The first of them is sent no earlier.' }),
    lastError: t.exposeString('lastError', {
      nullable: true,
      description: 'Why the last try of that one failed; null before one has.',
    }),
  }),
});

const cursors = createIntCursors('mail');

builder.queryFields((t) => ({
  waitingMail: t.connection({
    authScopes: { operation: 'listWaitingMail' },
    type: WaitingMailType,
    description: 'The users with letters that wait to be sent, in the order of their quotas.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) =>
      resolveCursorPage(args, cursors, {
        keyOf: ({ id }: WaitingMail) => id,
        find: (page) => listWaitingMail(ctx, page),
      }),
  }),
}));
