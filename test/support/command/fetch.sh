#!/bin/sh
# The bytes of a file that staging.mjs has on disk: fetch.sh -- PATH OFFSET VOLUME POSITION SIZE
# Below $TAPES: fetches has a line for each call, on-fetch is done by the next one first.
printf '%s %s\n' "$3" "$2" >>"$TAPES/fetches"
[ ! -e "$TAPES/on-fetch" ] || { mv "$TAPES/on-fetch" "$TAPES/on-fetch.$$" && . "$TAPES/on-fetch.$$"; }
[ -e "$TAPES/tape$2" ] || { printf 'there is no %s\n' "$2" >&2; exit 101; }
[ -e "$TAPES/disk$2" ] || { printf '%s is on tape\n' "$2" >&2; exit 107; }
exec tail -c "+$(($3 + 1))" "$TAPES/disk$2"
