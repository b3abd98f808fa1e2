/** The colours that the user chose: light, dark, or those of the operating system. Kept for the whole browser. */
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'tapegate.theme';

export function readTheme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

/** Uses the chosen colours. Called before the page is first shown. */
export function applyTheme(): void {
  const theme = readTheme();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function chooseTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
  applyTheme();
}
