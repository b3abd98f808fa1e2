/**
 * Runs queries and mutations by their plans, as the specification says it (6.2 to 6.4) and with the messages of graphql-js, whose executor
 * works out anew for every request, and for every row of it, what is the same for all who send the document: that was a third of the
 * processor time of a request with 25 files. graphql-jit, which makes code of a document, is as fast; but it makes the path of a field anew each time,
 * by which Pothos knows what it has read for it, and reads variables in its own way.
 */
import {
  type ExecutionArgs,
  type ExecutionResult,
  type GraphQLAbstractType,
  GraphQLError,
  type GraphQLLeafType,
  type GraphQLObjectType,
  type GraphQLResolveInfo,
  type GraphQLSchema,
  getVariableValues,
  isObjectType,
  locatedError,
  OperationTypeNode,
  responsePathAsArray,
} from 'graphql';
import {
  type FieldPlan,
  findOperation,
  type OperationPlan,
  planOperation,
  rootTypeOf,
  type Variables,
} from './operation-plan.js';
import type { TypeShape } from './type-shape.js';

type Path = GraphQLResolveInfo['path'];
type MaybePromise<T> = T | Promise<T>;
type Fields = Record<string, unknown>;

/** In place of `execute` of graphql-js, for whatever is no subscription. */
export function executeOperation(given: ExecutionArgs): MaybePromise<ExecutionResult> {
  const { schema, document, operationName, variableValues, rootValue, contextValue } = given;
  const operation = findOperation(document, operationName);
  const options = { maxErrors: 50 };
  const { variableDefinitions = [] } = operation;
  const { coerced, errors } = getVariableValues(schema, variableDefinitions, variableValues ?? {}, options);
  if (!coerced) return { errors: (errors ?? []).map(toBadRequest) };
  const plan = planOperation(schema, document, operation, coerced);
  return new Execution(schema, plan, { rootValue, contextValue, variables: coerced }).run();
}

function toBadRequest(error: GraphQLError): GraphQLError {
  Object.assign(error.extensions, { http: { status: 400 } });
  return error;
}

interface Given {
  rootValue: unknown;
  contextValue: unknown;
  variables: Variables;
}

class Execution {
  private readonly schema: GraphQLSchema;
  private readonly plan: OperationPlan;
  private readonly given: Given;
  private readonly errors: GraphQLError[] = [];
  /** Where null was put for an error: what is below it is told no more. */
  private readonly nulled = new Set<Path | undefined>();

  constructor(schema: GraphQLSchema, plan: OperationPlan, given: Given) {
    this.schema = schema;
    this.plan = plan;
    this.given = given;
  }

  run(): MaybePromise<ExecutionResult> {
    const { operation } = this.plan;
    try {
      const fields = this.plan.fieldsOf(rootTypeOf(this.schema, operation));
      const data =
        operation.operation === OperationTypeNode.MUTATION
          ? this.runInTurn(fields)
          : this.runFields(fields, this.given.rootValue, undefined);
      if (!(data instanceof Promise)) return this.resultOf(data);
      return data.then(this.resultOf, this.resultOfNull);
    } catch (error) {
      return this.resultOfNull(error);
    }
  }

  private readonly resultOf = (data: Fields | null): ExecutionResult =>
    this.errors.length === 0 ? { data } : { errors: this.errors, data };

  private readonly resultOfNull = (error: unknown): ExecutionResult => {
    this.note(error as GraphQLError, undefined);
    return this.resultOf(null);
  };

  /** Changes are made one after another. */
  private async runInTurn(fields: readonly FieldPlan[]): Promise<Fields> {
    const result = createResult(fields);
    for (const field of fields) result[field.key] = await this.runField(field, this.given.rootValue, undefined);
    return result;
  }

