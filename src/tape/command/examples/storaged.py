#!/usr/bin/env python3
"""StorageD as a staging library: storaged.py stage|poll|fetch|release -- ...

Untested. From how the open source of NLA calls sd_get: a list of names, a host, a folder for the files and a log. TAPE_HOST and TAPE_CACHE are
these; TAPE_ROOT is put before each path of the catalogue. An sd_get works through its list in the background; its name is the demand's.
"""
import json
import os
import re
import subprocess
import sys
import uuid

HOST, CACHE, ROOT = os.environ["TAPE_HOST"], os.environ["TAPE_CACHE"], os.environ.get("TAPE_ROOT", "/archive")
SAVED = re.compile(r"Saving (.*) into local file (.*)")
verb, arguments = sys.argv[1], sys.argv[3:]  # between them is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def place(path):
    return f"{CACHE}/files{ROOT}{path}"


def say(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


def is_running(pid):
    try:
        os.kill(pid, 0)
        return True
    except (ProcessLookupError, PermissionError):
        return False


if verb == "fetch":
    if not os.path.isfile(place(arguments[0])):
        end(107, f"{place(arguments[0])} is not there")
    os.execvp("tail", ["tail", "-c", f"+{int(arguments[1]) + 1}", "--", place(arguments[0])])

files = {each["path"]: each["size"] for each in map(json.loads, sys.stdin)}
if verb == "stage":
    demand = str(uuid.uuid4())
    os.makedirs(f"{CACHE}/files", exist_ok=True)
    with open(f"{CACHE}/{demand}.list", "w") as names:
        names.write("".join(f"{ROOT}{path}\n" for path in files if "\n" not in path))
    command = ["sd_get", "-v", "-l", f"{CACHE}/{demand}.log", "-h", HOST, "-r", f"{CACHE}/files", "-f", names.name]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    note = f"{CACHE}/{demand}.pid"  # there for as long as it runs
    until_end = ["sh", "-c", 'echo $$ > "$0"; "$@"; rm -f -- "$0"', note, *command]
    subprocess.Popen(until_end, start_new_session=True, **quiet)
    print(json.dumps({"id": demand}))
elif verb == "release":
    for path in files:
        if os.path.isfile(place(path)):
            os.unlink(place(path))
else:
    demand = f"{CACHE}/{os.path.basename(arguments[0])}"
    saved = set()
    if os.path.exists(f"{demand}.log"):
        with open(f"{demand}.log") as log:
            saved = {match[1] for match in map(SAVED.search, log) if match}
    try:
        with open(f"{demand}.pid") as pid:
            running = is_running(int(pid.read()))
    except (OSError, ValueError):
        running = False
    for path, size in files.items():
        if os.path.isfile(place(path)) and os.path.getsize(place(path)) == size and ROOT + path in saved:
            say(path, "ready")
        elif running:
            say(path, "waiting")
        elif os.path.exists(f"{demand}.log"):
            say(path, "failed", **{"class": "TRANSIENT"}, message="sd_get has ended without it")
        else:
            say(path, "forgotten")
