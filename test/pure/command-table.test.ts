/** The table of commands, which a help shows instead of loading them, and what each file registers. */
import { Command, Help } from 'commander';
import { expect, test } from 'vitest';
import * as table from '../../src/commands/table.js';

test.each(Object.entries(table))(
  '%s registers the commands of its line in the table',
  async (_name, { commands, load }) => {
    const program = new Command();
    (await load())(program);
    const help = new Help();
    expect(program.commands.map((command) => help.subcommandTerm(command))).toEqual(Object.keys(commands));
  },
);
