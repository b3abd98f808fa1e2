/**
 * Sends what a command asks for. The first call of `fetch` takes a tenth of a second of processor time, more than all else that
 * most commands do; `node:http` takes a tenth of that.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';

export interface Posted {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

const CONNECT_MS = 10_000;

/** For a server that has taken what it was sent. */
const ANSWER_MS = 300_000;

/**
 * Posts a body. A redirect is an answer as any other.
 * @throws Error with the cause that the connection failed of, also when the answer breaks off
 */
export async function post(url: string, headers: Record<string, string>, body: string): Promise<Posted> {
  const target = new URL(url);
  if (target.username || target.password)
    throw new Error('a URL with a password is not asked: TAPEGATE_TOKEN is for a token');
  const isTls = target.protocol === 'https:';
  const { request } = await (isTls ? import('node:https') : import('node:http'));
  return await new Promise<Posted>((resolve, reject) => {
    const fail = (cause: Error) => reject(new Error(`no answer: ${cause.message}`, { cause }));
    const length = Buffer.byteLength(body);
    const req = request(target, { method: 'POST', headers: { ...headers, 'Content-Length': length } }, (answer) => {
      const { statusCode: status = 0, headers: given } = answer;
      text(answer).then((read) => resolve({ status, headers: given, text: read }), fail);
    });
    req.on('error', fail);
    req.setTimeout(ANSWER_MS, () => req.destroy(new Error(`nothing comes for ${ANSWER_MS / 1000} s`)));
    req.on('socket', (socket) => {
      if (!socket.connecting) return;
      const late = Object.assign(new Error('the connection is not made in time'), { code: 'ETIMEDOUT' });
      const timer = setTimeout(() => req.destroy(late), CONNECT_MS);
      const stop = () => clearTimeout(timer);
      socket.once(isTls ? 'secureConnect' : 'connect', stop).once('close', stop);
    });
    req.end(body);
  });
}
