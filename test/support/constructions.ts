/**
 * Constructions that plain technical English avoids, each with a name. Patterns ignore case.
 * Each match counts once, for the first pattern of the list that matches at its position.
 */

/** Nouns after which a relative clause may begin with "who". */
const PEOPLE = `users? operators? callers? persons? people everyone anyone someone administrators? admins? scientists? readers? owners? clients?
  members? engineers? developers? maintainers? authors? visitors? attackers? customers? viewers? managers? collaborators? newcomers?`;

/** Words after which "where" means a place. */
const PLACES = `director(?:y|ies) folders? hosts? paths? servers? disks? places? points? positions? pages? address(?:es)? ports? tables? files? lines?
  databases? machines? volumes? sections? columns? prefix(?:es)? copy copies sees? says? shows? knows? reports? records? lists? finds? decides? choose
  out to of from is are and about describes? explains? prints? which exactly otherwise remembers? back`;

const oneOf = (words: string) => words.trim().split(/\s+/).join('|');
const notAfter = (words: string) => `(?<!\\b(?:${oneOf(words)})\\)?[\`"]? )`;

const sources = {
  'whoever, whatever': '\\b(?:whoever|whatever|whichever|(?:as|of|by|in) whom)\\b',
  nobody: '\\b(?:nobody|anybody|somebody|everybody)(?:\\b|s\\b)',
  'none of': '\\b(?:none of|of nothing|the only ones? [^\\w]|(?:is|are) the only ones?)\\b',
  'of which': '\\bof (?:which|whose)\\b',
  'that of': '(?<!\\bthan )\\b(?:that|those) of\\b',
  'those who': '\\bthose who\\b',
  'who as subject or object': `(?<=^|[.;:(|—] ?|\\w )${notAfter(PEOPLE)}\\bwho\\b(?! \\|)`,
  'what as subject or object':
    '\\bwhat\\b(?! (?:\\||(?:you|to|if|happens|happened|kind|version|type|(?:can |goes? |went |is |was )*wrong)\\b))',
  'where for if': `(?<=^|[.;:(|] )where\\b(?! to\\b| you\\b)(?=[^.;:?|]{2,100},)|(?<=\\w\\)?["\`]?,? )${notAfter(PLACES)}where (?:it|they|there|this|these|that|those|nothing|none|no|an?|some|all|any|each|both|one|its|their)\\b`,
  told: '\\b(?:tells|told|telling|tell(?! (?:an?|the|your) (?:operator|user|administrator)))\\b',
  'let go': '\\blet go\\b|\\blets? \\w+(?: \\w+){0,3} go\\b|\\bletting go\\b',
  'go, come, stand': `\\b(?:goes|went|gone)\\b(?! wrong)|\\bgo (?:on|by|back|out|with|there|away|elsewhere|in|into|through|together)\\b|\\bcomes?\\b(?! from)|\\bcame\\b|\\b(?:stands?|stood|standing)\\b(?!-| by| for)`,
  'be had': '\\b(?:is|are|was|were|be|been) had\\b',
  'given out': '\\b(?:given|gives?|gave|giving) out\\b',
  'taken over': '\\b(?:is|are|was|were|be|been) taken over\\b',
  'in hand, in vain': '\\bin (?:hand|vain)\\b',
  'by itself, by hand': '\\bby (?:itself|themselves|himself|hand)\\b',
  inversion:
    '\\bbe (?:it|they) |\\bas (?:is|are|was|were) (?:so|those|that)\\b|\\bas (?:is|are|does|do|did|has|have) (?:the|an?|its|all|each|every)\\b|\\bso (?:is|are|do|does) (?:the|an?|it)\\b',
  'at most from … or after': '\\bat most,? from\\b|\\bso many\\b|\\bso much as\\b',
  'asked for': '\\b(?:is|are|was|were|be|been) asked (?:for|of)\\b',
  'all of a': '\\ball of an?\\b',
  'place at': '\\bplaces? at an?\\b',
  afar: '\\b(?:afar|aside|beside|thereof|therein|whereby|whence)\\b',
  'from before': '\\bfrom before\\b|\\bof before\\b',
  'put in order': '\\bput in order\\b',
  'left behind': '\\bleft behind\\b|\\bleaves? [^.;:]{1,40} behind\\b',
} satisfies Record<string, string>;

export type Construction = keyof typeof sources;

const names = Object.keys(sources) as Construction[];
const all = new RegExp(names.map((name, index) => `(?<c${index}>${sources[name]})`).join('|'), 'gim');

/** Returns the name of each construction in a text, with the words that match. */
export function findConstructions(text: string): { name: Construction; words: string }[] {
  return [...text.matchAll(all)].map(({ 0: words, groups = {} }) => {
    const [group = 'c0'] = Object.keys(groups).filter((each) => groups[each] !== undefined);
    return { name: names[Number(group.slice(1))] as Construction, words };
  });
}
