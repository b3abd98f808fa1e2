/** The limit of concurrent calls to a restore disk. */
import { expect, test } from 'vitest';
import { CallPlaces } from '../../src/engine/disk/call-places.js';
import { TapeError } from '../../src/errors.js';

test('at most so many calls run at once, and a slot that is free goes to the next in line', async () => {
  const places = new CallPlaces(2, 60_000);
  const leaves = [await places.enter(), await places.enter()];
  const order: string[] = [];
  const third = places.enter().then((leave) => {
    order.push('third');
    return leave;
  });
  const fourth = places.enter().then((leave) => {
    order.push('fourth');
    return leave;
  });
  await Promise.resolve();
  expect(order).toEqual([]);
  leaves[0]?.();
  const leaveThird = await third;
  expect(order).toEqual(['third']);
  leaveThird();
  (await fourth)();
  leaves[1]?.();
  for (const leave of [await places.enter(), await places.enter()]) leave();
});

test('a call that gets no slot in time fails, and later calls get one', async () => {
  const places = new CallPlaces(1, 20);
  const leave = await places.enter();
  await expect(places.enter()).rejects.toThrow(
    new TapeError('TRANSIENT', 'the restore disks have not answered for 0.02 s'),
  );
  leave();
  (await places.enter())();
});
