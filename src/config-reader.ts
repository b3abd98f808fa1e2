/** How a family of settings is read: what `readConfig` gives to the files that have one each. */
export interface ConfigReader {
  /** The variable as it is; undefined where it is unset or empty. */
  text(name: string): string | undefined;
  oneOf(name: string, values: readonly string[], fallback: string): string;
  /** @param parse gives undefined for what is no such value */
  parsed<T>(name: string, parse: (value: string) => T | undefined, expected: string): T | undefined;
  /** Notes that a variable has another value than was expected. */
  fault(name: string, expected: string): void;
  /** Notes a fault in words of its own. */
  refuse(fault: string): void;
}
