/**
 * `login` by the identity provider of a gateway (RFC 8628): the gateway names the provider, and the user logs in there with any
 * browser, while the command waits for the token.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isLoopback } from '../address-ranges.js';
import { isTrustworthyUrl } from '../issuer-urls.js';
import { CommandError, ConnectionError } from './failure.js';
import { type Grant, IssuerClient, IssuerRefusal } from './issuer-client.js';
import type { Kept } from './kept-tokens.js';
import { noteLine } from './output.js';
import { formatSpan } from './times.js';

export interface DeviceLogin {
  client: IssuerClient;
  clientId: string;
  audience: string;
}

const ANSWER_MS = 10_000;

/**
 * The provider with which a user of the gateway may log in from here: of several the first that lets a command line do that, unless
 * the user names one.
 * @param said.audience what the user says that the token may be for, beside the gateway itself
 * @returns undefined where the gateway names none for the command line
 * @throws CommandError; ConnectionError where none of them is to be had
 */
export async function findDeviceLogin(
  url: string,
  { audience, issuer: meant }: { audience?: string | undefined; issuer?: string | undefined } = {},
): Promise<DeviceLogin | undefined> {
  if (!isTrustworthyUrl(url)) return undefined;
  const told = await readMetadata(url);
  if (!told) return undefined;
  const { authorization_servers: issuers, tapegate_client_id: clientId, tapegate_audience: asked } = told;
  if (typeof clientId !== 'string' || typeof asked !== 'string' || !Array.isArray(issuers)) return undefined;
  checkAudience(url, asked, audience);
  const named = issuers.map(String);
  if (meant !== undefined && !named.includes(meant)) {
    throw new CommandError(`${url} takes no tokens of ${meant}, but of ${named.join(', ')}`);
  }
  let failure: unknown;
  for (const issuer of meant === undefined ? named : [meant]) {
    try {
      const client = await IssuerClient.open(issuer, { clientId, audience: asked });
      if (client.hasDeviceLogin) return { client, clientId, audience: asked };
    } catch (error) {
      failure ??= error; // another one may be the user's
    }
  }
  if (failure !== undefined) throw failure;
  return undefined;
}

/** What the gateway says of itself (RFC 9728). It has moved nowhere: what is said elsewhere is not its word. */
async function readMetadata(url: string): Promise<Record<string, unknown> | undefined> {
  const { METADATA_PATH } = await import('../access/credentials.js');
  const { formatNetworkError } = await import('./client.js');
  const options = { redirect: 'error', signal: AbortSignal.timeout(ANSWER_MS) } as const;
  const response = await fetch(url + METADATA_PATH, options).catch((error) => {
    throw new ConnectionError(formatNetworkError(url, error));
  });
  const told = response.ok ? await response.json().catch(() => undefined) : undefined;
  return typeof told === 'object' && told !== null ? told : undefined;
}

/** Whoever sets up a gateway could have users log in for another one, and use their tokens there. */
function checkAudience(url: string, asked: string, audience: string | undefined): void {
  const { hostname } = new URL(url);
  const isOwn = URL.canParse(asked) && new URL(asked).hostname === hostname;
  if (isOwn || asked === audience || isLoopback(hostname.replace(/^\[|\]$/g, ''))) return;
  throw new CommandError(
    `${url} asks for a token for ${JSON.stringify(asked)}: where that is right, say it by --audience ${JSON.stringify(asked)}`,
  );
}

/** Tells where to log in, and waits until somebody has. @param signal of who waits no longer @throws CommandError */
export async function logInByDevice({ client, clientId, audience }: DeviceLogin, signal: AbortSignal): Promise<Kept> {
  const device = await client.startDeviceLogin();
  const { verification_uri: place, verification_uri_complete: whole, user_code: code } = device;
  if (!isTrustworthyUrl(place.replace(/[?#].*$/s, ''))) {
    throw new CommandError(`${client.issuer} has users log in at no https:// address: ${place}`);
  }
  noteLine(`log in at ${place} with the code ${code}, within ${formatSpan(Math.round(device.expires_in))}`);
  if (whole !== undefined) noteLine(`or at ${whole}, which has the code`);
  const { token, ...times } = await pollForGrant(device, {
    ask: () => client.askForDevice(device.device_code),
    pause: async (ms) => void (await sleep(ms, undefined, { signal })),
    now: () => performance.now(),
  });
  return { token, login: { issuer: client.issuer, clientId, audience, ...times } };
}

/** Added to the interval each time that the provider is asked too often (RFC 8628, 3.5). */
const SLOWER_MS = 5000;

/** Unless the provider says another interval. */
const INTERVAL_SECONDS = 5;

/** Of pauses that double while the provider cannot be reached. */
const MAX_PAUSE_MS = 60_000;

/**
 * Asks for the token at the provider's interval until somebody has logged in, has refused, or the code has expired.
 * @param device its times in seconds
 * @param now milliseconds of a clock that only goes forward
 * @throws CommandError; what `pause` throws
 */
export async function pollForGrant(
  device: { expires_in: number; interval?: number },
  { ask, pause, now }: { ask(): Promise<Grant>; pause(ms: number): Promise<void>; now(): number },
): Promise<Grant> {
  const end = now() + device.expires_in * 1000;
  let intervalMs = (device.interval ?? INTERVAL_SECONDS) * 1000;
  let pauseMs = intervalMs;
  for (;;) {
    await pause(Math.max(0, Math.min(pauseMs, end - now())));
    try {
      return await ask();
    } catch (error) {
      if (!isPassing(error)) throw toOutcome(error);
      if (now() >= end) throw error instanceof ConnectionError ? error : new CommandError(EXPIRED);
      if (error instanceof IssuerRefusal && error.code === 'slow_down') intervalMs += SLOWER_MS;
      const isAway = error instanceof ConnectionError;
      pauseMs = isAway ? Math.max(intervalMs, Math.min(pauseMs * 2, MAX_PAUSE_MS)) : intervalMs;
    }
  }
}

const EXPIRED = 'nobody has logged in while the code was good: begin again';

function isPassing(error: unknown): boolean {
  if (error instanceof ConnectionError) return true;
  return error instanceof IssuerRefusal && ['authorization_pending', 'slow_down'].includes(error.code);
}

function toOutcome(error: unknown): unknown {
  if (!(error instanceof IssuerRefusal)) return error;
  if (error.code === 'expired_token') return new CommandError(EXPIRED);
  return error.code === 'access_denied' ? new CommandError('the login was refused') : error;
}
