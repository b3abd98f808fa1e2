/**
 * The command `completion` prints a shell script that completes commands, options and option values. The script never
 * contacts a server.
 */
import { Argument, type Command, Help, type Option } from 'commander';
import { printText } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'shell for which to print the script').choices(SHELLS))
    .action((shell: Shell) => printText(scripts[shell](listWords(program))));
}

const SHELLS = ['bash', 'zsh', 'fish'] as const;

type Shell = (typeof SHELLS)[number];

interface Words {
  path: string;
  isGroup: boolean;
  next: string[];
  values: { option: string; choices: readonly string[] }[];
}

function listWords(command: Command, path = ''): Words[] {
  const commands = new Help().visibleCommands(command).filter((each) => each.name() !== 'help');
  const choices = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const next = [...commands.map((each) => each.name()), ...choices, ...command.options.flatMap(namesOf), '--help'];
  const values = command.options
    .filter((option) => option.required)
    .flatMap((option) => namesOf(option).map((name) => ({ option: name, choices: option.argChoices ?? [] })));
  return [
    { path, isGroup: commands.length > 0, next, values },
    ...commands.flatMap((each) => listWords(each, `${path} ${each.name()}`.trim())),
  ];
}

const namesOf = ({ long, short }: Option): string[] => [long, short].filter((name) => name !== undefined);

/**
 * Returns a completion script for bash and zsh. The script offers the words that can follow the words already typed. In
 * zsh, the bash function runs through zsh's bashcompinit.
 */
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

/** Returns a completion script for fish, which completes file names only after commands without subcommands. */
const fishScript = (words: Words[]) => `# tapegate completion fish
function __tapegate_path
  set -l path
  for each in (commandline -opc)[2..]
    switch (string trim "$path $each")
${pathsOf(words)
  .map((path) => `      case "${path}"\n        set path "${path}"`)
  .join('\n')}
    end
  end
  echo "$path"
end
function __tapegate_next
  set -l path (__tapegate_path)
  switch "$path "(commandline -opc)[-1]
${valuesOf(words)
  .filter(({ choices }) => choices.length > 0)
  .map(({ after, choices }) => `    case "${after}"\n      string split ' ' "${choices.join(' ')}"; return`)
  .join('\n')}
  end
  switch "$path"
${words.map(({ path, next }) => `    case "${path}"\n      string split ' ' -- "${next.join(' ')}"`).join('\n')}
  end
end
complete -c tapegate -a '(__tapegate_next)'
complete -c tapegate -f -n 'contains -- (__tapegate_path) ${words
  .filter(({ isGroup }) => isGroup)
  .map(({ path }) => `"${path}"`)
  .join(' ')}'
`;

const scripts: Record<Shell, (words: Words[]) => string> = { bash: shScript, zsh: shScript, fish: fishScript };

const pathsOf = (words: Words[]): string[] => words.map(({ path }) => path).filter((path) => path !== '');

const valuesOf = (words: Words[]): { after: string; choices: readonly string[] }[] =>
  words.flatMap(({ path, values }) => values.map(({ option, choices }) => ({ after: `${path} ${option}`, choices })));
