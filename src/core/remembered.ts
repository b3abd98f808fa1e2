/**
 * Caches results that depend only on a short string in a request, such as a host name. The cache is small, because
 * clients can send any number of different strings.
 */

const MOST = 200;
/** Maximum length of a string whose result is cached, in characters. */
const LONGEST = 300;

/** Returns a function that caches the results of `work`. A result must depend only on the argument. */
export function remember<Answer>(work: (text: string) => Answer): (text: string) => Answer {
  const answers = new Map<string, { answer: Answer }>();
  return (text) => {
    const known = answers.get(text);
    if (known) return known.answer;
    const answer = work(text);
    if (text.length > LONGEST) return answer;
    if (answers.size >= MOST) answers.clear();
    answers.set(text, { answer });
    return answer;
  };
}