  private runFields(fields: readonly FieldPlan[], source: unknown, path: Path | undefined): MaybePromise<Fields> {
    const result = createResult(fields);
    let pending: Promise<unknown>[] | undefined;
    for (const field of fields) {
      try {
        const value = this.runField(field, source, path);
        result[field.key] = value;
        if (!isPromise(value)) continue;
        pending ??= [];
        pending.push(value.then((settled) => put(result, field.key, settled)));
      } catch (error) {
        if (!pending) throw error;
        return failAfter(pending, error);
      }
    }
    return pending ? Promise.all(pending).then(() => result) : result;
  }

  private runField(field: FieldPlan, source: unknown, prev: Path | undefined): MaybePromise<unknown> {
    const path: Path = { prev, key: field.key, typename: field.parentType.name };
    try {
      const value = field.property === undefined ? this.resolve(field, source, path) : propertyOf(source, field);
      const completed = isPromise(value)
        ? value.then((settled) => this.complete(field, field.shape, path, settled))
        : this.complete(field, field.shape, path, value);
      if (!isPromise(completed)) return completed;
      return completed.catch((error) => this.fail(field, field.shape, path, error));
    } catch (error) {
      return this.fail(field, field.shape, path, error);
    }
  }

  private resolve(field: FieldPlan, source: unknown, path: Path): unknown {
    const args = field.argsOf(this.given.variables);
    return field.resolve(source, args, this.given.contextValue, this.infoOf(field, path));
  }

  private infoOf(field: FieldPlan, path: Path): GraphQLResolveInfo {
    return {
      fieldName: field.name,
      fieldNodes: field.nodes,
      returnType: field.type,
      parentType: field.parentType,
      path,
      schema: this.schema,
      fragments: this.plan.fragments,
      rootValue: this.given.rootValue,
      operation: this.plan.operation,
      variableValues: this.given.variables,
    };
  }

  /** Null in place of what failed; where null may not be, what is around it fails. @throws GraphQLError */
  private fail(field: FieldPlan, shape: TypeShape, path: Path, raw: unknown): null {
    const error = locatedError(raw, field.nodes, responsePathAsArray(path));
    if (shape.kind === 'nonNull') throw error;
    this.note(error, path);
    return null;
  }

  private note(error: GraphQLError, path: Path | undefined): void {
    for (let place = path; place !== undefined; place = place.prev) if (this.nulled.has(place)) return;
    if (this.nulled.has(undefined)) return;
    this.nulled.add(path);
    this.errors.push(error);
  }

  private complete(field: FieldPlan, shape: TypeShape, path: Path, value: unknown): MaybePromise<unknown> {
    if (value instanceof Error) throw value;
    if (shape.kind === 'nonNull') {
      const completed = this.complete(field, shape.of, path, value);
      if (completed !== null) return completed;
      throw new Error(`Cannot return null for non-nullable field ${field.parentType.name}.${field.name}.`);
    }
    if (value === null || value === undefined) return null;
    if (shape.kind === 'leaf') return serialize(shape.type, value);
    if (shape.kind === 'list') return this.completeList(field, shape.of, path, value);
    if (shape.kind === 'object') return this.completeObject(field, shape.type, path, value);
    return this.completeAbstract(field, shape.type, path, value);
  }

  private completeList(field: FieldPlan, shape: TypeShape, path: Path, values: unknown): MaybePromise<unknown[]> {
    if (typeof values !== 'object' || values === null || !(Symbol.iterator in values)) {
      throw new GraphQLError(
        `Expected Iterable, but did not find one for field "${field.parentType.name}.${field.name}".`,
      );
    }
    const result: unknown[] = [];
    const pending: Promise<unknown>[] = [];
    for (const value of values as Iterable<unknown>) {
      const index = result.length;
      try {
        const completed = this.completeItem(field, shape, { prev: path, key: index, typename: undefined }, value);
        result.push(completed);
        if (isPromise(completed)) pending.push(completed.then((settled) => put(result, index, settled)));
      } catch (error) {
        if (pending.length === 0) throw error;
        return failAfter(pending, error);
      }
    }
    return pending.length > 0 ? Promise.all(pending).then(() => result) : result;
  }

