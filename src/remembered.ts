/**
 * What is worked out of the same few texts for every request: who asks sends the same host, the same headers and the same address each time.
 * Anybody may send others, so that few are remembered, and no long ones.
 */

/** All are forgotten when there is one more. */
const MOST = 200;
/** Characters; a name of a host has 253 at most. */
const LONGEST = 300;

/** The same function, of which answers to short texts are remembered. @param work gives the same for the same text, and nothing that is changed */
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
