/** Of which subscriptions the results can be shared, and by what they are told from others. */
import { type DocumentNode, Kind, type OperationDefinitionNode, visit } from 'graphql';

/**
 * Each of their results is a whole state, so that whoever has the last one has all. Others tell what has changed, of which a reader that is
 * slow must miss nothing: each has its own run.
 */
const STATES: ReadonlySet<string> = new Set(['requestProgress', 'requestEnd']);

/** Says where a reader stands, and nothing that its results depend on. */
const PLACE = 'after';

export interface SharedShape {
  /** The variable that says where its reader stands; undefined where there is none. */
  placeVariable: string | undefined;
}

const shapes = new WeakMap<OperationDefinitionNode, SharedShape | false>();

/** @returns undefined where it is a run of its own for each reader */
export function shapeOf(document: DocumentNode, operation: OperationDefinitionNode): SharedShape | undefined {
  const known = shapes.get(operation) ?? findShape(document, operation) ?? false;
  shapes.set(operation, known);
  return known || undefined;
}

function findShape(document: DocumentNode, operation: OperationDefinitionNode): SharedShape | undefined {
  const [root, ...others] = operation.selectionSet.selections;
  if (root?.kind !== Kind.FIELD || others.length > 0 || !STATES.has(root.name.value)) return undefined;
  const given = root.arguments?.find(({ name }) => name.value === PLACE)?.value;
  if (!given) return { placeVariable: undefined };
  // what says more than the place is for this reader alone
  if (given.kind !== Kind.VARIABLE) return undefined;
  const name = given.name.value;
  const definition = operation.variableDefinitions?.find(({ variable }) => variable.name.value === name);
  const mayBeLeftOut = definition?.type.kind === Kind.NAMED_TYPE && definition.defaultValue === undefined;
  return mayBeLeftOut && countUses(document, name) === 2 ? { placeVariable: name } : undefined;
}

/** Its definition among them, in all of the document. */
function countUses(document: DocumentNode, name: string): number {
  let count = 0;
  visit(document, {
    Variable: (node) => {
      if (node.name.value === name) count++;
    },
  });
  return count;
}

/** Where a reader stands, and the variables that all have in common. */
export interface Standing {
  /** An id of an event; empty where it begins with the present state. */
  place: string;
  variables: Record<string, unknown>;
}

/** @returns undefined where the place is none, of which the operation itself is to tell */
export function standingOf(
  { placeVariable }: SharedShape,
  variables: Record<string, unknown>,
  lastEventId: string | undefined,
): Standing | undefined {
  if (placeVariable === undefined) return checked({ place: lastEventId ?? '', variables });
  const { [placeVariable]: after, ...others } = variables;
  // in any other form it is for the operation itself to refuse, also where the header says where its reader stands
  if (typeof after === 'object' && after !== null) return undefined;
  if (after !== null && after !== undefined && !EVENT_ID.test(String(after))) return undefined;
  return checked({ place: lastEventId ?? String(after ?? ''), variables: others });
}

const EVENT_ID = /^\d{1,19}$/;

const checked = (standing: Standing) => (standing.place === '' || EVENT_ID.test(standing.place) ? standing : undefined);
