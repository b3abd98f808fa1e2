/** Serves the OpenAPI document of the REST contract, for programs, and as a page without scripts and with one stylesheet of its own. */
import { createHash } from 'node:crypto';
import type { RequestHandler } from 'express';
import { KeptBody } from '../src/encodings.js';
import { HttpError } from '../src/http-body.js';
import type { JsonSchema } from './forms.js';
import { describeRest, type Openapi, type OpenapiOperation } from './openapi.js';

const STYLE = `
:root { color-scheme: light dark; --line: light-dark(#c8d0d8, #45505c); --soft: light-dark(#f2f5f8, #1d242c); --link: light-dark(#0b57a4, #8cc2ff) }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; background: light-dark(#fff, #12171d); color: light-dark(#16202a, #e6ebf0) }
a { color: var(--link) }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 2.5rem; padding-top: 1rem; border-top: 1px solid var(--line); overflow-wrap: anywhere }
code, pre { font: .9em/1.45 ui-monospace, monospace }
pre { padding: .75rem; overflow-x: auto; background: var(--soft); border: 1px solid var(--line); border-radius: .3rem }
.wide { overflow-x: auto } :focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
table { border-collapse: collapse; width: 100% } caption { text-align: left; font-weight: 600; padding: .4rem 0 }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); min-width: 4rem }
th[scope=row] { font-weight: 400 } ul { padding-left: 1.2rem } p { white-space: pre-line }
`;

interface Kept {
  type: string;
  policy?: string;
  body: KeptBody;
}

const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** Answers GET and HEAD of `/openapi.json` and of `/openapi`, and leaves all else alone. @param publicUrl where users find the gateway */
export function createOpenapi(publicUrl: string | undefined): RequestHandler {
  let kept: Map<string, Kept> | undefined;
  return (req, res, next) => {
    if (req.path !== '/openapi.json' && req.path !== '/openapi') return next();
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new HttpError(405, `${req.method} is not allowed here, only GET, HEAD`, { Allow: 'GET, HEAD' });
    }
    kept ??= keepBoth(publicUrl); // when it is first asked for
    const { type, policy, body } = kept.get(req.path) as Kept;
    res.setHeader('Content-Type', type);
    if (policy !== undefined) res.setHeader('Content-Security-Policy', policy);
    body.send(res).catch(next);
  };
}

function keepBoth(publicUrl: string | undefined): Map<string, Kept> {
  const document = describeRest(publicUrl);
  const json = new KeptBody(Buffer.from(`${JSON.stringify(document, null, 2)}\n`));
  const page = new KeptBody(Buffer.from(renderPage(document)));
  return new Map<string, Kept>([
    ['/openapi.json', { type: 'application/json', body: json }],
    ['/openapi', { type: 'text/html; charset=utf-8', policy: POLICY, body: page }],
  ]);
}

type Markup = string & { readonly isMarkup: true };

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Texts are escaped, and what is between backticks becomes code. */
const words = (text: string): Markup =>
  text.replace(/[&<>"]/g, (sign) => escapes[sign] ?? '').replace(/`([^`]+)`/g, '<code>$1</code>') as Markup;

function html(parts: TemplateStringsArray, ...values: (string | Markup[])[]): Markup {
  const text = values.map((value) => (typeof value === 'string' ? value : value.join('')));
  return String.raw({ raw: parts }, ...text) as Markup;
}

interface Shown {
  method: string;
  path: string;
  operation: OpenapiOperation;
}

export function renderPage(document: Openapi): string {
  const { info, paths, components, servers } = document;
  const all = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]): Shown => ({ method: method.toUpperCase(), path, operation })),
  );
  const links = all.map(
    ({ method, path, operation: { operationId, summary } }) =>
      html`<li><a href="#${words(operationId)}"><code>${method} ${words(path)}</code></a> ${words(summary)}</li>`,
  );
  const forms = Object.entries(components.schemas).map(
    ([name, form]) => html`<h3 id="form-${name}">${name}</h3>${renderFields(name, form)}`,
  );
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8" /><meta name="viewport" content="width=device-width, initial-scale=1" />
<title>${words(info.title)}</title><style>${STYLE}</style></head><body><main>
<h1>${words(info.title)}</h1><p>${words(info.description)}</p>
<p>All paths are below <code>${words(servers.map(({ url }) => url).join(' '))}</code>. Programs read the same at <a href="openapi.json">openapi.json</a>.</p>
<nav aria-label="Endpoints"><ul>${links}</ul></nav>
${all.map((shown) => renderOperation(shown))}
<h2 id="forms">Forms</h2>${forms}
</main></body></html>
`;
}

function renderOperation({ method, path, operation }: Shown): Markup {
  const { operationId, summary, description, parameters, requestBody, responses } = operation;
  const rules = String(operation['x-rules']);
  return html`<section aria-labelledby="${operationId}"><h2 id="${operationId}"><code>${method} ${words(path)}</code></h2>
