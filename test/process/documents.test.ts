/**
 * The examples of the documents, each run as it stands there, from top to bottom, against a server of its own that has
 * begun with the demo archive. A changed document is what is tested.
 *
 * While an example subscribes, the tapes are out of service until its stream has told something, so that what it tells
 * first does not depend on who is faster. Where it says how to go on after a break, its first stream is broken off then.
 */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeDemo } from '../../src/demo.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { packageRoot } from '../../src/package-root.js';
import { createDirectoryBackend } from '../../src/tape/directory.js';
import { startApp, type TestApp } from '../support/app.js';
import { runInBrowser } from '../support/browser.js';
import { type Example, expectAnswer, readExamples } from '../support/examples.js';
import { askData } from '../support/graphql.js';
import { cleanUp } from '../support/process.js';
import { type Break, type Relay, startRelay, type Watch } from '../support/relay.js';
import { compileExamples, findProgram, makeWorkDir, runExample, SHOWN_URL } from '../support/run-example.js';
import { waitFor } from '../support/wait.js';

const documents = ['rest/README.md', 'graphql/README.md'];

interface Place {
  app: TestApp;
  engine: Engine;
  relay: Relay;
}

const places = new Map<string, Place>();
const workDir = makeWorkDir();

/** As the documents write it. */
const SHOWN_DIR = '/home/ada/tapegate/data';

const missing = ['bash', 'curl', 'python3'].filter((name) => !findProgram(name));
const browser = findProgram('chromium', 'chromium-browser', 'google-chrome');
/** All examples build on what those of the shell have done. */
const isAnyRun = !missing.includes('bash') && !missing.includes('curl');
const isRun = ({ language }: Example) => isAnyRun && !(language === 'python' && missing.includes('python3'));

for (const name of missing) {
  console.warn(`there is no ${name} here: ${name === 'python3' ? 'examples in Python' : 'the examples'} are not run`);
}
if (!browser) console.warn('there is no Chromium here: the pages are run in Node alone');

let compiled: Promise<void>;

beforeAll(async () => {
  if (!isAnyRun) return;
  compiled = compileExamples(documents.flatMap(readExamples), workDir);
  compiled.catch(() => {}); // the examples that need it say so
  for (const document of documents) {
    const app = await startApp();
    const backend = createDirectoryBackend(path.join(app.dataDir, 'library'));
    await makeDemo(app.ctx, backend);
    const engine = await startEngine(app.ctx, backend, { drainMs: 200 });
    places.set(document, { app, engine, relay: await startRelay(app.url) });
  }
});

afterAll(async () => {
  for (const { app, engine, relay } of places.values()) {
    await relay.close();
    await engine.stop();
    await app.close();
  }
  await cleanUp();
  rmSync(workDir, { recursive: true, force: true });
});

