/** A rule of the specification (5.2.4.1) that graphql-js does not have: a subscription always has its one root field. */
import { type FieldNode, GraphQLError, Kind, type SelectionNode, type ValidationContext } from 'graphql';

/** Without it `@skip` leaves a subscription to nothing, which no executor is made for. */
export function refuseOptionalSubscription(context: ValidationContext) {
  return {
    OperationDefinition: (node: { operation: string; selectionSet: { selections: readonly SelectionNode[] } }) => {
      if (node.operation !== 'subscription') return;
      const seen = new Set<string>();
      const check = (selections: readonly SelectionNode[]): void => {
        for (const selection of selections) {
          report(context, selection);
          if (selection.kind === Kind.INLINE_FRAGMENT) check(selection.selectionSet.selections);
          if (selection.kind !== Kind.FRAGMENT_SPREAD || seen.has(selection.name.value)) continue;
          seen.add(selection.name.value);
          check(context.getFragment(selection.name.value)?.selectionSet.selections ?? []);
        }
      };
      check(node.selectionSet.selections);
    },
  };
}

function report(context: ValidationContext, selection: SelectionNode): void {
  const optional = selection.directives?.find(({ name }) => name.value === 'skip' || name.value === 'include');
  if (!optional) return;
  const what = selection.kind === Kind.FIELD ? `"${(selection as FieldNode).name.value}"` : 'a fragment';
  context.reportError(
    new GraphQLError(
      `@${optional.name.value} is not allowed on ${what}: a subscription always has its one root field`,
      {
        nodes: optional,
      },
    ),
  );
}
