/** How the command line polls for the token of a device login, and which identity providers are accepted. */
import { afterEach, expect, test, vi } from 'vitest';
import { describeLogin, findDeviceLogin, IssuerRefusal, pollForGrant } from '../../src/cli/connection/issuer-login.js';
import { type CommandError, ConnectionError } from '../../src/cli/terminal/failure.js';

afterEach(() => vi.unstubAllGlobals());

const grant = { token: 't', refreshToken: undefined, expiresAt: undefined, lifeMs: undefined };
const pending = new IssuerRefusal('pending', 'authorization_pending');
const slowDown = new IssuerRefusal('slower', 'slow_down');
const away = new ConnectionError('away');

/** Polls with a list of answers. The last answer is repeated. @returns the pauses in seconds, and the outcome */
async function poll(device: { expires_in: number; interval?: number }, answers: (Error | typeof grant)[]) {
  const pauses: number[] = [];
  let time = 0;
  const outcome = await pollForGrant(device, {
    ask: async () => {
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (answer instanceof Error || answer === undefined) throw answer;
      return answer;
    },
    pause: async (ms) => {
      pauses.push(ms / 1000);
      time += ms;
    },
    now: () => time,
  }).catch((error: CommandError) => [error.message, error.exitCode]);
  return { pauses, outcome };
}

test('polls wait for the interval, longer after slow_down, and ever longer while the provider is away', async () => {
  expect(await poll({ expires_in: 600 }, [pending, grant])).toEqual({ pauses: [5, 5], outcome: grant });
  const answers = [pending, slowDown, pending, slowDown, grant];
  expect(await poll({ expires_in: 600, interval: 2 }, answers)).toEqual({ pauses: [2, 2, 7, 7, 12], outcome: grant });
  const lost = await poll({ expires_in: 600, interval: 5 }, [away, away, away, away, away, pending, grant]);
  expect(lost).toEqual({ pauses: [5, 10, 20, 40, 60, 60, 5], outcome: grant });
});

test('polling ends when the code expires or the provider refuses', async () => {
  const expired = ['the code has expired: run "tapegate login" again', 1];
  expect(await poll({ expires_in: 12, interval: 5 }, [pending])).toEqual({ pauses: [5, 5, 2], outcome: expired });
  for (const [answer, outcome] of [
    [away, ['away', 4]],
    [new IssuerRefusal('over', 'expired_token'), expired],
    [new IssuerRefusal('no', 'access_denied'), ['the identity provider refused the login', 1]],
    [new IssuerRefusal('odd', 'invalid_client'), ['odd', 1]],
  ] as const) {
    expect((await poll({ expires_in: 12 }, [answer])).outcome).toEqual(outcome);
  }
});

test('polls are at least a second apart, and no pause is longer than a day', async () => {
  expect((await poll({ expires_in: 600, interval: 0.0001 }, [pending, grant])).pauses).toEqual([1, 1]);
  expect((await poll({ expires_in: 600, interval: 3_000_000 }, [pending])).pauses).toEqual([600]);
  expect((await poll({ expires_in: 1e300, interval: 1e306 }, [pending])).pauses).toEqual([86_400]);
});

test('a lifetime or an interval that is not a positive number of seconds is rejected', async () => {
  for (const seconds of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
    for (const [name, device] of [
      ['expires_in', { expires_in: seconds }],
      ['interval', { expires_in: 600, interval: seconds }],
    ] as const) {
      const message = `the identity provider returned ${name} ${seconds}, expected a positive number of seconds`;
      expect(await poll(device, [grant])).toEqual({ pauses: [], outcome: [message, 1] });
    }
  }
});

test('a login page with the code is printed only if it is https or on this host', () => {
  const device = { device_code: 'd', user_code: 'AB-CD', verification_uri: 'https://iam.example.org/device' };
  const lines = (whole?: string) => {
    const page = { ...device, expires_in: 1e300, ...(whole !== undefined && { verification_uri_complete: whole }) };
    return describeLogin('https://iam.example.org', page);
  };
  const line = 'log in at https://iam.example.org/device with the code AB-CD, within 24 h';
  for (const whole of ['https://iam.example.org/device?code=AB-CD', 'http://127.0.0.1:9/device?code=AB-CD']) {
    expect(lines(whole)).toEqual([line, `or at ${whole}, which contains the code`]);
  }
  for (const whole of [
    undefined,
    'http://evil.example.org/?c=AB-CD',
    'javascript:alert(1)',
    'https://a@b.example.org/',
  ]) {
    expect(lines(whole)).toEqual([line]);
  }
});

const METADATA = {
  authorization_servers: ['https://iam.example.org'],
  tapegate_client_id: 'cli',
  tapegate_audience: 'https://tapes.example.org/',
};

/** Answers `fetch` calls by URL. @returns the requested URLs */
function answerWith(answers: Record<string, object>): string[] {
  const asked: string[] = [];
  vi.stubGlobal('fetch', async (url: string) => {
    asked.push(url);
    const body = answers[url];
    const headers = { 'Content-Type': 'application/json' };
    return new Response(JSON.stringify(body ?? {}), { status: body ? 200 : 404, headers });
  });
  return asked;
}

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

