#!/bin/sh
# Prints the bytes of a file that staging.mjs has staged: fetch.sh -- PATH OFFSET VOLUME POSITION SIZE
# Below $TAPES: `fetches` contains a line for each call. The next call runs `on-fetch` first.
printf '%s %s\n' "$3" "$2" >>"$TAPES/fetches"
[ ! -e "$TAPES/on-fetch" ] || { mv "$TAPES/on-fetch" "$TAPES/on-fetch.$$" && . "$TAPES/on-fetch.$$"; }
[ -e "$TAPES/tape$2" ] || { printf 'there is no %s\n' "$2" >&2; exit 101; }
[ -e "$TAPES/disk$2" ] || { printf '%s is on tape\n' "$2" >&2; exit 107; }
exec tail -c "+$(($3 + 1))" "$TAPES/disk$2"
