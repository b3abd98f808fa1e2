/**
 * Connections that carry an event stream from now on, and no answer any more. An answer costs some ten kilobytes as long as it is open: its
 * request, the headers of both, what was found out about its caller, and all that waits for its end. A stream may be open for months, so that all of
 * this is given back when it begins, as if it had been answered.
 */
import { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Request, Response } from 'express';
import { forgetBody } from '../http-body.js';

const streams = new WeakSet<Socket>();

/** Nothing that comes on it is answered any more, and nothing but its stream is written to it. */
export function carriesStream(socket: Socket): boolean {
  return streams.has(socket);
}

type Successor = (socket: Socket) => void;
const successors = new WeakMap<ServerResponse, Successor>();

/** Whoever follows an answer goes on to follow the stream that it becomes. */
export function onHandOver(res: ServerResponse, follow: Successor): void {
  successors.set(res, follow);
}

/**
 * Writes the header, with what was set for the answer, and ends the answer: all who wait for its end are told that it has come.
 * @returns what its stream is to be written to
 */
export function handOver(req: Request, res: Response, headers: Record<string, string>): Socket {
  const { socket } = req;
  streams.add(socket);
  const own = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const others = Object.entries(res.getHeaders()).filter(([name]) => !own.has(name));
  const lines = [...others, ...Object.entries(headers)].map(([name, value]) => `${name}: ${value}`);
  socket.write(`HTTP/1.1 200 OK\r\nDate: ${new Date().toUTCString()}\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.setTimeout(0);
  successors.get(res)?.(socket);
  res.emit('close');
  forget(req);
  // while it has no answer in hand, Node takes a connection for idle, and ends it when it looks for such
  res.detachSocket(socket);
  new ServerResponse(req).assignSocket(socket);
  return socket;
}

/** Node keeps the request with its connection; what hangs on it would stay as well. */
function forget(req: Request): void {
  forgetBody(req);
  req.removeAllListeners();
  const kept: Record<string, unknown> = req as never;
  for (const name of HANGS_ON) if (name in kept) kept[name] = undefined;
  req.headers = {};
  req.rawHeaders = [];
}

/** By Express and what stands in it. */
const HANGS_ON = ['res', 'next', 'route', 'params', 'body', 'baseUrl', 'originalUrl', '_parsedUrl', 'rateLimit'];
