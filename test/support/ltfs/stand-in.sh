#!/bin/sh
# Stands in for mtx, ltfs, umount and getfattr: stand-in.sh <program> <arguments of the program>
#
# A changer is a directory:
#   contents           a line for each slot and drive: `slot 1 V1`, `port 8 -`, `drive 0 V1 1` with the source slot of V1
#   changer  sg0 …     the devices
#   cartridges/V1/     the files of a cartridge; V1.blocks has a line with start block and path for each
#   mnt/0 …            mount points
#   mounts             the mounts, in the form of /proc/self/mountinfo
#   behave/load …      changes a step. Line 1: `before`, `after` or `-` (hold the step until this file is gone), and seconds to wait.
#                      Other lines: the step prints them and fails
#   reached/load …     exists while the step waits
#   log                a line for each step that begins and ends
# A mount is a symbolic link at the mount point, or a real mount if the directory contains a file `bind`.

trap '' PIPE # what has been begun is done, also when nobody reads what it says
self=$0
program=$1
shift

fail() {
  printf '%s\n' "$1" >&2
  exit "${2:-1}"
}

# behave <step> <function>: runs a step according to its file
behave() {
  hold=- seconds=0 text=
  if [ -e "$state/behave/$1" ]; then
    { read -r hold seconds; text=$(cat); } <"$state/behave/$1"
  fi
  echo "begin $1" >>"$state/log"
  [ "$hold" != before ] || wait_for_go "$1"
  [ "$seconds" = 0 ] || sleep "$seconds"
  if [ -n "$text" ]; then
    echo "end $1" >>"$state/log"
    fail "$text"
  fi
  "$2"
  [ "$hold" != after ] || wait_for_go "$1"
  echo "end $1" >>"$state/log"
}

wait_for_go() {
  echo $$ >"$state/reached/$1"
  while [ -e "$state/behave/$1" ]; do sleep 0.01; done
  rm -f "$state/reached/$1"
}

# in_drive <number>, in_slot <number>: sets volume (`-` if empty) and source; fails if there is no such element
in_drive() { find_element drive "$1"; }
in_slot() { find_element slot "$1" || find_element port "$1"; }
find_element() {
  while read -r kind number volume source; do
    [ "$kind $number" != "$1 $2" ] || return 0
  done <"$state/contents"
  return 1
}

# move <from> <to> <volume> [<slot>]: arguments such as `drive 0`; the target records the slot
move() {
  while read -r kind number volume source; do
    case "$kind $number" in
    "$1") echo "$1 -" ;;
    "$2") echo "$2 $3 $4" ;;
    *) echo "$kind $number $volume $source" ;;
    esac
  done <"$state/contents" >"$state/contents.new"
  mv "$state/contents.new" "$state/contents"
}

# the process of LTFS that uses a drive
is_held() { [ -e "$state/ltfs-$1.pid" ] && read -r pid <"$state/ltfs-$1.pid" && kill -0 "$pid" 2>/dev/null; }

has_mount() {
  while read -r _ _ _ _ at _; do
    [ "$at" != "$1" ] || return 0
  done <"$state/mounts"
  return 1
}

# change_mounts <function>: changes the table of mounts under a lock
change_mounts() {
  set -C
  until { true >"$state/mounts.lock"; } 2>/dev/null; do sleep 0.01; done
  set +C
  "$1"
  rm "$state/mounts.lock"
}

mtx() {
  usage='Usage: mtx [ -f <loader-dev> ] status | load <slot> <drive> | unload <slot> <drive>'
  case "$1 ${2##*/} $3 $#" in
  '-f changer status 3' | '-f changer load 5' | '-f changer unload 5') ;;
  *) fail "$usage" ;;
  esac
  case "$4$5" in *[!0-9]*) fail "$usage" ;; esac
  device=$2 state=${2%/*} slot=$4 drive=$5
  # a real changer rejects or confuses commands while it moves
  set -C
  until { echo $$ >"$state/changer.pid"; } 2>/dev/null; do
    ! { read -r pid <"$state/changer.pid" && kill -0 "$pid"; } 2>/dev/null ||
      fail "mtx: Device or resource busy: $device is used by $pid"
    rm -f "$state/changer.pid"
  done
  set +C
  trap 'rm -f "$state/changer.pid"' EXIT
  behave "$3" "$3_elements"
}

status_elements() {
  drives=0 slots=0 ports=0 lines=
  while read -r kind number volume source; do
    tag=":VolumeTag=$volume"
    case $volume in '?') tag= ;; esac
    case $kind in
    drive)
      drives=$((drives + 1)) from='Unknown Storage Element Loaded'
      [ -z "$source" ] || from="Storage Element $source Loaded"
      ;;
    slot) slots=$((slots + 1)) name=$number ;;
    port) slots=$((slots + 1)) ports=$((ports + 1)) name="$number IMPORT/EXPORT" ;;
    esac
    case $kind$volume in
    drive-) line="Data Transfer Element $number:Empty" ;;
    drive*) line="Data Transfer Element $number:Full ($from)${tag:+:VolumeTag = $volume}" ;;
    *-) line="      Storage Element $name:Empty" ;;
    *) line="      Storage Element $name:Full $tag" ;;
    esac
    lines="$lines$line
"
  done <"$state/contents"
  echo "  Storage Changer $device:$drives Drives, $slots Slots ( $ports Import/Export )"
  printf %s "$lines"
}

load_elements() {
  in_slot "$slot" || fail "Invalid <storage-element-number> argument '$slot' to 'load' command"
  from="$kind $number" loaded=$volume
  in_drive "$drive" || fail "illegal <drive-number> argument '$drive' to 'load' command"
  [ "$volume" = - ] || fail "Drive $drive Full (Storage Element ${source:-0} loaded)"
  printf 'Loading media from Storage Element %s into drive %s...' "$slot" "$drive"
  [ "$loaded" != - ] || fail "Source Element Address $((1000 + slot)) is Empty"
  move "$from" "drive $drive" "$loaded" "$slot"
  echo done
}

unload_elements() {
  in_slot "$slot" || fail "illegal <storage-element-number> argument '$slot' to 'unload' command"
  to="$kind $number" there=$volume
  in_drive "$drive" || fail "illegal <drive-number> argument '$drive' to 'unload' command"
  [ "$volume" != - ] || fail "Data Transfer Element $drive is Empty"
  [ "$there" = - ] || fail "Storage Element $slot is Already Full"
  printf 'Unloading drive %s into Storage Element %s...' "$drive" "$slot"
  if is_held "$drive"; then
    for sense in 'Sense Key = Illegal Request' 'Additional Sense Code = 53' 'Additional Sense Qualifier = 02'; do
      echo "mtx: Request Sense: $sense" >&2
    done
    fail "MOVE MEDIUM from Element Address $((256 + drive)) to $((1000 + slot)) Failed"
  fi
  move "drive $drive" "$to" "$volume"
  echo done
}

# Returns when the cartridge is mounted. A background process keeps all inherited files open until some time after the unmount, as a
# FUSE process does.
ltfs() {
  if [ "$1" = --background ]; then
    state=$2 drive=$3
    while has_mount "$4"; do sleep 0.03; done
    behave end remove_pid
    echo "LTFS of drive $drive has ended" >>"$state/log"
    exit
  fi
  device= options=
  while [ "$1" = -o ]; do
    case $2 in devname=*) device=${2#devname=} ;; esac
    options="$options,$2,"
    shift 2
  done
  [ -n "$device" ] && [ $# = 1 ] || fail 'LTFS14091E Need to specify a device with -o devname and a mount point.'
  case $options in *,ro,*) ;; *) fail 'LTFS00000E The stand-in mounts nothing that could be written.' ;; esac
  state=${device%/*} drive=${device##*/sg} place=$1
  echo 'ltfs LTFS14000I LTFS starting, LTFS version 2.4.5.0, log level 2.' >&2
  behave mount mount_cartridge
}

