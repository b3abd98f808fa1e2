/** Loads the views of the site when a viewer or an operator first opens one of them, so that users do not download them. */
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../../parts/button';
import { Skeleton } from '../../parts/skeleton';

type SiteViews = typeof import('./site-view');

let loaded: SiteViews | undefined;

interface LazySiteViewProps {
  /** Name of the view in the address. */
  name: string;
  /** The parts of the address after the name. */
  rest: readonly string[];
}

export function LazySiteView({ name, rest }: LazySiteViewProps) {
  const [views, setViews] = useState(loaded);
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    if (views) return;
    const keep = (module: SiteViews) => {
      loaded = module;
      setViews(module);
    };
    import('./site-view').then(keep, () => setFailed(true));
  }, [views]);
  if (views) return <views.SiteView name={name} rest={rest} />;
  if (!hasFailed) return <Skeleton />;
  return (
    <div class="problem" role="alert">
      <p>This part of the dashboard could not be loaded. The gateway may have been upgraded.</p>
      <Button onClick={() => location.reload()}>Reload the page</Button>
    </div>
  );
}
