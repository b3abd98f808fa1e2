/** Defines the direction of a list's order. */
import { builder, describeValues } from './builder.js';

export const OrderDirectionType = builder.enumType('OrderDirection', {
  description: 'The direction of an order.',
  values: describeValues({ ASC: 'Smallest value first.', DESC: 'Largest value first.' }),
});
