/**
 * Requests that a client sends ahead on one connection are begun one after another, as they are answered anyway (RFC 9112, 9.3.2). Node.js begins all
 * of them at once, and an answer behind one that breaks off never closes: what it holds of its caller's limits would be lost.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Requests of one connection that may wait. Node.js parses all that one read brings, some thousands at most, before it can be paused. */
const MOST_WAITING = 100;

interface Line {
  current: ServerResponse;
  waiting: { req: IncomingMessage; res: ServerResponse }[];
}

const lines = new WeakMap<Socket, Line>();

/** Whether something was written on a connection that is not answered to its end. */
export function isAnswering(socket: Socket): boolean {
  return lines.get(socket)?.current.headersSent === true;
}

/** A connection on which more than `MOST_WAITING` requests wait is closed. Nothing is begun on one that has closed. */
export function answerInTurn(answer: RequestListener): RequestListener {
  const begin = (req: IncomingMessage, res: ServerResponse, { waiting }: Pick<Line, 'waiting'>) => {
    const { socket } = req;
    const line = { current: res, waiting };
    lines.set(socket, line);
    res.once('close', () => {
      const next = isOver(socket) ? undefined : waiting.shift();
      if (next) begin(next.req, next.res, line);
      else lines.delete(socket);
      if (waiting.length === 0) socket.resume();
    });
    answer(req, res);
  };
  const isOver = (socket: Socket) => socket.destroyed || socket.writableEnded;

  return (req, res) => {
    const { socket } = req;
    if (isOver(socket)) return;
    const line = lines.get(socket);
    if (!line) return begin(req, res, { waiting: [] });
    if (line.waiting.length >= MOST_WAITING) return void socket.destroy();
    line.waiting.push({ req, res });
    socket.pause();
  };
}
