#!/bin/sh
# Packs a built checkout: writes tapegate-<version>.tar.gz to the given directory, or to the current one.
set -eu
target=$(cd "${1:-.}" && pwd)
cd "$(dirname "$0")/.."
version=$(node -p 'require("./package.json").version')
name="tapegate-$version"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir -p "$directory/$name/dist" "$directory/$name/prisma"
cp -R dist/program dist/web "$directory/$name/dist"
chmod +x "$directory/$name/dist/program/tapegate.cjs"
cp -R prisma/migrations "$directory/$name/prisma"
cp -R deploy docs clients package.json package-lock.json README.md CHANGELOG.md LICENSE "$directory/$name"
# set all times to the last commit, so that the same checkout always gives the same archive
when=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -C "$directory" -cf - "$name" | gzip -n > "$target/$name.tar.gz"
echo "$target/$name.tar.gz"
