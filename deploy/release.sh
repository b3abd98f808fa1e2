#!/bin/sh
# Packs what runs, of a checkout that is built: tapegate-<version>.tar.gz in the folder that is named, or here.
set -eu
target=$(cd "${1:-.}" && pwd)
cd "$(dirname "$0")/.."
version=$(node -p 'require("./package.json").version')
name="tapegate-$version"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/$name/dist" "$folder/$name/prisma"
cp -R dist/program dist/web "$folder/$name/dist"
chmod +x "$folder/$name/dist/program/tapegate.cjs"
cp -R prisma/migrations "$folder/$name/prisma"
cp -R deploy docs clients package.json package-lock.json README.md CHANGELOG.md LICENSE "$folder/$name"
# as old as the checkout's last change, so that the same checkout gives the same archive
when=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -C "$folder" -cf - "$name" | gzip -n > "$target/$name.tar.gz"
echo "$target/$name.tar.gz"
