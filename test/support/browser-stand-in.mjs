/**
 * As much of a browser as the pages of the documents need, in Node: one element for each selector, of which the text is
 * printed, and addresses that begin with the page's own. Loaded before the script of a page, which is in PAGE.
 */
import { readFileSync } from 'node:fs';

const { PAGE = '', PAGE_URL } = process.env;
const page = readFileSync(PAGE, 'utf8');

class StandIn extends EventTarget {
  constructor(selector) {
    super();
    const [, value = ''] = new RegExp(`<${selector}\\b[^>]* value="([^"]*)"`).exec(page) ?? [];
    this.value = value;
  }

  set textContent(text) {
    console.log(text);
  }
}

const elements = new Map();

function querySelector(selector) {
  const element = elements.get(selector) ?? new StandIn(selector);
  elements.set(selector, element);
  return element;
}

const { fetch: originalFetch, EventSource: OriginalEventSource } = globalThis;

globalThis.document = { querySelector };
globalThis.fetch = (url, init) => originalFetch(new URL(url, PAGE_URL), init);
/** Node would not stay for one that is to come back. */
globalThis.EventSource = class extends OriginalEventSource {
  #stay = setInterval(() => {}, 1000);

  constructor(url) {
    super(new URL(url, PAGE_URL));
  }

  close() {
    clearInterval(this.#stay);
    super.close();
  }
};

// the script has been run, and nothing goes on: somebody presses the button
process.once('beforeExit', () => querySelector('form').dispatchEvent(new Event('submit', { cancelable: true })));
