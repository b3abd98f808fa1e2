/** Client of the REST contract. */
import { type Answer, type Call, type Gateway, send } from './http.js';

export type { Answer };

/** Calls an endpoint. Strings and bytes are sent unchanged, other values as JSON in an array. */
export async function call(
  gateway: Gateway,
  method: string,
  path: string,
  { body, ...rest }: Omit<Call, 'method'> = {},
): Promise<Answer> {
  const isAsItIs = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  return await send(gateway, `/tape_control/api/v1${path}`, { ...rest, method, body: isAsItIs ? body : [body] });
}

export const get = (gateway: Gateway, path: string) => call(gateway, 'GET', path);
export const post = (gateway: Gateway, body: unknown) => call(gateway, 'POST', '/requests', { body });
export const put = (gateway: Gateway, id: number | string, body: unknown) =>
  call(gateway, 'PUT', `/requests/${id}`, { body });

/** Creates a request. Throws an error if the call fails. @returns the id of the request */
export async function makeRequest(gateway: Gateway, fields: object): Promise<number> {
  const { status, text, body } = await post(gateway, fields);
  if (status !== 200) throw new Error(`POST /requests answered ${status}: ${text}`);
  return (body as [{ req_id: number }])[0].req_id;
}

/** Returns the object in the answer to a GET. Throws an error if the call fails. */
export async function read<T = Record<string, unknown>>(gateway: Gateway, path: string): Promise<T> {
  const { status, text, body } = await get(gateway, path);
  if (status !== 200) throw new Error(`GET ${path} answered ${status}: ${text}`);
  return (body as [T])[0];
}

export const readRequest = (gateway: Gateway, id: number) => read(gateway, `/requests/${id}`);

/** Returns the used bytes of a quota. */
export const readUsed = async (gateway: Gateway, user: string) => (await read(gateway, `/quota/${user}`)).used;

/** Returns the body of an error response. */
export const errorBody = (message: string) => [{ error: message, error_msg: message }];
