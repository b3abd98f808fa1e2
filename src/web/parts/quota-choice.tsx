/** Chooses one of the caller's quotas. */
import { useCaller } from '../caller';

interface QuotaChoiceProps {
  value: string;
  onChoose(quota: string): void;
  /** What none of them is called, where that is a choice. */
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
