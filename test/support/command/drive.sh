#!/bin/sh
# A tape library of directories, for tests: drive.sh mount|read|unmount -- …
# $TAPES/VOLUME/POSITION is a file; $TAPES/log lists the calls.
verb=$1
shift 2
case $verb in
mount | unmount)
  echo "$verb $1 $2" >> "$TAPES/log"
  [ -d "$TAPES/$1" ] || { echo "there is no volume $1" >&2; exit 102; }
  ;;
read)
  [ -d "$TAPES/$2" ] || { echo "volume $2 is gone" >&2; exit 108; }
  [ -e "$TAPES/$2/$3" ] || { echo "volume $2 has no file at position $3" >&2; exit 101; }
  exec cat "$TAPES/$2/$3"
  ;;
esac
