/** Hides secrets in logs, errors and terminal output. */

const HIDDEN = '…';

const WORDS = /[^\s"'`<>]+/g;

const CREDENTIALS = /\b(Bearer|Basic|DPoP)\s+(?=\S*[\d=._-])[\w.~+/-]{8,}=*/gi;

const SECRET_NAMES =
  'authorization|proxy-authorization|cookie|set-cookie|[\\w-]*(?:password|passwd|secret|token)|connectionString|api_?key';

/**
 * Matches a JSON member whose name marks a secret, even if the JSON is inside a quoted string. Regular expressions in
 * this file must not backtrack far, because log lines can be long.
 */
const MEMBERS = new RegExp(
  String.raw`(\\{0,7})"(${SECRET_NAMES})\1"\s?:\s?(?:\1"(?:(?!\1")(?:\\.|[^\\]))*\1"|\[(?:"(?:\\.|[^"\\])*",?)*\])`,
  'gi',
);

const PARAMETERS = new RegExp(`([?&](?:${SECRET_NAMES}|code|assertion)=)[^&\\s"'\`\\\\#]+`, 'gi');

const TOKENS = /\btapegate_[\w-]{32,}/g;

const KEYWORDS = /\b((?:ssl)?(?:password|passwd|pwd)\s*=\s*)('(?:\\.|[^'\\])*'?|[^\s'&#]+)/gi;

const LEAST_LENGTH = 4;

/**
 * Returns a function that hides secrets in text: secrets in well-known forms, and every secret from the environment.
 * @param env environment variables; secrets are the passwords in `…_URL` variables, and the values of variables whose
 * names end in PASSWORD, SECRET or TOKEN
 */
export function createHider(env: Readonly<Record<string, string | undefined>>): (text: string) => string {
  const forms = new Set(Object.entries(env).flatMap(([name, value]) => (value ? secretsIn(name, value) : [])));
  // replace longer secrets first, because a secret might contain a shorter secret
  const alternatives = [...forms].sort((a, b) => b.length - a.length).map(escapeRegExp);
  // replace a secret only if it is a whole word and not a number in JSON
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
 * Returns an environment variable's value for an error message, without secrets. An invalid URL might contain its
 * password anywhere, so only the scheme and the part after the last `@` are shown.
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

/** Hides everything between a URL's scheme and its last `@`, because a password can contain any character. */
function hideUserinfo(word: string): string {
  const [scheme, at] = [word.indexOf('://'), word.lastIndexOf('@')];
  return scheme === -1 || at < scheme ? word : `${word.slice(0, scheme + 3)}${HIDDEN}${word.slice(at)}`;
}

function isSecretName(name: string): boolean {
  return /(?:PASSWORD|SECRET|TOKEN)$/.test(name);
}

function secretsIn(name: string, value: string): string[] {
  if (isSecretName(name)) return formsOf(value, '');
  if (!name.endsWith('_URL')) return [];
  const [, user = '', password] = /^[a-z][a-z0-9+.-]*:\/\/([^:/?#@]*)(?::(.*))?@/is.exec(value) ?? [];
  const named = [...value.matchAll(KEYWORDS)].map(([, , secret = '']) => secret.replace(/^'(.*)'$/s, '$1'));
  const inQuery = [...value.matchAll(/[?&]password=([^&#]*)/gi)].map(([, secret = '']) => secret);
  // in an http or https URL without a password, the user name might be a token; in other URLs, the user name is not
  // secret
  const isToken = password === undefined && /^https?:/i.test(value);
  const secrets = [...(password === undefined ? [] : [password]), ...(isToken ? [user] : []), ...inQuery, ...named];
  const [, place = ''] = /^.*@(.*)$/s.exec(value) ?? [];
  const isPublic = (secret: string) => secret === user || place.split(/[:/?&=#]/).includes(secret);
  return secrets
    .filter((secret) => password === undefined || !isPublic(secret))
    .flatMap((secret) => formsOf(secret, decode(user)));
}

/** Returns the forms in which a secret can appear in text: as written, decoded or encoded. */
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
    return text; // decoding fails if the text contains a literal percent sign
  }
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
