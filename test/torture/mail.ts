/** A real SMTP server that goes away and comes back, refuses at times, and keeps what it has taken. */
import { type MailServer, Refusal, startMailServer } from '../support/mail-server.js';
import type { Random } from './random.js';

export interface MoodyMail {
  url: string;
  /** In order of arrival; a repeated delivery is there twice. */
  mails: { messageId: string; to: string }[];
  /** Of the answers, how many are refusals that may pass, and how many letters are taken without an answer. */
  mood: { refusals: number; lostAnswers: number };
  goAway(): Promise<void>;
  /** Does nothing when it is there. */
  comeBack(): Promise<void>;
}

const REFUSALS = [421, 450, 451, 452];

export async function startMail(random: Random): Promise<MoodyMail> {
  const mails: MoodyMail['mails'] = [];
  const mood = { refusals: 0, lostAnswers: 0 };
  const refuse = () =>
    random.chance(mood.refusals) ? new Refusal(random.pick(REFUSALS), 'planned: not now') : undefined;

  const listen = async (port?: number): Promise<MailServer> => {
    const server = await startMailServer(port, {
      onConnect: (_session, callback) => callback(refuse()),
      onMailFrom: (_address, _session, callback) => callback(refuse()),
      onRcptTo: (_address, _session, callback) => callback(refuse()),
    });
    server.onMail = ({ headers, to: recipients }) => {
      const refused = refuse();
      if (refused) throw refused;
      const messageId = headers.get('message-id') ?? '';
      for (const to of recipients) mails.push({ messageId, to });
      if (random.chance(mood.lostAnswers)) throw new Refusal(421, 'planned: taken, and the answer says otherwise');
    };
    return server;
  };

  let server: MailServer | undefined = await listen();
  const { url, port } = server;
  let last = Promise.resolve();
  const inTurn = (work: () => Promise<void>) => {
    last = last.then(work, work);
    return last;
  };
  return {
    url,
    mails,
    mood,
    goAway: () =>
      inTurn(async () => {
        await server?.close();
        server = undefined;
      }),
    comeBack: () =>
      inTurn(async () => {
        server ??= await listen(port);
      }),
  };
}