  private completeItem(field: FieldPlan, shape: TypeShape, path: Path, value: unknown): MaybePromise<unknown> {
    try {
      const completed = isPromise(value)
        ? value.then((settled) => this.complete(field, shape, path, settled))
        : this.complete(field, shape, path, value);
      return isPromise(completed) ? completed.catch((error) => this.fail(field, shape, path, error)) : completed;
    } catch (error) {
      return this.fail(field, shape, path, error);
    }
  }

  private completeObject(field: FieldPlan, type: GraphQLObjectType, path: Path, value: unknown): MaybePromise<Fields> {
    const isOf: MaybePromise<boolean> =
      type.isTypeOf?.(value, this.given.contextValue, this.infoOf(field, path)) ?? true;
    const go = (isRight: boolean) => {
      if (isRight) return this.runFields(field.fieldsOf(type), value, path);
      throw new GraphQLError(`Expected value of type "${type.name}" but got: ${describe(value)}.`, {
        nodes: field.nodes,
      });
    };
    return isPromise(isOf) ? isOf.then(go) : go(isOf);
  }

  private completeAbstract(
    field: FieldPlan,
    type: GraphQLAbstractType,
    path: Path,
    value: unknown,
  ): MaybePromise<Fields> {
    const info = this.infoOf(field, path);
    const go = (name: string | undefined) => {
      const found = name === undefined ? undefined : this.schema.getType(name);
      if (isObjectType(found) && this.schema.isSubType(type, found)) {
        return this.completeObject(field, found, path, value);
      }
      const what = `must resolve to an Object type at runtime for field "${field.parentType.name}.${field.name}"`;
      throw new GraphQLError(`Abstract type "${type.name}" ${what}, not ${name}.`, { nodes: field.nodes });
    };
    const name: MaybePromise<string | undefined> = type.resolveType
      ? type.resolveType(value, this.given.contextValue, info, type)
      : this.findType(type, value, info);
    return isPromise(name) ? name.then(go) : go(name);
  }

  /** Of the types that a value may be of, the first that takes it, or the one that it names. */
  private findType(
    type: GraphQLAbstractType,
    value: unknown,
    info: GraphQLResolveInfo,
  ): MaybePromise<string | undefined> {
    const { __typename: named } = value as { __typename?: unknown };
    if (typeof named === 'string') return named;
    const types = this.schema.getPossibleTypes(type);
    const answers = types.map((each) => each.isTypeOf?.(value, this.given.contextValue, info) ?? false);
    const first = (all: readonly boolean[]) => types.find((_, at) => all[at])?.name;
    return answers.some((answer) => typeof answer !== 'boolean')
      ? Promise.all(answers).then(first)
      : first(answers as boolean[]);
  }
}

function propertyOf(source: unknown, { property }: FieldPlan): unknown {
  return (source as Fields)[property as string];
}

/** In the order of the plan. A name like `__proto__` is one like any other. */
function createResult(fields: readonly FieldPlan[]): Fields {
  return fields.some(({ key }) => key === '__proto__') ? Object.create(null) : {};
}

function put<Key extends string | number>(into: Record<Key, unknown>, key: Key, value: unknown): void {
  into[key] = value;
}

/** What was begun beside it is waited for, so that what it fails with is heard by somebody. */
async function failAfter(pending: readonly Promise<unknown>[], error: unknown): Promise<never> {
  await Promise.allSettled(pending);
  throw error;
}

function serialize(type: GraphQLLeafType, value: unknown): unknown {
  const serialized = type.serialize(value);
  if (serialized !== null && serialized !== undefined) return serialized;
  throw new Error(`Expected \`${type.name}.serialize(${describe(value)})\` to return non-nullable value.`);
}

function describe(value: unknown): string {
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}

function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
