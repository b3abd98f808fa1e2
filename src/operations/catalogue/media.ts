/** Which medium a volume is: what the planner's cost model goes by. */
import type { Context } from '../../context.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import type { Prisma } from '../../generated/prisma/client.js';
import { media } from '../../planner/media.js';
import { audited, type Note } from '../audit/audited.js';
import { checkText } from '../input.js';

/**
 * Says of which medium volumes are, all of them or none.
 * @param names all volumes unless given
 * @returns how many volumes are of it now
 * @throws InvalidInputError, NotFoundError
 */
export async function setMedium(
  ctx: Context,
  input: { medium: string; names?: readonly string[] | undefined },
): Promise<number> {
  const { medium, names = [] } = input;
  const object = names.length === 1 ? (names[0] ?? '') : '';
  return await audited(ctx, { operation: 'setMedium', kind: 'VOLUME', object, given: { medium, names } }, (note) =>
    changeMedium(ctx, input, note),
  );
}

async function changeMedium(
  ctx: Context,
  input: { medium: string; names?: readonly string[] | undefined },
  note: Note,
): Promise<number> {
  if (!Object.hasOwn(media, input.medium)) {
    throw new InvalidInputError(
      'medium',
      `must be one of ${Object.keys(media).join(', ')}, not ${quote(input.medium)}`,
    );
  }
  const change = async (where: Prisma.VolumeWhereInput): Promise<number> => {
    const { prisma } = ctx.db;
    const changed = prisma.volume.updateMany({ where, data: { medium: input.medium } });
    const [{ count }] = await prisma.$transaction([changed, prisma.$executeRaw(note())]);
    return count;
  };
  if (!input.names) return await change({});
  const names = [...new Set(input.names.map((name) => checkText('name', name)))];
  const known = await ctx.db.prisma.volume.findMany({ where: { name: { in: names } }, select: { name: true } });
  const unknown = names.find((name) => !known.some((volume) => volume.name === name));
  if (unknown !== undefined) throw new NotFoundError(`there is no volume ${quote(unknown)}`);
  return await change({ name: { in: names } });
}
