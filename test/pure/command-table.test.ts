/** The table of commands, from which Tapegate shows help without loading the commands. */
import { Command, Help } from 'commander';
import { expect, test } from 'vitest';
import { addOutputOptions } from '../../src/main/program.js';
import { commandFiles } from '../../src/main/table.js';

test.each(Object.entries(commandFiles))(
  '%s registers the commands that the table lists',
  async (_name, { commands, load }) => {
    const program = new Command();
    (await load()).register(program);
    const help = new Help();
    for (const command of program.commands) addOutputOptions(command);
    expect(program.commands.map((command) => help.subcommandTerm(command))).toEqual(Object.keys(commands));
  },
);
