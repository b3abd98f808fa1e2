/** A real SMTP server that goes away and comes back, refuses at times, and keeps what it has taken. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
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
  let smtp: SMTPServer | undefined;
  const refuse = () => (random.chance(mood.refusals) ? refusal(random.pick(REFUSALS)) : undefined);

  const listen = async (port: number): Promise<number> => {
    smtp = new SMTPServer({
      authOptional: true,
      disabledCommands: ['STARTTLS', 'AUTH'],
      disableReverseLookup: true,
      closeTimeout: 100,
      onConnect: (_session, callback) => callback(refuse()),
      onMailFrom: (_address, _session, callback) => callback(refuse()),
      onRcptTo: (_address, _session, callback) => callback(refuse()),
      onData: (stream, session, callback) => {
        const chunks: Buffer[] = [];
        stream.on('data', (chunk: Buffer) => chunks.push(chunk));
        stream.on('end', () => {
          const error = refuse();
          if (error) return callback(error);
          const messageId = /^Message-ID:\s*(\S+)/im.exec(Buffer.concat(chunks).toString('utf8'))?.[1] ?? '';
          for (const { address } of session.envelope.rcptTo) mails.push({ messageId, to: address });
          if (random.chance(mood.lostAnswers)) callback(refusal(421, 'planned: taken, and the answer says otherwise'));
          else callback();
        });
      },
    });
    smtp.on('error', () => {}); // of connections that the other side breaks off
    smtp.listen(port, '127.0.0.1');
    await once(smtp.server, 'listening');
    return (smtp.server.address() as AddressInfo).port;
  };

  const port = await listen(0);
  return {
    url: `smtp://127.0.0.1:${port}`,
    mails,
    mood,
    goAway: async () => {
      const leaving = smtp;
      smtp = undefined;
      if (leaving) await new Promise<void>((resolve) => leaving.close(() => resolve()));
    },
    comeBack: async () => {
      if (!smtp) await listen(port);
    },
  };
}

function refusal(responseCode: number, message = 'planned: not now'): Error {
  return Object.assign(new Error(message), { responseCode });
}