test('the end of a token is a finite time, or unknown', async () => {
  const issuer = 'https://iam.example.org';
  const endpoints = { token_endpoint: `${issuer}/token`, device_authorization_endpoint: `${issuer}/device` };
  const endOf = async (token: object) => {
    const answer = { access_token: 'opaque', token_type: 'Bearer', ...token };
    const known = `${issuer}/.well-known/openid-configuration`;
    answerWith({ [GATEWAY]: METADATA, [known]: describe(endpoints), [endpoints.token_endpoint]: answer });
    return (await (await findDeviceLogin('https://tapes.example.org'))?.client.askForDevice('d'))?.expiresAt;
  };
  const jwt = (exp: unknown) => ({ access_token: `${encode({ alg: 'none' })}.${encode({ exp })}.x` });
  expect(Number.isFinite(await endOf({ expires_in: 1e308 }))).toBe(true);
  expect(await endOf(jwt(4_000_000_000))).toBeCloseTo(4e12, -3);
  expect([await endOf(jwt('soon')), await endOf({})]).toEqual([undefined, undefined]);
});

const GATEWAY = 'https://tapes.example.org/.well-known/oauth-protected-resource';
const describe = (server: object) => ({ issuer: 'https://iam.example.org', ...server });

test('provider metadata may be of OpenID Connect or OAuth 2, and all its endpoints must be https', async () => {
  const places = {
    token_endpoint: 'https://iam.example.org/token',
    device_authorization_endpoint: 'https://iam.example.org/device',
  };
  for (const place of ['openid-configuration', 'oauth-authorization-server']) {
    answerWith({ [GATEWAY]: METADATA, [`https://iam.example.org/.well-known/${place}`]: describe(places) });
    expect((await findDeviceLogin('https://tapes.example.org'))?.client.issuer).toBe('https://iam.example.org');
  }
  const known = 'https://iam.example.org/.well-known/openid-configuration';
  answerWith({ [GATEWAY]: METADATA, [known]: describe({ token_endpoint: places.token_endpoint }) });
  expect(await findDeviceLogin('https://tapes.example.org')).toBeUndefined();
  for (const [server, says] of [
    [describe({ ...places, token_endpoint: 'http://iam.example.org/token' }), 'an endpoint URL without https://'],
    [{ ...describe(places), issuer: 'https://evil.example.org' }, '"issuer" property does not match'],
  ] as const) {
    answerWith({ [GATEWAY]: METADATA, [known]: server });
    await expect(findDeviceLogin('https://tapes.example.org')).rejects.toThrow(says);
  }
  answerWith({ [GATEWAY]: { ...METADATA, authorization_servers: ['http://iam.example.org'] } });
  await expect(findDeviceLogin('https://tapes.example.org')).rejects.toThrow('must use https://');
});

test('a provider that is away is skipped, and the user may choose one', async () => {
  const places = (host: string) => ({
    issuer: `https://${host}`,
    token_endpoint: `https://${host}/token`,
    device_authorization_endpoint: `https://${host}/device`,
  });
  const [away, first, second] = ['away.example.org', 'iam.example.org', 'other.example.org'];
  answerWith({
    [GATEWAY]: { ...METADATA, authorization_servers: [away, first, second].map((host) => `https://${host}`) },
    [`https://${first}/.well-known/openid-configuration`]: places(first ?? ''),
    [`https://${second}/.well-known/openid-configuration`]: places(second ?? ''),
  });
  const find = async (issuer?: string) =>
    (await findDeviceLogin('https://tapes.example.org', { issuer }))?.client.issuer;
  expect([await find(), await find(`https://${second}`)]).toEqual([`https://${first}`, `https://${second}`]);
  await expect(find(`https://${away}`)).rejects.toThrow('has no discovery document');
  await expect(find('https://no.example.org')).rejects.toThrow(
    `https://tapes.example.org does not accept tokens from https://no.example.org; it accepts tokens from https://${away}, https://${first}, https://${second}`,
  );
});

test('a gateway without TLS is not asked, and another audience than the gateway must be confirmed', async () => {
  const asked = answerWith({ [GATEWAY]: { ...METADATA, tapegate_audience: 'https://others.example.org' } });
  expect(await findDeviceLogin('http://tapes.example.org')).toBeUndefined();
  expect(asked).toEqual([]);
  await expect(findDeviceLogin('https://tapes.example.org')).rejects.toThrow(
    'requires a token with audience "https://others.example.org": if this audience is correct, repeat the command with --audience',
  );
  expect(asked).toEqual([GATEWAY]);
  const confirmed = findDeviceLogin('https://tapes.example.org', { audience: 'https://others.example.org' });
  await expect(confirmed).rejects.toThrow('has no discovery document'); // this check follows the audience's check
});
