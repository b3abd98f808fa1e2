/**
 * A cache for results of short texts that are in every request, such as hosts and addresses. It is small, since
 * any client may send new texts.
 */

const MOST = 200;
/** Characters; a host name has at most 253. */
const LONGEST = 300;

/** @param work depends on the text alone */
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