remove_pid() { rm -f "$state/ltfs-$drive.pid"; }

mount_cartridge() {
  in_drive "$drive" || fail "LTFS30209E Cannot open device $device: No such file or directory."
  ! is_held "$drive" || fail "LTFS12113E Cannot open device: $device is reserved (Device or resource busy)."
  [ "$volume" != - ] || fail 'LTFS11298E Cannot load the medium: no medium present.'
  folder=$state/cartridges/$volume
  [ -e "$folder.blocks" ] || fail 'LTFS11170E Failed to read label (-1012) from partition 1.
LTFS11009E Cannot read volume: failed to read partition labels.
LTFS14013E Cannot mount the volume.'
  [ -d "$place" ] || fail "fuse: bad mount point \`$place': No such file or directory"
  ! has_mount "$place" || fail 'fuse: mountpoint is not empty'
  rmdir "$place" || fail 'fuse: mountpoint is not empty'
  ln -s "$folder" "$place"
  change_mounts add_mount
  setsid sh "$self" ltfs --background "$state" "$drive" "$place" </dev/null >/dev/null 2>&1 &
  echo $! >"$state/ltfs-$drive.pid"
}

add_mount() {
  echo "$((100 + $$)) 29 0:52 / $place ro,nosuid,nodev,relatime shared:1 - fuse ltfs:$device ro" >>"$state/mounts"
}

# Returns while the LTFS process still runs.
umount_() {
  place=$1 state=${1%/mnt/*}
  case "$# $1" in '1 /'*) ;; *) fail 'umount: bad usage' ;; esac
  behave unmount unmount_cartridge
}

unmount_cartridge() {
  has_mount "$place" || fail "umount: $place: not mounted." 32
  # show only the process that unmounts
  folder=$(readlink "$place")
  users=$(find "/proc/$PPID/fd" \( -lname "$folder" -o -lname "$folder/*" \) -print -quit 2>/dev/null)
  [ -z "$users" ] || fail "umount: $place: target is busy." 32
  rm "$place" && mkdir "$place"
  change_mounts remove_mount
}

remove_mount() {
  while read -r id parent device root at rest; do
    [ "$at" = "$place" ] || echo "$id $parent $device $root $at $rest"
  done <"$state/mounts" >"$state/mounts.new"
  mv "$state/mounts.new" "$state/mounts"
}

getfattr() {
  [ "$# $1 $2 $3" = '5 --absolute-names --only-values -n' ] ||
    fail 'Usage: getfattr [-hRLP] [-n name|-d] [-e en] [-m pattern] path...' 2
  name=$4 file=$5 state=${5%%/mnt/*}
  [ -e "$file" ] || fail "getfattr: $file: No such file or directory"
  below=${file#"$state"/mnt/}
  [ "$below" != "$file" ] || fail "getfattr: $file: Operation not supported"
  drive=${below%%/*} below=${below#*/}
  behave startBlock print_block
}

print_block() {
  in_drive "$drive"
  found=
  while read -r block path; do
    [ "$path" != "$below" ] || found=$block
  done <"$state/cartridges/$volume.blocks"
  [ "$name" = user.ltfs.startblock ] && [ -n "$found" ] && [ -s "$file" ] || fail "$file: $name: No such attribute"
  printf %s "$found"
}

case $program in
mtx | ltfs | getfattr) "$program" "$@" ;;
umount) umount_ "$@" ;;
*) fail "there is no stand-in for $program" 2 ;;
esac
