/** Bodies of requests that were answered before they had come: their rest is read, since most clients send all of it first. */
import type { IncomingMessage, ServerResponse } from 'node:http';

/** What it brings at least in the time that is set for bodies. */
const LEAST_BYTES = 64 * 1024;

/** So often it is looked whether it does. */
const MOST_LOOKS = 10;

/** Ends the connection where the rest comes too slowly, or does not end. */
export function boundRest(req: IncomingMessage, res: ServerResponse, seconds: number): void {
  res.once('close', () => {
    const { socket } = req;
    if (req.complete || socket.destroyed) return;
    let read = socket.bytesRead;
    let looks = 0;
    const look = setInterval(() => {
      looks++;
      if (socket.bytesRead - read < LEAST_BYTES || looks >= MOST_LOOKS) socket.destroy();
      read = socket.bytesRead;
    }, seconds * 1000).unref();
    const stop = () => {
      clearInterval(look);
      socket.off('close', stop); // one connection has many requests
    };
    req.once('end', stop);
    socket.once('close', stop);
  });
}
