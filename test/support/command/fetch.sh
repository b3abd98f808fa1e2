#!/bin/sh
# The bytes of a file that staging.mjs has on disk: fetch.sh -- PATH OFFSET VOLUME POSITION SIZE
[ -e "$TAPES/tape$2" ] || { printf 'there is no %s\n' "$2" >&2; exit 101; }
[ -e "$TAPES/disk$2" ] || { printf '%s is on tape\n' "$2" >&2; exit 107; }
exec tail -c "+$(($3 + 1))" "$TAPES/disk$2"
