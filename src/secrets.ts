/**
 * No secret in a log, an error or a line of a terminal. What passes out of the process as text passes through here, whole, so
 * that it does not matter in whose message, cause or stack a secret comes along.
 */

/** What is shown in the place of a secret. */
const HIDDEN = '…';

/** What may be a URL. */
const WORDS = /[^\s"'`<>]+/g;

/** What a scheme of HTTP is followed by. */
const CREDENTIALS = /\b(Bearer|Basic|DPoP)\s+(?=\S*[\d=._-])[\w.~+/-]{8,}=*/gi;

const SECRET_NAMES =
  'authorization|proxy-authorization|cookie|set-cookie|[\\w-]*(?:password|passwd|secret|token)|connectionString|api_?key';

/**
 * A member of a JSON object, also of one within a text of another, whose quotes have backslashes. None of these patterns may
 * look further than its own end for each of its beginnings: a log has long lines.
 */
const MEMBERS = new RegExp(
  String.raw`(\\{0,7})"(${SECRET_NAMES})\1"\s?:\s?(?:\1"(?:(?!\1")(?:\\.|[^\\]))*\1"|\[(?:"(?:\\.|[^"\\])*",?)*\])`,
  'gi',
);

/** A parameter of a target, as a stream's token is. */
const PARAMETERS = new RegExp(`([?&](?:${SECRET_NAMES}|code|assertion)=)[^&\\s"'\`\\\\#]+`, 'gi');

/** A token of Tapegate's own. */
const TOKENS = /\btapegate_[\w-]{32,}/g;

/** As libpq has it, where one takes DATABASE_URL for that. */
const KEYWORDS = /\b((?:ssl)?(?:password|passwd|pwd)\s*=\s*)('(?:\\.|[^'\\])*'?|[^\s'&#]+)/gi;

/** Shorter ones are part of too many words. */
const LEAST_LENGTH = 4;

/**
 * Makes what hides secrets in a text: in the forms that are known to hold one, and those of this environment wherever they are.
 * @param env as of a process: the passwords in variables that end in `_URL`, and the values of those named after a secret
 */
export function createHider(env: Readonly<Record<string, string | undefined>>): (text: string) => string {
  const forms = new Set(Object.entries(env).flatMap(([name, value]) => (value ? secretsIn(name, value) : [])));
  // the longest first: one may hold another
  const alternatives = [...forms].sort((a, b) => b.length - a.length).map(escapeRegExp);
  // a word of a secret's length is not a secret, nor is a number of a JSON document, as a time is
  const own = alternatives.length > 0 && new RegExp(`(?<![\\w]|":)(?:${alternatives.join('|')})(?![\\w])`, 'g');
  return (text) => {
    const shown = own ? text.replace(own, HIDDEN) : text;
    return shown
      .replace(WORDS, hideUserinfo)
      .replace(MEMBERS, `$1"$2$1":$1"${HIDDEN}$1"`)
      .replace(CREDENTIALS, `$1 ${HIDDEN}`)
      .replace(PARAMETERS, `$1${HIDDEN}`)
      .replace(TOKENS, `tapegate_${HIDDEN}`);
  };
}

/**
 * A value of the environment as a refusal may show it. One that should be a URL, and is none, may have its password anywhere:
 * only its scheme and what follows the last `@` are shown, without a query; a port that is none may be a password.
 */
export function showValue(name: string, value: string): string {
  if (isSecretName(name)) return HIDDEN;
  if (!name.endsWith('_URL')) return value;
  const [, scheme = '', rest = ''] =
    /^([a-z][a-z0-9+.-]*:\/\/|(?:postgres(?:ql)?|smtps?|https?):|)(.*)$/is.exec(value) ?? [];
  const place = rest.replace(/^.*@/s, `${HIDDEN}@`).replace(/[?#].*$/s, (part) => `${part[0]}${HIDDEN}`);
  const shown = place.replace(KEYWORDS, `$1${HIDDEN}`);
  return scheme + shown.replace(/^([^:/[]*:)(?!\d{1,5}(?:\/|$)).+$/s, `$1${HIDDEN}`);
}

/** All before the last `@` of a URL: a password that was not encoded may hold anything. */
function hideUserinfo(word: string): string {
  const [scheme, at] = [word.indexOf('://'), word.lastIndexOf('@')];
  return scheme === -1 || at < scheme ? word : `${word.slice(0, scheme + 3)}${HIDDEN}${word.slice(at)}`;
}

function isSecretName(name: string): boolean {
  return /(?:PASSWORD|SECRET|TOKEN)$/.test(name);
}

/** Of a variable. What is in its URL beside the password is known to everybody. */
function secretsIn(name: string, value: string): string[] {
  if (isSecretName(name)) return formsOf(value, '');
  if (!name.endsWith('_URL')) return [];
  const [, user = '', password] = /^[a-z][a-z0-9+.-]*:\/\/([^:/?#@]*)(?::(.*))?@/is.exec(value) ?? [];
  const named = [...value.matchAll(KEYWORDS)].map(([, , secret = '']) => secret.replace(/^'(.*)'$/s, '$1'));
  const inQuery = [...value.matchAll(/[?&]password=([^&#]*)/gi)].map(([, secret = '']) => secret);
  // what a database and a mail server call a user is none; a token may stand there for a web server
  const isToken = password === undefined && /^https?:/i.test(value);
  const secrets = [...(password === undefined ? [] : [password]), ...(isToken ? [user] : []), ...inQuery, ...named];
  const [, place = ''] = /^.*@(.*)$/s.exec(value) ?? [];
  const isPublic = (secret: string) => secret === user || place.split(/[:/?&=#]/).includes(secret);
  return secrets
    .filter((secret) => password === undefined || !isPublic(secret))
    .flatMap((secret) => formsOf(secret, decode(user)));
}

/** As it was written, as it is meant, and as others write it: in URLs, in JSON, in the logins of SMTP and HTTP. */
function formsOf(written: string, user: string): string[] {
  const meant = decode(written);
  const logins = [meant, `${user}:${meant}`, `\0${user}\0${meant}`].map((text) => Buffer.from(text).toString('base64'));
  const plain = [written, meant, encodeURIComponent(meant.toWellFormed()), encodeURI(meant.toWellFormed())];
  const forms = [...plain, ...plain.map((text) => JSON.stringify(text).slice(1, -1)), ...logins];
  return meant.length < LEAST_LENGTH ? [] : forms;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a percent sign that is one
  }
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
