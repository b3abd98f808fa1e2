/** Listens for connections, handles each connection's requests in order, and rejects malformed requests. */
import { once } from 'node:events';
import { createServer, maxHeaderSize, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { codeOf, messageOf } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { listenForProxy } from './auth/proxy-socket.js';
import { createAddressRecorder } from './http/address.js';
import { dropPrefix, prefixOf, toOriginForm } from './http/http-target.js';
import { isImport } from './http/import-endpoint.js';
import { createObserver } from './http/observed.js';
import { answerInOrder, isAnswering } from './limits/limits.js';

const PARSER_ANSWERS: Record<string, [status: string, message: string]> = {
  HPE_HEADER_OVERFLOW: [
    '431 Request Header Fields Too Large',
    `the request target and the headers must have at most ${maxHeaderSize} bytes in total`,
  ],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['413 Payload Too Large', 'the extensions of a chunk are too long'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'the request did not arrive in time'],
};

function refuseMalformed(error: Error, socket: Socket): void {
  if (!socket.writable || isAnswering(socket)) return void socket.destroy();
  const [status, message] = PARSER_ANSWERS[codeOf(error) ?? ''] ?? [
    '400 Bad Request',
    `the request is not valid HTTP: ${messageOf(error)}`,
  ];
  const body = JSON.stringify([{ error: message, error_msg: message }]);
  const head = [
    'Content-Type: application/json',
    'Vary: Accept',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ];
  socket.end(`HTTP/1.1 ${[status, ...head].join('\r\n')}\r\n\r\n${body}`);
}

const CHECK_MS = 1000;

export const createPlainServer = (listener: RequestListener) =>
  createServer({ connectionsCheckingInterval: CHECK_MS }, listener);

const CONTINUE = /^\s*100-continue\s*$/i;

/**
 * @returns the server for the gateway's address, followed by one server for each Unix socket to which proxies connect
 */
export async function listen(
  app: RequestListener,
  ctx: Context,
  create: (listener: RequestListener) => Server,
): Promise<[Server, ...Server[]]> {
  const { port, host, publicUrl, access } = ctx.config;
  const observe = createObserver(ctx);
  const prefix = prefixOf(publicUrl);
  const recordAddress = createAddressRecorder(access);
  const answer = (isOfSocket: boolean): RequestListener =>
    answerInOrder((req, res) => {
      recordAddress(req, isOfSocket);
      toOriginForm(req);
      dropPrefix(req, prefix);
      observe(req, res);
      // send `100 Continue` now, so that the client sends the body; for an import, this happens after authentication
      if (CONTINUE.test(req.headers.expect ?? '') && !isImport(req)) res.writeContinue();
      app(req, res);
    });
  const server = prepare(create(answer(false)));
  const sockets = access.proxies.sockets.map((socket) => ({
    socket,
    server: prepare(createPlainServer(answer(true))),
  }));
  try {
    await once(server.listen(port, host), 'listening');
    for (const each of sockets) await listenForProxy(each.server, each.socket);
  } catch (error) {
    for (const each of [server, ...sockets.map(({ server }) => server)]) each.close();
    throw error;
  }
  return [server, ...sockets.map(({ server }) => server)];
}

function prepare(server: Server): Server {
  // do not limit the number of headers, because Node.js would silently drop all headers beyond the limit;
  // `maxHeaderSize` limits their total size
  server.maxHeadersCount = 0;
  server.on('clientError', refuseMalformed);
  // a server can ignore an `Expect` header with a value other than 100-continue (RFC 9110, 10.1.1)
  server.on('checkExpectation', (req, res) => void server.emit('request', req, res));
  server.on('checkContinue', (req, res) => void server.emit('request', req, res));
  return server;
}