<p><strong>${words(summary)}.</strong> ${words(description)}</p>
${renderParameters(operationId, parameters as ShownParameter[])}
${requestBody ? html`<h3>Body</h3>${renderContent(requestBody as Content)}` : ''}
<h3>Answers</h3>${renderAnswers(operationId, responses as Record<string, Answer>)}
<p>Rules ${words(rules)} of the contract.</p></section>`;
}

interface ShownParameter {
  name: string;
  in: string;
  required: boolean;
  description: string;
  schema: JsonSchema;
}

function renderParameters(operation: string, parameters: readonly ShownParameter[]): Markup {
  if (parameters.length === 0) return html``;
  const rows = parameters.map(
    ({ name, in: place, required, description, schema }) =>
      html`<tr><th scope="row"><code>${words(name)}</code></th><td>${place}${required ? '' : ', optional'}</td><td>${renderType(schema)}</td><td>${words(description)}</td></tr>`,
  );
  return renderTable(`Parameters of ${operation}`, ['name', 'in', 'is', ''], rows);
}

function renderTable(caption: string, heads: readonly string[], rows: Markup[]): Markup {
  const columns = heads.map((head) => (head === '' ? html`<td></td>` : html`<th scope="col">${head}</th>`));
  return html`<div class="wide" role="region" tabindex="0" aria-label="${words(caption)}"><table><caption>${words(caption)}</caption><thead><tr>${columns}</tr></thead><tbody>${rows}</tbody></table></div>`;
}

interface Content {
  content: { 'application/json': { schema: JsonSchema; examples?: Record<string, { value: unknown }> } };
}

interface Answer extends Content {
  description: string;
}

function renderContent({ content }: Content): Markup {
  const { schema, examples = {} } = content['application/json'];
  const shown = Object.values(examples).map(
    ({ value }) => html`<pre tabindex="0"><code>${words(JSON.stringify(value, null, 2))}</code></pre>`,
  );
  return html`<p>${renderType(schema)}</p>${shown}`;
}

function renderAnswers(operation: string, responses: Record<string, Answer>): Markup {
  const entries = Object.entries(responses);
  const rows = entries.map(([status, { description, content }]) => {
    const { schema } = content['application/json'];
    return html`<tr><th scope="row">${status}</th><td>${words(description)}</td><td>${renderType(schema)}</td></tr>`;
  });
  const examples = entries.filter(([, { content }]) => content['application/json'].examples);
  const shown = examples.map(([, answer]) => renderContent(answer));
  return html`${renderTable(`Answers of ${operation}`, ['status', 'when', 'is'], rows)}${shown}`;
}

function renderFields(name: string, form: JsonSchema): Markup {
  const required = form.required ?? [];
  const rows = Object.entries(form.properties ?? {}).map(
    ([field, schema]) =>
      html`<tr><th scope="row"><code>${words(field)}</code>${required.includes(field) ? '' : ', optional'}</th><td>${renderType(schema)}</td><td>${words(schema.description ?? '')}</td></tr>`,
  );
  return renderTable(`Fields of ${name}`, ['field', 'is', 'means'], rows);
}

/** What a value is, in words, with links to the forms. */
function renderType(schema: JsonSchema): Markup {
  const { $ref, oneOf, items, type, maxItems, minItems } = schema;
  const name = $ref?.split('/').at(-1);
  if (name !== undefined) return html`<a href="#form-${name}">${name}</a>`;
  if (oneOf) return joinWords(oneOf.map(renderType));
  if (schema.enum) return joinWords(schema.enum.map((value) => html`<code>${words(JSON.stringify(value))}</code>`));
  if (items && minItems === 1 && maxItems === 1) return html`array of one ${renderType(items)}`;
  if (items) return html`array of ${renderType(items)}`;
  return words(type === undefined ? 'anything' : maxItems === 0 ? 'an empty array' : [type].flat().join(' or '));
}

const joinWords = (all: readonly Markup[]): Markup => all.join(' or ') as Markup;