describe.each(documents)('%s', (document) => {
  const place = () => places.get(document) as Place;
  const examples = readExamples(document);

  for (const example of examples) {
    const isPage = example.language === 'html' || example.language === 'js';

    test.runIf(isRun(example))(example.name, async () => {
      if (example.language === 'ts') await compiled;
      const before = isPage && browser ? await readState(place()) : undefined;
      await check(
        example,
        place(),
        () => runExample(example, { url: place().relay.url, token: place().app.token }, workDir),
        breakOf(example),
      );
      if (before) await undo(before, place());
    });

    if (!isPage || !browser) continue;
    test.runIf(isAnyRun)(`${example.name}, in ${browser}`, async () => {
      const { relay } = place();
      await check(example, place(), () => runInBrowser(browser, example, relay, workDir), breakOf(example) && 'cut');
    });
  }

  const text = readFileSync(path.join(packageRoot, document), 'utf8').replace(/^```[\s\S]*?^```/gm, '');

  test('the files that the document points to are there', () => {
    const links = allOf(/\]\(([^)#:]+)(?:#[^)]*)?\)/g, text).map((link) => path.join(path.dirname(document), link));
    const names = allOf(/`((?:graphql|rest|src|test)\/[\w./-]*\w)`/g, text);
    const isThere = (name: string) => existsSync(path.join(packageRoot, name));
    expect([links.length > 0, names.length > 0]).toEqual([true, true]);
    expect([...links, ...names].filter((name) => !isThere(name))).toEqual([]);
  });

  test('the operations that the document names are there', () => {
    const [table = ''] = /^\|.*\| operation \|\n(\|.*\n)+/m.exec(text) ?? [];
    const names = allOf(/([^|]+)\|$/gm, table).flatMap((cell) => allOf(/`(\w+)`/g, cell));
    const dir = path.join(packageRoot, 'src/operations');
    const files = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
    const source = files.map((name) => readFileSync(path.join(dir, name), 'utf8')).join('\n');
    expect(names.length).toBeGreaterThan(0);
    expect(names.filter((name) => !new RegExp(`^export .*\\bfunction\\*? ${name}\\b`, 'm').test(source))).toEqual([]);
  });
});

/** What the group matches, wherever it does. */
const allOf = (pattern: RegExp, text: string) => [...text.matchAll(pattern)].map(([, found]) => String(found));

test('an example in each language goes on after a break', () => {
  const examples = documents.flatMap(readExamples).filter(breakOf);
  expect(examples.map(({ language }) => language)).toEqual(['ts', 'python', 'html']);
});

const rest = 'mutation { suspend(input: { kind: BACKEND, name: "directory", mode: DRAINING }) { __typename } }';
const work = 'mutation { resume(input: { kind: BACKEND, name: "directory" }) { __typename } }';

/** How the stream of an example that comes back is broken off; the event source of Node comes back after an end alone. */
function breakOf({ language, text }: Example): Break | undefined {
  if (language === 'html') return 'end';
  return /\bafter = /.test(text) ? 'cut' : undefined;
}

async function check(
  example: Example,
  { app, relay }: Place,
  run: () => Promise<string>,
  breaks?: Break,
): Promise<void> {
  const subscribes = /\bsubscription\b/.test(example.text);
  let begun: Promise<unknown> | undefined;
  const begin = () => {
    begun ??= askData(app, work);
    return begun;
  };
  const watch = relay.watch({ breaks, onFirstMessage: () => void begin() });
  if (subscribes) await askData(app, rest);
  let output: string;
  try {
    output = await run();
  } finally {
    if (subscribes) await begin();
  }
  if (example.answer) {
    expectAnswer(example.answer, output.replaceAll(relay.url, SHOWN_URL).replaceAll(app.dataDir, SHOWN_DIR));
  }
  if (breaks) expectResumed(watch);
}

/** An event source asks again with the same address; all others must name the last event that they were told. */
function expectResumed({ asked, first }: Watch): void {
  expect(asked.length).toBeGreaterThan(1);
  const [, last] = /"eventId":"(\d+)"/.exec(first) ?? [];
  if (last) expect(asked[1]).toMatch(new RegExp(`"after": ?"${last}"`));
}

interface State {
  tapeFiles: { totalCount: number };
  requests: { edges: { node: { requestId: number } }[] };
}

const readState = ({ app }: Place) =>
  askData<State>(app, '{ tapeFiles(stages: [RESTORED]) { totalCount } requests { edges { node { requestId } } } }');

/** Cancels what a page has asked for, so that the next one finds the tapes as it did. */
async function undo(before: State, place: Place): Promise<void> {
  const known = before.requests.edges.map(({ node }) => node.requestId);
  const { requests } = await readState(place);
  for (const { node } of requests.edges.filter((edge) => !known.includes(edge.node.requestId))) {
    await askData(place.app, `mutation { cancelRequest(id: ${node.requestId}) { __typename } }`);
  }
  const isAsBefore = async () => (await readState(place)).tapeFiles.totalCount === before.tapeFiles.totalCount;
  await waitFor('the copies to leave', isAsBefore);
}
