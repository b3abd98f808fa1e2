#!/usr/bin/env python3
"""StorageD as a staging library: storaged.py stage|poll|fetch|release -- ...

Untested. Follows how the open source NLA calls sd_get: with a list of names, a host (TAPE_HOST), a directory (TAPE_CACHE) and a log. TAPE_ROOT
is the prefix of each catalogue path. sd_get processes its list in the background. The id of a stage call names its files.
"""
import json
import os
import re
import subprocess
import sys
import uuid

HOST, CACHE, ROOT = os.environ["TAPE_HOST"], os.environ["TAPE_CACHE"], os.environ.get("TAPE_ROOT", "/archive")
SAVED = re.compile(r"Saving (.*) into local file (.*)")
verb, arguments = sys.argv[1], sys.argv[3:]  # argv[2] is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def path_on_disk(path):
    return f"{CACHE}/files{ROOT}{path}"


def report(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


def is_running(pid):
    try:
        os.kill(pid, 0)
        return True
    except (ProcessLookupError, PermissionError):
        return False


if verb == "fetch":
    if not os.path.isfile(path_on_disk(arguments[0])):
        end(107, f"{path_on_disk(arguments[0])} does not exist")
    os.execvp("tail", ["tail", "-c", f"+{int(arguments[1]) + 1}", "--", path_on_disk(arguments[0])])

files = {each["path"]: each["size"] for each in map(json.loads, sys.stdin)}
if verb == "stage":
    call_id = str(uuid.uuid4())
    os.makedirs(f"{CACHE}/files", exist_ok=True)
    with open(f"{CACHE}/{call_id}.list", "w") as names:
        names.write("".join(f"{ROOT}{path}\n" for path in files if "\n" not in path))
    command = ["sd_get", "-v", "-l", f"{CACHE}/{call_id}.log", "-h", HOST, "-r", f"{CACHE}/files", "-f", names.name]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    pid_file = f"{CACHE}/{call_id}.pid"  # exists while sd_get runs
    until_end = ["sh", "-c", 'echo $$ > "$0"; "$@"; rm -f -- "$0"', pid_file, *command]
    subprocess.Popen(until_end, start_new_session=True, **quiet)
    print(json.dumps({"id": call_id}))
elif verb == "release":
    for path in files:
        if os.path.isfile(path_on_disk(path)):
            os.unlink(path_on_disk(path))
else:
    call_id = f"{CACHE}/{os.path.basename(arguments[0])}"
    saved = set()
    if os.path.exists(f"{call_id}.log"):
        with open(f"{call_id}.log") as log:
            saved = {match[1] for match in map(SAVED.search, log) if match}
    try:
        with open(f"{call_id}.pid") as pid:
            running = is_running(int(pid.read()))
    except (OSError, ValueError):
        running = False
    for path, size in files.items():
        if os.path.isfile(path_on_disk(path)) and os.path.getsize(path_on_disk(path)) == size and ROOT + path in saved:
            report(path, "ready")
        elif running:
            report(path, "waiting")
        elif os.path.exists(f"{call_id}.log"):
            report(path, "failed", **{"class": "TRANSIENT"}, message="sd_get ended without this file")
        else:
            report(path, "forgotten")
