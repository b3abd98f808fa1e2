/**
 * Requests of one connection are begun in turn, as they are answered anyway (RFC 9112, 9.3.2): what a client sends ahead waits, unread as
 * far as that goes, and costs nothing that others wait for.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Of one connection. What comes with one read of it, some thousands at most, is parsed before anybody can stop it. */
const MOST_WAITING = 100;

interface Waiting {
  req: IncomingMessage;
  res: ServerResponse;
}

/** A connection on which more than `MOST_WAITING` requests wait is ended. Nothing is begun on one that has ended. */
export function answerInTurn(answer: RequestListener): RequestListener {
  const lines = new WeakMap<Socket, Waiting[]>();

  const begin = (line: Waiting[], { req, res }: Waiting) => {
    res.once('close', () => {
      const { socket } = req;
      const next = isOver(socket) ? undefined : line.shift();
      if (next) begin(line, next);
      else lines.delete(socket);
      if (line.length === 0) socket.resume();
    });
    answer(req, res);
  };

  // an answer that has no connection never ends, and keeps what it has taken: what comes behind one that closes is not begun
  const isOver = (socket: Socket) => socket.destroyed || socket.writableEnded;

  return (req, res) => {
    const { socket } = req;
    if (isOver(socket)) return;
    const line = lines.get(socket);
    if (!line) {
      const own: Waiting[] = [];
      lines.set(socket, own);
      return begin(own, { req, res });
    }
    if (line.length >= MOST_WAITING) return void socket.destroy();
    line.push({ req, res });
    socket.pause();
  };
}
