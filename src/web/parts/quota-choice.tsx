/** Lets the user select a quota. */
import { useCaller } from '../sign-in/caller';

interface QuotaChoiceProps {
  value: string;
  onChoose(quota: string): void;
  /** Label of the choice "no quota"; undefined if the user must choose a quota. */
  none?: string;
}

export function QuotaChoice({ value, onChoose, none }: QuotaChoiceProps) {
  const { quotas } = useCaller();
  return (
    <label>
      Quota
      <select value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
        {none !== undefined && <option value="">{none}</option>}
        {quotas.map(({ user }) => (
          <option key={user}>{user}</option>
        ))}
      </select>
    </label>
  );
}
