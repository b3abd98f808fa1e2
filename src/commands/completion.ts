/** `completion`: what a shell is to know of the commands, made from their tree. Names and options; nothing is asked of a server. */
import { Argument, type Command, Help, type Option } from 'commander';
import { UsageError } from './failure.js';
import { printText } from './output.js';

export function registerCompletion(program: Command): void {
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'whose').choices(SHELLS).argParser(readShell))
    .action((shell: Shell) => printText(scripts[shell](listWords(program))));
}

const SHELLS = ['bash', 'zsh', 'fish'] as const;

type Shell = (typeof SHELLS)[number];

function readShell(text: string): Shell {
  const shell = SHELLS.find((each) => each === text);
  if (shell) return shell;
  throw new UsageError(`completion is written for bash, zsh or fish, not for ${JSON.stringify(text)}`);
}

/** What may follow the words of a command. */
interface Words {
  /** `` for the program itself, `quota set`. */
  path: string;
  next: Word[];
  /** Of its options those with a value, with what that is chosen of; nothing where nobody can tell. */
  values: { option: string; choices: readonly string[] }[];
}

interface Word {
  word: string;
  description: string;
  hasValue?: boolean;
}

function listWords(command: Command, path = ''): Words[] {
  const commands = new Help().visibleCommands(command).filter((each) => each.name() !== 'help');
  const choices = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const next = [
    ...commands.map((each) => ({ word: each.name(), description: firstOf(each.description()) })),
    ...choices.map((word) => ({ word, description: '' })),
    ...command.options.flatMap((option) => {
      return namesOf(option).map((word) => ({ word, description: describe(option), hasValue: option.required }));
    }),
    { word: '--help', description: 'display help for command' },
  ];
  const values = command.options
    .filter((option) => option.required)
    .flatMap((option) => namesOf(option).map((name) => ({ option: name, choices: option.argChoices ?? [] })));
  return [{ path, next, values }, ...commands.flatMap((each) => listWords(each, `${path} ${each.name()}`.trim()))];
}

const namesOf = ({ long, short }: Option): string[] => [long, short].filter((name) => name !== undefined);

const describe = ({ description, argChoices }: Option): string =>
  firstOf(argChoices ? `${description} (${argChoices.join(', ')})` : description);

const firstOf = (text: string): string => text.split(/[;:]/)[0]?.slice(0, 70) ?? '';

/** The longest path of commands that the line begins with decides. zsh runs the functions of bash by its bashcompinit. */
const shScript = (words: Words[]) => `# tapegate completion
if [ -n "\${ZSH_VERSION-}" ]; then
  autoload -U compinit bashcompinit
  type compdef > /dev/null || compinit
  bashcompinit
fi
_tapegate() {
  local word="\${COMP_WORDS[COMP_CWORD]}" so_far="" next each
  for each in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    case "\${so_far:+$so_far }$each" in
${pathsOf(words)
  .map((path) => `      "${path}") so_far="${path}" ;;`)
  .join('\n')}
    esac
  done
  case "$so_far" in
${words.map(({ path, next }) => `    "${path}") next="${next.map(({ word }) => word).join(' ')}" ;;`).join('\n')}
  esac
  case "$so_far \${COMP_WORDS[COMP_CWORD-1]}" in
${valuesOf(words)
  .map(({ after, choices }) => `    "${after}") next="${choices.join(' ')}" ;;`)
  .join('\n')}
  esac
  COMPREPLY=($(compgen -W "$next" -- "$word"))
}
complete -o default -F _tapegate tapegate
`;

const scripts: Record<Shell, (words: Words[]) => string> = {
  bash: shScript,
  zsh: shScript,
  fish: (words) => `# tapegate completion fish
function __tapegate_path
  set -l path
  for each in (commandline -opc)[2..]
    switch "$path $each"
${pathsOf(words)
  .map((path) => `      case "${path.includes(' ') ? path : ` ${path}`}"\n        set path "${path}"`)
  .join('\n')}
    end
  end
  echo "$path"
end
${words.flatMap(({ path, next }) => next.map((each) => fishLine(path, each))).join('\n')}
`,
};

const pathsOf = (words: Words[]): string[] => words.map(({ path }) => path).filter((path) => path !== '');

/** What stands before the value of an option. */
const valuesOf = (words: Words[]): { after: string; choices: readonly string[] }[] =>
  words.flatMap(({ path, values }) => values.map(({ option, choices }) => ({ after: `${path} ${option}`, choices })));

function fishLine(path: string, { word, description, hasValue = false }: Word): string {
  const long = /^--(.+)/.exec(word)?.[1];
  const short = /^-(.)$/.exec(word)?.[1];
  const what = long ? `-l ${long}` : short ? `-s ${short}` : `-a ${word}`;
  const isHere = `'test (__tapegate_path) = "${path}"'`;
  const described =
    description === '' ? '' : ` -d '${description.replaceAll('\\', '\\\\').replaceAll("'", String.raw`\'`)}'`;
  return `complete -c tapegate -n ${isHere} ${what}${hasValue ? ' -r' : ''}${described}`;
}
