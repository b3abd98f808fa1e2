/** Types of the schema in the form in which values are completed by them, found out once for each. */
import {
  type GraphQLAbstractType,
  type GraphQLLeafType,
  type GraphQLObjectType,
  type GraphQLOutputType,
  isAbstractType,
  isListType,
  isNonNullType,
  isObjectType,
} from 'graphql';

export type TypeShape =
  | { kind: 'nonNull'; of: TypeShape }
  | { kind: 'list'; of: TypeShape }
  | { kind: 'leaf'; type: GraphQLLeafType }
  | { kind: 'object'; type: GraphQLObjectType }
  | { kind: 'abstract'; type: GraphQLAbstractType };

const shapes = new WeakMap<GraphQLOutputType, TypeShape>();

export function shapeOf(type: GraphQLOutputType): TypeShape {
  let shape = shapes.get(type);
  if (!shape) {
    shape = createShape(type);
    shapes.set(type, shape);
  }
  return shape;
}

function createShape(type: GraphQLOutputType): TypeShape {
  if (isNonNullType(type)) return { kind: 'nonNull', of: shapeOf(type.ofType) };
  if (isListType(type)) return { kind: 'list', of: shapeOf(type.ofType) };
  if (isObjectType(type)) return { kind: 'object', type };
  return isAbstractType(type) ? { kind: 'abstract', type } : { kind: 'leaf', type };
}
