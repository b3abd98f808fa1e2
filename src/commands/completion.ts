/** `completion`: what a shell is to know of the commands, made from their tree. Names and options; nothing is asked of a server. */
import { Argument, type Command, Help, type Option } from 'commander';
import { UsageError } from './failure.js';
import { printText } from './output.js';

export function registerCompletion(program: Command): void {
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'whose').choices(SHELLS).argParser(checkShell))
    .action(() => printText(createScript(listWords(program))));
}

const SHELLS = ['bash', 'zsh'];

function checkShell(shell: string): string {
  if (SHELLS.includes(shell)) return shell;
  throw new UsageError(`completion is written for bash or zsh, not for ${JSON.stringify(shell)}`);
}

/** What may follow the words of a command. */
interface Words {
  /** `` for the program itself, `quota set`. */
  path: string;
  next: string[];
  /** Of its options those with a value, with what that is chosen of; nothing where nobody can tell. */
  values: { option: string; choices: readonly string[] }[];
}

function listWords(command: Command, path = ''): Words[] {
  const commands = new Help().visibleCommands(command).filter((each) => each.name() !== 'help');
  const choices = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const next = [...commands.map((each) => each.name()), ...choices, ...command.options.flatMap(namesOf), '--help'];
  const values = command.options
    .filter((option) => option.required)
    .flatMap((option) => namesOf(option).map((name) => ({ option: name, choices: option.argChoices ?? [] })));
  return [{ path, next, values }, ...commands.flatMap((each) => listWords(each, `${path} ${each.name()}`.trim()))];
}

const namesOf = ({ long, short }: Option): string[] => [long, short].filter((name) => name !== undefined);

/** The longest path of commands that the line begins with decides. zsh runs the functions of bash by its bashcompinit. */
const createScript = (words: Words[]) => `# tapegate completion
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
${words.map(({ path, next }) => `    "${path}") next="${next.join(' ')}" ;;`).join('\n')}
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

const pathsOf = (words: Words[]): string[] => words.map(({ path }) => path).filter((path) => path !== '');

/** What stands before the value of an option. */
const valuesOf = (words: Words[]): { after: string; choices: readonly string[] }[] =>
  words.flatMap(({ path, values }) => values.map(({ option, choices }) => ({ after: `${path} ${option}`, choices })));
