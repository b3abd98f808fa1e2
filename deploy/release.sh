#!/bin/sh
# Packs a built checkout: writes tapegate-<version>.tgz to the given directory, or to the current one. The archive
# contains the versions of all packages (npm-shrinkwrap.json), and can be installed with npm.
set -eu
target=$(cd "${1:-.}" && pwd)
cd "$(dirname "$0")/.."
trap 'rm -f npm-shrinkwrap.json' EXIT
cp package-lock.json npm-shrinkwrap.json
echo "$target/$(npm pack --silent --ignore-scripts --pack-destination "$target")"
