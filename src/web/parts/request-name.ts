/** Names a request for users. */
import { countMissing, type RequestedFiles } from '../../core/text/requested-files.js';
import { formatNumber } from '../format';

interface NamedRequest extends Pick<RequestedFiles, 'filesTotal' | 'filesUnknown' | 'filesRefused'> {
  label: string;
  pattern: string | null;
}

/**
 * Returns the label of a request. The gateway's default label of a list is its first path, which does not tell that the
 * request has more files, so the name is then such as `sst_202301.nc and 23 more`.
 */
export function nameRequest({ label, pattern, ...files }: NamedRequest): string {
  const more = files.filesTotal + countMissing(files) - 1;
  if (pattern === null && label.startsWith('/') && more > 0)
    return `${label.slice(label.lastIndexOf('/') + 1)} and ${formatNumber(more)} more`;
  return label || pattern || 'A list of files';
}
